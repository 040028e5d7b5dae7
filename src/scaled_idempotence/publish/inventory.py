"""Which tables of a results folder are current, which are stale and why, and which nobody knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pandas as pd

from .. import experiments as paper_sections
from ..checkpoints.model import OVModel
from ..compute.results import read_if_whole
from ..compute.study import Experiment, differences

CURRENT = "current"
STALE = "stale"
UNKNOWN = "unknown"


@cache
def experiments() -> Mapping[str, Experiment]:
    """Find the experiments.

    Returns
    -------
    mapping of str to Experiment
        By the name of each table that they make.
    """
    found = {}
    for module in iter_modules(paper_sections.__path__, f"{paper_sections.__name__}."):
        experiment = getattr(import_module(module.name), "EXPERIMENT", None)
        if experiment is not None:
            found |= dict.fromkeys(experiment.table_names, experiment)
    return found


def inventory(results_dir: str | Path, models: Sequence[OVModel] = ()) -> pd.DataFrame:
    """List the tables of a folder.

    Parameters
    ----------
    results_dir : str or Path
        With a folder a model.
    models : sequence of OVModel
        With whose weights those of the tables are compared. Of other models code alone is.

    Returns
    -------
    DataFrame
        A row a table: ``model`` (the folder), ``table``, ``status`` (``"current"``, ``"stale"``, or
        ``"unknown"`` where no experiment makes a table of that name), ``reason``.
    """
    weights = {model.label: model.weights_id for model in models}
    rows = []
    for path in sorted(Path(results_dir).glob("*/*.parquet")):
        status, reason = _status(path, weights.get(path.parent.name))
        rows.append((path.parent.name, path.stem, status, reason))
    return pd.DataFrame(rows, columns=["model", "table", "status", "reason"])


def _status(path: Path, weights: str | None) -> tuple[str, str]:
    experiment = experiments().get(path.stem)
    if experiment is None:
        return UNKNOWN, "no experiment makes a table of this name"
    table = read_if_whole(path)
    if table is None:
        return STALE, "the file is damaged"
    made = table.attrs.get("identity")
    if made is None:
        return STALE, "made by an earlier version, which wrote no identity"
    now = {"code": experiment.code()} | ({} if weights is None else {"weights": weights})
    found = differences(made, now)
    return (STALE, ", ".join(found)) if found else (CURRENT, "")
