"""The notebooks: which there are, what each is about, and which parameters it takes."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import nbformat
import papermill
import yaml

from ..errors import NotebookError

# Parameters that `run` itself gives to a notebook about one model, and to one about all of them.
RESERVED = ("model", "norm", "revision", "results_dir")
RESERVED_ONCE = ("results_dir",)
METADATA = "scaled_idempotence"


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
