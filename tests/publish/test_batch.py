"""papermill over models x notebooks, with notebooks made to go wrong."""

import asyncio

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from scaled_idempotence.errors import CheckpointError, NotebookError
from scaled_idempotence.publish import batch, execution
from scaled_idempotence.publish import notebooks as sources

MODEL = "minilm-l6"
PARAMETERS = (
    'model = "x"\nnorm = "raw"\nrevision = ""\nresults_dir = "results"\n'
    'count = 3\nlevel = 0.5\ntitle = "a"\nflag = True'
)


def notebook(*sources, parameters=PARAMETERS, scope=None):
    cells = [new_markdown_cell("# Page")]
    if parameters:
        cells.append(new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    cells += [new_code_cell(source) for source in sources]
    metadata = {"kernelspec": {"name": "python3", "language": "python", "display_name": "x"}}
    if scope:
        metadata["scaled_idempotence"] = scope
    return new_notebook(cells=cells, metadata=metadata)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of adversarial notebooks in place of the package's own."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    pages = {
        "01_good": notebook("print(model, count, level, title, flag)"),
        "02_broken": notebook(
            "print('so far')", "raise ValueError('on purpose')", "print('never')"
        ),
        "03_exit": notebook("import sys; print('bye'); sys.exit(0)", "print('never')"),
        "04_silent": notebook("x = 1"),
    }
    for name, page in pages.items():
        nbformat.write(page, folder / f"{name}.ipynb")
    monkeypatch.setattr(sources, "notebooks_folder", lambda: folder)
    return folder


def run(out, notebooks, **options):
    return batch.run([MODEL], notebooks=notebooks, out=out, progress=False, **options)


def text_of(path):
    page = nbformat.read(path, as_version=4)
    return "".join(
        output.get("text", "") for cell in page.cells for output in cell.get("outputs", [])
    )


def test_a_good_notebook_is_published_with_its_parameters(folder, tmp_path):
    parameters = {"count": "7", "level": "1", "title": "true", "flag": "false"}
    (outcome,) = run(tmp_path, ["good"], parameters=parameters)
    assert outcome.status == "executed"
    assert outcome.path == tmp_path / "executed" / MODEL / "01_good.ipynb"
    assert text_of(outcome.path) == "minilm-l6 7 1.0 true False\n"
    assert str(tmp_path) not in outcome.path.read_text()


def test_what_is_up_to_date_is_not_executed_again(folder, tmp_path):
    run(tmp_path, ["good"])
    assert run(tmp_path, ["good"])[0].status == "up to date"
    assert run(tmp_path, ["good"], force=True)[0].status == "executed"
    assert run(tmp_path, ["good"], parameters={"count": "4"})[0].status == "executed"
    nbformat.write(notebook("print('new')"), folder / "01_good.ipynb")
    assert run(tmp_path, ["good"])[0].status == "executed"
    assert text_of(tmp_path / "executed" / MODEL / "01_good.ipynb") == "new\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("02_broken", "(raise ValueError('on purpose')): ValueError: on purpose"),
        ("03_exit", "did not run: print('never')"),
        ("04_silent", "no cell has an output"),
    ],
)
def test_a_failed_copy_is_never_where_the_book_looks(folder, tmp_path, name, message):
    # A page of an earlier success must not survive: it is no longer what the notebook gives.
    stale = tmp_path / "executed" / MODEL / f"{name}.ipynb"
    stale.parent.mkdir(parents=True)
    nbformat.write(notebook(), stale)
    outcomes = run(tmp_path, [name, "good"])
    assert {o.notebook: o.status for o in outcomes} == {name: "failed", "01_good": "executed"}
    failed = next(o for o in outcomes if o.status == "failed")
    assert message in failed.message
    assert [p.name for p in (tmp_path / "executed" / MODEL).iterdir()] == ["01_good.ipynb"]
    assert failed.path == tmp_path / "failed" / MODEL / f"{name}.ipynb"
    assert failed.path.is_file()


def test_a_mended_notebook_clears_its_failure(folder, tmp_path):
    run(tmp_path, ["broken"])
    nbformat.write(notebook("print('mended')"), folder / "02_broken.ipynb")
    (outcome,) = run(tmp_path, ["broken"])
    assert outcome.status == "executed"
    assert not (tmp_path / "failed" / MODEL / "02_broken.ipynb").exists()


def test_unknown_names_stop_before_anything_runs(folder, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(NotebookError, match=r"'coutn'\. Did you mean count\?"):
        run(out, ["good"], parameters={"coutn": "1"})
    with pytest.raises(NotebookError, match="'model' has an option of its own"):
        run(out, ["good"], parameters={"model": "x"})
    with pytest.raises(NotebookError, match="count is 'many', expected a int"):
        run(out, ["good"], parameters={"count": "many"})
    with pytest.raises(NotebookError, match="fits no notebook; there are 01_good, 02_broken"):
        run(out, ["nothing"])
    with pytest.raises(NotebookError, match="fits several notebooks"):
        run(out, ["0"])
    with pytest.raises(CheckpointError, match="Did you mean minilm-l6"):
        batch.run([MODEL, "minilm"], notebooks=["good"], out=out, progress=False)
    assert not out.exists()


def test_a_notebook_without_parameters_is_told(folder, tmp_path):
    nbformat.write(notebook("print(1)", parameters=None), folder / "05_none.ipynb")
    with pytest.raises(NotebookError, match="05_none declares no parameter"):
        run(tmp_path / "out", ["none"])


def test_a_notebook_about_all_models_is_executed_once_and_one_that_reads_results_last(
    folder, tmp_path
):
    reads = notebook(
        "from pathlib import Path; print(*sorted(p.name for p in Path(results_dir).glob('*/*')))",
        parameters='results_dir = "results"',
        scope={"scope": "once", "reads": "results"},
    )
    writes = notebook(
        "from pathlib import Path; folder = Path(results_dir) / 'all-models'\n"
        "folder.mkdir(parents=True, exist_ok=True); (folder / 'a.parquet').touch(); print('a')",
        parameters='results_dir = "results"',
        scope={"scope": "once"},
    )
    nbformat.write(reads, folder / "05_reads.ipynb")
    nbformat.write(writes, folder / "06_writes.ipynb")

    def outcomes():
        found = batch.run(
            [MODEL, "smollm2-135m"],
            notebooks=["good", "reads", "writes"],
            out=tmp_path,
            progress=False,
        )
        return [(o.model, o.notebook, o.status) for o in found]

    good = [(MODEL, "01_good"), ("smollm2-135m", "01_good")]
    every = [*good, ("all-models", "06_writes"), ("all-models", "05_reads")]
    assert outcomes() == [(*job, "executed") for job in every]
    assert text_of(tmp_path / "executed/all-models/05_reads.ipynb") == "a.parquet\n"
    assert {status for *_, status in outcomes()} == {"up to date"}
    (tmp_path / "results" / MODEL).mkdir()
    (tmp_path / "results" / MODEL / "survey.parquet").write_bytes(b"new")
    assert [job for *job, status in outcomes() if status == "executed"] == [
        ["all-models", "05_reads"]
    ]


def test_several_at_a_time_give_the_same_pages(folder, tmp_path):
    reads = notebook(
        "from pathlib import Path; print(len(list(Path(results_dir).glob('*/*.parquet'))))",
        parameters='results_dir = "results"',
        scope={"scope": "once", "reads": "results"},
    )
    writes = notebook(
        "import os; from pathlib import Path; folder = Path(results_dir) / model\n"
        "folder.mkdir(parents=True, exist_ok=True); (folder / 'a.parquet').touch()\n"
        "print(model, os.environ['OMP_NUM_THREADS'])"
    )
    nbformat.write(reads, folder / "05_reads.ipynb")
    nbformat.write(writes, folder / "06_writes.ipynb")
    outcomes = batch.run(
        [MODEL, "smollm2-135m"],
        notebooks=["broken", "reads", "writes"],
        out=tmp_path,
        progress=False,
        jobs=2,
    )
    assert [(o.model, o.notebook, o.status) for o in outcomes] == [
        (MODEL, "02_broken", "failed"),
        (MODEL, "06_writes", "executed"),
        ("smollm2-135m", "02_broken", "failed"),
        ("smollm2-135m", "06_writes", "executed"),
        ("all-models", "05_reads", "executed"),
    ]
    assert text_of(tmp_path / "executed/all-models/05_reads.ipynb") == "2\n"
    assert text_of(tmp_path / "executed" / MODEL / "06_writes.ipynb").startswith(f"{MODEL} ")
    with pytest.raises(NotebookError, match="jobs is 0"):
        batch.run([MODEL], out=tmp_path, jobs=0)


def test_of_several_at_a_time_what_takes_long_begins_first(folder, tmp_path):
    for name, scope in (("05_one", None), ("06_two", None), ("07_three", {"takes": "long"})):
        source = "import time; print(time.time()); time.sleep(0.2)"
        nbformat.write(notebook(source, scope=scope), folder / f"{name}.ipynb")
    outcomes = batch.run(
        [MODEL], notebooks=["one", "two", "three"], out=tmp_path, progress=False, jobs=2
    )
    assert [o.notebook for o in outcomes] == ["05_one", "06_two", "07_three"]
    begun = [
        float(text_of(tmp_path / "executed" / MODEL / f"{o.notebook}.ipynb")) for o in outcomes
    ]
    assert begun[2] < max(begun)


def test_an_unknown_scope_is_told(folder, tmp_path):
    for scope in ({"scope": "twice"}, {"reads": "results"}, {"mood": "long"}):
        nbformat.write(notebook("print(1)", scope=scope), folder / "05_odd.ipynb")
        (said,) = scope.values()
        with pytest.raises(NotebookError, match=rf"05_odd has the metadata .*{said}"):
            run(tmp_path / "out", ["odd"])


def test_an_interrupt_leaves_no_page(folder, tmp_path, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(execution.papermill, "execute_notebook", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, ["good"])
    assert not list(tmp_path.glob("executed/*/*"))


def test_the_environment_is_restored(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    import os

    before = dict(os.environ)
    run(tmp_path, ["good"])
    assert dict(os.environ) == before


def test_all_bundled_models_give_notebooks_and_tables(tmp_path):
    """The package's own notebook, end to end, for every kind of value sharing."""
    outcomes = batch.run(
        ["smollm2-135m", "gemma-3-270m", MODEL], notebooks=["survey"], out=tmp_path, progress=False
    )
    assert [outcome.status for outcome in outcomes] == ["executed"] * 3
    for model in ("smollm2-135m", "gemma-3-270m", MODEL):
        assert (tmp_path / "results" / model / "survey.parquet").is_file()
        page = (tmp_path / "executed" / model / "01_closure_survey.ipynb").read_text()
        assert "Warning" not in page
    gemma = (tmp_path / "executed/gemma-3-270m/01_closure_survey.ipynb").read_text()
    assert "no wrong $V$ exists" in gemma
    assert "No head of this model reaches" in gemma
    smollm = (tmp_path / "executed/smollm2-135m/01_closure_survey.ipynb").read_text()
    assert "Of **270 heads**, **13** (4.8%)" in smollm
    assert "/s]" not in smollm  # no progress bar on a page


def test_pages_about_all_models_are_made_where_asked_for_and_then_kept_current(folder, tmp_path):
    once, parameters = {"scope": "once"}, 'results_dir = "results"'
    page = notebook("print(1)", parameters=parameters, scope=once)
    nbformat.write(page, folder / "05_once.ipynb")
    for name in ("02_broken", "03_exit", "04_silent"):
        (folder / f"{name}.ipynb").unlink()

    def executed(**options):
        return [o.notebook for o in run(tmp_path, (), **options)]

    assert executed() == ["01_good"]
    assert executed(all_models=True) == ["01_good", "05_once"]
    assert executed() == ["01_good", "05_once"]
    for source in ("1 / 0", "print(2)"):  # one that failed was asked for too
        page = notebook(source, parameters=parameters, scope=once)
        nbformat.write(page, folder / "05_once.ipynb")
        assert executed() == ["01_good", "05_once"]
    (tmp_path / "executed/all-models/05_once.ipynb").unlink()
    assert executed() == ["01_good"]
    (tmp_path / "results/all-models").mkdir(parents=True)
    (tmp_path / "results/all-models/a.parquet").touch()
    assert executed() == ["01_good", "05_once"]


def test_a_kernel_that_is_asked_to_end_is_not_interrupted(folder, tmp_path, monkeypatch):
    """It would report that as an error, on a run in which all went well."""
    sent = []

    async def interrupt(manager):
        sent.append(manager.shutting_down)

    monkeypatch.setattr(AsyncKernelManager, "_async_interrupt_kernel", interrupt)
    (outcome,) = run(tmp_path, ["good"])
    assert outcome.status == "executed"
    assert sent == []
    asyncio.run(execution._Manager()._async_interrupt_kernel())  # whoever means it is heard
    assert sent == [False]
