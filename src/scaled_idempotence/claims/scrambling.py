"""Claims on the orientation of the core (section 5)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from .. import paper
from ..experiments.orientation import orientation_summary
from .checks import AS_OFTEN, as_often, defined_heads
from .claim import VANISHING, Claim, Figures, Range, measured

SECTION = "Scrambling"
PAPER = paper.ORIENTATION
#: Factor by which the mean over heads of scrambled closure / closed-form null may miss 1: the null
#: is of first order, and a few Haar draws a head leave an error of sampling.
NULL_FACTOR = 1.5
#: p value of the closed-form null from which a head lies beyond random orientations.
BEYOND = 0.01

_SCORES = ("permutation_closure", "haar_closure", "permutation_max", "haar_max")
_KINDS = {"permutation": "signed permutations", "haar": "Haar rotations"}

_orientation = partial(measured, "orientation", "closure", applies=[defined_heads])


@_orientation(*_SCORES)
def _study(heads: pd.DataFrame) -> Figures:
    heads = heads.dropna(subset="closure")
    if heads[list(_SCORES)].isna().to_numpy().any():
        # A scramble without a score would count as one that the trained head beat.
        return {"closure_of_every_scramble": np.nan}
    figures = orientation_summary(heads).to_dict()
    shares = {f"{kind}_share": figures[kind] / figures["trained"] for kind in _KINDS}
    return {**figures, **shares}


@_orientation("haar_mean", "null")
def _null(heads: pd.DataFrame) -> Figures:
    heads = heads.dropna(subset="closure")
    return {"ratio": (heads.haar_mean / heads.null).mean(skipna=False)}


@_orientation("null_p")
def _beyond(heads: pd.DataFrame) -> Figures:
    p = heads.dropna(subset="closure").null_p
    return {"share": np.nan if p.isna().any() else (p < BEYOND).mean()}


@_orientation("singular_value_error")
def _spectrum(heads: pd.DataFrame) -> Figures:
    return {"largest_error": heads.dropna(subset="closure").singular_value_error.max(skipna=False)}


def _vanishes(kind: str) -> Callable[[Figures], bool]:
    return lambda x: x[f"{kind}_share"] <= VANISHING


def _wins(kind: str) -> Callable[[Figures], bool]:
    share = PAPER[f"{kind}_wins"]
    return lambda x: as_often(x[f"{kind}_wins"] * x["heads"], x["heads"], share)


_claim = partial(Claim, section=SECTION)

CLAIMS = (
    *(
        _claim(
            id=f"scrambling.{kind}",
            short=f"{words} destroy closure",
            statement=f"Closure vanishes when the core is turned by {words}, with spectrum, "
            "subspaces and angles held fixed.",
            criterion=f"the median over heads falls to at most {VANISHING:.0%} of the trained one",
            paper=f"{PAPER['trained']:.3f} to {PAPER[kind]:.2e} "
            f"({PAPER[kind] / PAPER['trained']:.2%} of it)",
            measure=_study,
            holds=_vanishes(kind),
            shown=f"{{trained:.3f}} to {{{kind}:.2e}} ({{{kind}_share:.2%}} of it)",
        )
        for kind, words in _KINDS.items()
    ),
    *(
        _claim(
            id=f"scrambling.{kind}_wins",
            short=f"trained beats {words}",
            statement=f"Nearly every head has a higher closure than under {words}.",
            criterion="not in a smaller share of heads than the paper's "
            f"{PAPER[f'{kind}_wins']:.2%}, {AS_OFTEN}",
            paper=f"{PAPER[f'{kind}_wins']:.2%} of {PAPER['heads']:,} heads",
            measure=_study,
            holds=_wins(kind),
            shown=f"{{{kind}_wins:.2%}} of {{heads:.0f}} heads",
            reference=Range.of(f"{kind}_wins", [PAPER[f"{kind}_wins"]]),
        )
        for kind, words in _KINDS.items()
    ),
    _claim(
        id="scrambling.layers",
        short="... in all layers",
        statement="The median of a layer is higher as trained than under both kinds of scrambles.",
        criterion="in all layers",
        paper=f"all of {PAPER['layers']} layers",
        measure=_study,
        holds=lambda x: min(x["permutation_layers"], x["haar_layers"]) == x["layers"],
        shown="{permutation_layers:.0f} and {haar_layers:.0f} of {layers:.0f}",
    ),
    _claim(
        id="scrambling.highest",
        short=f"no scramble reaches {PAPER['scrambled_below']:g}",
        statement=f"No scramble of any head reaches P = {PAPER['scrambled_below']:g}.",
        criterion=f"the highest of all draws is below {PAPER['scrambled_below']:g}",
        paper=f"below {PAPER['scrambled_below']:g}",
        measure=_study,
        holds=lambda x: x["highest"] < PAPER["scrambled_below"],
        shown="{highest:.3f}",
    ),
    _claim(
        id="scrambling.spectrum",
        short="scrambles keep the spectrum",
        statement="The scrambles hold the singular values of the core fixed.",
        criterion="no singular value moves by "
        f"{PAPER['singular_value_error']:.0e} of the largest or more",
        paper=f"below {PAPER['singular_value_error']:.0e}",
        measure=_spectrum,
        holds=lambda x: x["largest_error"] < PAPER["singular_value_error"],
        shown="{largest_error:.0e}",
    ),
    _claim(
        id="scrambling.null",
        short="the null in closed form is right",
        statement="Scrambled closure has the mean that the spectrum alone predicts, Σs⁶ / (Σs²)³.",
        criterion="the mean over heads of Haar closure over its null misses 1 by less than a "
        f"factor of {NULL_FACTOR:g}",
        measure=_null,
        holds=lambda x: 1 / NULL_FACTOR < x["ratio"] < NULL_FACTOR,
        shown="{ratio:.2f}",
    ),
    _claim(
        id="scrambling.beyond",
        short="most heads are beyond their null",
        statement="Orientation is trained in most heads, not in the strong ones alone.",
        criterion=f"more than half of the heads lie above what {BEYOND:.0%} of random orientations "
        "of their own spectrum reach",
        measure=_beyond,
        holds=lambda x: x["share"] > 0.5,
        shown="{share:.1%}",
    ),
)
