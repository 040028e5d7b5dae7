"""Run a function over a model's layers: a bar, resumption, identity and an atomic table."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
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
    parameters = dict(parameters or {})
    identity = provenance(model) | parameters
    if results_dir is None:
        parts = None
    else:
        target = result_path(results_dir, model.label, experiment)
        # Layers of other weights, other parameters or other code are not this run's.
        key = json.dumps([identity, code_id()], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        parts = target.parent / f".{experiment}-{digest}"

    def layer_table(index: int) -> pd.DataFrame:
        part = parts / f"{index:04d}.parquet" if parts else None
        if part is not None and part.is_file():
            try:
                return pd.read_parquet(part)
            except (ArrowInvalid, OSError):
                part.unlink()  # damaged after it was written: computed again below
        table = score_layer(model[index], **parameters)
        if part is not None:
            write_table(table, part)
        return table

    bar = progress_bar(range(len(model)), f"{experiment} {model.label}", "layer", progress)
    table = pd.concat([layer_table(index) for index in bar], ignore_index=True)
    table.attrs = identity
    if parts is not None:
        write_table(table, target)
        shutil.rmtree(parts, ignore_errors=True)
    return table
