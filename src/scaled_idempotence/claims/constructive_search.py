"""Claims on what orientations could reach, and on what training took of it (section 6)."""

from __future__ import annotations

import pandas as pd

from .. import paper
from ..experiments.attainment import attainment_gaps
from ..paper import STRONG
from .checks import computed_from_strong, strong_heads
from .claim import Claim, Figures, Tables

SECTION = "Constructive search"
PAPER, LINEAGES = paper.CAPACITY, paper.TRAJECTORY


def _sample(table: pd.DataFrame, name: str) -> pd.DataFrame:
    return table.loc[table["sample"] == name]


def _ordinary(tables: Tables) -> pd.DataFrame:
    blind = _sample(tables["attainment"], "hash")
    return blind.loc[blind.closure < STRONG]


def _layer_medians(tables: Tables) -> Figures:
    blind = _sample(tables["attainment"], "hash")
    medians = blind.groupby("layer").capacity.median()
    undefined = blind.capacity.isna().any()
    return {"lowest": float("nan") if undefined else medians.min()}


def _unused(tables: Tables) -> Figures:
    heads = _ordinary(tables)
    return {
        "capacity": heads.capacity.median(skipna=False),
        "closure": heads.closure.median(skipna=False),
        "attainment": heads.attainment.median(skipna=False),
    }


def _beside(tables: Tables) -> pd.DataFrame:
    """Strong and matched heads of the layers that have both."""
    table = tables["attainment"]
    both = table.loc[table["sample"].isin(["strong", "matched"])]
    return both.loc[both.groupby("layer")["sample"].transform("nunique") == 2]


def _gaps(tables: Tables) -> Figures:
    medians = _beside(tables).groupby("sample")[["capacity", "attainment"]].median()
    undefined = _beside(tables)[["capacity", "attainment"]].isna().any()
    return (medians.loc["strong"] - medians.loc["matched"]).mask(undefined).to_dict()


def _interval(tables: Tables) -> Figures:
    if _beside(tables)[["closure", "capacity", "attainment"]].isna().to_numpy().any():
        return {"gap": float("nan")}
    gap = attainment_gaps(tables["attainment"]).loc["attainment"]
    return {"gap": gap.gap, "low": gap.low, "high": gap.high}


def _searched(tables: Tables) -> str:
    return "" if len(_ordinary(tables)) else "no ordinary head was searched"


def _matched(tables: Tables) -> str:
    few = "fewer than two layers have strong heads with ordinary ones beside them"
    return "" if _beside(tables).layer.nunique() >= 2 else few


_searches = {"attainment": ("layer", "sample", "closure", "capacity")}
_columns = {"attainment": ("layer", "sample", "closure", "capacity", "attainment")}
_at_strong = (computed_from_strong("attainment", exactly=True),)
_pairs = (strong_heads("attainment"), _matched)
_gap, _gap_capacity = LINEAGES.final_gap_attainment, LINEAGES.final_gap_capacity

CLAIMS = (
    Claim(
        id="capacity.ordinary",
        section=SECTION,
        short="ordinary heads could close",
        statement="Ordinary heads have the spectrum and the angles for a high closure.",
        criterion=f"in the blind sample the median capacity of heads below {STRONG:g} is at least "
        f"{PAPER['ordinary'][0]:.3f}, the paper's lowest; ours is a lower bound, so that more is "
        "no contradiction",
        paper="{:.3f} to {:.3f}".format(*PAPER["ordinary"]),
        needs=_columns,
        measure=_unused,
        holds=lambda x: x["capacity"] >= PAPER["ordinary"][0],
        shown="{capacity:.3f}",
        applies=(_searched,),
        reference=("capacity", *PAPER["ordinary"]),
    ),
    Claim(
        id="capacity.layers",
        section=SECTION,
        short="... in all layers",
        statement="The capacity is high at every depth.",
        criterion="all layer medians of the blind sample are above "
        f"{PAPER['layer_medians_above']:g}",
        paper=f"above {PAPER['layer_medians_above']:g}",
        needs=_searches,
        measure=_layer_medians,
        holds=lambda x: x["lowest"] > PAPER["layer_medians_above"],
        shown="at least {lowest:.3f}",
        applies=(_searched,),
    ),
    Claim(
        id="capacity.unused",
        section=SECTION,
        short="... and do not",
        statement="Ordinary heads leave most of what they could reach unused.",
        criterion="the median attainment of ordinary heads of the blind sample is below one half",
        paper="",
        needs=_columns,
        measure=_unused,
        holds=lambda x: x["attainment"] < 0.5,
        shown="{attainment:.2f}",
        applies=(_searched,),
    ),
    Claim(
        id="capacity.strong",
        section=SECTION,
        short="strong heads have more capacity",
        statement="Strong heads have a higher capacity still.",
        criterion=f"their median capacity is at least {PAPER['strong'][0]:.3f}, the paper's lowest",
        paper="{:.3f} to {:.3f}".format(*PAPER["strong"]),
        needs=_searches,
        measure=lambda t: {
            "capacity": _sample(t["attainment"], "strong").capacity.median(skipna=False)
        },
        holds=lambda x: x["capacity"] >= PAPER["strong"][0],
        shown="{capacity:.3f}",
        applies=(strong_heads("attainment"),),
        usable=_at_strong,
        reference=("capacity", *PAPER["strong"]),
    ),
    Claim(
        id="capacity.gap",
        section=SECTION,
        short="strong heads attain more",
        statement="Strong heads take more of what is possible than ordinary heads of their layers.",
        criterion="the gap of median attainment is positive, with a 95% bootstrap interval over "
        "layers that leaves zero out",
        paper=f"{_gap.min():.3f} to {_gap.max():.3f} (three models)",
        needs=_columns,
        measure=_interval,
        holds=lambda x: x["low"] > 0,
        shown="{gap:.3f} ({low:.3f} to {high:.3f})",
        applies=_pairs,
        usable=_at_strong,
        reference=("gap", _gap.min(), _gap.max()),
    ),
    Claim(
        id="capacity.attained",
        section=SECTION,
        short="attainment, not capacity",
        statement="What sets strong heads apart is what they attain, more than what they could.",
        criterion="the gap of median attainment is larger than the gap of median capacity",
        paper=f"{_gap.min():.3f} to {_gap.max():.3f} against {_gap_capacity.min():.3f} to "
        f"{_gap_capacity.max():.3f} (three models)",
        needs=_columns,
        measure=_gaps,
        holds=lambda x: x["attainment"] > x["capacity"],
        shown="{attainment:.3f} against {capacity:.3f}",
        applies=_pairs,
        usable=_at_strong,
    ),
)
