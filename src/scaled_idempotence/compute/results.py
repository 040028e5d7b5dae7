"""Result tables on disk: ``<results>/<model>/<experiment>.parquet``, whole or not there."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from pyarrow import ArrowInvalid

from ..checkpoints.model import OVModel
from ..errors import ScaledIdempotenceError
from ..files import replacing

#: Takes the place of a model's name where something is about all of them.
ALL_MODELS = "all-models"
WRITE_ATTEMPTS = 5


def provenance(model: OVModel) -> dict[str, str | int]:
    """What a table must carry for a reader to know whose numbers it holds.

    Parameters
    ----------
    model : OVModel

    Returns
    -------
    dict
        For `pandas.DataFrame.attrs`, which parquet files keep.
    """
    return {
        "model": model.name,
        "norm": model.norm,
        "topology": model.topology,
        "architecture": model.architecture,
        "n_layers": model.n_layers,
        "n_heads": model.n_heads,
        "n_value_heads": model.n_value_heads,
        "d_head": model.d_head,
        "d_model": model.d_model,
        "weights": model.weights_id,
        "package_version": version("scaled-idempotence"),
    }


def result_path(results_dir: str | Path, label: str, experiment: str) -> Path:
    """Path of a result table.

    Parameters
    ----------
    results_dir : str or Path
    label : str
        `OVModel.label`.
    experiment : str

    Returns
    -------
    Path
    """
    return Path(results_dir) / label / f"{experiment}.parquet"


def check_table_path(path: Path) -> None:
    """Refuse a table's path by its ending, before any work is done for it.

    Parameters
    ----------
    path : Path

    Raises
    ------
    ScaledIdempotenceError
        If it ends with neither ``.parquet`` nor ``.csv``.
    """
    if path.suffix not in (".parquet", ".csv"):
        raise ScaledIdempotenceError(
            f"cannot write {path}: got the ending {path.suffix!r}, expected .parquet or .csv"
        )


def write_table(table: pd.DataFrame, path: Path, scratch: Path | None = None) -> None:
    """Write a table as parquet (or CSV, by the ending) so that no reader ever sees half of it.

    Parameters
    ----------
    table : DataFrame
    path : Path
        Ends with ``.parquet`` or ``.csv``.
    scratch : Path, optional
        Folder for the unfinished file, on the same disk; where the table goes if left out. What
        is killed in the middle leaves that file behind.

    Raises
    ------
    ScaledIdempotenceError
        If the ending is neither.
    """
    check_table_path(path)
    scratch = scratch or path.parent
    if path.suffix == ".parquet":
        content = table.to_parquet(None, index=False)
    else:
        content = table.to_csv(None, index=False).encode()
    for attempt in range(WRITE_ATTEMPTS):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            with replacing(path, scratch=scratch, prefix=f".{path.stem}-") as unfinished:
                unfinished.write_bytes(content)
            return
        except FileNotFoundError:
            # Another run that shares the folder of finished layers has just taken it away.
            if attempt == WRITE_ATTEMPTS - 1:
                raise


def read_if_whole(path: Path) -> pd.DataFrame | None:
    """Read a table that a run left behind.

    Parameters
    ----------
    path : Path

    Returns
    -------
    DataFrame or None
        None if it is not there, or was damaged after it was written: then it is computed again.
    """
    try:
        return pd.read_parquet(path)
    except (ArrowInvalid, OSError):
        return None


def read_all_if_whole(paths: Mapping[str, Path]) -> dict[str, pd.DataFrame] | None:
    """Read tables of which each is worth nothing without the others.

    Parameters
    ----------
    paths : mapping of str to Path

    Returns
    -------
    dict of str to DataFrame, or None
        None if any is missing or damaged.
    """
    tables = {}
    for name, path in paths.items():
        table = read_if_whole(path)
        if table is None:
            return None
        tables[name] = table
    return tables


def load_result(results_dir: str | Path, label: str, experiment: str) -> pd.DataFrame:
    """Read a result table.

    Parameters
    ----------
    results_dir : str or Path
    label : str
        `OVModel.label`: the model's name, with the norm treatment unless it is raw.
    experiment : str
        Such as ``"survey"``.

    Returns
    -------
    DataFrame

    Raises
    ------
    ScaledIdempotenceError
        If it was not computed; the message says which command does.
    """
    path = result_path(results_dir, label, experiment)
    if not path.is_file():
        raise ScaledIdempotenceError(
            f"there is no {path}; `scaled-idempotence run {label}` computes it"
        )
    return pd.read_parquet(path)
