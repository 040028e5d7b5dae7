"""Papermill over models x notebooks: executed copies for the book, tables for everyone."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from pathlib import Path

from tqdm import tqdm

from ..checkpoints.bundled import BUNDLED
from ..checkpoints.model import OVModel
from ..checkpoints.opening import open_model, split_part
from ..compute.executors import dask_executor
from ..compute.results import ALL_MODELS
from ..errors import NotebookError
from ..processes import end_with_parent
from ..progress import progress_bar
from .execution import Job, Outcome, execute
from .notebooks import Scope, check_parameters, find_notebooks, scope_of


def run(
    models: Sequence[str],
    *,
    notebooks: Sequence[str] = (),
    out: str | Path = ".",
    norm: str = "raw",
    revision: str | None = None,
    parameters: Mapping[str, str] | None = None,
    force: bool = False,
    progress: bool = True,
    dask: str | None = None,
    jobs: int = 1,
    all_models: bool = False,
) -> list[Outcome]:
    """Execute notebooks for models.

    Parameters
    ----------
    models : sequence of str
        What `open_model` opens.
    notebooks : sequence of str
        Names as `find_notebooks` takes them; empty for all.
    out : str or Path
        Executed copies go to ``<out>/executed/<model>/``, tables to ``<out>/results/<model>/``.
        A copy that failed goes to ``<out>/failed/<model>/``, where no book looks. Notebooks that
        are about all models have `ALL_MODELS` in the model's place.
    norm, revision : str
        As for `open_model`.
    parameters : mapping of str to str, optional
        Further notebook parameters, as text.
    force : bool
        Execute also what is up to date (same notebook, parameters, weights and code), and compute
        the tables anew.
    progress : bool
    dask : str, optional
        Address of a Dask scheduler, on whose workers the notebooks' experiments are computed.
    jobs : int
        Notebooks at a time, each in a process with its part of the cores. What reads the tables of
        the others still comes last.
    all_models : bool
        Execute also the notebooks that are about all models. Without it that is done only for those
        that `notebooks` names and those with a page in ``out`` already, which is kept current.

    Returns
    -------
    list of Outcome
        One a model and notebook; a failure does not stop the others.

    Raises
    ------
    ScaledIdempotenceError
        If a model, a notebook or a parameter does not exist; nothing was executed then.
    """
    if jobs < 1:
        raise NotebookError(f"jobs is {jobs}, expected at least 1 notebook at a time")
    paths = find_notebooks(notebooks)
    out = Path(out).resolve()
    scopes = {path: scope_of(path) for path in paths}
    if not (notebooks or all_models):
        paths = [p for p in paths if not scopes[p].once or _is_kept(p, scopes[p], out)]
    typed = check_parameters(paths, parameters or {})
    if dask is not None:
        dask_executor(dask)  # that nothing answers there shows now, and not on a page
    # All models are opened (and fetched) first: a misspelt name shows before hours of work.
    opened = [(name, open_model(name, revision=revision, norm=norm)) for name in models]
    for _, model in opened:
        model.fetch(progress=progress)  # here and not in a kernel, where no bar would show

    def job(path: Path, name: str = "", model: OVModel | None = None) -> Job:
        values: dict[str, object] = {"results_dir": "results", **typed[path]}
        read = out / "results" if scopes[path].reads_results else None
        if model is None:
            return Job(path, ALL_MODELS, values, reads=read, long=scopes[path].long)
        values |= {"model": _portable(name), "norm": norm, "revision": revision or ""}
        return Job(path, model.label, values, model.weights_id, model.pin, read, scopes[path].long)

    first = [
        job(path, name, model) for name, model in opened for path in paths if not scopes[path].once
    ]
    once = [path for path in paths if scopes[path].once]
    first += [job(path) for path in once if not scopes[path].reads_results]
    last = [job(path) for path in once if scopes[path].reads_results]
    bar = progress_bar(range(len(first) + len(last)), "notebooks", "notebook", progress)
    options = {
        "out": out,
        "since": time.time() if force else None,
        "progress": progress and jobs == 1,
        "dask": dask,
    }
    outcomes = []
    with bar:
        # What reads the tables of the others waits for all of them.
        for part in (first, last):
            outcomes += _execute_all(part, min(jobs, len(part)), options, bar)
    return outcomes


def _is_kept(path: Path, scope: Scope, out: Path) -> bool:
    """Whether a notebook about all models was asked for before: by its page, failed or not."""
    if any((out / kind / ALL_MODELS / path.name).is_file() for kind in ("executed", "failed")):
        return True
    tables = out / "results" / ALL_MODELS
    return not scope.reads_results and any(tables.glob("*.parquet"))


def _execute_all(
    todo: Sequence[Job], workers: int, options: Mapping[str, object], bar: tqdm
) -> list[Outcome]:
    """Execute notebooks, here or in several processes, and give the outcomes in their order."""
    outcomes: dict[int, Outcome] = {}
    if workers <= 1:
        for number, job in enumerate(todo):
            bar.set_postfix_str(f"{job.label} {job.path.stem}")
            outcomes[number] = execute(job, **options)
            bar.update()
    else:
        with ProcessPoolExecutor(
            workers, get_context("spawn"), initializer=_begin, initargs=(workers, os.getpid())
        ) as pool:
            order = sorted(range(len(todo)), key=lambda n: not todo[n].long)
            futures = {pool.submit(execute, todo[n], **options): n for n in order}
            try:
                for future in as_completed(futures):
                    job = todo[futures[future]]
                    try:
                        outcome = future.result()
                    except BrokenExecutor:
                        message = "the process that executed it, or one beside it, was killed"
                        outcome = Outcome(job.label, job.path.stem, "failed", message=message)
                    outcomes[futures[future]] = outcome
                    bar.set_postfix_str(f"{job.label} {job.path.stem}")
                    bar.update()
            except BaseException:
                for child in active_children():
                    child.terminate()  # else the pool would wait for its notebook
                raise
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    return [outcomes[number] for number in range(len(todo))]


def _begin(workers: int, parent: int) -> None:
    """End with the parent, as a kernel ends with this process, and share the cores."""
    end_with_parent(parent)
    # More threads than cores slow all of them down.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))


def _portable(name: str) -> str:
    # Notebooks run in the output folder, from where a relative path would point elsewhere.
    source, part = split_part(name)
    if source in BUNDLED or not Path(source).expanduser().exists():
        return name
    return str(Path(source).expanduser().resolve()) + (f"#{part}" if part else "")
