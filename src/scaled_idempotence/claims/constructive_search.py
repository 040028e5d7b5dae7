"""Claims on what orientations could reach, and on what training took of it (section 6)."""

from __future__ import annotations

from functools import partial

import pandas as pd

from .. import paper
from ..experiments.attainment import attainment_gaps
from ..paper import STRONG
from .checks import computed_from_strong, strong_heads
from .claim import Claim, Figures, Range, measured

SECTION = "Constructive search"
PAPER = paper.CAPACITY
_gap = Range.of("gap", paper.TRAJECTORY.final_gap_attainment, note=" (three models)")
_gap_capacity = Range.of("gap", paper.TRAJECTORY.final_gap_capacity, note=" (three models)")


def _sample(table: pd.DataFrame, name: str) -> pd.DataFrame:
    return table.loc[table["sample"] == name]


def _ordinary(table: pd.DataFrame) -> pd.DataFrame:
    blind = _sample(table, "hash")
    return blind.loc[blind.closure < STRONG]


def _beside(table: pd.DataFrame) -> pd.DataFrame:
    """Strong and matched heads of the layers that have both."""
    both = table.loc[table["sample"].isin(["strong", "matched"])]
    return both.loc[both.groupby("layer")["sample"].transform("nunique") == 2]


def _searched(table: pd.DataFrame) -> str:
    return "" if len(_ordinary(table)) else "no ordinary head was searched"


def _matched(table: pd.DataFrame) -> str:
    few = "fewer than two layers have strong heads with ordinary ones beside them"
    return "" if _beside(table).layer.nunique() >= 2 else few


_attainment = partial(measured, "attainment", "layer", "sample", "closure", "capacity")
_at_strong = [computed_from_strong("attainment", exactly=True)]
_of_pairs = partial(_attainment, "attainment", applies=[strong_heads, _matched], usable=_at_strong)


@_attainment("attainment", applies=[_searched])
def _unused(table: pd.DataFrame) -> Figures:
    heads = _ordinary(table)
    columns = ("capacity", "closure", "attainment")
    return {name: heads.loc[:, name].median(skipna=False) for name in columns}


@_attainment(applies=[_searched])
def _layer_medians(table: pd.DataFrame) -> Figures:
    blind = _sample(table, "hash")
    medians = blind.groupby("layer").capacity.median()
    return {"lowest": float("nan") if blind.capacity.isna().any() else medians.min()}


@_attainment(applies=[strong_heads], usable=_at_strong)
def _strong(table: pd.DataFrame) -> Figures:
    return {"capacity": _sample(table, "strong").capacity.median(skipna=False)}


@_of_pairs()
def _gaps(table: pd.DataFrame) -> Figures:
    both = _beside(table)
    medians = both.groupby("sample")[["capacity", "attainment"]].median()
    undefined = both[["capacity", "attainment"]].isna().any()
    return (medians.loc["strong"] - medians.loc["matched"]).mask(undefined).to_dict()


@_of_pairs()
def _interval(table: pd.DataFrame) -> Figures:
    if _beside(table)[["closure", "capacity", "attainment"]].isna().to_numpy().any():
        return {"gap": float("nan")}
    gap = attainment_gaps(table).loc["attainment"]
    return {"gap": gap.gap, "low": gap.low, "high": gap.high}


_claim = partial(Claim, section=SECTION)

CLAIMS = (
    _claim(
        id="capacity.ordinary",
        short="ordinary heads could close",
        statement="Ordinary heads have the spectrum and the angles for a high closure.",
        criterion=f"in the blind sample the median capacity of heads below {STRONG:g} is at least "
        f"{PAPER['ordinary'][0]:.3f}, the paper's lowest; ours is a lower bound, so that more is "
        "no contradiction",
        paper=Range("capacity", *PAPER["ordinary"]),
        measure=_unused,
        holds=lambda x: x["capacity"] >= PAPER["ordinary"][0],
        shown="{capacity:.3f}",
    ),
    _claim(
        id="capacity.layers",
        short="... in all layers",
        statement="The capacity is high at every depth.",
        criterion="all layer medians of the blind sample are above "
        f"{PAPER['layer_medians_above']:g}",
        paper=f"above {PAPER['layer_medians_above']:g}",
        measure=_layer_medians,
        holds=lambda x: x["lowest"] > PAPER["layer_medians_above"],
        shown="at least {lowest:.3f}",
    ),
    _claim(
        id="capacity.unused",
        short="... and do not",
        statement="Ordinary heads leave most of what they could reach unused.",
        criterion="the median attainment of ordinary heads of the blind sample is below one half",
        measure=_unused,
        holds=lambda x: x["attainment"] < 0.5,
        shown="{attainment:.2f}",
    ),
    _claim(
        id="capacity.strong",
        short="strong heads have more capacity",
        statement="Strong heads have a higher capacity still.",
        criterion=f"their median capacity is at least {PAPER['strong'][0]:.3f}, the paper's lowest",
        paper=Range("capacity", *PAPER["strong"]),
        measure=_strong,
        holds=lambda x: x["capacity"] >= PAPER["strong"][0],
        shown="{capacity:.3f}",
    ),
    _claim(
        id="capacity.gap",
        short="strong heads attain more",
        statement="Strong heads take more of what is possible than ordinary heads of their layers.",
        criterion="the gap of median attainment is positive, with a 95% bootstrap interval over "
        "layers that leaves zero out",
        paper=_gap,
        measure=_interval,
        holds=lambda x: x["low"] > 0,
        shown="{gap:.3f} ({low:.3f} to {high:.3f})",
    ),
    _claim(
        id="capacity.attained",
        short="attainment, not capacity",
        statement="What sets strong heads apart is what they attain, more than what they could.",
        criterion="the gap of median attainment is larger than the gap of median capacity",
        paper=f"{_gap.low:.3f} to {_gap.high:.3f} against {_gap_capacity}",
        measure=_gaps,
        holds=lambda x: x["attainment"] > x["capacity"],
        shown="{attainment:.3f} against {capacity:.3f}",
    ),
)
