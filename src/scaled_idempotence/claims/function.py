"""Claims on the function of heads (section 9)."""

from __future__ import annotations

from functools import partial

import pandas as pd

from .checks import computed_from_strong, was_run
from .claim import Claim, Figures, Measurement, measured

SECTION = "Function"
GROUPS = ("strong", "all")


def _together(effects: pd.DataFrame, group: str) -> pd.DataFrame:
    return effects.loc[(effects.scope == "together") & (effects.group == group)]


def _changes(group: str) -> Measurement:
    def moved(effects: pd.DataFrame) -> str:
        return "" if len(_together(effects, group)) else f"there are no {group} heads to move"

    @measured(
        "function", "scope", "group", "intervention", "delta", "n_heads",
        applies=[was_run, moved],
        usable=[computed_from_strong("function", exactly=True)] if group == "strong" else [],
    )  # fmt: skip
    def figures(effects: pd.DataFrame) -> Figures:
        rows = _together(effects, group)
        deltas = {
            name: rows.loc[rows.intervention == name, "delta"].mean(skipna=False)
            for name in ("projected", "random", "zeroed")
        }
        return {**deltas, "heads": rows.n_heads.max()}

    return figures


_claim = partial(Claim, section=SECTION)

CLAIMS = (
    *(
        _claim(
            id=f"function.{group}_zeroed",
            short=f"{group} heads: algebra better than zero",
            statement=f"Put {group} heads into the algebra, and less is lost than by leaving them "
            "out.",
            criterion="projecting them together changes the model's measure by less than zeroing "
            "them does",
            measure=_changes(group),
            holds=lambda x: x["projected"] < x["zeroed"],
            shown="{projected:+.3g} against {zeroed:+.3g} ({heads:.0f} heads)",
        )
        for group in GROUPS
    ),
    *(
        _claim(
            id=f"function.{group}_random",
            short=f"{group} heads: departure carries function",
            statement=f"What keeps {group} heads out of the algebra is not noise: taking it away "
            "costs more than a random change of equal norm.",
            criterion="projecting them together changes the model's measure by more than the mean "
            "of the random changes",
            measure=_changes(group),
            holds=lambda x: x["projected"] > x["random"],
            shown="{projected:+.3g} against {random:+.3g} ({heads:.0f} heads)",
        )
        for group in GROUPS
    ),
)
