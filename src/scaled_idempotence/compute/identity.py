"""What a table, or a page, is made of: hashes of the code that its numbers can depend on.

Two things are the same code if their syntax trees are, docstrings left out: a changed comment, or
a changed sentence in a docstring, changes no number. Another Python may draw another tree of the
same text; then things are made anew, and never taken for what they are not.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = __name__.split(".", maxsplit=1)[0]
_ROOT = Path(__file__).resolve().parents[1]


def code_of(*modules: str) -> dict[str, str]:
    """Hash modules of this package, and all those that they import from it.

    Parameters
    ----------
    *modules : str
        Names within the package, such as ``"experiments.survey"``.

    Returns
    -------
    dict of str to str
        A hash a module, by name within the package. What is imported for type checkers only is not
        among them.

    Examples
    --------
    >>> sorted(code_of("linalg.closure"))
    ['linalg.closure', 'linalg.factors']
    """
    found: dict[str, str] = {}
    todo = list(modules)
    while todo:
        name = todo.pop()
        if name not in found:
            found[name], reached = _module(name)
            todo += reached
    return dict(sorted(found.items()))


def modules_of(source: str) -> list[str]:
    """Modules of this package that a script uses, by what it imports and which names it takes.

    Parameters
    ----------
    source : str
        Such as the code cells of a notebook. ``si.survey`` counts as ``experiments.survey``, where
        that name is from, and ``si.plots.landscape`` as the one module of figures.

    Returns
    -------
    list of str

    Examples
    --------
    >>> modules_of("import scaled_idempotence as si; si.closure(O, V); si.plots.landscape(paths)")
    ['linalg.closure', 'plots.constructive_search']
    """
    tree = ast.parse(source)
    imported = {module for module, _ in _imports(tree, "", is_package=False)}
    faces = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == PACKAGE
    }
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    # Of `si.plots.landscape` the part `si.plots` is an attribute too, and says less.
    inner = {id(node.value) for node in attributes}
    chains = [_chain(node) for node in attributes if id(node) not in inner]
    used = {_resolve(chain[1:]) for chain in chains if chain and chain[0] in faces}
    # What does not exist is an error of the script's own, when it runs.
    return sorted(name for name in imported | used if name and _path(name) is not None)


def _chain(node: ast.AST) -> list[str]:
    """``["si", "plots", "landscape"]`` of ``si.plots.landscape``; nothing of other expressions."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *names[::-1]] if isinstance(node, ast.Name) else []


def _resolve(names: list[str]) -> str:
    """Module that an attribute of the package's face is from."""
    module = ""
    for name in names:
        exported = _exports(module)
        if name in exported:
            module = exported[name]
        elif _path(below := f"{module}.{name}".lstrip(".")) is not None:
            module = below
        else:
            break
    return module


@cache
def _exports(package: str) -> Mapping[str, str]:
    """Names that a package takes from its modules, with the module of each."""
    folder = _ROOT.joinpath(*filter(None, package.split(".")))
    face = next((f for f in (folder / "__init__.pyi", folder / "__init__.py") if f.is_file()), None)
    if face is None:
        return {}
    tree = ast.parse(face.read_text(encoding="utf-8"))
    return {name: module for module, name in _imports(tree, package, is_package=True)}


@cache
def _module(name: str) -> tuple[str, list[str]]:
    """Hash of a module, and the modules that it imports."""
    path = _path(name)
    if path is None:
        raise ValueError(f"there is no module {name!r} in {PACKAGE}")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    is_package = path.name == "__init__.py"
    reached = sorted({module for module, _ in _imports(tree, name, is_package) if module})
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = node.body[ast.get_docstring(node, clean=False) is not None :]
    digest = hashlib.sha256(ast.dump(tree).encode())
    # A module's own files, which are no Python: `_explorer/` beside `explorer.py`.
    for file in sorted(path.parent.glob(f"_{path.stem}/*")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16], reached


def _path(name: str) -> Path | None:
    base = _ROOT.joinpath(*name.split("."))
    candidates = (base.with_suffix(".py"), base / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def _imports(tree: ast.AST, name: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """Every module of this package that is imported, with the name that is taken from it."""
    here = name.split(".") if name else []
    for node in _walk(tree):
        if isinstance(node, ast.Import):
            inside = f"{PACKAGE}."
            for alias in node.names:
                if alias.name.startswith(inside):
                    yield alias.name.removeprefix(inside), alias.asname or alias.name
            continue
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            up = node.level - is_package
            base = [*here[: len(here) - up], *filter(None, [node.module])]
        elif (node.module or "").split(".")[0] == PACKAGE:
            base = (node.module or "").split(".")[1:]
        else:
            continue
        for alias in node.names:
            whole = ".".join([*base, alias.name])
            module = whole if _path(whole) is not None else ".".join(base)
            yield module, alias.asname or alias.name


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """`ast.walk` without what is for type checkers only."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            todo += node.orelse
        else:
            todo += ast.iter_child_nodes(node)
