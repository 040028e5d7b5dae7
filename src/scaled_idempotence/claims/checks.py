"""Reasons why a claim does not apply to a model, and small statistics that claims share."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from scipy import stats

from ..paper import STRONG
from .claim import LEVEL, Tables

Check = Callable[[Tables], str]


def strong(heads: pd.DataFrame, column: str = "closure") -> pd.DataFrame:
    """Rows of strong heads; an undefined closure is never strong."""
    return heads.loc[heads[column] >= STRONG]


def strong_heads(table: str) -> Check:
    """A check that a table has strong heads."""

    def check(tables: Tables) -> str:
        return "" if len(strong(tables[table])) else f"no head reaches P ≥ {STRONG:g}"

    return check


def defined_heads(table: str) -> Check:
    """A check that closure is defined for any head of a table."""

    def check(tables: Tables) -> str:
        return "" if tables[table].closure.notna().any() else "no head has a defined closure"

    return check


def several_value_heads(table: str) -> Check:
    """A check that a layer has a wrong ``V`` to try."""

    def check(tables: Tables) -> str:
        one = tables[table].attrs["n_value_heads"] == 1
        return "one value head a layer: there is no other V" if one else ""

    return check


def measured(table: str) -> Check:
    """A check that the model could be run at all."""

    def check(tables: Tables) -> str:
        attrs = tables[table].attrs
        return "" if attrs.get("measured") else attrs.get("reason") or "the model was not run"

    return check


def siblings(table: str) -> Check:
    """A check that heads share value factors."""

    def check(tables: Tables) -> str:
        mha = tables[table].attrs["topology"] == "MHA"
        return "no two heads share a value factor" if mha else ""

    return check


def computed_from_strong(table: str, *, exactly: bool = False) -> Check:
    """A check that a table's threshold lets the strong heads be seen."""

    def check(tables: Tables) -> str:
        threshold = tables[table].attrs.get("threshold")
        wrong = threshold != STRONG if exactly else not (threshold or 1) <= STRONG
        return (
            f"{table} was computed with the threshold {threshold}, the claim is about {STRONG:g}"
            if wrong
            else ""
        )

    return check


def as_often(successes: float, trials: float, share: float) -> bool:
    """Whether a count is not lower than a share by more than its size explains.

    Parameters
    ----------
    successes, trials : float
    share : float
        The paper's.

    Returns
    -------
    bool
        False if an exact one-sided binomial test rejects at `LEVEL`.

    Examples
    --------
    >>> as_often(71, 72, 0.9864), as_often(60, 72, 0.9864)
    (True, False)
    """
    test = stats.binomtest(round(successes), round(trials), share, alternative="less")
    return bool(test.pvalue >= LEVEL)


#: What `as_often` means, for criteria.
AS_OFTEN = f"by an exact one-sided binomial test at {LEVEL:.0%}, heads or layers as independent"
