"""Reasons why a claim does not apply to a model, and small statistics that claims share."""

from __future__ import annotations

import pandas as pd
from scipy import stats

from ..paper import STRONG
from .claim import LEVEL, Check


def strong(heads: pd.DataFrame, column: str = "closure") -> pd.DataFrame:
    """Rows of strong heads; an undefined closure is never strong."""
    return heads.loc[heads[column] >= STRONG]


def strong_heads(heads: pd.DataFrame) -> str:
    """Check that a table has strong heads."""
    return "" if len(strong(heads)) else f"no head reaches P ≥ {STRONG:g}"


def defined_heads(heads: pd.DataFrame) -> str:
    """Check that closure is defined for any head of a table."""
    return "" if heads.closure.notna().any() else "no head has a defined closure"


def several_value_heads(table: pd.DataFrame) -> str:
    """Check that a layer has a wrong ``V`` to try."""
    one = table.attrs["n_value_heads"] == 1
    return "one value head a layer: there is no other V" if one else ""


def siblings(table: pd.DataFrame) -> str:
    """Check that heads share value factors."""
    return "no two heads share a value factor" if table.attrs["topology"] == "MHA" else ""


def was_run(table: pd.DataFrame) -> str:
    """Check that the model could be run at all."""
    attrs = table.attrs
    return "" if attrs.get("measured") else attrs.get("reason") or "the model was not run"


def computed_from_strong(table: str, *, exactly: bool = False) -> Check:
    """A check that a table's threshold lets the strong heads be seen."""

    def check(rows: pd.DataFrame) -> str:
        threshold = rows.attrs.get("threshold")
        wrong = threshold != STRONG if exactly else not (threshold or 1) <= STRONG
        said = f"{table} was computed with the threshold {threshold}, the claim is about {STRONG:g}"
        return said if wrong else ""

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
