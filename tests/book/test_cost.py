"""The page on cost says what the benchmarks wrote, and nothing else."""

import json

import pytest

from tests.book.test_pages import load


@pytest.fixture
def measured(root):
    return json.loads((root / "benchmarks/results.json").read_text())


def test_tables_hold_the_figures_of_the_file(root, measured):
    cost = load(root, "cost")
    shapes = measured["survey"]["shapes"]
    row = next(line for line in cost.ratios(shapes).splitlines() if "Qwen3-235B" in line)
    large = shapes["Qwen3-235B"]
    assert f"| {large['over_dense']:,.0f} x |" in row
    assert f"| {large['share_of_gemm']:.0%} |" in row
    changed = {"Qwen3-235B": large | {"over_dense": 12345}}
    assert "12,345 x" in cost.ratios(changed)
    models = measured["rehearsal"]["models"]
    assert f"{models['Qwen/Qwen3-235B-A22B']['requests']:,}" in cost.rehearsals(models)
    rows = measured["capacity"]["rows"]
    assert f"{rows['default']['ratio']:,.1f}" in cost.capacities(rows)


def test_the_measured_limits_hold(measured):
    large = measured["survey"]["shapes"]["Qwen3-235B"]
    assert (large["d_model"], large["d_head"]) == (4096, 128)
    assert (large["heads"], large["value_heads"]) == (64, 4)
    assert large["over_dense"] >= 300
    assert large["over_factored"] >= 30
    rehearsal = measured["rehearsal"]["models"]["Qwen/Qwen3-235B-A22B"]
    assert rehearsal["heads"] == 6016
    assert rehearsal["share"] <= 0.015
    assert rehearsal["peak"] < 2e9
    assert rehearsal["difference"] < 1e-10
