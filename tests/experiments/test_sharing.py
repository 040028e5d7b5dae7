"""Sharing tables: planted layers of every topology, and the bundled models' own figures."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import scaled_idempotence as si
from scaled_idempotence.checkpoints.model import LayerFactors
from scaled_idempotence.compute.results import load_result
from scaled_idempotence.experiments.sharing import (
    Sharing,
    product_tables,
    sharing,
    sharing_layer,
    sharing_sweep,
)
from scaled_idempotence.linalg.algebra import algebra_element, free_part
from scaled_idempotence.linalg.factors import topology, value_head_index


def draw(seed, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def planted_layer(index, G, S, d=48, r=4, noise=0.02, seed=0):
    """Heads near the algebras of their groups, with scales of both signs."""
    V = draw(seed + index, G, d, r)
    value_head = value_head_index(G * S, G)
    own = V[value_head]
    a = torch.where(torch.arange(G * S) % 2 == 0, 1.0, -1.5).double()
    O = algebra_element(a, free_part(0.1 * draw(seed + 50 + index, G * S, d, r), own), own)
    return LayerFactors(index, O + noise * draw(seed + 99 + index, G * S, d, r), V, value_head)


class PlantedModel(SimpleNamespace):
    """What the experiments use of an `OVModel`."""

    def __init__(self, *layers):
        H, d, r = layers[0].O.shape
        G = len(layers[0].V)
        super().__init__(
            layers=layers,
            name="planted",
            label="planted",
            norm="raw",
            topology=topology(H, G),
            architecture="planted",
            weights_id="none",
            n_layers=len(layers),
            n_heads=H,
            n_value_heads=G,
            d_head=r,
            d_model=d,
        )

    def __getitem__(self, index):
        return self.layers[index]

    def __len__(self):
        return len(self.layers)


def planted(G, S, **options):
    return PlantedModel(*(planted_layer(index, G, S, **options) for index in range(2)))


def dense(layer, h):
    return layer.O[h] @ layer.V[layer.value_head[h]].mT


@pytest.fixture(scope="module")
def smollm2():
    return si.sharing(si.open_model("smollm2-135m"), progress=False)


class TestPlanted:
    def test_every_row_against_dense_products(self):
        model = planted(3, 3, noise=0.05)
        pairs = sharing(model, threshold=0.0, progress=False).pairs
        assert len(pairs) == 2 * 9 * 2  # every head is a right head of two siblings
        for row in pairs.itertuples():
            layer = model.layers[row.layer]
            assert row.value_head == layer.value_head[row.left_head]
            assert row.value_head == layer.value_head[row.right_head]
            assert row.left_head != row.right_head
            # Same slot of three, next group of three.
            assert row.control_head == (row.left_head + 3) % 9
            left, right = dense(layer, row.left_head), dense(layer, row.right_head)
            control = dense(layer, row.control_head)
            alpha = (right @ right * right).sum() / right.square().sum()
            own = (right @ right - alpha * right).square().sum().item()
            assert row.right_alpha == pytest.approx(alpha.item())
            for name, T in (("", left), ("control_", control)):
                product = T @ right
                beta = ((product * T).sum() / T.square().sum()).item()
                residual = (product - alpha * T).square().sum().item()
                norm2 = product.square().sum().item()
                assert getattr(row, name + "beta") == pytest.approx(beta)
                assert getattr(row, name + "rho") == pytest.approx(beta / alpha.item())
                assert getattr(row, name + "F") == pytest.approx(1 - residual / norm2)
                for side, other in (("right", T), ("left", right)):
                    cosine2 = (product * other).sum() ** 2 / (norm2 * other.square().sum())
                    got = getattr(row, f"{name}{side}_product_closure")
                    assert got == pytest.approx(cosine2.item())
            residual = (left @ right - alpha * left).square().sum().item()
            assert row.residual == pytest.approx(residual, rel=1e-8)
            assert row.own_residual == pytest.approx(own, rel=1e-8)
            assert row.bound == pytest.approx(row.gamma * own, rel=1e-8)
            assert row.residual <= row.bound * (1 + 1e-9)
            assert row.reason == row.control_reason == ""

    def test_planted_inheritance_is_found_and_its_absence_too(self):
        pairs = sharing(planted(3, 3), progress=False).pairs
        assert pairs.F.min() > 0.9
        assert (pairs.rho - 1).abs().max() < 0.1
        assert pairs.control_rho.abs().max() < 0.5
        assert pairs.control_F.median() < 0
        assert pairs.left_product_closure.median() < 0.9
        # Each head given a V of another group: no head is strong, so nothing is inherited.
        layer = planted_layer(0, 3, 3)
        wrong = LayerFactors(0, layer.O, layer.V.roll(1, 0), layer.value_head)
        result = sharing(PlantedModel(wrong), progress=False)
        assert len(result.pairs) == 0
        assert not result.anchors.strong.any()

    def test_a_weak_left_head_is_kept_and_a_weak_right_head_is_not(self):
        layer = planted_layer(0, 2, 3)
        layer.O[1] = draw(7, *layer.O[1].shape)
        result = sharing_layer(layer)
        assert not result.anchors.strong[1]
        assert 1 not in result.pairs.right_head.to_list()
        assert sorted(result.pairs[result.pairs.left_head == 1].right_head) == [0, 2]
        assert 1 not in [*result.siblings.left_head, *result.siblings.right_head]
        # A weak T_i inherits the gain of T_j as well: the law is the right head's.
        assert result.pairs[result.pairs.left_head == 1].F.min() > 0.8

    def test_strong_siblings(self):
        model = planted(2, 3)
        siblings = sharing(model, progress=False).siblings
        assert len(siblings) == 2 * 2 * 3
        assert (siblings.left_head < siblings.right_head).all()
        for row in siblings.itertuples():
            layer = model.layers[row.layer]
            P, Q = (
                T / ((T @ T * T).sum() / T.square().sum())
                for T in (dense(layer, row.left_head), dense(layer, row.right_head))
            )
            band = (P @ Q - P).square().sum() / P.square().sum()
            reverse = (Q @ P - Q).square().sum() / Q.square().sum()
            cosine2 = (P * Q).sum() ** 2 / (P.square().sum() * Q.square().sum())
            assert row.band_residual == pytest.approx(band.item(), rel=1e-8)
            assert row.band_residual_reverse == pytest.approx(reverse.item(), rel=1e-8)
            assert row.squared_cosine == pytest.approx(cosine2.item())
        assert siblings.kernel_angle_max.max() < 1e-12
        assert siblings.range_angle_min.min() > 1e-3
        assert (siblings.range_angle_min <= siblings.range_angle_median).all()
        assert (siblings.range_angle_median <= siblings.range_angle_max).all()
        assert siblings.range_angle_max.max() <= math.pi / 2

    def test_multi_query_has_no_control(self):
        result = sharing(planted(1, 4), progress=False)
        assert len(result.pairs) == 2 * 4 * 3
        assert result.pairs.F.min() > 0.9
        assert result.pairs.filter(regex="control_(F|beta|rho|.*closure)").isna().all(axis=None)
        assert (result.pairs.control_head == -1).all()
        assert (result.anchors.retrieval_rank == 1).all()
        assert (result.anchors.n_candidates == 1).all()
        assert result.anchors.best_other_cosine.isna().all()
        assert "no control" in result.pairs.attrs["remark"]

    def test_multi_head_has_no_siblings(self):
        result = sharing(planted(5, 1), progress=False)
        assert len(result.pairs) == len(result.siblings) == 0
        assert len(result.anchors) == 10
        assert result.anchors.strong.all()
        assert (result.anchors.retrieval_rank == 1).all()
        assert (result.anchors.best_other_cosine < result.anchors.anchor_cosine).all()
        assert "no siblings" in result.pairs.attrs["remark"]
        table = product_tables(planted_layer(0, 5, 1))
        assert len(table) == 5

    def test_empty_tables_have_the_types_of_full_ones(self):
        full, empty = sharing(planted(3, 3), progress=False), sharing(planted(5, 1), progress=False)
        for name in ("pairs", "siblings"):
            pd.testing.assert_series_equal(getattr(full, name).dtypes, getattr(empty, name).dtypes)

    def test_broken_heads_have_a_reason_and_no_others_suffer(self):
        whole, layer = planted_layer(0, 3, 2), planted_layer(0, 3, 2)
        layer.O[0] = 0.0
        layer.O[3, 0, 0] = torch.nan
        layer.V[2, :, 1] = layer.V[2, :, 0]
        result = sharing_layer(layer)
        reasons = result.anchors.reason
        assert "zero" in reasons[0]
        assert "finite" in reasons[3]
        assert "full column rank" in reasons[4]
        assert "full column rank" in reasons[5]
        broken = result.anchors[reasons != ""]
        assert broken[["anchor_cosine", "oblique_energy", "retrieval_rank"]].isna().all(axis=None)
        sound = sharing_layer(whole).anchors.loc[[1, 2], "anchor_cosine"]
        np.testing.assert_allclose(result.anchors.loc[[1, 2], "anchor_cosine"], sound)
        # Strong right heads 1 and 2 lost their siblings, and say so.
        pairs = result.pairs.set_index("right_head")
        assert "zero" in pairs.loc[1, "reason"]
        assert "finite" in pairs.loc[2, "reason"]
        assert pairs.loc[[1, 2], ["F", "rho", "residual"]].isna().all(axis=None)

    def test_tables_are_written_with_their_provenance(self, tmp_path):
        result = sharing(planted(2, 2), threshold=0.8, results_dir=tmp_path, progress=False)
        assert isinstance(result, Sharing)
        for name in ("pairs", "siblings", "anchors"):
            table = getattr(result, name)
            assert table.attrs["model"] == "planted"
            assert table.attrs["topology"] == "GQA"
            assert table.attrs["threshold"] == 0.8
            again = load_result(tmp_path, "planted", f"sharing_{name}")
            pd.testing.assert_frame_equal(again, table)
            assert again.attrs == table.attrs

    def test_product_tables(self):
        layer = planted_layer(0, 2, 3)
        table = product_tables(layer)
        assert len(table) == 2 * 9
        diagonal = table[table.left_head == table.right_head]
        closure = si.closure(layer.O, layer.V[layer.value_head]).numpy()
        np.testing.assert_allclose(diagonal.right_product_closure, closure, rtol=1e-9)
        np.testing.assert_allclose(diagonal.left_product_closure, closure, rtol=1e-9)
        row = table[(table.left_head == 3) & (table.right_head == 5)].iloc[0]
        left, right = dense(layer, 3), dense(layer, 5)
        product = left @ right
        for side, other in (("right", left), ("left", right)):
            cosine2 = (product * other).sum() ** 2 / (product.square().sum() * other.square().sum())
            assert row[f"{side}_product_closure"] == pytest.approx(cosine2.item())
        square = table[table.value_head == 1].pivot_table(
            index="left_head", columns="right_head", values="right_product_closure"
        )
        assert square.shape == (3, 3)
        assert square.notna().all(axis=None)

    def test_sweep(self):
        result = sharing(planted(3, 3, noise=0.15), threshold=0.3, progress=False)
        sweep = sharing_sweep(result, (0.3, 0.75, 0.9, 1.0)).set_index("threshold")
        assert sweep.strong.is_monotonic_decreasing
        assert sweep.pairs[0.3] == len(result.pairs)
        assert sweep.F[0.3] == result.pairs.F.median()
        assert sweep.pairs[1.0] == 0
        assert np.isnan(sweep.F[1.0])
        assert np.isnan(sweep.retrieved_first[1.0])
        with pytest.raises(ValueError, match=r"sharing\(model, threshold=0\.2\)"):
            sharing_sweep(result, (0.2, 0.9))


class TestSmolLM2:
    def test_gain_inheritance(self, smollm2):
        pairs = smollm2.pairs
        assert len(pairs[["layer", "right_head"]].drop_duplicates()) == 13
        assert len(pairs) == 26
        medians = pairs[["F", "rho", "control_rho"]].median().round(3)
        assert medians.to_dict() == {"F": 0.916, "rho": 0.949, "control_rho": 0.060}
        assert (pairs.reason == "").all()

    def test_the_bound_holds_and_says_something(self, smollm2):
        pairs = smollm2.pairs
        assert (pairs.residual <= pairs.bound).all()
        assert (pairs.residual > 0.1 * pairs.bound).all()

    def test_the_law_is_the_right_actions(self, smollm2):
        pairs = smollm2.pairs
        assert pairs.right_product_closure.median() > 0.9
        assert pairs.left_product_closure.median() < 0.4

    def test_the_trained_value_factor_ranks_first_for_every_strong_head(self, smollm2):
        anchors = smollm2.anchors
        assert len(anchors) == 270
        assert anchors.strong.sum() == 13
        assert (anchors[anchors.strong].retrieval_rank == 1).all()
        assert not (anchors.retrieval_rank == 1).all()
        shares = anchors[["anchor_cosine", "oblique_energy", "remainder_energy"]].sum(axis=1)
        np.testing.assert_allclose(shares, 1.0, atol=1e-12)
        heads = si.survey(si.open_model("smollm2-135m"), progress=False)
        np.testing.assert_allclose(anchors.closure, heads.closure, rtol=1e-12)

    def test_strong_siblings_are_no_duplicates(self, smollm2):
        siblings = smollm2.siblings
        assert len(siblings) == 4
        assert siblings.squared_cosine.max() < 0.9
        assert siblings.band_residual.max() < 0.2
        assert siblings.kernel_angle_max.max() < 1e-12
        assert siblings.range_angle_max.min() > 1.0


@pytest.mark.parametrize(
    ("name", "heads", "remark"),
    [("gemma-3-270m", 72, "no control"), ("minilm-l6", 72, "no siblings")],
)
def test_models_without_strong_heads_give_complete_labelled_answers(name, heads, remark, tmp_path):
    result = si.sharing(si.open_model(name), results_dir=tmp_path, progress=False)
    assert len(result.pairs) == len(result.siblings) == 0
    assert {"F", "rho", "control_rho", "gamma", "bound"} <= set(result.pairs.columns)
    assert len(result.anchors) == heads
    assert not result.anchors.strong.any()
    assert result.anchors.retrieval_rank.notna().all()
    assert (result.anchors.reason == "").all()
    for table in (result.pairs, result.siblings, result.anchors):
        assert table.attrs["model"] == name
        assert remark in table.attrs["remark"]
    assert len(load_result(tmp_path, name, "sharing_pairs")) == 0
    assert sharing_sweep(result, (0.9, 0.95)).strong.to_list() == [0, 0]


def test_gemma_heads_below_the_papers_threshold_share_one_value():
    model = si.open_model("gemma-3-270m")
    parts = [sharing_layer(layer, threshold=0.75) for layer in model]
    pairs = pd.concat([part.pairs for part in parts])
    assert len(pairs) == 15
    assert pairs.control_rho.isna().all()
    assert pairs.F.notna().all()
    assert (pairs.residual <= pairs.bound).all()
