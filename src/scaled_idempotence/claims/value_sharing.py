"""Claims on heads that share a value factor (section 7)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .. import paper
from ..paper import STRONG
from .checks import (
    computed_from_strong,
    several_value_heads,
    siblings,
    strong,
    strong_heads,
)
from .claim import NEAR, Claim, Figures, Tables

SECTION = "Value sharing"
PAPER = paper.SHARING
#: Relative residual |P_i P_j - P_i|^2 / |P_i|^2 that a head of the lowest strong closure has with
#: itself: (1 - P) / P.
BAND = (1 - STRONG) / STRONG
#: By how much rounding may break the bound (20).
ROUNDING = 1e-9


def _pairs(tables: Tables) -> pd.DataFrame:
    return strong(tables["sharing_pairs"], "right_closure")


def _strong_siblings(tables: Tables) -> pd.DataFrame:
    return strong(strong(tables["sharing_siblings"], "left_closure"), "right_closure")


def _median(name: str):
    return lambda tables: {name: _pairs(tables).loc[:, name].median(skipna=False)}


def _bound(tables: Tables) -> Figures:
    pairs = _pairs(tables)
    ratio = pairs.residual / pairs.bound
    if ratio.isna().any():
        return {"residual_over_bound": np.nan}
    return {
        "within": (pairs.residual <= pairs.bound * (1 + ROUNDING)).sum(),
        "pairs": len(pairs),
        "ratio": ratio.median(),
    }


def _products(tables: Tables) -> Figures:
    pairs = _pairs(tables)
    return {
        "right": pairs.right_product_closure.median(skipna=False),
        "left": pairs.left_product_closure.median(skipna=False),
    }


def _band(tables: Tables) -> Figures:
    both = _strong_siblings(tables)[["band_residual", "band_residual_reverse"]]
    return {"residual": np.nan if both.isna().to_numpy().any() else np.median(both)}


def _retrieved(tables: Tables) -> Figures:
    rank = strong(tables["sharing_anchors"]).retrieval_rank
    first = np.nan if rank.isna().any() else (rank == 1).sum()
    candidates = tables["sharing_anchors"].attrs["n_value_heads"]
    return {"first": first, "strong": len(rank), "candidates": candidates}


def _any_pairs(tables: Tables) -> str:
    return "" if len(_pairs(tables)) else f"no right head with siblings reaches P ≥ {STRONG:g}"


def _any_siblings(tables: Tables) -> str:
    return "" if len(_strong_siblings(tables)) else "no two siblings are both strong"


_on_pairs = {
    "applies": (siblings("sharing_pairs"), _any_pairs),
    "usable": (computed_from_strong("sharing_pairs"),),
}
_on_siblings = {
    "applies": (siblings("sharing_siblings"), _any_siblings),
    "usable": (computed_from_strong("sharing_siblings"),),
}

CLAIMS = (
    Claim(
        id="sharing.F",
        section=SECTION,
        short="siblings inherit the gain (F)",
        statement="Behind a strong right head a sibling keeps its shape, with the right head's α "
        "as it is: F near one.",
        criterion=f"the median of F over pairs is at least {1 - NEAR:g}",
        paper=f"{PAPER.F.min():.3f} to {PAPER.F.max():.3f}",
        needs={"sharing_pairs": ("right_closure", "F")},
        measure=_median("F"),
        holds=lambda x: x["F"] >= 1 - NEAR,
        shown="{F:.3f}",
        reference=("F", PAPER.F.min(), PAPER.F.max()),
        **_on_pairs,
    ),
    Claim(
        id="sharing.rho",
        section=SECTION,
        short="... the whole of it (ρ)",
        statement="The gain that a sibling inherits is the right head's own: ρ near one.",
        criterion=f"the median of ρ over pairs is within {NEAR:g} of 1",
        paper=f"{PAPER.rho.min():.3f} to {PAPER.rho.max():.3f}",
        needs={"sharing_pairs": ("right_closure", "rho")},
        measure=_median("rho"),
        holds=lambda x: abs(x["rho"] - 1) <= NEAR,
        shown="{rho:.3f}",
        reference=("rho", PAPER.rho.min(), PAPER.rho.max()),
        **_on_pairs,
    ),
    Claim(
        id="sharing.control",
        section=SECTION,
        short="... and strangers do not",
        statement="A head of the next value group inherits nothing: ρ near zero.",
        criterion=f"the median of the control's ρ over pairs is within {NEAR:g} of 0",
        paper=f"{PAPER.control_rho.min():.3f} to {PAPER.control_rho.max():.3f}",
        needs={"sharing_pairs": ("right_closure", "control_rho")},
        measure=_median("control_rho"),
        holds=lambda x: abs(x["control_rho"]) <= NEAR,
        shown="{control_rho:.3f}",
        applies=(several_value_heads("sharing_pairs"), *_on_pairs["applies"]),
        usable=_on_pairs["usable"],
        reference=("control_rho", PAPER.control_rho.min(), PAPER.control_rho.max()),
    ),
    Claim(
        id="sharing.bound",
        section=SECTION,
        short="the bound (20) holds",
        statement="How far a product is from the law is bounded by how far the right head is from "
        "closing (20).",
        criterion=f"for every pair, up to rounding ({ROUNDING:.0e})",
        paper="a theorem",
        needs={"sharing_pairs": ("right_closure", "residual", "bound")},
        measure=_bound,
        holds=lambda x: x["within"] == x["pairs"],
        shown="{within:.0f} of {pairs:.0f} pairs, in the median at {ratio:.0%} of it",
        **_on_pairs,
    ),
    Claim(
        id="sharing.left",
        section=SECTION,
        short="the left product has no law",
        statement="The product resembles its left factor; it does not resemble its right factor in "
        "the same way.",
        criterion="the median squared cosine with the right factor is below half of that with the "
        "left one",
        paper="no law for the right factor",
        needs={"sharing_pairs": ("right_closure", "right_product_closure", "left_product_closure")},
        measure=_products,
        holds=lambda x: x["left"] < x["right"] / 2,
        shown="{left:.3f} against {right:.3f}",
        **_on_pairs,
    ),
    Claim(
        id="sharing.band",
        section=SECTION,
        short="strong siblings: a left-zero band",
        statement="Normalised strong siblings multiply as P_i P_j = P_i, in both orders.",
        criterion=f"the median of |P_i P_j - P_i|² / |P_i|² is at most {BAND:.3f}, which a head of "
        f"P = {STRONG:g} has with itself",
        paper="a left-zero band (19)",
        needs={
            "sharing_siblings": (
                "left_closure",
                "right_closure",
                "band_residual",
                "band_residual_reverse",
            )
        },
        measure=_band,
        holds=lambda x: x["residual"] <= BAND,
        shown="{residual:.3f}",
        **_on_siblings,
    ),
    Claim(
        id="sharing.duplicates",
        section=SECTION,
        short="... and no duplicates",
        statement="Strong siblings are not copies of one another.",
        criterion=f"no two have a squared cosine of {STRONG:g} or more",
        paper="not duplicates",
        needs={"sharing_siblings": ("left_closure", "right_closure", "squared_cosine")},
        measure=lambda t: {"highest": _strong_siblings(t).squared_cosine.max(skipna=False)},
        holds=lambda x: x["highest"] < STRONG,
        shown="at most {highest:.3f}",
        **_on_siblings,
    ),
    Claim(
        id="sharing.retrieval",
        section=SECTION,
        short="the anchor finds its V",
        statement="A strong head's anchor tells its own value factor from the others of the layer.",
        criterion="the trained V ranks first for every strong head",
        paper="the trained V by its anchor",
        needs={"sharing_anchors": ("closure", "retrieval_rank")},
        measure=_retrieved,
        holds=lambda x: x["first"] == x["strong"],
        shown="{first:.0f} of {strong:.0f}, out of {candidates:.0f}",
        applies=(several_value_heads("sharing_anchors"), strong_heads("sharing_anchors")),
    ),
)
