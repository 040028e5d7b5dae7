from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import scaled_idempotence as si
from scaled_idempotence.checkpoints.model import LayerFactors
from scaled_idempotence.experiments import attainment as a
from scaled_idempotence.linalg.closure import closure


@pytest.fixture(scope="module")
def smollm2():
    """Every head, from one search each: the shifted pairing."""
    model = si.open_model("smollm2-135m")
    return si.attainment(model, every_head=True, n_starts=1, progress=False)


def test_smollm2_reaches_what_was_asked_for(smollm2):
    every = smollm2[smollm2["sample"] == "all"]
    assert len(every) == 270
    assert every.capacity.median() >= 0.935
    assert every.capacity.quantile(0.05) >= 0.868
    assert every.groupby("layer").capacity.max().min() >= 0.94
    assert (every.capacity >= every.closure).all()
    assert (every.capacity >= every.shifted_pairing).all()
    assert (every.capacity >= every.sorted_pairing - 1e-9).all()


def test_samples_of_smollm2(smollm2, surveys):
    heads = surveys("smollm2-135m")
    blind = smollm2[smollm2["sample"] == "hash"]
    assert (blind.groupby("layer").size() == 2).all()
    assert blind.layer.nunique() == 30
    assert blind.groupby("layer").capacity.median().min() >= 0.8
    strong = smollm2[smollm2["sample"] == "strong"]
    matched = smollm2[smollm2["sample"] == "matched"]
    assert len(strong) == (heads.closure >= 0.9).sum() == 13
    assert strong.layer.value_counts().to_dict() == matched.layer.value_counts().to_dict()
    assert matched.closure.max() < 0.9


def test_attainment_is_its_definition(smollm2, surveys):
    table = smollm2[smollm2["sample"] == "all"].reset_index(drop=True)
    heads = surveys("smollm2-135m")
    merged = table.merge(heads, on=["layer", "head"], suffixes=("", "_survey"))
    assert merged.closure.to_numpy() == pytest.approx(merged.closure_survey.to_numpy(), abs=1e-12)
    expected = (table.closure - table.scramble) / (table.capacity - table.scramble)
    assert table.attainment.to_numpy() == pytest.approx(expected.to_numpy(), abs=1e-9)
    scrambles = si.orientation(si.open_model("smollm2-135m"), haar_draws=1, progress=False)
    both = table.merge(scrambles, on=["layer", "head"], suffixes=("", "_other"))
    assert both.scramble.to_numpy() == pytest.approx(both.permutation_closure.to_numpy(), rel=1e-9)


def test_the_other_models_stay_above_the_papers_layer_median():
    for name in ("minilm-l6", "gemma-3-270m"):
        model = si.open_model(name)
        layers = [0, model.n_layers - 1] if name == "gemma-3-270m" else range(model.n_layers)
        for index in layers:
            table = a.attainment_layer(model[index], name, 0.9, 1, 40, False)
            assert set(table["sample"]) == {"hash"}
            assert table.capacity.median() >= 0.8


def test_the_blind_sample_is_blind_and_fixed():
    rng = np.random.default_rng(0)
    one, other = (torch.from_numpy(rng.random(12)) for _ in range(2))
    first = a.samples(one, "model", 3, 0.9)["hash"]
    assert first == a.samples(other, "model", 3, 0.9)["hash"]
    assert len(first) == 2
    chosen = {tuple(a.samples(one, "model", layer, 0.9)["hash"]) for layer in range(20)}
    assert len(chosen) > 5


def test_samples_where_ordinary_heads_run_out():
    scores = torch.tensor([0.95, 0.99, 0.3, 0.92, torch.nan])
    chosen = a.samples(scores, "model", 0, 0.9, every_head=True)
    assert chosen["strong"] == [0, 1, 3]
    assert chosen["matched"] == [2]
    assert chosen["all"] == [0, 1, 2, 3]
    assert a.samples(torch.tensor([torch.nan]), "m", 0, 0.9)["hash"] == []


def test_the_construction_can_be_redone():
    model = si.open_model("minilm-l6")
    table = si.attainment(model, progress=False)
    row = table.iloc[5]
    layer = model[int(row.layer)]
    s, cosines, trained, best = a.best_orientation(layer, int(row["head"]), model.name, n_starts=2)
    # Put back into the factors, and scored by the survey's own function.
    coordinates = si.principal_coordinates(
        layer.O[int(row["head"])], layer.V[layer.value_head[int(row["head"])]]
    )
    K = best[0] @ torch.diag(s) @ best[1].mT
    O = coordinates.Q_O @ K
    assert closure(O, coordinates.Q_V).item() == pytest.approx(row.capacity, abs=1e-10)
    for U in best:
        eye = torch.eye(len(s), dtype=torch.float64)
        torch.testing.assert_close(U.mT @ U, eye, rtol=0, atol=1e-10)
    t, path = a.path_closure(s, cosines, trained, best, n_points=5)
    assert t.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert path[0] == pytest.approx(row.closure, abs=1e-9)
    # For even r the end may have one column flipped, of the smallest singular value.
    assert path[-1] == pytest.approx(row.capacity, abs=0.05)


def test_a_repeated_or_resumed_run_gives_the_same_bits(tmp_path, monkeypatch):
    model = si.open_model("minilm-l6")
    whole = si.attainment(model, n_starts=3, progress=False)

    def interrupted(layer, **options):
        if layer.index == 3:
            raise KeyboardInterrupt
        return a.attainment_layer(layer, **options)

    with monkeypatch.context() as patch:
        patch.setattr(a, "EXPERIMENT", replace(a.EXPERIMENT, part=interrupted))
        with pytest.raises(KeyboardInterrupt):
            si.attainment(model, n_starts=3, results_dir=tmp_path, progress=False)
    assert len(list(tmp_path.glob("*/.attainment-*/*.parquet"))) == 3
    resumed = si.attainment(model, n_starts=3, results_dir=tmp_path, progress=False)
    pd.testing.assert_frame_equal(resumed, whole, check_exact=True)


def planted_table(gap, n_layers=40, seed=0):
    """Strong and matched heads whose attainment differs by `gap`, with a layer effect in common."""
    rng = np.random.default_rng(seed)
    rows = []
    for layer in range(n_layers):
        effect = rng.normal(0, 0.3)
        for sample, shift in (("strong", gap), ("matched", 0.0)):
            value = effect + shift + rng.normal(0, 0.1)
            rows.append((layer, sample, value, value, value))
    return pd.DataFrame(rows, columns=["layer", "sample", "closure", "capacity", "attainment"])


def test_gaps_find_what_was_planted():
    gaps = a.attainment_gaps(planted_table(0.5), n_resamples=500)
    assert (gaps.low < 0.5).all()
    assert (gaps.high > 0.5).all()
    none = a.attainment_gaps(planted_table(0.0), n_resamples=500)
    assert ((none.low < 0) & (none.high > 0)).all()


def test_the_interval_covers_as_often_as_it_says():
    """80% intervals of a planted gap, over 60 tables; three binomial standard errors."""
    covered = 0
    for seed in range(60):
        table = planted_table(0.5, n_layers=90, seed=seed)
        row = a.attainment_gaps(table, n_resamples=200, confidence=0.8).loc["attainment"]
        covered += row.low <= 0.5 <= row.high
    assert abs(covered / 60 - 0.8) < 3 * np.sqrt(0.8 * 0.2 / 60)


def test_gaps_without_strong_heads_are_nan():
    table = planted_table(0.5)
    gaps = a.attainment_gaps(table[table["sample"] == "matched"])
    assert gaps[["strong", "gap", "low", "high"]].isna().all(axis=None)


def test_a_layer_without_usable_heads_gives_no_rows():
    nothing = torch.zeros(2, 6, 2, dtype=torch.float64)
    layer = LayerFactors(0, nothing, nothing, torch.arange(2))
    assert len(a.attainment_layer(layer, "x", 0.9, 1, 10, False)) == 0
