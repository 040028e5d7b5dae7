"""The gates of the repository as functions, so that they can be tried on broken copies too."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import jupytext
import nbformat
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def cells(notebook: nbformat.NotebookNode) -> list[tuple]:
    return [
        (
            cell.cell_type,
            cell.source,
            tuple(cell.metadata.get("tags", ())),
            cell.metadata.get("mystnb"),
        )
        for cell in notebook.cells
    ]


def pair_differences(folder: Path) -> list[str]:
    """Where the two files of a pair do not hold the same cells, or one is missing."""
    scripts = {path.stem: path for path in folder.glob("*.py")}
    derived = {path.stem: path for path in folder.glob("*.ipynb")}
    faults = [f"{stem} is no pair" for stem in sorted(scripts.keys() ^ derived.keys())]
    for stem in sorted(scripts.keys() & derived.keys()):
        one = cells(jupytext.read(scripts[stem]))
        other = cells(nbformat.read(derived[stem], as_version=4))
        if one != other:
            n = next(
                (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), "last"
            )
            faults.append(f"{stem}: the pair differs in cell {n}; run `make notebooks`")
    return faults


def outputs_in_sources(folder: Path) -> list[str]:
    """Notebooks that carry outputs or execution counts."""
    return [
        path.name
        for path in sorted(folder.glob("*.ipynb"))
        if any(
            cell.get("outputs") or cell.get("execution_count")
            for cell in nbformat.read(path, as_version=4).cells
        )
    ]


def requirements(lines: list[str]) -> dict[str, Requirement]:
    parsed = [Requirement(line) for line in lines]
    return {canonicalize_name(r.name): r for r in parsed}


def environment_faults(root: Path) -> list[str]:
    """Where pyproject.toml, constraints.txt and environment.yml do not agree."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    wanted = requirements(
        project["dependencies"] + [line for lines in optional.values() for line in lines]
    )
    pinned = {}
    faults = []
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        requirement = Requirement(line)
        if not re.fullmatch(r"==[^*]+", str(requirement.specifier)):
            faults.append(f"constraints.txt: {line} is not an exact pin")
        pinned[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    for name, requirement in wanted.items():
        if name not in pinned:
            faults.append(f"constraints.txt does not pin {name}")
        elif not requirement.specifier.contains(pinned[name], prereleases=True):
            faults.append(f"{name}: {pinned[name]} is outside pyproject's {requirement.specifier}")

    environment = yaml.safe_load((root / "environment.yml").read_text(encoding="utf-8"))
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    python = [entry for entry in conda if entry.startswith("python=")]
    if not python or not Requirement("python" + project["requires-python"]).specifier.contains(
        python[0].removeprefix("python=")
    ):
        faults.append(f"environment.yml: {python} does not fit {project['requires-python']}")
    if "-c constraints.txt" not in pip:
        faults.append("environment.yml does not apply constraints.txt")
    listed = requirements([line for line in pip if not line.startswith("-")])
    for name, requirement in listed.items():
        if str(requirement.specifier) != f"=={pinned.get(name)}":
            faults.append(
                f"environment.yml has {requirement}, constraints.txt has {pinned.get(name)}"
            )
    shown = requirements(project["dependencies"] + optional["book"])
    for name in shown.keys() - listed.keys():
        faults.append(f"environment.yml lacks {name}")
    for name in listed.keys() - shown.keys():
        faults.append(f"environment.yml has {name}, which pyproject does not ask for")
    return faults
