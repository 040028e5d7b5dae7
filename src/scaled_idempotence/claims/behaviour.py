"""Claims on natural activations and on the function of heads (sections 8 and 9)."""

from __future__ import annotations

import pandas as pd

from .. import paper
from .checks import Check, computed_from_strong, several_value_heads
from .claim import NEAR, Claim, Figures, Tables

ACTIVATIONS, FUNCTION = "Natural activations", "Function"
PAPER = paper.ACTIVATIONS["high_decile"]


def _measured(table: str) -> Check:
    """A check that the model could be run at all."""

    def check(tables: Tables) -> str:
        attrs = tables[table].attrs
        return "" if attrs.get("measured") else attrs.get("reason") or "the model was not run"

    return check


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


def _together(table: pd.DataFrame, group: str) -> pd.DataFrame:
    return table.loc[(table.scope == "together") & (table.group == group)]


def _changes(group: str):
    def measure(tables: Tables) -> Figures:
        rows = _together(tables["function"], group)
        deltas = {
            name: rows[rows.intervention == name].delta.mean(skipna=False)
            for name in ("projected", "random", "zeroed")
        }
        return {**deltas, "heads": rows.n_heads.max()}

    return measure


def _moved(group: str) -> Check:
    def check(tables: Tables) -> str:
        some = len(_together(tables["function"], group))
        return "" if some else f"there are no {group} heads to move"

    return check


_running = (_measured("activations"),)
_moves = {"function": ("scope", "group", "intervention", "delta", "n_heads")}

CLAIMS = (
    Claim(
        id="activations.high",
        section=ACTIVATIONS,
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
        section=ACTIVATIONS,
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
        section=ACTIVATIONS,
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
    *(
        Claim(
            id=f"function.{group}_zeroed",
            section=FUNCTION,
            short=f"{group} heads: algebra better than zero",
            statement=f"Put {words} into the algebra, and less is lost than by leaving them out.",
            criterion="projecting them together changes the model's measure by less than zeroing "
            "them does",
            paper="",
            needs=_moves,
            measure=_changes(group),
            holds=lambda x: x["projected"] < x["zeroed"],
            shown="{projected:+.3g} against {zeroed:+.3g} ({heads:.0f} heads)",
            applies=(_measured("function"), _moved(group)),
            usable=(computed_from_strong("function", exactly=True),) if group == "strong" else (),
        )
        for group, words in (("strong", "strong heads"), ("all", "all heads"))
    ),
    *(
        Claim(
            id=f"function.{group}_random",
            section=FUNCTION,
            short=f"{group} heads: departure carries function",
            statement=f"What keeps {words} out of the algebra is not noise: taking it away costs "
            "more than a random change of equal norm.",
            criterion="projecting them together changes the model's measure by more than the mean "
            "of the random changes",
            paper="",
            needs=_moves,
            measure=_changes(group),
            holds=lambda x: x["projected"] > x["random"],
            shown="{projected:+.3g} against {random:+.3g} ({heads:.0f} heads)",
            applies=(_measured("function"), _moved(group)),
            usable=(computed_from_strong("function", exactly=True),) if group == "strong" else (),
        )
        for group, words in (("strong", "strong heads"), ("all", "all heads"))
    ),
)
