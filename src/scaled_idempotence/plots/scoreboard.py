"""Figures that put models beside each other: the scoreboard, and comparisons with the paper's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import PercentFormatter
from scipy import stats

from ..paper import STRONG
from ..verdict import FAILS, HOLDS, NOT_APPLICABLE, NOT_RUN, SYMBOLS
from .drawing import guide, heading, heads_over_depth, key, legend, median_line, row_axis, strip
from .style import CONTROL, REFERENCE, THIRD, TRAINED, UNIT, subplots

#: Colour of each verdict and of its symbol; the symbols tell them apart without colour too.
COLORS = {
    HOLDS: (THIRD, "white"),
    FAILS: (CONTROL, "white"),
    NOT_APPLICABLE: ("#E3E3E3", REFERENCE),
    NOT_RUN: ("white", REFERENCE),
}
_QUANTILES = (("median", "|", 13), ("q90", "d", 6), ("max", "D", 6))


def claims_map(board: pd.DataFrame) -> Figure:
    """Draw every verdict, claims x models.

    Parameters
    ----------
    board : DataFrame
        From `scaled_idempotence.scoreboard`.

    Returns
    -------
    Figure
        A row a claim, below the heading of its section; those that go beyond the paper in italics.
    """
    models = list(dict.fromkeys(board.model))
    claims = board.drop_duplicates("claim")
    width, height = 3.9 + max(0.5 * len(models), 2.2), 0.25 * (len(claims) + 9) + 1.2
    figure, axes = subplots(figsize=(width, height))
    verdicts = board.set_index(["claim", "model"]).verdict.to_dict()
    y, ticks, labels, styles = 0.0, [], [], []
    for section, rows in claims.groupby("section", sort=False):
        axes.text(-0.02, y + 0.5, section, transform=axes.get_yaxis_transform(), fontsize="small",
                  weight="bold", ha="right", va="center")  # fmt: skip
        y += 1
        for claim, short, origin in zip(rows.claim, rows.short, rows.origin, strict=True):
            for x, model in enumerate(models):
                if (claim, model) in verdicts:  # lineages have claims of their own
                    _cell(axes, x, y, verdicts[claim, model])
            ticks.append(y + 0.5)
            labels.append(short)
            styles.append("normal" if origin == "paper" else "italic")
            y += 1
        y += 0.3
    axes.set_yticks(ticks, labels, fontsize="small")
    for label, style in zip(axes.get_yticklabels(), styles, strict=True):
        label.set_style(style)
    turned = {"rotation": 40, "ha": "left", "rotation_mode": "anchor"} if len(models) > 2 else {}
    axes.set_xticks(np.arange(len(models)) + 0.5, models, fontsize="small", **turned)
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.set(xlim=(0, len(models)), ylim=(y, 0))
    sns.despine(ax=axes, left=True, bottom=True)
    handles = [
        Patch(fc=color, ec=REFERENCE, linewidth=0.5, label=f"{SYMBOLS[verdict]}  {verdict}")
        for verdict, (color, _) in COLORS.items()
    ]
    legend(figure, 2, at="outside lower right", handles=handles, fontsize="small")
    return figure


def _cell(axes: Axes, x: int, y: float, verdict: str) -> None:
    color, ink = COLORS[verdict]
    axes.add_patch(
        Rectangle(
            (x + 0.03, y + 0.05), 0.94, 0.9, facecolor=color,
            edgecolor=REFERENCE if verdict == NOT_RUN else "none", linewidth=0.4, linestyle=":",
        )
    )  # fmt: skip
    axes.text(
        x + 0.5, y + 0.52, SYMBOLS[verdict], color=ink, ha="center", va="center", fontsize="small",
        family="DejaVu Sans",
    )  # fmt: skip


def closure_by_model(heads: pd.DataFrame, endpoints: pd.DataFrame) -> Figure:
    """Draw the distribution of closure in each model, and the quantiles of the paper's.

    Parameters
    ----------
    heads : DataFrame
        ``survey`` of all models, from `scaled_idempotence.scoreboard.combined`.
    endpoints : DataFrame
        `scaled_idempotence.paper.ENDPOINTS`.

    Returns
    -------
    Figure
        A row a model; of the paper's models only the marks are known.
    """
    known = heads.dropna(subset="closure")
    models = list(dict.fromkeys(known.model))
    rows = [*models, *endpoints.index]
    figure, axes = subplots(figsize=(8.5, 0.42 * len(rows) + 1.4))
    sns.violinplot(
        data=known, x="closure", y="model", order=models, ax=axes, color=TRAINED, alpha=0.35,
        cut=0, inner=None, density_norm="width", linewidth=0.8, width=0.75,
    )  # fmt: skip
    marks = known.groupby("model").closure.quantile([0.5, 0.9, 1]).unstack()
    marks.columns = [name for name, *_ in _QUANTILES]
    drawn = (TRAINED, marks.loc[models], 0), (REFERENCE, endpoints, len(models))
    for color, table, start in drawn:
        y = start + np.arange(len(table))
        for name, marker, size in _QUANTILES:
            axes.plot(table[name], y, marker, color=color, ms=size, mew=2, zorder=4)
    guide(axes, x=STRONG)
    axes.axhline(len(models) - 0.5, color=REFERENCE, linewidth=0.6)
    row_axis(axes, rows, above=0.6, below=0.6)
    axes.set(xlabel="closure $P$", ylabel="", xlim=UNIT)
    names = {"median": "median", "q90": "90% quantile", "max": "highest"}
    handles = [
        key(names[name], REFERENCE, marker, ms=size, mew=2) for name, marker, size in _QUANTILES
    ]
    legend(axes, 3, handles=handles)
    return figure


def sign_by_model(shares: pd.DataFrame, paper: tuple[float, float]) -> Figure:
    """Draw the share of heads with a negative alpha, by model and group of heads.

    Parameters
    ----------
    shares : DataFrame
        From `scaled_idempotence.scoreboard.sign_shares`.
    paper : (float, float)
        Smallest and largest share among the strong heads of the paper's models.

    Returns
    -------
    Figure
        With 95% intervals (Wilson) of the share; the band is the paper's.
    """
    models = list(dict.fromkeys(shares.model))
    groups = {"strong": (CONTROL, "D"), "top decile": (THIRD, "s"), "all": (TRAINED, "o")}
    figure, axes = subplots(figsize=(8.5, 0.6 * len(models) + 1.5))
    axes.axvspan(*paper, color=REFERENCE, alpha=0.15, linewidth=0)
    guide(axes, x=0.5)
    for offset, (group, (color, marker)) in zip((-0.22, 0, 0.22), groups.items(), strict=True):
        part = shares.loc[(shares.group == group) & shares.negative.notna()]
        for model, share, heads in zip(part.model, part.negative, part.heads, strict=True):
            y = models.index(model) + offset
            interval = stats.binomtest(round(share * heads), heads).proportion_ci(method="wilson")
            axes.plot([interval.low, interval.high], [y, y], color=color, linewidth=1.2)
            axes.plot(share, y, marker, color=color, ms=6)
    handles = [key(f"{group} heads", color, marker) for group, (color, marker) in groups.items()]
    band = Patch(color=REFERENCE, alpha=0.15, label="paper, strong heads")
    row_axis(axes, models)
    axes.set(xlabel=r"share with $\alpha < 0$", xlim=UNIT)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    legend(axes, 2, handles=[*handles, band], fontsize="small")
    return figure


def depth_by_model(heads: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw closure over relative depth, a panel a model.

    Parameters
    ----------
    heads : DataFrame
        ``survey`` of all models, from `scaled_idempotence.scoreboard.combined`.
    threshold : float
        Closure from which a head is marked as strong.

    Returns
    -------
    Figure
        Marks are heads, the line is the layer median; those of the other models are in grey.
    """
    models = list(dict.fromkeys(heads.model))
    columns = min(len(models), 3)
    rows = -(-len(models) // columns)
    figure, grid = subplots(
        rows, columns, figsize=(max(3.2 * columns, 5.0), 2.5 * rows + 0.4), sharex=True,
        sharey=True, squeeze=False,
    )  # fmt: skip
    own = {"color": TRAINED, "linewidth": 2, "zorder": 3}
    others = {"color": "#BBBBBB", "linewidth": 0.9, "zorder": 1}
    for axes, model in zip(grid.flat, models, strict=False):
        for name, part in heads.groupby("model", sort=False):
            median_line(axes, part, "depth", "closure", **own if name == model else others)
        part = heads.loc[heads.model == model]
        heads_over_depth(axes, part, threshold, "depth", alpha=0.35, ms=3)
        heading(axes, model)
    for axes in grid.flat[len(models) :]:
        axes.set_axis_off()
    grid[0, 0].set(xlim=(-0.03, 1.03), ylim=UNIT)
    figure.supxlabel("relative depth (0: first layer, 1: last)", fontsize="medium")
    figure.supylabel("closure $P$", fontsize="medium")
    return figure


def attainment_by_model(table: pd.DataFrame, paper: dict[str, tuple[float, float]]) -> Figure:
    """Draw capacity and attainment of each model's samples.

    Parameters
    ----------
    table : DataFrame
        ``attainment`` of all models, from `scaled_idempotence.scoreboard.combined`.
    paper : dict
        `scaled_idempotence.paper.CAPACITY`.

    Returns
    -------
    Figure
        Bars are medians; the bands are the medians of the paper's models.
    """
    models = list(dict.fromkeys(table.model))
    samples = {
        "hash": ("blind sample", TRAINED, "o"),
        "matched": ("matched to strong heads", THIRD, "s"),
        "strong": ("strong heads", CONTROL, "D"),
    }
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 0.75 * len(models) + 1.7), sharey=True)
    for kind, color in (("ordinary", TRAINED), ("strong", CONTROL)):
        left.axvspan(*paper[kind], color=color, alpha=0.2, linewidth=0)
    for offset, (sample, (_, color, marker)) in zip((-0.25, 0, 0.25), samples.items(), strict=True):
        for height, model in enumerate(models):
            part = table.loc[(table.model == model) & (table["sample"] == sample)]
            for axes, column in ((left, "capacity"), (right, "attainment")):
                strip(axes, part[column], height + offset, color, marker)
    handles = [key(label, color, marker) for label, color, marker in samples.values()]
    handles += [
        Patch(color=color, alpha=0.2, label=f"paper: {kind} heads, medians")
        for kind, color in (("ordinary", TRAINED), ("strong", CONTROL))
    ]
    row_axis(left, models)
    left.set(xlabel="capacity (lower bound)")
    guide(right, x=0)
    guide(right, x=1)
    right.set(xlabel="attainment $E$")
    legend(figure, 3, at="outside upper left", handles=handles, fontsize="small")
    return figure


def sharing_by_model(pairs: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """Draw gain inheritance of each model beside the paper's.

    Parameters
    ----------
    pairs : DataFrame
        Strong right heads in ``sharing_pairs`` of all models, from
        `scaled_idempotence.scoreboard.combined`.
    paper : DataFrame
        `scaled_idempotence.paper.SHARING`.

    Returns
    -------
    Figure
        Left, ``F``; right, ``rho`` of siblings and of the control. Of the paper's models the
        medians are known.
    """
    models = list(dict.fromkeys(pairs.model))
    rows = [*models, *paper.index]
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 0.4 * len(rows) + 1.6), sharey=True)
    for height, model in enumerate(models):
        part = pairs[pairs.model == model]
        strip(left, part.F, height, TRAINED, "o")
        strip(right, part.rho, height, TRAINED, "o")
        strip(right, part.control_rho.dropna(), height, CONTROL, "x")
    y = len(models) + np.arange(len(paper))
    left.plot(paper.F, y, "|", color=REFERENCE, ms=13, mew=2.5)
    right.plot(paper.rho, y, "|", color=REFERENCE, ms=13, mew=2.5)
    right.plot(paper.control_rho, y, "x", color=REFERENCE, ms=6, mew=2)
    row_axis(left, rows, above=0.6, below=0.6)
    left.set(xlabel="$F$")
    right.set(xlabel=r"$\rho$")
    for axes in (left, right):
        axes.axhline(len(models) - 0.5, color=REFERENCE, linewidth=0.6)
        guide(axes, x=1)
    guide(right, x=0)
    handles = [
        key("siblings", TRAINED, "o"),
        key("next value group", CONTROL, "x"),
        key("median", REFERENCE, "|", ms=11, mew=2.5),
    ]
    corner = {"loc": "lower right", "bbox_to_anchor": (1, 1)}
    legend(right, 3, handles=handles, fontsize="small", **corner)
    return figure
