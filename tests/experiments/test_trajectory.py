"""Trajectories of lineages made for it, whose heads are known at every step."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import scaled_idempotence as si
from scaled_idempotence.errors import CheckpointError, ScaledIdempotenceError
from scaled_idempotence.experiments import trajectory as t
from scaled_idempotence.lineages.series import Left
from tests.checkpoints import tiny

SHAPES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 12,
}


def lineage(folder, seed, closes=(0, 3)):
    """Five checkpoints on the way from random factors to V^T O = I in the first head of layers."""
    torch.manual_seed(seed)
    model = tiny.make("llama", **SHAPES)
    layers = model.layers
    torch.manual_seed(seed)
    start = [torch.randn(2, 48, 48) for _ in layers]
    sources = {}
    for step, share in ((0, 0.0), (1, 0.25), (2, 0.5), (4, 0.75), (8, 1.0)):
        with torch.no_grad():
            for layer, (V, O) in zip(layers, start, strict=True):
                # O = V is symmetric of rank r: T = V V^T with a nearly flat spectrum.
                target = torch.linalg.qr(V[:12].T)[0]
                v, o = V.clone(), O.clone()
                v[:12] = target.T * 3
                o[:, :12] = (1 - share) * O[:, :12] + share * target * 3
                layer.self_attn.v_proj.weight.copy_(v)
                layer.self_attn.o_proj.weight.copy_(o)
        model.save_pretrained(folder / f"{seed}-{step}")
        sources[step] = folder / f"{seed}-{step}"
    return sources


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lineages")
    return {seed: lineage(folder, seed) for seed in (1, 2)}


@pytest.fixture(scope="module")
def result(sources):
    named = [
        si.Lineage(f"run {seed}", tuple(si.Checkpoint(s, f) for s, f in made.items()))
        for seed, made in sources.items()
    ]
    return si.trajectory(named, every_head=True, max_steps=20, progress=False)


def test_closures_are_the_surveys_at_every_step(sources, result):
    for step, folder in sources[1].items():
        survey = si.survey(si.open_model(folder), progress=False)
        part = result.heads[(result.heads.lineage == "run 1") & (result.heads.step == step)]
        np.testing.assert_allclose(part.closure, survey.closure, rtol=1e-12)
        np.testing.assert_allclose(part.effective_rank, survey.effective_rank, rtol=1e-9)
    heads = result.heads
    np.testing.assert_allclose(heads.null_ratio, heads.closure / heads.null)
    expected = (heads.closure - heads.scramble) / (heads.capacity - heads.scramble)
    np.testing.assert_allclose(heads.attainment, expected, rtol=1e-8)


def test_groups_are_fixed_at_the_end_and_matched_by_layer(result):
    heads = result.heads
    assert heads[heads.final].step.unique().tolist() == [8]
    groups = heads.groupby(["lineage", "layer", "head"]).group.unique()
    assert (groups.str.len() == 1).all()
    strong = heads[heads.final & (heads.group == "strong")]
    assert (strong["head"] == 0).all()
    assert len(strong) == 6
    assert strong.closure.min() > 0.99
    matched = heads[heads.final & (heads.group == "matched")]
    assert matched.groupby(["lineage", "layer"]).size().tolist() == [1] * 6


def test_gaps_grow_from_nothing_to_what_was_planted(result):
    gaps = result.gaps.set_index(["lineage", "step", "quantity"]).sort_index()
    pooled = gaps.loc["all"]
    assert pooled.index.get_level_values("step").unique().tolist() == [0, 1, 2, 4, 8]
    assert abs(pooled.gap[0, "closure"]) < 0.1
    final = pooled.loc[8, "closure"]
    assert final.final
    assert final.low > 0.8
    assert final.low <= final.gap <= final.high
    assert pooled.gap[8, "attainment"] > 0.5
    closing = pooled.xs("closure", level="quantity").gap
    assert closing.is_monotonic_increasing
    one = result.heads[(result.heads.lineage == "run 1") & (result.heads.step == 4)]
    medians = one.groupby("group").closure.median()
    expected = medians["strong"] - medians["matched"]
    assert gaps.gap["run 1", 4, "closure"] == pytest.approx(expected)


def test_a_top_share_takes_the_place_of_the_threshold(sources):
    found = si.trajectory(sources[1], top=0.5, max_steps=5, progress=False)
    final = found.heads[found.heads.final]
    strong = final[final.group == "strong"]
    assert len(strong) == len(final) // 2
    assert strong.closure.min() > final.closure[final.group != "strong"].max()
    # Without every_head, the other heads have no capacity.
    assert final.capacity.notna().equals(final.group != "other")
    with pytest.raises(ValueError, match="between 0 and 1"):
        si.trajectory(sources[1], top=1.5, progress=False)


def test_no_strong_heads_is_no_error(sources):
    found = si.trajectory(sources[1], threshold=1.1, progress=False)
    assert (found.heads.group == "other").all()
    assert found.heads.capacity.isna().all()
    assert len(found.gaps) == 0


def test_steps_can_be_chosen(sources):
    assert sorted(
        si.trajectory(sources[1], [8, 0], threshold=1.1, progress=False).heads.step.unique()
    ) == [0, 8]
    found = si.trajectory(sources[1], 3, threshold=1.1, progress=False)
    assert len(found.checkpoints) == 3
    with pytest.raises(CheckpointError, match="no step 3; it has 0, 1, 2, 4, 8"):
        si.trajectory(sources[1], [3], progress=False)
    with pytest.raises(ScaledIdempotenceError, match="each needs a name of its own"):
        si.trajectory([sources[1], sources[2]], progress=False)


def test_repeats_among_ones_own_checkpoints_are_left_out(sources):
    own = sources[1] | {3: sources[1][8], 16: sources[2][8]}
    found = si.trajectory(own, threshold=1.1, progress=False)
    status = found.checkpoints.set_index("step").status
    assert status[3].startswith("impossible repeat of ")
    assert status[8].startswith("impossible repeat of ")
    assert status[[0, 1, 2, 4, 16]].tolist() == ["used"] * 5
    assert found.checkpoints.content[3] == found.checkpoints.content[5]


def test_a_resumed_run_gives_the_same_tables(sources, tmp_path, monkeypatch):
    options = {"max_steps": 5, "progress": False}
    whole = si.trajectory(sources[1], **options)
    score, calls = t.trajectory_part, []

    def interrupted(layer, **given):
        calls.append(layer.index)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return score(layer, **given)

    monkeypatch.setattr(t, "EXPERIMENT", replace(t.EXPERIMENT, part=interrupted))
    with pytest.raises(KeyboardInterrupt):
        si.trajectory(sources[1], results_dir=tmp_path, **options)
    resumed = si.trajectory(sources[1], results_dir=tmp_path, **options)
    assert len(calls) == 7 + 9
    for name in ("heads", "checkpoints", "gaps"):
        pd.testing.assert_frame_equal(getattr(resumed, name), getattr(whole, name))
    written = si.load_result(tmp_path, "all-models", "trajectory")
    pd.testing.assert_frame_equal(written, whole.heads)
    assert written.attrs["lineages"] == ["own"]


def test_a_finished_trajectory_is_read_unless_its_audit_would_say_something_else(
    sources, tmp_path, monkeypatch
):
    options = {"max_steps": 5, "progress": False, "results_dir": tmp_path}
    lineage = t.find_lineage(sources[1])
    made = si.trajectory(lineage, **options)
    plan, plans = t._plan, []

    def planned(*arguments):
        plans.append(arguments)
        return plan(*arguments)

    monkeypatch.setattr(t, "_plan", planned)
    read = si.trajectory(lineage, **options)
    assert plans == []
    for name in ("heads", "checkpoints", "gaps"):
        pd.testing.assert_frame_equal(getattr(read, name), getattr(made, name), check_exact=True)
    gone = t.Checkpoint(999, "elsewhere")
    audited = si.trajectory(replace(lineage, left_out=(Left(gone, "duplicate of 1"),)), **options)
    assert len(plans) == 1
    assert audited.checkpoints.status.tolist()[-1] == "duplicate of 1"


def ratios(rng, n, shifts):
    rows = [
        ("x", step, value)
        for step, shift in enumerate(shifts)
        for value in rng.chisquare(1, n) * shift
    ]
    return pd.DataFrame(rows, columns=["lineage", "step", "null_ratio"])


def test_the_bound_of_a_random_median_is_exceeded_as_often_as_it_says():
    rng = np.random.default_rng(0)
    for n in (15, 16):
        bound = t.departures(ratios(rng, n, [1.0]), level=0.05).bound[0]
        # The upper of two middle values is the bound's, so that an even number errs on one side.
        above = np.sort(rng.chisquare(1, (20_000, n)))[:, n // 2] > bound
        assert above.mean() == pytest.approx(0.05, abs=0.006)
    assert t.departures(ratios(rng, 50, [1, 1, 30, 1, 40, 40])).left[0] == 4
    assert np.isnan(t.departures(ratios(rng, 50, [1, 30, 1])).left[0])
    assert t.departures(ratios(rng, 50, [30, 30])).left[0] == 0
    start = t.departures(ratios(rng, 4000, [1.0])).start[0]
    assert start == pytest.approx(stats.chi2.median(1), abs=0.05)
