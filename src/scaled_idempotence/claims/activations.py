"""Claims on natural activations (section 8)."""

from __future__ import annotations

from functools import partial

import pandas as pd

from .. import paper
from .checks import several_value_heads, was_run
from .claim import NEAR, Claim, Figures, Range, measured

SECTION = "Natural activations"
PAPER = Range("high", *paper.ACTIVATIONS["high_decile"])


@measured("activations", "group", "cos2_median", applies=[was_run])
def _aligned(heads: pd.DataFrame) -> Figures:
    return {"high": heads.loc[heads.group == "high", "cos2_median"].median(skipna=False)}


@measured("activations", "matched_low", "cos2_median", applies=[was_run])
def _turned(heads: pd.DataFrame) -> Figures:
    low = heads.matched_low.astype(bool)
    return {"low": heads.loc[low, "cos2_median"].median(skipna=False)}


@measured("activations", "group", "wrong_v_cos2_median", applies=[was_run, several_value_heads])
def _wrong(heads: pd.DataFrame) -> Figures:
    high = heads.group == "high"
    return {"wrong_V": heads.loc[high, "wrong_v_cos2_median"].median(skipna=False)}


_claim = partial(Claim, section=SECTION)

CLAIMS = (
    _claim(
        id="activations.high",
        short="closure shows on real text",
        statement="On natural text a head of high closure writes what it would write again: its "
        "output y and T y are nearly parallel.",
        criterion="the median squared cosine over the top decile by closure is at least "
        f"{PAPER.low:.3f}, the paper's lowest",
        paper=PAPER,
        measure=_aligned,
        holds=lambda x: x["high"] >= PAPER.low,
        shown="{high:.3f}",
    ),
    _claim(
        id="activations.low",
        short="... of heads that close alone",
        statement="The outputs of heads of low closure in the same layers are turned away.",
        criterion=f"the median squared cosine over as many low heads is at most {NEAR:g}",
        paper="the paper's comparison",
        measure=_turned,
        holds=lambda x: x["low"] <= NEAR,
        shown="{low:.3f}",
    ),
    _claim(
        id="activations.wrong_v",
        short="... and not with a wrong V",
        statement="With the same output and the same O, but a wrong V, nothing is left of it.",
        criterion=f"the median squared cosine over the top decile is at most {NEAR:g}",
        paper="the paper's control",
        measure=_wrong,
        holds=lambda x: x["wrong_V"] <= NEAR,
        shown="{wrong_V:.3f}",
    ),
)
