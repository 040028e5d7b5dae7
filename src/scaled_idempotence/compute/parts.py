"""The parts of an experiment: computed here or elsewhere, kept on disk until the whole is done."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ..progress import progress_bar
from .executors import Task, computed
from .results import read_all_if_whole, write_table

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Finished:
    """Tables of the parts that are done, on disk until the whole is.

    Several runs may share the folder: each file is whole or not there, all write the same, and
    who ends first takes the folder away, upon which the others make it anew.
    """

    folder: Path
    names: tuple[str, ...]

    def _files(self, number: int) -> dict[str, Path]:
        return {name: self.folder / f"{number:04d}-{name}.parquet" for name in self.names}

    def read(self, number: int) -> Tables | None:
        """Read the tables of a part, if all are there and whole."""
        return read_all_if_whole(self._files(number))

    def write(self, number: int, tables: Tables) -> None:
        """Keep the tables of a part."""
        for name, file in self._files(number).items():
            write_table(tables[name], file)

    def remove(self) -> None:
        """Take the folder away."""
        shutil.rmtree(self.folder, ignore_errors=True)


def compute_parts(
    tasks: Sequence[Task],
    names: Sequence[str],
    kept: Finished | None,
    title: str,
    unit: str,
    progress: bool,
    executor: Executor | None,
) -> dict[str, pd.DataFrame]:
    """Compute the parts that are not kept, and put the tables of all one below another.

    Parameters
    ----------
    tasks : sequence of Task
        A part each.
    names : sequence of str
        Of the tables that a part gives.
    kept : Finished, optional
        Where parts are read from, and kept.
    title, unit : str
        For the bar.
    progress : bool
    executor : Executor, optional

    Returns
    -------
    dict of str to DataFrame
    """
    done = {n: tables for n in range(len(tasks)) if kept and (tables := kept.read(n))}
    todo = [n for n in range(len(tasks)) if n not in done]
    results = computed([tasks[n] for n in todo], executor)
    bar = progress_bar(range(len(tasks)), title, unit, progress)
    try:
        bar.update(len(done))
        for number, found in results:
            tables = found if isinstance(found, Mapping) else {names[0]: found}
            done[todo[number]] = tables
            if kept:
                kept.write(todo[number], tables)
            bar.update()
    finally:
        results.close()
        bar.close()
    result: dict[str, pd.DataFrame] = {}
    for name in names:
        # An empty table tells no types, and would turn integers of the others into floats.
        every = [done[n][name] for n in range(len(tasks))]
        result[name] = pd.concat([one for one in every if len(one)] or every[:1], ignore_index=True)
    return result
