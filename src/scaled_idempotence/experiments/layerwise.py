"""Run a function over a model's layers: a bar, resumption, identity and an atomic table."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd
from pyarrow import ArrowInvalid

from ..checkpoints.model import OVModel
from .progress import progress_bar
from .results import code_id, provenance, result_path, write_table


def layerwise(
    model: OVModel,
    experiment: str,
    score_layer: Callable[..., pd.DataFrame],
    *,
    results_dir: str | Path | None,
    progress: bool,
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
        lambda layer, **options: {experiment: score_layer(layer, **options)},
        names=(experiment,),
        results_dir=results_dir,
        progress=progress,
        parameters=parameters,
    )
    return tables[experiment]


def layerwise_tables(
    model: OVModel,
    experiment: str,
    score_layer: Callable[..., Mapping[str, pd.DataFrame]],
    *,
    names: Sequence[str],
    results_dir: str | Path | None,
    progress: bool,
    parameters: Mapping[str, object] | None = None,
    remarks: Mapping[str, object] | None = None,
) -> dict[str, pd.DataFrame]:
    """Make several tables out of several tables a layer; see `layerwise`.

    Parameters
    ----------
    model : OVModel
    experiment : str
        For the bar, and for the folder of finished layers.
    score_layer : callable
        Takes `LayerFactors` and the parameters, gives a table for each name.
    names : sequence of str
        Of the tables, and of their files.
    results_dir : str or Path, optional
    progress : bool
    parameters : mapping, optional
    remarks : mapping, optional
        Further entries of ``attrs``.

    Returns
    -------
    dict of str to DataFrame
    """
    parameters = dict(parameters or {})
    identity = provenance(model) | parameters
    parts = None
    if results_dir is not None:
        # Layers of other weights, other parameters or other code are not this run's.
        key = json.dumps([identity, code_id()], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        parts = Path(results_dir) / model.label / f".{experiment}-{digest}"

    def layer_tables(index: int) -> Mapping[str, pd.DataFrame]:
        files = {name: parts / f"{index:04d}-{name}.parquet" for name in names} if parts else {}
        if files and all(file.is_file() for file in files.values()):
            # A table that was damaged after it was written is computed again.
            with suppress(ArrowInvalid, OSError):
                return {name: pd.read_parquet(file) for name, file in files.items()}
        tables = score_layer(model[index], **parameters)
        for name, file in files.items():
            write_table(tables[name], file)
        return tables

    bar = progress_bar(range(len(model)), f"{experiment} {model.label}", "layer", progress)
    layers = [layer_tables(index) for index in bar]
    result = {}
    for name in names:
        # An empty table tells no types, and would turn integers of the others into floats.
        rows = [layer[name] for layer in layers if len(layer[name])] or [layers[0][name]]
        result[name] = pd.concat(rows, ignore_index=True)
        result[name].attrs = identity | dict(remarks or {})
        if parts is not None:
            write_table(result[name], result_path(results_dir, model.label, name))
    if parts is not None:
        shutil.rmtree(parts, ignore_errors=True)
    return result
