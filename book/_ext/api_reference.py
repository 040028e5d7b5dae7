"""Directives of the API reference, made from the package itself so that no name is forgotten.

``api-group`` lists what the package exports from some of its modules, ``api-notebooks`` what else
the notebooks import, and ``api-command`` the command line with its options.
"""

import ast
import inspect
from importlib import import_module, resources
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

PACKAGE = "scaled_idempotence"
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def exported() -> dict[str, str]:
    """Every public name with the module that it comes from, in the stub's order."""
    stub = resources.files(PACKAGE).joinpath("__init__.pyi").read_text(encoding="utf-8")
    return {
        alias.asname or alias.name: node.module or ""
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def imported_by_notebooks(folder: Path = NOTEBOOKS) -> dict[str, set[str]]:
    """Names that notebooks import from the package's modules, by module."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
                found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


def result_types(module: str) -> list[str]:
    """Public classes that a module defines, such as what its functions return."""
    members = inspect.getmembers(import_module(module), inspect.isclass)
    return [
        name
        for name, member in members
        if member.__module__ == module
        and not name.startswith("_")
        and not issubclass(member, Exception)
    ]


def _entry(name: str) -> list[str]:
    module, _, attribute = name.rpartition(".")
    member = getattr(import_module(module), attribute)
    if inspect.isclass(member):
        # Fields of a tuple or dataclass are told by the docstring's own list of attributes.
        lines = [f".. autoclass:: {name}"]
        if not issubclass(member, tuple) and not hasattr(member, "__dataclass_fields__"):
            lines.append("   :members:")
        return [*lines, ""]
    if callable(member):
        return [f".. autofunction:: {name}", ""]
    return [f".. autodata:: {name}", "   :no-value:", ""]


class _Generated(SphinxDirective):
    """A directive that stands for reStructuredText made by `text`."""

    def run(self) -> list[nodes.Node]:
        """Parse what `text` gives."""
        source = f"<{self.name}>"
        container = nodes.section()
        container.document = self.state.document
        self.state.nested_parse(
            StringList(self.text(), source), self.content_offset, container, match_titles=1
        )
        return container.children

    def text(self) -> list[str]:
        raise NotImplementedError


class ApiGroup(_Generated):
    """``api-group`` takes the start of the names of the modules."""

    required_arguments = 1

    def text(self) -> list[str]:
        """Summary table and entries."""
        start = self.arguments[0]
        names = {
            name: module
            for name, module in exported().items()
            if module == start or module.startswith(f"{start}.")
        }
        entries = [f"{PACKAGE}.{name}" for name in names]
        for module in dict.fromkeys(names.values()):
            path = f"{PACKAGE}.{module}"
            entries += [f"{path}.{name}" for name in result_types(path) if name not in names]
        if not entries:
            raise self.error(f"the package exports nothing from modules {start}")
        return _listing(entries)


class ApiModule(_Generated):
    """``api-module`` takes a module that is exported as a whole."""

    required_arguments = 1

    def text(self) -> list[str]:
        """The module's docstring, summary table and entries."""
        path = f"{PACKAGE}.{self.arguments[0]}"
        module = import_module(path)
        names = [name for name in vars(module) if _documented(module, name)]
        entries = [f"{path}.{name}" for name in names]
        # The table comes before the module is the current one: it wants whole names only then.
        module_lines = [f".. py:module:: {path}", ""]
        doc = inspect.cleandoc(module.__doc__ or "").splitlines()
        return [*doc, "", *_summary(entries), *module_lines, *_entries(entries)]


def _documented(module, name: str) -> bool:
    """Functions of a module, also those that it takes from its helpers, and its own constants."""
    member = getattr(module, name)
    if name.startswith("_"):
        return False
    if inspect.isfunction(member):
        return member.__module__.startswith(module.__name__)
    assigned = {
        target.id
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return name.isupper() and name in assigned


class ApiNotebooks(_Generated):
    """``api-notebooks`` takes no argument."""

    def text(self) -> list[str]:
        """Summary table and entries."""
        return _listing(
            [
                f"{module}.{name}"
                for module, names in sorted(imported_by_notebooks().items())
                for name in sorted(names)
                if inspect.isroutine(getattr(import_module(module), name))
            ]
        )


def _summary(entries: list[str]) -> list[str]:
    functions = [f"   ~{name}" for name in entries if callable(_resolve(name))]
    return [".. autosummary::", "   :nosignatures:", "", *functions, ""] if functions else []


def _entries(entries: list[str]) -> list[str]:
    return [line for name in entries for line in _entry(name)]


def _listing(entries: list[str]) -> list[str]:
    return _summary(entries) + _entries(entries)


def _resolve(name: str):
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


class ApiCommand(_Generated):
    """``api-command`` takes no argument."""

    def text(self) -> list[str]:
        """What the command says of itself, a section a subcommand."""
        import typer

        from scaled_idempotence.cli import app

        lines = _help(app, [])
        for name in typer.main.get_command(app).commands:
            lines += [name, "-" * len(name), "", *_help(app, [name])]
        return lines


def _help(app, words: list[str]) -> list[str]:
    from typer.testing import CliRunner

    plain = {"COLUMNS": "88", "TERMINAL_WIDTH": "88", "TERM": "dumb", "NO_COLOR": "1"}
    result = CliRunner().invoke(
        app, [*words, "--help"], prog_name="scaled-idempotence", env=plain, catch_exceptions=False
    )
    shown = [line.rstrip() for line in result.output.strip("\n").splitlines()]
    return [".. code-block:: text", "", *(f"   {line}".rstrip() for line in shown), ""]


def setup(app):
    for directive in (ApiGroup, ApiModule, ApiNotebooks, ApiCommand):
        name = directive.__name__.replace("Api", "api-").lower()
        app.add_directive(name, directive)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
