"""Result tables as evidence: found by folder, read once, checked, or refused with a reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from ..compute.results import ALL_MODELS
from ..errors import ScaledIdempotenceError
from ..paper import STRONG

#: What a table of one model must say of its origin, and one of several.
PROVENANCE = ("model", "topology", "n_value_heads", "d_head", "weights", "package_version")
PROVENANCE_OF_ALL = ("package_version",)
#: Name of what is pooled over lineages.
POOLED = "all"
#: Columns that do not hold numbers.
TEXT = ("sample", "scope", "group", "intervention", "quantity")


class TableFault(ScaledIdempotenceError):
    """A result table cannot serve as evidence; the message says why and what to do."""


class ResultTables:
    """Result tables of one folder, each read once and checked before use.

    Parameters
    ----------
    folder : Path
        ``<results>/<model>``, or ``<results>/all-models``.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        of_all = self.folder.name == ALL_MODELS
        self._provenance = PROVENANCE_OF_ALL if of_all else PROVENANCE
        self._read: dict[str, pd.DataFrame | TableFault] = {}

    @property
    def label(self) -> str:
        """The model's label, which is the folder's name."""
        return self.folder.name

    def table(self, name: str, columns: Sequence[str] = ()) -> pd.DataFrame:
        """Read a table.

        Parameters
        ----------
        name : str
        columns : sequence of str
            That it must have, holding numbers but for those in `TEXT`.

        Returns
        -------
        DataFrame
            With all of its columns; ``attrs`` say where it comes from.

        Raises
        ------
        TableFault
            If there is none, or it is damaged, or was made by something else than this version
            from the weights of the model's other tables.
        """
        if name not in self._read:
            try:
                self._read[name] = self._checked(name)
            except TableFault as fault:
                self._read[name] = fault
        table = self._read[name]
        if isinstance(table, TableFault):
            raise table
        if missing := [column for column in columns if column not in table]:
            raise self._fault(f"{name}.parquet has no column {', '.join(missing)}")
        for column in columns:
            if column not in TEXT and not is_numeric_dtype(table[column]):
                found = table[column].dtype
                raise self._fault(f"{name}.parquet: {column} holds {found}, expected numbers")
        return table

    def _checked(self, name: str) -> pd.DataFrame:
        path = self.folder / f"{name}.parquet"
        if not path.is_file():
            raise TableFault(f"there is no {path.name}")
        table = self._parsed(path)
        if missing := [key for key in self._provenance if key not in table.attrs]:
            raise self._fault(
                f"unreadable: {path.name} does not say its {', '.join(missing)}, so that it may be "
                "another program's"
            )
        written, this = table.attrs["package_version"], version("scaled-idempotence")
        if written != this:
            said = f"unreadable: {path.name} was written by version {written}, this is {this}"
            raise self._fault(said)
        own = table.attrs.get("weights")
        if "weights" in self._provenance and own != (first := self._weights):
            newest = f"the newest table of this model ({first})"
            raise self._fault(f"{path.name} is of other weights ({own}) than {newest}")
        return table

    def _parsed(self, path: Path) -> pd.DataFrame:
        try:
            return pd.read_parquet(path)
        except Exception as error:  # a damaged file can fail anywhere in the parsers below
            reason = (str(error).splitlines() or [""])[0][:80]
            what = f"{type(error).__name__}: {reason}"
            raise self._fault(f"unreadable: {path.name} is no parquet table ({what})") from None

    @cached_property
    def _weights(self) -> object:
        """Weights of the model's newest readable table: what was computed before is stale."""
        paths = sorted(self.folder.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
        for path in reversed(paths):
            try:
                attrs = self._parsed(path).attrs
            except TableFault:
                continue
            if "weights" in attrs:
                return attrs["weights"]
        return None

    def _fault(self, what: str) -> TableFault:
        model = "MODEL" if self.label == ALL_MODELS else self.label
        return TableFault(f"{what}; `scaled-idempotence run {model} --force` makes it again")


def result_tables(results_dir: str | Path) -> list[ResultTables]:
    """Find the models that have result tables.

    Parameters
    ----------
    results_dir : str or Path

    Returns
    -------
    list of ResultTables
        By label; empty where there is no such folder.
    """
    folder = Path(results_dir)
    if not folder.is_dir():
        return []
    found = (path for path in folder.iterdir() if path.is_dir() and path.name != ALL_MODELS)
    kept = (path for path in found if not path.name.startswith(".") and any(path.glob("*.parquet")))
    return [ResultTables(path) for path in sorted(kept)]


def lineages(results_dir: str | Path) -> list[str]:
    """Find the training lineages that were followed.

    Parameters
    ----------
    results_dir : str or Path

    Returns
    -------
    list of str
        Empty where there is no table of them.

    Raises
    ------
    TableFault
        If the table cannot be read.
    """
    table = ResultTables(Path(results_dir) / ALL_MODELS).table("trajectory_gaps", ())
    if "lineage" not in table:
        raise TableFault("trajectory_gaps.parquet has no column lineage")
    return [name for name in dict.fromkeys(table.lineage) if name != POOLED]


def lineage_groups(results_dir: str | Path) -> str:
    """Say which heads of the lineages end strong: by threshold or, of small ones, by rank.

    Parameters
    ----------
    results_dir : str or Path

    Returns
    -------
    str

    Raises
    ------
    TableFault
        If the table of lineages cannot be read.
    """
    attrs = ResultTables(Path(results_dir) / ALL_MODELS).table("trajectory_gaps").attrs
    if top := attrs.get("top"):
        return f"the {top:.0%} of the highest closure at the last checkpoint, whatever it is"
    return f"those with P ≥ {attrs.get('threshold', STRONG):g} at the last checkpoint"


def combined(results_dir: str | Path, experiment: str, columns: Iterable[str] = ()) -> pd.DataFrame:
    """Put one experiment's tables of all models into one.

    Parameters
    ----------
    results_dir : str or Path
    experiment : str
        Such as ``"survey"``.
    columns : iterable of str
        That a table must have to be taken.

    Returns
    -------
    DataFrame
        With the further columns ``model`` and, where the table has layers, ``depth``: 0 at the
        first layer that has OV operators and 1 at the last. Tables that cannot be read are left
        out; `scoreboard` says why.
    """
    parts = []
    for source in result_tables(results_dir):
        try:
            table = source.table(experiment, tuple(columns))
        except TableFault:
            continue
        part = table.assign(model=source.label)
        part.attrs = {}
        if "layer" in part and len(part):
            first, last = part.layer.min(), part.layer.max()
            part["depth"] = (part.layer - first) / max(last - first, 1)
        if len(part):
            parts.append(part)
    if not parts:
        return pd.DataFrame(columns=["model", *columns, "depth"])
    return pd.concat(parts, ignore_index=True)


def sign_shares(heads: pd.DataFrame, threshold: float = STRONG) -> pd.DataFrame:
    """Share of heads with a negative alpha, by model.

    Parameters
    ----------
    heads : DataFrame
        From `combined`, of ``"survey"``.
    threshold : float
        Closure of a strong head.

    Returns
    -------
    DataFrame
        A row a model and group of heads: ``model``, ``group`` (``"strong"``, ``"top decile"`` by
        closure, ``"all"``), ``heads`` and ``negative``, their share; NaN where there are none.
    """
    rows = []
    for model, part in heads[heads.closure.notna()].groupby("model", sort=False):
        groups = {
            "strong": part[part.closure >= threshold],
            "top decile": part[part.closure >= part.closure.quantile(0.9)],
            "all": part,
        }
        for group, members in groups.items():
            share = (members.alpha < 0).mean() if len(members) else np.nan
            rows.append((model, group, len(members), share))
    return pd.DataFrame(rows, columns=["model", "group", "heads", "negative"])
