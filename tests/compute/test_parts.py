"""Interrupted runs go on where they stopped, and never from somebody else's layers."""

import pandas as pd
import pytest

import scaled_idempotence as si
from scaled_idempotence.compute import parts as module
from scaled_idempotence.experiments import survey as experiment

MODEL = "minilm-l6"


def run(tmp_path, monkeypatch, stop_at=None, **parameters):
    """Count the layers that are computed; stop with an interrupt before one of them."""
    computed = []

    def score(layer, **_):
        if layer.index == stop_at:
            raise KeyboardInterrupt
        computed.append(layer.index)
        return experiment.survey_layer(layer)

    model = si.open_model(MODEL)
    options = {"results_dir": tmp_path, "progress": False, "parameters": parameters}
    try:
        table = module.layerwise(model, "survey", score, **options)
    except KeyboardInterrupt:
        table = None
    return table, computed


def test_an_interrupted_run_goes_on_and_gives_the_same_bits(tmp_path, monkeypatch):
    whole, _ = run(tmp_path / "whole", monkeypatch)
    table, computed = run(tmp_path / "cut", monkeypatch, stop_at=4)
    assert table is None
    assert computed == [0, 1, 2, 3]
    assert not (tmp_path / "cut" / MODEL / "survey.parquet").exists()
    table, computed = run(tmp_path / "cut", monkeypatch)
    assert computed == [4, 5]
    pd.testing.assert_frame_equal(table, whole, check_exact=True)
    again = si.load_result(tmp_path / "cut", MODEL, "survey")
    pd.testing.assert_frame_equal(again, whole, check_exact=True)
    left = {p.name for p in (tmp_path / "cut" / MODEL).iterdir()}
    assert left == {"survey.parquet", ".lock"}


def test_layers_of_other_parameters_or_code_are_not_taken(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch, stop_at=4, draws=2)
    _, computed = run(tmp_path, monkeypatch, stop_at=4, draws=3)
    assert computed == [0, 1, 2, 3]
    monkeypatch.setattr(module, "code_id", lambda: "other code")
    _, computed = run(tmp_path, monkeypatch, stop_at=4, draws=2)
    assert computed == [0, 1, 2, 3]


@pytest.mark.parametrize("content", [b"", b"PAR1 half a file"])
def test_a_damaged_layer_is_computed_again(tmp_path, monkeypatch, content):
    whole, _ = run(tmp_path / "whole", monkeypatch)
    run(tmp_path, monkeypatch, stop_at=4)
    (part,) = (tmp_path / MODEL).glob(".survey-*")
    (part / "0002-survey.parquet").write_bytes(content)
    table, computed = run(tmp_path, monkeypatch)
    assert computed == [2, 4, 5]
    pd.testing.assert_frame_equal(table, whole, check_exact=True)
