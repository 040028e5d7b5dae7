"""What a claim is, and how a verdict comes out of result tables. No verdict is written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ..verdict import FAILS, HOLDS, NOT_APPLICABLE, NOT_RUN

#: What "near one" and "near zero" mean in the criteria: within this much.
NEAR = 0.1
#: What "falls to nothing" means for a median: to at most this share of what it was.
VANISHING = 0.01
#: Level at which a share counts as lower than the paper's (exact binomial test, one side).
LEVEL = 0.01

Tables = Mapping[str, pd.DataFrame]
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Claim:
    """One quantitative claim as a predicate over result tables.

    Attributes
    ----------
    id : str
        ``section.name``, unique.
    section : str
        Key of `CHAPTERS`.
    short : str
        A few words, for a row of a picture.
    statement : str
        The claim in words.
    criterion : str
        What "holds" means here, in words, with every threshold.
    paper : str
        The paper's figure as it is shown; empty for what goes beyond the paper.
    needs : mapping of str to sequence of str
        The columns that it reads, by table.
    measure : callable
        Takes the tables, gives this model's figures by name. A NaN says that a figure is not
        defined, and is never a claim that holds.
    holds : callable
        Takes the figures, says whether the criterion is met.
    shown : str
        Format of the figures, by their names.
    applies : sequence of callable
        Each takes the tables and says why the claim does not apply, or gives an empty string.
    usable : sequence of callable
        The same for tables that were computed in another way than the claim is about.
    reference : (str, float, float), optional
        One of the figures, and the smallest and the largest of the paper's models.
    subject : {"model", "lineage"}
    """

    id: str
    section: str
    short: str
    statement: str
    criterion: str
    paper: str
    needs: Mapping[str, Sequence[str]]
    measure: Callable[[Tables], Figures]
    holds: Callable[[Figures], bool]
    shown: str
    applies: Sequence[Callable[[Tables], str]] = ()
    usable: Sequence[Callable[[Tables], str]] = ()
    reference: tuple[str, float, float] | None = None
    subject: str = "model"

    @property
    def origin(self) -> str:
        """``"paper"``, or ``"ours"`` for what goes beyond it."""
        return "paper" if self.paper else "ours"


@dataclass(frozen=True)
class Verdict:
    """What came out for one claim and one model.

    Attributes
    ----------
    verdict : str
        One of `VERDICTS`.
    ours : str
        The figures, as they are shown; empty where there are none.
    remark : str
        Why there is no figure.
    place : str
        Where the figure lies to the range of the paper's models, if that gives one.
    """

    verdict: str
    ours: str = ""
    remark: str = ""
    place: str = ""


def judge(claim: Claim, tables: Tables) -> Verdict:
    """Decide one claim.

    Parameters
    ----------
    claim : Claim
    tables : mapping of str to DataFrame
        With the columns that the claim needs.

    Returns
    -------
    Verdict
    """
    for reason in (check(tables) for check in claim.usable):
        if reason:
            return Verdict(NOT_RUN, remark=reason)
    for reason in (check(tables) for check in claim.applies):
        if reason:
            return Verdict(NOT_APPLICABLE, remark=reason)
    figures = {name: float(value) for name, value in claim.measure(tables).items()}
    if undefined := [name for name, value in figures.items() if math.isnan(value)]:
        names = ", ".join(name.replace("_", " ") for name in undefined)
        return Verdict(NOT_APPLICABLE, remark=f"not defined here: {names}")
    verdict = HOLDS if claim.holds(figures) else FAILS
    return Verdict(verdict, claim.shown.format(**figures), place=_place(claim, figures))


def _place(claim: Claim, figures: Figures) -> str:
    if claim.reference is None:
        return ""
    name, low, high = claim.reference
    known = "range" if low < high else "figure"
    if low <= figures[name] <= high:
        return f"within the paper's {known}"
    return f"{'below' if figures[name] < low else 'above'} the paper's {known}"
