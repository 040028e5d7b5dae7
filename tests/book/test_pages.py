"""The executed-pages gate, the table of contents made of what passes it, and the launch links."""

import importlib.util

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from scaled_idempotence.checkpoints.bundled import DEFAULT_MODEL
from scaled_idempotence.publish.batch import ALL_MODELS
from scaled_idempotence.publish.notebooks import scope_of
from scaled_idempotence.publish.pages import check_pages, page_faults


def load(root, name):
    spec = importlib.util.spec_from_file_location(name, root / f"book/_ext/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def good_page():
    out = new_output("stream", text="0.95\n")
    return new_notebook(
        cells=[
            new_markdown_cell("# Title"),
            new_code_cell("x = 1", execution_count=1),
            new_code_cell("print(x)", execution_count=2, outputs=[out]),
            new_code_cell(""),
        ]
    )


def failed_page():
    page = good_page()
    page.cells[2].outputs = [new_output("error", ename="ValueError", evalue="no", traceback=[])]
    return page


def half_page():
    page = good_page()
    page.cells[1].execution_count = None
    return page


def silent_page():
    page = good_page()
    page.cells[2].outputs = []
    return page


def test_a_good_page_passes():
    assert page_faults(good_page()) == []


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (failed_page(), "cell 2 failed with ValueError: no"),
        (half_page(), "cell 1 did not run: x = 1"),
        (silent_page(), "no cell has an output"),
    ],
)
def test_the_gate_fails_when_a_page_is_broken(page, message):
    assert message in page_faults(page)


def put(root, model, page, name="01_closure_survey"):
    path = root / "executed" / model / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(page, path)
    return path


def test_source_notebooks_do_not_pass_as_pages(root, broken_copy):
    source = nbformat.read(root / "notebooks/01_closure_survey.ipynb", as_version=4)
    path = put(broken_copy, "smollm2-135m", source)
    assert check_pages(broken_copy / "executed")[path]


def put_default(root):
    """Good pages for everything that the committed table names."""
    toc = yaml.safe_load((root / "_toc.yml").read_text())
    for part in toc["parts"]:
        for chapter in part["chapters"]:
            if chapter["file"].startswith("executed/"):
                _, model, name = chapter["file"].split("/")
                put(root, model, good_page(), name)


def test_every_model_with_pages_becomes_a_part(root, broken_copy):
    assemble = load(root, "assemble").assemble
    put_default(broken_copy)
    put(broken_copy, "my-model", good_page())
    put(broken_copy, "my-model", good_page(), "02_other")
    toc, faults = assemble(broken_copy)
    assert faults == []
    part = next(part for part in toc["parts"] if part["caption"] == "my-model")
    assert [chapter["file"] for chapter in part["chapters"]] == [
        "executed/my-model/01_closure_survey",
        "executed/my-model/02_other",
    ]
    assert toc["parts"][-1]["caption"] == "Appendix"


def test_a_failed_or_missing_page_stops_the_book(root, broken_copy):
    assemble = load(root, "assemble").assemble
    _, faults = assemble(broken_copy)
    assert any("there is no executed copy" in fault for fault in faults)
    put_default(broken_copy)
    put(broken_copy, "my-model", failed_page())
    _, faults = assemble(broken_copy)
    assert faults == ["executed/my-model/01_closure_survey: cell 2 failed with ValueError: no"]


def test_the_committed_table_names_every_notebook_for_the_default_model(root):
    toc = yaml.safe_load((root / "_toc.yml").read_text())
    files = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    wanted = {
        f"executed/{ALL_MODELS if scope_of(path).once else DEFAULT_MODEL}/{path.stem}"
        for path in (root / "notebooks").glob("*.ipynb")
    }
    named = [file for file in files if file.startswith("executed/")]
    assert set(named) == wanted
    assert len(named) == len(wanted)


def test_launch_buttons_open_the_source(root):
    rewrite = load(root, "launch_source")._rewrite
    before = "https://colab.example/github/a/b/blob/main/executed/smollm2-135m/01_x.ipynb"
    download = "../../_sources/executed/smollm2-135m/01_x.ipynb"
    context = {"header_buttons": [{"buttons": [{"url": before}]}, {"url": download}]}
    rewrite(None, "executed/smollm2-135m/01_x", None, context, None)
    urls = [context["header_buttons"][0]["buttons"][0]["url"], context["header_buttons"][1]["url"]]
    assert urls == ["https://colab.example/github/a/b/blob/main/notebooks/01_x.ipynb", download]
