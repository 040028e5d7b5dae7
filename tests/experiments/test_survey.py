import numpy as np
import pandas as pd
import pytest
import torch

import scaled_idempotence as si
from scaled_idempotence import files
from scaled_idempotence.checkpoints.model import LayerFactors
from scaled_idempotence.compute import results
from scaled_idempotence.errors import ScaledIdempotenceError
from scaled_idempotence.experiments import survey as experiment
from tests.operators import dense, dense_alpha, dense_closure, dense_gain

# Measured for this project with an independent program: quantiles at 0, 10, 50, 90 and 100%,
# strong heads, wrong-V median and maximum.
PUBLISHED = {
    "smollm2-135m": (270, (2.9e-5, 0.0118, 0.2652, 0.8105, 0.9533), 13, (3.9e-4, 0.023)),
    "gemma-3-270m": (72, (1.5e-4, 0.0116, 0.1729, 0.6024, 0.8234), 0, None),
    "minilm-l6": (72, (4.2e-5, 0.0067, 0.2466, 0.6765, 0.8998), 0, (1.2e-3, 0.011)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_bundled_models_give_the_published_figures(surveys, name):
    n_heads, quantiles, strong, wrong_v = PUBLISHED[name]
    figures = experiment.summary(surveys(name))
    assert figures.heads == n_heads
    assert figures.strong == strong
    got = figures[["min", "q10", "median", "q90", "max"]].to_numpy(dtype=float)
    assert got[0] == pytest.approx(quantiles[0], rel=0.02)
    assert got[1:] == pytest.approx(quantiles[1:], abs=5.1e-5)
    if wrong_v is None:
        assert np.isnan(figures.wrong_v_median)
    else:
        assert figures.wrong_v_median == pytest.approx(wrong_v[0], rel=0.05)
        assert figures.wrong_v_max == pytest.approx(wrong_v[1], abs=6e-4)


def test_strong_heads_of_the_default_model_are_negative_as_published(surveys):
    assert experiment.summary(surveys("smollm2-135m")).negative_alpha == pytest.approx(7 / 13)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_head_of_whole_layers_agrees_with_dense_matrices(surveys, name):
    heads = surveys(name)
    model = si.open_model(name)
    for index in (0, model.n_layers // 2, model.n_layers - 1):
        layer = model[index]
        rows = heads[heads.layer == index]
        T = dense(layer.O, layer.V[layer.value_head])
        assert rows.closure.to_numpy() == pytest.approx(dense_closure(T).numpy(), abs=1e-10)
        assert rows.alpha.to_numpy() == pytest.approx(dense_alpha(T).numpy(), rel=1e-9)
        assert rows.return_gain.to_numpy() == pytest.approx(dense_gain(T).numpy(), rel=1e-10)
        if model.n_value_heads > 1:
            next_group = (layer.value_head + 1) % model.n_value_heads
            wrong = dense_closure(dense(layer.O, layer.V[next_group]))
            assert rows.wrong_v_closure.to_numpy() == pytest.approx(wrong.numpy(), abs=1e-10)


def test_an_exact_sign_follows_the_copying_score(surveys):
    strong = surveys("smollm2-135m").query("closure >= 0.9")
    assert (np.sign(strong.alpha) == np.sign(strong.copying_score)).all()


def test_mqa_has_no_control(surveys):
    heads = surveys("gemma-3-270m")
    assert heads.wrong_v_closure.isna().all()
    assert (heads.permutation_p == 1).all()
    assert heads.layer_permutation_p.isna().all()
    assert experiment.sweep(heads).wrong_v.isna().all()


def damaged_layer():
    generator = torch.Generator().manual_seed(0)
    O = torch.randn(4, 16, 3, generator=generator, dtype=torch.float64)
    V = torch.randn(2, 16, 3, generator=generator, dtype=torch.float64)
    O[0] = 0
    O[3, 2, 1] = torch.nan
    return LayerFactors(5, O, V, torch.tensor([0, 0, 1, 1]))


def test_damaged_heads_are_nan_with_a_reason():
    table = experiment.survey_layer(damaged_layer())
    assert table.reason.tolist() == ["T is zero to rounding", "", "", "weights are not finite"]
    scores = ["closure", "alpha", "return_gain", "copying_score", "effective_rank", "trained_rank"]
    assert table.loc[[0, 3], scores].isna().all(axis=None)
    assert table.loc[[1, 2], scores].notna().all(axis=None)
    figures = experiment.summary(table)
    assert (figures.heads, figures.undefined) == (4, 2)


def test_sweep_counts_what_is_at_or_above():
    heads = pd.DataFrame(
        {
            "closure": [0.95, 0.9, 0.8, np.nan],
            "alpha": [-1.0, 1.0, 1.0, np.nan],
            "wrong_v_closure": [0.1, 0.92, np.nan, np.nan],
        }
    )
    table = experiment.sweep(heads, (0.75, 0.9, 0.99)).set_index("threshold")
    assert table.heads.tolist() == [3, 2, 0]
    assert table.share.tolist() == pytest.approx([1, 2 / 3, 0])
    assert table.negative_alpha[0.9] == 0.5
    assert table.wrong_v.tolist() == [1, 1, 0]


def test_results_round_trip_with_their_identity(tmp_path):
    model = si.open_model("minilm-l6")
    heads = si.survey(model, results_dir=tmp_path, progress=False)
    again = si.load_result(tmp_path, "minilm-l6", "survey")
    pd.testing.assert_frame_equal(again, heads)
    assert again.attrs["weights"].startswith("sha256:53aa51172d14")
    assert again.attrs["topology"] == "MHA"
    shown = [path.name for path in (tmp_path / "minilm-l6").glob("[!.]*")]
    assert shown == ["survey.parquet"]


def test_folded_results_do_not_overwrite_raw_ones(tmp_path):
    for norm in ("raw", "folded"):
        si.survey(si.open_model("minilm-l6", norm=norm), results_dir=tmp_path, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["minilm-l6", "minilm-l6-folded"]


def test_a_missing_result_says_what_computes_it(tmp_path):
    with pytest.raises(ScaledIdempotenceError, match="scaled-idempotence run minilm-l6"):
        si.load_result(tmp_path, "minilm-l6", "survey")


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        assert len(list(tmp_path.iterdir())) == 1  # the unfinished file
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        results.write_table(pd.DataFrame({"a": [1]}), tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ScaledIdempotenceError, match=r"expected \.parquet or \.csv"):
        results.write_table(pd.DataFrame({"a": [1]}), tmp_path / "x.xlsx")
