"""Run a function over a model's layers: here or elsewhere, resumed, and into atomic tables."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from filelock import FileLock

from ..checkpoints.model import OVModel
from .executors import Task, computed
from .progress import progress_bar
from .results import (
    code_id,
    provenance,
    read_if_whole,
    result_path,
    write_table,
)

Tables = Mapping[str, pd.DataFrame]


def layerwise(
    model: OVModel,
    experiment: str,
    score_layer: Callable[..., pd.DataFrame],
    *,
    results_dir: str | Path | None,
    progress: bool,
    executor: Executor | None = None,
    parameters: Mapping[str, object] | None = None,
) -> pd.DataFrame:
    """Make one table out of a table a layer.

    Parameters
    ----------
    model : OVModel
    experiment : str
        Name of the table.
    score_layer : callable
        Takes `LayerFactors` and the parameters, gives the layer's rows.
    results_dir : str or Path, optional
        Write ``<results_dir>/<model>/<experiment>.parquet``. Until that is there, each finished
        layer is kept beside it, and an interrupted run goes on from those.
    progress : bool
    executor : Executor, optional
        Of `concurrent.futures`; the layers are computed by its workers, which read their own. In
        other processes `score_layer` must be a function of a module.
    parameters : mapping, optional
        Keyword arguments of `score_layer`; JSON values.

    Returns
    -------
    DataFrame
        ``attrs`` holds the model's identity and the parameters.
    """
    tables = layerwise_tables(
        model,
        experiment,
        score_layer,
        names=(experiment,),
        results_dir=results_dir,
        progress=progress,
        executor=executor,
        parameters=parameters,
    )
    return tables[experiment]


def layerwise_tables(
    model: OVModel,
    experiment: str,
    score_layer: Callable[..., pd.DataFrame | Tables],
    *,
    names: Sequence[str],
    results_dir: str | Path | None,
    progress: bool,
    executor: Executor | None = None,
    parameters: Mapping[str, object] | None = None,
    remarks: Mapping[str, object] | None = None,
    each: Sequence[Mapping[str, object]] | None = None,
    unit: str = "layer",
    finish: Callable[[Tables], Tables] | None = None,
) -> dict[str, pd.DataFrame]:
    """Make several tables out of several tables a layer, or another part; see `layerwise`.

    Parameters
    ----------
    model : OVModel
    experiment : str
        For the bar, and for the folder of finished parts.
    score_layer : callable
        Takes `LayerFactors` and the parameters, gives a table for each name, or the only one. Where
        the unit is not the layer it takes the `OVModel`.
    names : sequence of str
        Of the tables, and of their files.
    results_dir : str or Path, optional
    progress : bool
    executor : Executor, optional
    parameters : mapping, optional
    remarks : mapping, optional
        Further entries of ``attrs``.
    each : sequence of mapping, optional
        Further keyword arguments, part by part. Unlike the parameters they are no part of what the
        finished parts are told by, so something among the parameters must stand for them.
    unit : str
        What a part is, for the bar. Other parts than layers are counted by `each`.
    finish : callable, optional
        Makes the tables that are written and given back out of those of all parts; what is in their
        ``attrs`` stays.

    Returns
    -------
    dict of str to DataFrame

    Raises
    ------
    ScaledIdempotenceError
        If a worker died. With `results_dir` what was finished is kept, as after any interruption.
    """
    parameters = dict(parameters or {})
    identity = provenance(model) | parameters
    finished = None
    if results_dir is not None:
        # Layers of other weights, other parameters or other code are not this run's.
        key = json.dumps([identity, code_id()], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        folder = Path(results_dir) / model.label
        finished = _FinishedLayers(folder / f".{experiment}-{digest}", tuple(names))

    by_layer = unit == "layer"
    positions = range(len(model) if by_layer else len(each or ()))
    layers = {p: tables for p in positions if finished and (tables := finished.read(p))}
    todo = [p for p in positions if p not in layers]
    tasks = [
        Task(
            model, p if by_layer else None, score_layer, parameters | dict(each[p] if each else {})
        )
        for p in todo
    ]
    results = computed(tasks, executor)
    bar = progress_bar(positions, f"{experiment} {model.label}", unit, progress)
    try:
        bar.update(len(layers))
        for number, found in results:
            tables = found if isinstance(found, Mapping) else {names[0]: found}
            layers[todo[number]] = tables
            if finished:
                finished.write(todo[number], tables)
            bar.update()
    finally:
        results.close()
        bar.close()

    result: dict[str, pd.DataFrame] = {}
    for name in names:
        # An empty table tells no types, and would turn integers of the others into floats.
        parts = [layers[p][name] for p in positions]
        parts = [part for part in parts if len(part)] or parts[:1]
        result[name] = pd.concat(parts, ignore_index=True)
    result = dict(finish(result)) if finish else result
    for table in result.values():
        table.attrs = identity | dict(remarks or {}) | table.attrs
    if finished:
        # Two runs with different parameters must not leave tables of which each has some.
        with FileLock(folder / ".lock"):
            for name, table in result.items():
                path = result_path(results_dir, model.label, name)
                write_table(table, path, scratch=finished.folder)
        finished.remove()
    return result


@dataclass(frozen=True)
class _FinishedLayers:
    """Tables of the layers that are done, on disk until the whole is.

    Several runs may share the folder: each file is whole or not there, all write the same, and
    who ends first takes the folder away, upon which the others make it anew.
    """

    folder: Path
    names: tuple[str, ...]

    def _files(self, position: int) -> dict[str, Path]:
        return {name: self.folder / f"{position:04d}-{name}.parquet" for name in self.names}

    def read(self, position: int) -> Tables | None:
        tables = {name: read_if_whole(file) for name, file in self._files(position).items()}
        return tables if all(table is not None for table in tables.values()) else None

    def write(self, position: int, tables: Tables) -> None:
        for name, file in self._files(position).items():
            write_table(tables[name], file)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
