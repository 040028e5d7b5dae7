"""Claims on the function of heads (section 9)."""

from __future__ import annotations

import pandas as pd

from .checks import Check, computed_from_strong, measured
from .claim import Claim, Figures, Tables

SECTION = "Function"


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


_moves = {"function": ("scope", "group", "intervention", "delta", "n_heads")}

CLAIMS = (
    *(
        Claim(
            id=f"function.{group}_zeroed",
            section=SECTION,
            short=f"{group} heads: algebra better than zero",
            statement=f"Put {words} into the algebra, and less is lost than by leaving them out.",
            criterion="projecting them together changes the model's measure by less than zeroing "
            "them does",
            paper="",
            needs=_moves,
            measure=_changes(group),
            holds=lambda x: x["projected"] < x["zeroed"],
            shown="{projected:+.3g} against {zeroed:+.3g} ({heads:.0f} heads)",
            applies=(measured("function"), _moved(group)),
            usable=(computed_from_strong("function", exactly=True),) if group == "strong" else (),
        )
        for group, words in (("strong", "strong heads"), ("all", "all heads"))
    ),
    *(
        Claim(
            id=f"function.{group}_random",
            section=SECTION,
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
            applies=(measured("function"), _moved(group)),
            usable=(computed_from_strong("function", exactly=True),) if group == "strong" else (),
        )
        for group, words in (("strong", "strong heads"), ("all", "all heads"))
    ),
)
