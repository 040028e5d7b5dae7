"""What the head explorer knows of every head, from result tables, and how much of it fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ..checkpoints.bundled import DEFAULT_MODEL
from ..claims.tables import result_tables
from ..compute.results import load_result
from ..errors import ScaledIdempotenceError

#: Bytes that the numbers of all heads, and then the matrices of the strongest, may take as text.
FACTS_BUDGET = 900_000
DATA_BUDGET = 1_350_000
BASE64 = 4 / 3

# What is said of a head: table, column, its name, and what stands for a number that is not there.
SHOWN = (
    ("survey", "closure", "closure P", "not defined"),
    ("survey", "alpha", "fitted scale α", "not defined"),
    ("survey", "return_gain", "return gain", "not defined"),
    ("survey", "copying_score", "copying score", "not defined"),
    ("survey", "effective_rank", "effective rank", "not defined"),
    ("survey", "wrong_v_closure", "wrong-V closure", "does not apply"),
    ("orientation", "null", "null, closed form", "not run"),
    ("orientation", "null_p", "its p-value", "not run"),
    ("orientation", "permutation_closure", "signed permutations, median", "not run"),
    ("orientation", "haar_closure", "Haar scrambles, median", "not run"),
    ("support", "overlap", "overlap of subspaces", "not run"),
    ("support", "isotropy", "isotropy of angles", "not run"),
    ("support", "latent_closure", "closure of latent core", "not run"),
    ("attainment", "capacity", "capacity, at least", "not searched"),
    ("attainment", "attainment", "attainment", "not searched"),
)
FACTS = tuple(column for _, column, _, _ in SHOWN)
# The closures that are drawn beside each other, from above.
COMPARED = {
    "capacity": "capacity",
    "closure": "trained",
    "latent_closure": "latent core",
    "haar_closure": "Haar",
    "permutation_closure": "permutation",
    "null": "null",
    "wrong_v_closure": "wrong V",
}
NEEDED = ("survey", "cores")


def explorable(results_dir: str | Path) -> list[str]:
    """List the models whose tables an explorer can show.

    Parameters
    ----------
    results_dir : str or Path
        Tables, as `scaled-idempotence run` writes them.

    Returns
    -------
    list of str
        Labels of the folders that hold the tables ``survey`` and ``cores``, the default model's
        first.
    """
    folders = [model.folder for model in result_tables(results_dir)]
    whole = [f for f in folders if all((f / f"{table}.parquet").is_file() for table in NEEDED)]
    return sorted((f.name for f in whole), key=lambda label: (label != DEFAULT_MODEL, label))


def head_facts(results_dir: str | Path, label: str) -> pd.DataFrame:
    """A row a head, of every table that there is; NaN for what was not computed."""
    heads = load_result(results_dir, label, "survey")
    attrs = dict(heads.attrs)
    columns = {
        table: [column for source, column, _, _ in SHOWN if source == table]
        for table in dict.fromkeys(source for source, *_ in SHOWN)
    }
    joined = heads[["layer", "head", "reason", *columns.pop("survey")]]
    for table, names in columns.items():
        try:
            found = load_result(results_dir, label, table)
        except ScaledIdempotenceError:
            joined = joined.assign(**dict.fromkeys(names, np.nan))
            continue
        # A head may be in several samples; its figures are the same in each.
        found = found.loc[:, ["layer", "head", *names]].drop_duplicates(["layer", "head"])
        joined = joined.merge(found, on=["layer", "head"], how="left", validate="1:1")
    cores = load_result(results_dir, label, "cores")
    attrs["block"] = min(int(cores.attrs["block"]), int(attrs["d_head"]))
    joined = joined.merge(cores, on=["layer", "head"], how="left", validate="1:1")
    joined = joined.sort_values(["layer", "head"], ignore_index=True)
    joined.attrs = attrs
    return joined


def fitting(tables: dict[str, pd.DataFrame]) -> tuple[dict[str, pd.DataFrame], dict[str, int]]:
    """Take what fits into a page.

    Parameters
    ----------
    tables : dict of str to DataFrame
        From `head_facts`, by the model's label.

    Returns
    -------
    kept : dict of str to DataFrame
        The first table, and the further ones whose numbers have room.
    counts : dict of str to int
        For each of them, of how many heads the matrices have.
    """
    kept, used = {}, 0.0
    for label, facts in tables.items():
        size = len(facts) * (len(FACTS) * 4 + 3 * 4) * BASE64
        if not kept or used + size <= FACTS_BUDGET:
            kept[label] = facts
            used += size
    return kept, _matrix_counts(kept, DATA_BUDGET - used)


def _matrix_bytes(facts: pd.DataFrame) -> float:
    return (2 * facts.attrs["block"] ** 2 + facts.attrs["d_head"]) * BASE64


def _matrix_counts(tables: dict[str, pd.DataFrame], budget: float) -> dict[str, int]:
    """Share a budget of bytes: equal parts, and what small models leave goes to the others."""
    wanted = {label: int(facts.closure.notna().sum()) for label, facts in tables.items()}
    counts = {}
    order = sorted(tables, key=lambda label: wanted[label] * _matrix_bytes(tables[label]))
    for position, label in enumerate(order):
        each = _matrix_bytes(tables[label])
        counts[label] = min(wanted[label], max(0, int(budget / (len(order) - position) / each)))
        budget -= counts[label] * each
    return counts
