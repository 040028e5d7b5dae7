"""Claims on heads that share a value factor (section 7)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from .. import paper
from ..paper import STRONG
from .checks import computed_from_strong, several_value_heads, siblings, strong, strong_heads
from .claim import NEAR, Check, Claim, Figures, Measurement, Range, measured

SECTION = "Value sharing"
PAPER = paper.SHARING
#: Relative residual |P_i P_j - P_i|^2 / |P_i|^2 that a head of the lowest strong closure has with
#: itself: (1 - P) / P.
BAND = (1 - STRONG) / STRONG
#: By how much rounding may break the bound (20).
ROUNDING = 1e-9


def _of(pairs: pd.DataFrame) -> pd.DataFrame:
    return strong(pairs, "right_closure")


def _both_strong(table: pd.DataFrame) -> pd.DataFrame:
    return strong(_of(table), "left_closure")


def _any_pairs(pairs: pd.DataFrame) -> str:
    return "" if len(_of(pairs)) else f"no right head with siblings reaches P ≥ {STRONG:g}"


def _any_siblings(table: pd.DataFrame) -> str:
    return "" if len(_both_strong(table)) else "no two siblings are both strong"


def _on_pairs(*columns: str, also: tuple[Check, ...] = ()):
    usable = [computed_from_strong("sharing_pairs")]
    applies = [*also, siblings, _any_pairs]
    return measured("sharing_pairs", "right_closure", *columns, applies=applies, usable=usable)


_on_siblings = partial(
    measured, "sharing_siblings", "left_closure", "right_closure",
    applies=[siblings, _any_siblings], usable=[computed_from_strong("sharing_siblings")],
)  # fmt: skip


def _median(name: str, *also: Check) -> Measurement:
    @_on_pairs(name, also=also)
    def figures(pairs: pd.DataFrame) -> Figures:
        return {name: _of(pairs).loc[:, name].median(skipna=False)}

    return figures


@_on_pairs("residual", "bound")
def _bound(pairs: pd.DataFrame) -> Figures:
    pairs = _of(pairs)
    ratio = pairs.residual / pairs.bound
    if ratio.isna().any():
        return {"residual_over_bound": np.nan}
    within = (pairs.residual <= pairs.bound * (1 + ROUNDING)).sum()
    return {"within": within, "pairs": len(pairs), "ratio": ratio.median()}


@_on_pairs("right_product_closure", "left_product_closure")
def _products(pairs: pd.DataFrame) -> Figures:
    pairs = _of(pairs)
    right, left = pairs.right_product_closure, pairs.left_product_closure
    return {"right": right.median(skipna=False), "left": left.median(skipna=False)}


@_on_siblings("band_residual", "band_residual_reverse")
def _band(table: pd.DataFrame) -> Figures:
    both = _both_strong(table)[["band_residual", "band_residual_reverse"]]
    return {"residual": np.nan if both.isna().to_numpy().any() else np.median(both)}


@_on_siblings("squared_cosine")
def _likeness(table: pd.DataFrame) -> Figures:
    return {"highest": _both_strong(table).squared_cosine.max(skipna=False)}


@measured(
    "sharing_anchors", "closure", "retrieval_rank", applies=[several_value_heads, strong_heads]
)
def _retrieved(heads: pd.DataFrame) -> Figures:
    rank = strong(heads).retrieval_rank
    first = np.nan if rank.isna().any() else (rank == 1).sum()
    return {"first": first, "strong": len(rank), "candidates": heads.attrs["n_value_heads"]}


_claim = partial(Claim, section=SECTION)

CLAIMS = (
    _claim(
        id="sharing.F",
        short="siblings inherit the gain (F)",
        statement="Behind a strong right head a sibling keeps its shape, with the right head's α "
        "as it is: F near one.",
        criterion=f"the median of F over pairs is at least {1 - NEAR:g}",
        paper=Range.of("F", PAPER.F),
        measure=_median("F"),
        holds=lambda x: x["F"] >= 1 - NEAR,
        shown="{F:.3f}",
    ),
    _claim(
        id="sharing.rho",
        short="... the whole of it (ρ)",
        statement="The gain that a sibling inherits is the right head's own: ρ near one.",
        criterion=f"the median of ρ over pairs is within {NEAR:g} of 1",
        paper=Range.of("rho", PAPER.rho),
        measure=_median("rho"),
        holds=lambda x: abs(x["rho"] - 1) <= NEAR,
        shown="{rho:.3f}",
    ),
    _claim(
        id="sharing.control",
        short="... and strangers do not",
        statement="A head of the next value group inherits nothing: ρ near zero.",
        criterion=f"the median of the control's ρ over pairs is within {NEAR:g} of 0",
        paper=Range.of("control_rho", PAPER.control_rho.dropna()),
        measure=_median("control_rho", several_value_heads),
        holds=lambda x: abs(x["control_rho"]) <= NEAR,
        shown="{control_rho:.3f}",
    ),
    _claim(
        id="sharing.bound",
        short="the bound (20) holds",
        statement="How far a product is from the law is bounded by how far the right head is from "
        "closing (20).",
        criterion=f"for every pair, up to rounding ({ROUNDING:.0e})",
        paper="a theorem",
        measure=_bound,
        holds=lambda x: x["within"] == x["pairs"],
        shown="{within:.0f} of {pairs:.0f} pairs, in the median at {ratio:.0%} of it",
    ),
    _claim(
        id="sharing.left",
        short="the left product has no law",
        statement="The product resembles its left factor; it does not resemble its right factor in "
        "the same way.",
        criterion="the median squared cosine with the right factor is below half of that with the "
        "left one",
        paper="no law for the right factor",
        measure=_products,
        holds=lambda x: x["left"] < x["right"] / 2,
        shown="{left:.3f} against {right:.3f}",
    ),
    _claim(
        id="sharing.band",
        short="strong siblings: a left-zero band",
        statement="Normalised strong siblings multiply as P_i P_j = P_i, in both orders.",
        criterion=f"the median of |P_i P_j - P_i|² / |P_i|² is at most {BAND:.3f}, which a head of "
        f"P = {STRONG:g} has with itself",
        paper="a left-zero band (19)",
        measure=_band,
        holds=lambda x: x["residual"] <= BAND,
        shown="{residual:.3f}",
    ),
    _claim(
        id="sharing.duplicates",
        short="... and no duplicates",
        statement="Strong siblings are not copies of one another.",
        criterion=f"no two have a squared cosine of {STRONG:g} or more",
        paper="not duplicates",
        measure=_likeness,
        holds=lambda x: x["highest"] < STRONG,
        shown="at most {highest:.3f}",
    ),
    _claim(
        id="sharing.retrieval",
        short="the anchor finds its V",
        statement="A strong head's anchor tells its own value factor from the others of the layer.",
        criterion="the trained V ranks first for every strong head",
        paper="the trained V by its anchor",
        measure=_retrieved,
        holds=lambda x: x["first"] == x["strong"],
        shown="{first:.0f} of {strong:.0f}, out of {candidates:.0f}",
    ),
)
