"""What a claim is, and how a verdict comes out of result tables. No verdict is written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
#: Takes a table and says why there is nothing to judge in it, or gives an empty string.
Check = Callable[[pd.DataFrame], str]


@dataclass(frozen=True)
class Measurement:
    """Figures of one result table, and when it has any; made by `measured`.

    Attributes
    ----------
    table : str
    columns : tuple of str
        That it reads.
    figures : callable
        Takes the table, gives this model's figures by name. A NaN says that a figure is not
        defined, and is never a claim that holds.
    applies : sequence of Check
        Why there is nothing to measure in this model.
    usable : sequence of Check
        Why the table was computed in another way than is measured here.
    """

    table: str
    columns: tuple[str, ...]
    figures: Callable[[pd.DataFrame], Figures]
    applies: Sequence[Check] = ()
    usable: Sequence[Check] = ()


def measured(
    table: str, *columns: str, applies: Sequence[Check] = (), usable: Sequence[Check] = ()
) -> Callable[[Callable[[pd.DataFrame], Figures]], Measurement]:
    """Make a function a `Measurement`, as a decorator.

    Parameters
    ----------
    table : str
    *columns : str
        That the function reads.
    applies, usable : sequence of Check

    Returns
    -------
    callable
        Takes the function of the table, gives the measurement.
    """
    return lambda figures: Measurement(table, columns, figures, applies, usable)


@dataclass(frozen=True)
class Range:
    """The smallest and the largest of the paper's models, of one of a claim's figures.

    Attributes
    ----------
    figure : str
    low, high : float
    form : str
        Format of the two, as they are shown.
    note : str
        What is said behind them.
    """

    figure: str
    low: float
    high: float
    form: str = ".3f"
    note: str = ""

    @classmethod
    def of(cls, figure: str, values: Iterable[float], form: str = ".3f", note: str = "") -> Range:
        """The range of some values."""
        values = list(values)
        return cls(figure, min(values), max(values), form, note)

    def __str__(self) -> str:
        return f"{self.low:{self.form}} to {self.high:{self.form}}{self.note}"


@dataclass(frozen=True)
class Claim:
    """One quantitative claim as a predicate over a result table.

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
    measure : Measurement
        What is measured, and where.
    holds : callable
        Takes the figures, says whether the criterion is met.
    shown : str
        Format of the figures, by their names.
    paper : str or Range
        The paper's figure; empty for what goes beyond the paper.
    reference : Range, optional
        Of the paper's models, where `paper` says more or other than it.
    subject : {"model", "lineage"}
    """

    id: str
    section: str
    short: str
    statement: str
    criterion: str
    measure: Measurement
    holds: Callable[[Figures], bool]
    shown: str
    paper: str | Range = ""
    reference: Range | None = None
    subject: str = "model"

    @property
    def needs(self) -> Mapping[str, Sequence[str]]:
        """The columns that it reads, by table."""
        return {self.measure.table: self.measure.columns}

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
    measure, table = claim.measure, tables[claim.measure.table]
    for verdict, checks in ((NOT_RUN, measure.usable), (NOT_APPLICABLE, measure.applies)):
        for reason in filter(None, (check(table) for check in checks)):
            return Verdict(verdict, remark=reason)
    figures = {name: float(value) for name, value in measure.figures(table).items()}
    if undefined := [name for name, value in figures.items() if math.isnan(value)]:
        names = ", ".join(name.replace("_", " ") for name in undefined)
        return Verdict(NOT_APPLICABLE, remark=f"not defined here: {names}")
    verdict = HOLDS if claim.holds(figures) else FAILS
    return Verdict(verdict, claim.shown.format(**figures), place=_place(claim, figures))


def _place(claim: Claim, figures: Figures) -> str:
    known = claim.paper if isinstance(claim.paper, Range) else claim.reference
    if known is None:
        return ""
    value, word = figures[known.figure], "range" if known.low < known.high else "figure"
    where = "below" if value < known.low else "above" if value > known.high else "within"
    return f"{where} the paper's {word}"
