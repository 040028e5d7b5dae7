"""Execute one notebook for one model, into a copy that may be published."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import nbformat
import papermill
from IPython.core.inputtransformer2 import TransformerManager
from jupyter_client.manager import AsyncKernelManager
from papermill.exceptions import PapermillExecutionError

from ..checkpoints.bundled import cache_folder
from ..checkpoints.hub.repository import PINS_VARIABLE
from ..compute.executors import DASK_VARIABLE
from ..compute.identity import code_of, modules_of
from ..compute.study import FORCE_VARIABLE
from ..files import replacing
from ..lineages.live import train_named
from .notebooks import (
    METADATA,
)
from .pages import page_faults


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


@dataclass(frozen=True)
class Job:
    """A notebook to execute; without a model it is about all of them."""

    path: Path
    label: str
    values: Mapping[str, object]
    weights_id: str = ""
    pin: Mapping[str, str] = field(default_factory=dict)
    reads: Path | None = None  # a folder of tables
    long: bool = False


class _Manager(AsyncKernelManager):
    """A kernel is asked to end; an interrupt before that, it would report as an error."""

    async def _async_interrupt_kernel(self) -> None:
        if not self.shutting_down:
            await super()._async_interrupt_kernel()


def execute(job: Job, out: Path, since: float | None, progress: bool, dask: str | None) -> Outcome:
    """Execute a notebook, unless its page is up to date.

    Parameters
    ----------
    job : Job
    out : Path
    since : float or None
        Time in seconds since 1970: what was made before, pages and tables, is made anew.
    progress : bool
    dask : str or None

    Returns
    -------
    Outcome
    """
    path = job.path
    executed = out / "executed" / job.label / path.name
    failed = out / "failed" / job.label / path.name
    fingerprint = _fingerprint(job)
    if since is None and _fingerprint_of(executed) == fingerprint:
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
            with _kernel_environment(Path(scratch), job.pin, dask, since):
                papermill.execute_notebook(
                    str(path),
                    str(copy),
                    parameters=dict(job.values),
                    kernel_name="python3",
                    kernel_manager_class=_Manager,
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


def _train(job: Job, progress: bool) -> None:
    """Train the live lineages that a notebook asks for: in its kernel no bar would show."""
    declared = papermill.inspect_notebook(str(job.path))
    if "lineages" in declared:
        defaults = {name: ast.literal_eval(entry["default"]) for name, entry in declared.items()}
        values = defaults | dict(job.values)
        train_named(values["lineages"], values["steps"], values["scale"], progress=progress)


@contextmanager
def _kernel_environment(
    scratch: Path, pin: Mapping[str, str], dask: str | None, since: float | None
) -> Iterator[None]:
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
    if since is not None:
        settings[FORCE_VARIABLE] = repr(since)
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


def _fingerprint(job: Job) -> str:
    """Hash everything that an executed copy depends on."""
    digest = hashlib.sha256(job.path.read_bytes())
    digest.update(json.dumps(dict(job.values), sort_keys=True).encode())
    digest.update(json.dumps(code_of(*_modules(job.path))).encode())
    digest.update(job.weights_id.encode())
    for table in sorted(job.reads.glob("*/*.parquet")) if job.reads else ():
        digest.update(str(table.relative_to(job.reads)).encode())
        digest.update(table.read_bytes())
    for package in ("torch", "transformers", "numpy", "scipy", "pandas", "matplotlib", "seaborn"):
        digest.update(f"{package} {version(package)}".encode())
    return digest.hexdigest()


def _modules(path: Path) -> list[str]:
    """Modules of this package that a notebook uses; of what is no Python, none."""
    cells = nbformat.read(path, as_version=4).cells
    cells = [cell.source for cell in cells if cell.cell_type == "code"]
    try:
        return modules_of("\n".join(map(TransformerManager().transform_cell, cells)))
    except SyntaxError:
        return []


def _fingerprint_of(path: Path) -> str | None:
    if not path.is_file():
        return None
    return nbformat.read(path, as_version=4).metadata.get(METADATA, {}).get("fingerprint")
