"""Papermill over models x notebooks: executed copies for the book, tables for everyone."""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import nbformat
import papermill
import yaml
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

from ..checkpoints.bundled import BUNDLED, cache_folder
from ..checkpoints.hub.repository import PINS_VARIABLE
from ..checkpoints.model import OVModel, open_model, split_part
from ..compute.executors import DASK_VARIABLE, dask_executor
from ..compute.progress import progress_bar
from ..compute.results import ALL_MODELS, code_id
from ..errors import NotebookError
from ..files import replacing
from ..lineages.live import train_named
from .pages import page_faults

# Parameters that `run` itself gives to a notebook about one model, and to one about all of them.
RESERVED = ("model", "norm", "revision", "results_dir")
RESERVED_ONCE = ("results_dir",)
METADATA = "scaled_idempotence"


@dataclass(frozen=True)
class Outcome:
    """How one notebook went for one model.

    Attributes
    ----------
    model, notebook : str
    status : {"executed", "up to date", "failed"}
    seconds : float
    path : Path, optional
        The executed copy, or the failed one.
    message : str
        For a failure, the cell and the error.
    """

    model: str
    notebook: str
    status: Literal["executed", "up to date", "failed"]
    seconds: float = 0.0
    path: Path | None = None
    message: str = ""


def notebooks_folder() -> Path:
    """Folder of the source notebooks: inside an installed package, or the clone's own.

    Returns
    -------
    Path
    """
    packaged = Path(str(resources.files("scaled_idempotence"))) / "notebooks"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[3] / "notebooks"


def find_notebooks(names: Sequence[str] = ()) -> list[Path]:
    """Find source notebooks by name.

    Parameters
    ----------
    names : sequence of str
        Stems such as ``"01_closure_survey"``, or unambiguous parts of one such as ``"survey"``
        and ``"01"``; empty for all.

    Returns
    -------
    list of Path
        In the book's order.

    Raises
    ------
    NotebookError
        If a name fits no notebook or several.
    """
    every = sorted(notebooks_folder().glob("*.ipynb"))
    if not names:
        return every
    chosen = set()
    for name in names:
        wanted = name.removesuffix(".ipynb")
        fits = [path for path in every if path.stem == wanted] or [
            path for path in every if wanted in path.stem
        ]
        if len(fits) != 1:
            said = "fits several notebooks" if fits else "fits no notebook"
            raise NotebookError(f"{name!r} {said}; there are {', '.join(p.stem for p in every)}")
        chosen.update(fits)
    return [path for path in every if path in chosen]


@dataclass(frozen=True)
class Scope:
    """What a notebook is about, as its own metadata say.

    Attributes
    ----------
    once : bool
        It is executed once, and not once a model: ``scope: once``.
    reads_results : bool
        It shows the tables that the others wrote, so it comes last, and again when any of them
        changed: ``reads: results``.
    long : bool
        Among several at a time it begins first, so that nothing waits for it alone at the end:
        ``takes: long``.
    """

    once: bool = False
    reads_results: bool = False
    long: bool = False

    @property
    def reserved(self) -> tuple[str, ...]:
        """Parameters that `run` gives by itself."""
        return RESERVED_ONCE if self.once else RESERVED


def scope_of(path: Path) -> Scope:
    """Read a notebook's scope.

    Parameters
    ----------
    path : Path
        A source notebook.

    Returns
    -------
    Scope

    Raises
    ------
    NotebookError
        If the metadata say something else, or that something reads results and is not made once.
    """
    said = dict(nbformat.read(path, as_version=4).metadata.get(METADATA, {}))
    known = {"scope": "once", "reads": "results", "takes": "long"}
    if not said.items() <= known.items() or ("reads" in said and "scope" not in said):
        raise NotebookError(
            f"{path.stem} has the metadata {METADATA}: {said}, expected none, or some of {known}, "
            "of which reads goes with scope"
        )
    return Scope(once="scope" in said, reads_results="reads" in said, long="takes" in said)


def check_parameters(
    notebooks: Sequence[Path], parameters: Mapping[str, str]
) -> dict[Path, dict[str, object]]:
    """Match parameters given as text to the notebooks that declare them.

    papermill only warns of a parameter that a notebook does not have, and passes text as text;
    a page made with a misspelt parameter would look right and be wrong.

    Parameters
    ----------
    notebooks : sequence of Path
    parameters : mapping of str to str

    Returns
    -------
    dict of Path to dict
        For each notebook the parameters it declares, of the type of their defaults.

    Raises
    ------
    NotebookError
        If no notebook declares a parameter, `run` sets it by itself, or its text is not of the
        default's type.
    """
    declared = {path: papermill.inspect_notebook(str(path)) for path in notebooks}
    for path, entry in declared.items():
        if missing := [name for name in scope_of(path).reserved if name not in entry]:
            raise NotebookError(
                f"{path.stem} declares no parameter {', '.join(missing)}: its cell tagged "
                "`parameters` must give each a default"
            )
    known = sorted({name for entry in declared.values() for name in entry} - set(RESERVED))
    for name in parameters:
        if name in RESERVED:
            raise NotebookError(f"parameter {name!r} has an option of its own: see run --help")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=2)
            hint = f"Did you mean {' or '.join(near)}? " if near else ""
            raise NotebookError(
                f"no chosen notebook has a parameter {name!r}. {hint}There are {', '.join(known)}"
            )
    return {
        path: {
            name: _typed(name, text, declared[path][name]["default"])
            for name, text in parameters.items()
            if name in declared[path]
        }
        for path in notebooks
    }


def _typed(name: str, text: str, default_source: str) -> object:
    default = ast.literal_eval(default_source)
    if isinstance(default, str):
        return text
    value = yaml.safe_load(text)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if default is not None and type(value) is not type(default):
        raise NotebookError(
            f"parameter {name} is {text!r}, expected a {type(default).__name__} such as {default!r}"
        )
    return value


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
        Execute also what is up to date: same notebook, parameters, weights and code.
    progress : bool
    dask : str, optional
        Address of a Dask scheduler, on whose workers the notebooks' experiments are computed.
    jobs : int
        Notebooks at a time, each in a process with its part of the cores. What reads the tables of
        the others still comes last.

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
    typed = check_parameters(paths, parameters or {})
    out = Path(out).resolve()
    if dask is not None:
        dask_executor(dask)  # that nothing answers there shows now, and not on a page
    # All models are opened (and fetched) first: a misspelt name shows before hours of work.
    opened = [(name, open_model(name, revision=revision, norm=norm)) for name in models]
    for _, model in opened:
        model.fetch(progress=progress)  # here and not in a kernel, where no bar would show
    scopes = {path: scope_of(path) for path in paths}

    def job(path: Path, name: str = "", model: OVModel | None = None) -> _Job:
        values: dict[str, object] = {"results_dir": "results", **typed[path]}
        read = out / "results" if scopes[path].reads_results else None
        if model is None:
            return _Job(path, ALL_MODELS, values, reads=read, long=scopes[path].long)
        values |= {"model": _portable(name), "norm": norm, "revision": revision or ""}
        return _Job(path, model.label, values, model.weights_id, model.pin, read, scopes[path].long)

    first = [
        job(path, name, model) for name, model in opened for path in paths if not scopes[path].once
    ]
    once = [path for path in paths if scopes[path].once]
    first += [job(path) for path in once if not scopes[path].reads_results]
    last = [job(path) for path in once if scopes[path].reads_results]
    bar = progress_bar(range(len(first) + len(last)), "notebooks", "notebook", progress)
    options = {"out": out, "force": force, "progress": progress and jobs == 1, "dask": dask}
    outcomes = []
    with bar:
        # What reads the tables of the others waits for all of them.
        for part in (first, last):
            outcomes += _execute_all(part, min(jobs, len(part)), options, bar)
    return outcomes


def _execute_all(
    todo: Sequence[_Job], workers: int, options: Mapping[str, object], bar: tqdm
) -> list[Outcome]:
    """Execute notebooks, here or in several processes, and give the outcomes in their order."""
    outcomes: dict[int, Outcome] = {}
    if workers <= 1:
        for number, job in enumerate(todo):
            bar.set_postfix_str(f"{job.label} {job.path.stem}")
            outcomes[number] = _execute(job, **options)
            bar.update()
    else:
        with ProcessPoolExecutor(
            workers, get_context("spawn"), initializer=_share_cores, initargs=(workers,)
        ) as pool:
            order = sorted(range(len(todo)), key=lambda n: not todo[n].long)
            futures = {pool.submit(_execute, todo[n], **options): n for n in order}
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
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    return [outcomes[number] for number in range(len(todo))]


def _share_cores(workers: int) -> None:
    """Give each kernel its part of the cores; more threads than cores slow all of them down."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))


def _portable(name: str) -> str:
    # Notebooks run in the output folder, from where a relative path would point elsewhere.
    source, part = split_part(name)
    if source in BUNDLED or not Path(source).expanduser().exists():
        return name
    return str(Path(source).expanduser().resolve()) + (f"#{part}" if part else "")


@dataclass(frozen=True)
class _Job:
    """A notebook to execute; without a model it is about all of them."""

    path: Path
    label: str
    values: Mapping[str, object]
    weights_id: str = ""
    pin: Mapping[str, str] = field(default_factory=dict)
    reads: Path | None = None  # a folder of tables
    long: bool = False


def _execute(job: _Job, out: Path, force: bool, progress: bool, dask: str | None) -> Outcome:
    path = job.path
    executed = out / "executed" / job.label / path.name
    failed = out / "failed" / job.label / path.name
    fingerprint = _fingerprint(job)
    if not force and _fingerprint_of(executed) == fingerprint:
        return Outcome(job.label, path.stem, "up to date", path=executed)
    # What is there was made from something else; until this run ends well there is no page.
    executed.unlink(missing_ok=True)
    failed.unlink(missing_ok=True)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="scaled-idempotence-") as scratch:
        copy = Path(scratch) / path.name
        try:
            out.mkdir(parents=True, exist_ok=True)
            _train(job, progress)
            with _kernel_environment(Path(scratch), job.pin, dask):
                papermill.execute_notebook(
                    str(path),
                    str(copy),
                    parameters=dict(job.values),
                    kernel_name="python3",
                    cwd=str(out),
                    progress_bar={"leave": False} if progress else False,
                    # The kernel speaks to this process only; its remarks on that are noise.
                    extra_arguments=["--log-level=ERROR"],
                )
            faults = page_faults(nbformat.read(copy, as_version=4))
            message = "; ".join(faults)
        except PapermillExecutionError as error:
            first = error.source.strip().splitlines()[0]
            message = f"cell {error.cell_index} ({first}): {error.ename}: {error.evalue}"
        except Exception as error:  # whatever breaks one notebook must not stop the others
            message = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - start
        if message:
            if copy.is_file():
                _publish(nbformat.read(copy, as_version=4), failed, {})
            return Outcome(job.label, path.stem, "failed", seconds, failed, message)
        identity = {"fingerprint": fingerprint, "model": job.label}
        _publish(nbformat.read(copy, as_version=4), executed, identity)
    return Outcome(job.label, path.stem, "executed", seconds, executed)


def _train(job: _Job, progress: bool) -> None:
    """Train the live lineages that a notebook asks for: in its kernel no bar would show."""
    declared = papermill.inspect_notebook(str(job.path))
    if "lineages" in declared:
        defaults = {name: ast.literal_eval(entry["default"]) for name, entry in declared.items()}
        values = defaults | dict(job.values)
        train_named(values["lineages"], values["steps"], values["scale"], progress=progress)


@contextmanager
def _kernel_environment(scratch: Path, pin: Mapping[str, str], dask: str | None) -> Iterator[None]:
    """Keep the kernel's own files out of the user's home, bars out of the page, weights fixed."""
    settings = {
        "IPYTHONDIR": str(scratch / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(scratch / "jupyter"),
        "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR", str(cache_folder() / "matplotlib")),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "TQDM_DISABLE": "1",
        PINS_VARIABLE: json.dumps(dict(pin)),
        # Asked for by ipykernel's debugger, whose absence it else reports on the page.
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    if dask is not None:
        settings[DASK_VARIABLE] = dask
    before = {key: os.environ.get(key) for key in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})


def _publish(notebook: nbformat.NotebookNode, target: Path, identity: dict[str, str]) -> None:
    """Write an executed copy atomically, without the paths of the machine it ran on."""
    for key in ("input_path", "output_path"):
        notebook.metadata.get("papermill", {}).pop(key, None)
    if identity:
        notebook.metadata[METADATA] = identity
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as unfinished:
        nbformat.write(notebook, unfinished)


def _fingerprint(job: _Job) -> str:
    """Hash everything that an executed copy depends on."""
    digest = hashlib.sha256(job.path.read_bytes())
    digest.update(json.dumps(dict(job.values), sort_keys=True).encode())
    digest.update(code_id().encode())
    digest.update(job.weights_id.encode())
    for table in sorted(job.reads.glob("*/*.parquet")) if job.reads else ():
        digest.update(str(table.relative_to(job.reads)).encode())
        digest.update(table.read_bytes())
    for package in ("torch", "transformers", "numpy", "scipy", "pandas", "matplotlib", "seaborn"):
        digest.update(f"{package} {version(package)}".encode())
    return digest.hexdigest()


def _fingerprint_of(path: Path) -> str | None:
    if not path.is_file():
        return None
    return nbformat.read(path, as_version=4).metadata.get(METADATA, {}).get("fingerprint")
