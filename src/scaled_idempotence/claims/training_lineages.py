"""Claims on training lineages (section 10). Their subject is a lineage and not a model."""

from __future__ import annotations

from .. import paper
from .claim import Claim, Figures, Tables

SECTION = "Training"
PAPER = paper.TRAJECTORY


def _gaps(quantity: str):
    """Gaps of a quantity at a lineage's first and last checkpoint."""

    def measure(tables: Tables) -> Figures:
        rows = tables["trajectory_gaps"]
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

    return measure


def _final_gaps(tables: Tables) -> Figures:
    rows = tables["trajectory_gaps"]
    gaps = rows[rows.step == rows.step.max()].set_index("quantity").gap
    return {name: gaps[name] for name in ("attainment", "capacity")}


def _followed(tables: Tables) -> str:
    rows = tables["trajectory_gaps"]
    if not len(rows):
        return "no head ends strong with ordinary ones beside it"
    return "" if rows.step.nunique() > 1 else "the lineage has one checkpoint"


def _range(column: str) -> str:
    return f"{PAPER[column].min():.3f} to {PAPER[column].max():.3f}"


_gaps_of_lineage = {
    "trajectory_gaps": ("quantity", "step", "strong", "matched", "gap", "low", "high")
}
_lineage = {
    "section": SECTION,
    "applies": (_followed,),
    "subject": "lineage",
}
_SMALLEST = PAPER.final_gap_capacity.min()

CLAIMS = (
    Claim(
        id="training.early",
        short="at first, capacity is the same",
        statement="At the first checkpoint heads that will be strong have the capacity of others.",
        criterion="the medians of capacity differ by less, in size, than they do at the end in any "
        f"of the paper's models ({_SMALLEST:.3f})",
        paper="; ".join(
            f"{strong:.3f} and {matched:.3f}"
            for strong, matched in zip(
                PAPER.early_capacity_strong, PAPER.early_capacity_matched, strict=True
            )
        ),
        needs=_gaps_of_lineage,
        measure=_gaps("capacity"),
        holds=lambda x: abs(x["early"]) < _SMALLEST,
        shown="{early_strong:.3f} and {early_matched:.3f}",
        **_lineage,
    ),
    Claim(
        id="training.opens",
        short="the gap in closure opens",
        statement="Heads that end strong do not begin so: the gap in closure opens in training.",
        criterion="the gap of median closure at the first checkpoint is below half of that at the "
        "last (which the choice of heads makes positive)",
        paper=f"{_range('final_gap_closure')} at the end",
        needs=_gaps_of_lineage,
        measure=_gaps("closure"),
        holds=lambda x: x["early"] < x["final"] / 2,
        shown="{early:.3f} to {final:.3f}",
        reference=("final", PAPER.final_gap_closure.min(), PAPER.final_gap_closure.max()),
        **_lineage,
    ),
    Claim(
        id="training.capacity",
        short="some of it is capacity",
        statement="At the end strong heads have somewhat more capacity.",
        criterion="the gap of median capacity at the last checkpoint is positive",
        paper=_range("final_gap_capacity"),
        needs=_gaps_of_lineage,
        measure=_gaps("capacity"),
        holds=lambda x: x["final"] > 0,
        shown="{final:.3f} ({low:.3f} to {high:.3f})",
        reference=("final", PAPER.final_gap_capacity.min(), PAPER.final_gap_capacity.max()),
        **_lineage,
    ),
    Claim(
        id="training.attainment",
        short="strong heads come to attain more",
        statement="At the end strong heads take more of what is possible.",
        criterion="the gap of median attainment at the last checkpoint is positive, with a "
        "bootstrap interval that leaves zero out",
        paper=_range("final_gap_attainment"),
        needs=_gaps_of_lineage,
        measure=_gaps("attainment"),
        holds=lambda x: x["low"] > 0,
        shown="{final:.3f} ({low:.3f} to {high:.3f})",
        reference=("final", PAPER.final_gap_attainment.min(), PAPER.final_gap_attainment.max()),
        **_lineage,
    ),
    Claim(
        id="training.mostly",
        short="... more than they gain in capacity",
        statement="What training changes is attainment, more than capacity.",
        criterion="at the last checkpoint the gap of median attainment is larger than that of "
        "capacity",
        paper="; ".join(
            f"{attainment:.3f} against {capacity:.3f}"
            for attainment, capacity in zip(
                PAPER.final_gap_attainment, PAPER.final_gap_capacity, strict=True
            )
        ),
        needs={"trajectory_gaps": ("quantity", "step", "gap")},
        measure=_final_gaps,
        holds=lambda x: x["attainment"] > x["capacity"],
        shown="{attainment:.3f} against {capacity:.3f}",
        **_lineage,
    ),
)
