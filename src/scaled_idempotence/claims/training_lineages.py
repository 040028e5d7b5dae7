"""Claims on training lineages (section 10). Their subject is a lineage and not a model."""

from __future__ import annotations

from functools import partial

import pandas as pd

from .. import paper
from .claim import Claim, Figures, Measurement, Range, measured

SECTION = "Training"
PAPER = paper.TRAJECTORY


def _followed(rows: pd.DataFrame) -> str:
    if not len(rows):
        return "no head ends strong with ordinary ones beside it"
    return "" if rows.step.max() > rows.step.min() else "the lineage has one checkpoint"


_lineage = partial(measured, "trajectory_gaps", "quantity", "step", applies=[_followed])


def _gaps(quantity: str) -> Measurement:
    """Gaps of a quantity at a lineage's first and last checkpoint."""

    @_lineage("strong", "matched", "gap", "low", "high")
    def figures(rows: pd.DataFrame) -> Figures:
        rows = rows.loc[rows.quantity == quantity].sort_values("step")
        first, last = rows.iloc[0], rows.iloc[-1]
        return {
            "early_strong": first.strong,
            "early_matched": first.matched,
            "early": first.strong - first.matched,
            "final": last.gap,
            "low": last.low,
            "high": last.high,
        }

    return figures


@_lineage("gap")
def _final_gaps(rows: pd.DataFrame) -> Figures:
    gaps = rows[rows.step == rows.step.max()].set_index("quantity").gap
    return {name: gaps[name] for name in ("attainment", "capacity")}


def _final(quantity: str, note: str = "") -> Range:
    return Range.of("final", PAPER[f"final_gap_{quantity}"], note=note)


def _each(form: str) -> str:
    """What the paper says of one lineage after the other."""
    return "; ".join(form.format(**row) for row in PAPER.to_dict("records"))


_SMALLEST = _final("capacity").low
_claim = partial(Claim, section=SECTION, subject="lineage")

CLAIMS = (
    _claim(
        id="training.early",
        short="at first, capacity is the same",
        statement="At the first checkpoint heads that will be strong have the capacity of others.",
        criterion="the medians of capacity differ by less, in size, than they do at the end in any "
        f"of the paper's models ({_SMALLEST:.3f})",
        paper=_each("{early_capacity_strong:.3f} and {early_capacity_matched:.3f}"),
        measure=_gaps("capacity"),
        holds=lambda x: abs(x["early"]) < _SMALLEST,
        shown="{early_strong:.3f} and {early_matched:.3f}",
    ),
    _claim(
        id="training.opens",
        short="the gap in closure opens",
        statement="Heads that end strong do not begin so: the gap in closure opens in training.",
        criterion="the gap of median closure at the first checkpoint is below half of that at the "
        "last (which the choice of heads makes positive)",
        paper=_final("closure", " at the end"),
        measure=_gaps("closure"),
        holds=lambda x: x["early"] < x["final"] / 2,
        shown="{early:.3f} to {final:.3f}",
    ),
    _claim(
        id="training.capacity",
        short="some of it is capacity",
        statement="At the end strong heads have somewhat more capacity.",
        criterion="the gap of median capacity at the last checkpoint is positive",
        paper=_final("capacity"),
        measure=_gaps("capacity"),
        holds=lambda x: x["final"] > 0,
        shown="{final:.3f} ({low:.3f} to {high:.3f})",
    ),
    _claim(
        id="training.attainment",
        short="strong heads come to attain more",
        statement="At the end strong heads take more of what is possible.",
        criterion="the gap of median attainment at the last checkpoint is positive, with a "
        "bootstrap interval that leaves zero out",
        paper=_final("attainment"),
        measure=_gaps("attainment"),
        holds=lambda x: x["low"] > 0,
        shown="{final:.3f} ({low:.3f} to {high:.3f})",
    ),
    _claim(
        id="training.mostly",
        short="... more than they gain in capacity",
        statement="What training changes is attainment, more than capacity.",
        criterion="at the last checkpoint the gap of median attainment is larger than that of "
        "capacity",
        paper=_each("{final_gap_attainment:.3f} against {final_gap_capacity:.3f}"),
        measure=_final_gaps,
        holds=lambda x: x["attainment"] > x["capacity"],
        shown="{attainment:.3f} against {capacity:.3f}",
    ),
)
