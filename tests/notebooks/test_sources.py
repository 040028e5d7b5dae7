"""Source notebooks: the pair gate, no outputs in git, one bootstrap cell, declared parameters."""

import ast
import json
import re

import jupytext
import papermill
import pytest

from scaled_idempotence.publish.notebooks import find_notebooks, scope_of
from tests.gates import outputs_in_sources, pair_differences

NOTEBOOKS = find_notebooks()


def code_cell(path, tag):
    (cell,) = [c for c in jupytext.read(path).cells if tag in c.metadata.get("tags", [])]
    return cell.source


def test_pairs_agree(root):
    assert pair_differences(root / "notebooks") == []


def test_no_outputs_in_git(root):
    assert outputs_in_sources(root / "notebooks") == []


def first(folder):
    return sorted(folder.glob("*.ipynb"))[0]


def edit(path, change):
    notebook = json.loads(path.read_text())
    change(notebook)
    path.write_text(json.dumps(notebook))


@pytest.mark.parametrize(
    "change",
    [
        lambda nb: nb["cells"].pop(),
        lambda nb: nb["cells"][2].update(source=["x = 1"]),
        lambda nb: nb["cells"][2]["metadata"].update(tags=["hide-cell"]),
        lambda nb: nb["cells"][0].update(cell_type="raw"),
    ],
    ids=["cell removed", "source changed", "tags changed", "type changed"],
)
def test_the_pair_gate_fails_when_broken(broken_copy, change):
    folder = broken_copy / "notebooks"
    edit(first(folder), change)
    assert len(pair_differences(folder)) == 1


def test_the_pair_gate_notices_a_missing_half(broken_copy):
    folder = broken_copy / "notebooks"
    first(folder).unlink()
    assert "is no pair" in pair_differences(folder)[0]


@pytest.mark.parametrize(
    "cell",
    [
        {"outputs": [{"output_type": "stream", "name": "stdout", "text": "1"}]},
        {"execution_count": 3},
    ],
)
def test_the_output_gate_fails_when_broken(broken_copy, cell):
    folder = broken_copy / "notebooks"
    code = [
        n for n, c in enumerate(json.loads(first(folder).read_text())["cells"]) if "outputs" in c
    ]
    edit(first(folder), lambda nb: nb["cells"][code[1]].update(cell))
    assert outputs_in_sources(folder) == [first(folder).name]


def test_there_are_notebooks():
    assert "01_closure_survey" in [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_declares_what_run_gives(path):
    declared = papermill.inspect_notebook(str(path)).keys()
    assert set(scope_of(path).reserved) <= declared
    # papermill passes over a line that it cannot parse, and the parameter could not be set.
    lines = code_cell(path, "parameters").splitlines()
    assert {line.partition(" = ")[0] for line in lines} == declared


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_bootstrap_cell_is_one_and_first(path):
    assert code_cell(path, "bootstrap") == code_cell(NOTEBOOKS[0], "bootstrap")
    code = [c for c in jupytext.read(path).cells if c.cell_type == "code"]
    assert "bootstrap" in code[0].metadata["tags"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_figure_has_a_caption_and_an_alternative_text(path):
    for cell in jupytext.read(path).cells:
        if (
            cell.cell_type == "code"
            and "si.plots." in cell.source
            and "set_theme" not in cell.source
        ):
            assert cell.metadata["mystnb"]["figure"]["caption"]
            assert cell.metadata["mystnb"]["image"]["alt"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_hold_calls_and_no_mathematics(path):
    """Matrix products and decompositions belong to the package, where they are tested."""
    for cell in jupytext.read(path).cells:
        if cell.cell_type == "code":
            nodes = list(ast.walk(ast.parse(cell.source)))
            assert not any(isinstance(node, ast.MatMult) for node in nodes), cell.source
            assert "linalg" not in [n.attr for n in nodes if isinstance(n, ast.Attribute)]


def run_bootstrap(path, monkeypatch, installed, environment):
    calls = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr("subprocess.run", lambda command, check: calls.append(command))
    monkeypatch.delenv("SCALED_IDEMPOTENCE_SOURCE", raising=False)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    exec(compile(code_cell(path, "bootstrap"), str(path), "exec"), {})
    return calls


def test_the_bootstrap_installs_only_what_is_missing(monkeypatch):
    path = NOTEBOOKS[0]
    assert run_bootstrap(path, monkeypatch, True, {}) == []
    ((*_, source),) = run_bootstrap(path, monkeypatch, False, {})
    assert source.startswith("git+https://")
    wheel = {"SCALED_IDEMPOTENCE_SOURCE": "/tmp/a.whl"}
    ((*_, source),) = run_bootstrap(path, monkeypatch, False, wheel)
    assert source == "/tmp/a.whl"


CHAPTERS = [path for path in NOTEBOOKS if not scope_of(path).once]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_chapter_compares_with_the_paper_and_solves_its_exercises(path):
    text = "\n".join(c.source for c in jupytext.read(path).cells if c.cell_type == "markdown")
    assert "## In the paper, and here" in text
    exercises = text.partition("## Exercises")[2]
    numbers = re.findall(r"^(\d+)\. ", exercises, re.MULTILINE)
    assert numbers == [str(n + 1) for n in range(len(numbers))]
    assert 2 <= len(numbers) == exercises.count(":::{dropdown} Solution")
