"""The command as a person meets it: in a process of its own."""

import subprocess
import sys

import pandas as pd
import pytest


def command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "scaled_idempotence.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        **options,
    )


def test_survey_prints_and_writes(tmp_path, surveys):
    out, figure = tmp_path / "x.csv", tmp_path / "map.png"
    result = command("survey", "minilm-l6", "--out", out, "--figure", figure, "--top", 2)
    assert result.returncode == 0, result.stderr
    assert "P >= 0.9: 0 heads (0.00%)" in result.stdout
    assert "layer/s" in result.stderr
    pd.testing.assert_series_equal(pd.read_csv(out).closure, surveys("minilm-l6").closure)
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_inspect_and_models():
    result = command("inspect", "gemma-3-270m", "--norm", "folded")
    assert result.returncode == 0, result.stderr
    for said in ("MQA", "blk.{layer}.post_attention_norm.weight", "Gemma Terms", "3.8%"):
        assert said in result.stdout
    result = command("models")
    assert all(name in result.stdout for name in ("smollm2-135m", "gemma-3-270m", "minilm-l6"))


def test_fetch_shows_the_licence():
    result = command("fetch", "minilm-l6")
    assert "licence of the weights: Apache-2.0" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["survey", "smolm2"], "Did you mean smollm2-135m"),
        (["survey", "minilm-l6", "--out", "x.xlsx"], "expected .parquet or .csv"),
        (["fetch", "gpt5"], "no bundled model 'gpt5'"),
        (["run", "minilm-l6", "-p", "treshold=0.8"], "Did you mean threshold?"),
        (["run", "minilm-l6", "-p", "threshold"], "expected NAME=VALUE"),
        (["run", "minilm-l6", "-n", "nothing"], "fits no notebook"),
    ],
)
def test_errors_are_one_message_and_no_traceback(arguments, message, tmp_path):
    result = command(*arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []
