"""The chapters that run a model, where it cannot run: they say so, and are sound pages."""

import nbformat

from scaled_idempotence.publish.batch import run
from scaled_idempotence.publish.pages import check_pages


def said(path):
    notebook = nbformat.read(path, as_version=4)
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    return "\n".join(out.data.get("text/markdown", "") for out in outputs if "data" in out)


def test_a_model_above_the_limit_gives_pages_that_say_so(tmp_path):
    outcomes = run(
        ["minilm-l6"],
        notebooks=["07_activations", "08_function"],
        parameters={"max_gigabytes": "0.01"},
        out=tmp_path,
        progress=False,
    )
    assert [outcome.status for outcome in outcomes] == ["executed", "executed"]
    assert not any(check_pages(tmp_path / "executed").values())
    for outcome in outcomes:
        text = said(outcome.path)
        assert "The model was not run here" in text
        assert "more than the limit of 0.01 GB" in text
        assert "nan" not in text.lower()
    assert "nothing is claimed" in said(outcomes[1].path)
