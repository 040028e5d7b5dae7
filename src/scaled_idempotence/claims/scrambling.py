"""Claims on the orientation of the core (section 5)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import paper
from ..experiments.orientation import orientation_summary
from .checks import AS_OFTEN, as_often, defined_heads
from .claim import VANISHING, Claim, Figures, Tables

SECTION = "Scrambling"
PAPER = paper.ORIENTATION
#: Factor by which the mean over heads of scrambled closure / closed-form null may miss 1: the null
#: is of first order, and a few Haar draws a head leave an error of sampling.
NULL_FACTOR = 1.5
#: p value of the closed-form null from which a head lies beyond random orientations.
BEYOND = 0.01

_SCORES = ("permutation_closure", "haar_closure", "permutation_max", "haar_max")
_KINDS = {"permutation": "signed permutations", "haar": "Haar rotations"}


def _study(tables: Tables) -> Figures:
    table = tables["orientation"].dropna(subset="closure")
    if table[list(_SCORES)].isna().to_numpy().any():
        # A scramble without a score would count as one that the trained head beat.
        return {"closure_of_every_scramble": np.nan}
    figures = orientation_summary(table).to_dict()
    shares = {f"{kind}_share": figures[kind] / figures["trained"] for kind in _KINDS}
    return {**figures, **shares}


def _null(tables: Tables) -> Figures:
    table = tables["orientation"].dropna(subset="closure")
    return {"ratio": (table.haar_mean / table.null).mean(skipna=False)}


def _beyond(tables: Tables) -> Figures:
    p = tables["orientation"].dropna(subset="closure").null_p
    return {"share": np.nan if p.isna().any() else (p < BEYOND).mean()}


def _spectrum(tables: Tables) -> Figures:
    table = tables["orientation"].dropna(subset="closure")
    return {"largest_error": table.singular_value_error.max(skipna=False)}


def _vanishes(kind: str) -> Callable[[Figures], bool]:
    return lambda x: x[f"{kind}_share"] <= VANISHING


def _wins(kind: str) -> Callable[[Figures], bool]:
    share = PAPER[f"{kind}_wins"]
    return lambda x: as_often(x[f"{kind}_wins"] * x["heads"], x["heads"], share)


_scored = {"orientation": ("closure", *_SCORES)}
_defined = (defined_heads("orientation"),)

CLAIMS = (
    *(
        Claim(
            id=f"scrambling.{kind}",
            section=SECTION,
            short=f"{words} destroy closure",
            statement=f"Closure vanishes when the core is turned by {words}, with spectrum, "
            "subspaces and angles held fixed.",
            criterion=f"the median over heads falls to at most {VANISHING:.0%} of the trained one",
            paper=f"{PAPER['trained']:.3f} to {PAPER[kind]:.2e} "
            f"({PAPER[kind] / PAPER['trained']:.2%} of it)",
            needs=_scored,
            measure=_study,
            holds=_vanishes(kind),
            shown=f"{{trained:.3f}} to {{{kind}:.2e}} ({{{kind}_share:.2%}} of it)",
            applies=_defined,
        )
        for kind, words in _KINDS.items()
    ),
    *(
        Claim(
            id=f"scrambling.{kind}_wins",
            section=SECTION,
            short=f"trained beats {words}",
            statement=f"Nearly every head has a higher closure than under {words}.",
            criterion="not in a smaller share of heads than the paper's "
            f"{PAPER[f'{kind}_wins']:.2%}, {AS_OFTEN}",
            paper=f"{PAPER[f'{kind}_wins']:.2%} of {PAPER['heads']:,} heads",
            needs=_scored,
            measure=_study,
            holds=_wins(kind),
            shown=f"{{{kind}_wins:.2%}} of {{heads:.0f}} heads",
            applies=_defined,
            reference=(f"{kind}_wins", *2 * [PAPER[f"{kind}_wins"]]),
        )
        for kind, words in _KINDS.items()
    ),
    Claim(
        id="scrambling.layers",
        section=SECTION,
        short="... in all layers",
        statement="The median of a layer is higher as trained than under both kinds of scrambles.",
        criterion="in all layers",
        paper=f"all of {PAPER['layers']} layers",
        needs=_scored,
        measure=_study,
        holds=lambda x: min(x["permutation_layers"], x["haar_layers"]) == x["layers"],
        shown="{permutation_layers:.0f} and {haar_layers:.0f} of {layers:.0f}",
        applies=_defined,
    ),
    Claim(
        id="scrambling.highest",
        section=SECTION,
        short=f"no scramble reaches {PAPER['scrambled_below']:g}",
        statement=f"No scramble of any head reaches P = {PAPER['scrambled_below']:g}.",
        criterion=f"the highest of all draws is below {PAPER['scrambled_below']:g}",
        paper=f"below {PAPER['scrambled_below']:g}",
        needs=_scored,
        measure=_study,
        holds=lambda x: x["highest"] < PAPER["scrambled_below"],
        shown="{highest:.3f}",
        applies=_defined,
    ),
    Claim(
        id="scrambling.spectrum",
        section=SECTION,
        short="scrambles keep the spectrum",
        statement="The scrambles hold the singular values of the core fixed.",
        criterion="no singular value moves by "
        f"{PAPER['singular_value_error']:.0e} of the largest or more",
        paper=f"below {PAPER['singular_value_error']:.0e}",
        needs={"orientation": ("closure", "singular_value_error")},
        measure=_spectrum,
        holds=lambda x: x["largest_error"] < PAPER["singular_value_error"],
        shown="{largest_error:.0e}",
        applies=_defined,
    ),
    Claim(
        id="scrambling.null",
        section=SECTION,
        short="the null in closed form is right",
        statement="Scrambled closure has the mean that the spectrum alone predicts, Σs⁶ / (Σs²)³.",
        criterion="the mean over heads of Haar closure over its null misses 1 by less than a "
        f"factor of {NULL_FACTOR:g}",
        paper="",
        needs={"orientation": ("closure", "haar_mean", "null")},
        measure=_null,
        holds=lambda x: 1 / NULL_FACTOR < x["ratio"] < NULL_FACTOR,
        shown="{ratio:.2f}",
        applies=_defined,
    ),
    Claim(
        id="scrambling.beyond",
        section=SECTION,
        short="most heads are beyond their null",
        statement="Orientation is trained in most heads, not in the strong ones alone.",
        criterion=f"more than half of the heads lie above what {BEYOND:.0%} of random orientations "
        "of their own spectrum reach",
        paper="",
        needs={"orientation": ("closure", "null_p")},
        measure=_beyond,
        holds=lambda x: x["share"] > 0.5,
        shown="{share:.1%}",
        applies=_defined,
    ),
)
