"""What makes an executed notebook fit to publish."""

from __future__ import annotations

from pathlib import Path

import nbformat


def page_faults(notebook: nbformat.NotebookNode) -> list[str]:
    """List why an executed notebook must not become a page of the book.

    A book built with execution off renders whatever it finds, so a copy that failed half-way, or
    that never ran, would become a page without a word.

    Parameters
    ----------
    notebook : NotebookNode

    Returns
    -------
    list of str
        Empty for a notebook whose every code cell ran, none with an error, and that shows
        something.
    """
    faults = []
    code = [(n, cell) for n, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    for number, cell in code:
        if cell.source.strip() and cell.get("execution_count") is None:
            faults.append(f"cell {number} did not run: {_first_line(cell.source)}")
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                faults.append(f"cell {number} failed with {output.ename}: {output.evalue}")
    if not any(cell.get("outputs") for _, cell in code):
        faults.append("no cell has an output")
    return faults


def check_pages(executed: Path) -> dict[Path, list[str]]:
    """Check every executed notebook below a folder.

    Parameters
    ----------
    executed : Path
        Holds ``<model>/<notebook>.ipynb``.

    Returns
    -------
    dict of Path to list of str
        Every page, each with its faults.
    """
    pages = sorted(executed.glob("*/*.ipynb"))
    return {path: page_faults(nbformat.read(path, as_version=4)) for path in pages}


def _first_line(source: str) -> str:
    return source.strip().splitlines()[0] if source.strip() else ""
