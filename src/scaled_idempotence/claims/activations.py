"""Claims on natural activations (section 8)."""

from __future__ import annotations

import pandas as pd

from .. import paper
from .checks import measured, several_value_heads
from .claim import NEAR, Claim, Figures, Tables

SECTION = "Natural activations"
PAPER = paper.ACTIVATIONS["high_decile"]


def _high(tables: Tables) -> pd.DataFrame:
    heads = tables["activations"]
    return heads.loc[heads.group == "high"]


def _aligned(tables: Tables) -> Figures:
    return {"high": _high(tables).cos2_median.median(skipna=False)}


def _turned(tables: Tables) -> Figures:
    heads = tables["activations"]
    low = heads[heads.matched_low.astype(bool)]
    return {"low": low.cos2_median.median(skipna=False)}


def _wrong(tables: Tables) -> Figures:
    return {"wrong_V": _high(tables).wrong_v_cos2_median.median(skipna=False)}


_running = (measured("activations"),)

CLAIMS = (
    Claim(
        id="activations.high",
        section=SECTION,
        short="closure shows on real text",
        statement="On natural text a head of high closure writes what it would write again: its "
        "output y and T y are nearly parallel.",
        criterion="the median squared cosine over the top decile by closure is at least "
        f"{PAPER[0]:.3f}, the paper's lowest",
        paper="{:.3f} to {:.3f}".format(*PAPER),
        needs={"activations": ("group", "cos2_median")},
        measure=_aligned,
        holds=lambda x: x["high"] >= PAPER[0],
        shown="{high:.3f}",
        applies=_running,
        reference=("high", *PAPER),
    ),
    Claim(
        id="activations.low",
        section=SECTION,
        short="... of heads that close alone",
        statement="The outputs of heads of low closure in the same layers are turned away.",
        criterion=f"the median squared cosine over as many low heads is at most {NEAR:g}",
        paper="the paper's comparison",
        needs={"activations": ("matched_low", "cos2_median")},
        measure=_turned,
        holds=lambda x: x["low"] <= NEAR,
        shown="{low:.3f}",
        applies=_running,
    ),
    Claim(
        id="activations.wrong_v",
        section=SECTION,
        short="... and not with a wrong V",
        statement="With the same output and the same O, but a wrong V, nothing is left of it.",
        criterion=f"the median squared cosine over the top decile is at most {NEAR:g}",
        paper="the paper's control",
        needs={"activations": ("group", "wrong_v_cos2_median")},
        measure=_wrong,
        holds=lambda x: x["wrong_V"] <= NEAR,
        shown="{wrong_V:.3f}",
        applies=(*_running, several_value_heads("activations")),
    ),
)
