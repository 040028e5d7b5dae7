"""Figures of training lineages: one function a figure, over steps on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from pandas.api.typing import DataFrameGroupBy
from scipy import stats

from ..experiments.trajectory import POOLED, QUANTITIES
from .drawing import guide, heading, key, legend, level, median_line
from .style import CONTROL, FOURTH, REFERENCE, THIRD, TRAINED, subplots

#: A colour and a dash pattern a lineage: either tells them apart.
STYLES = (
    (TRAINED, "-"),
    (CONTROL, "--"),
    (THIRD, "-."),
    (FOURTH, ":"),
    ("#E69F00", (0, (5, 1, 1, 1, 1, 1))),
    ("#56B4E9", (0, (1, 1))),
)
#: Most labels on an axis of steps.
MOST_TICKS = 9
_EDGE = ("axes fraction", "data")
CHI_SQUARE_MEDIAN = float(stats.chi2.median(df=1))
#: Colour, opacity, width and order of the line of a head, by whether it ends strong.
HEADS = {False: (TRAINED, 0.35, 0.8, 2), True: (CONTROL, 0.9, 1.4, 3)}
GROUPS = {"strong": (CONTROL, "end strong"), "matched": (TRAINED, "ordinary, same layers")}


def _styles(names: Sequence[Hashable]) -> dict[Hashable, dict]:
    styles = zip(names, cycle(STYLES), strict=False)
    return {name: {"color": color, "linestyle": dash} for name, (color, dash) in styles}


def _step_axis(axes: Axes, steps: pd.Series) -> None:
    """Logarithmic, with step 0 a factor of two before the first other one."""
    shown = np.unique(steps)
    positive = shown[shown > 0]
    first = float(positive[0]) if len(positive) else 1.0
    # Linear up to the first step, as long as a doubling is on the logarithmic part.
    axes.set_xscale("symlog", base=2, linthresh=first, linscale=1)
    # The automatic margin would reach far below 0; what lies right of the last step is wanted too.
    axes.set_xlim(-0.4 * first if shown[0] == 0 else 0.8 * first, 1.25 * float(shown[-1]))
    while len(shown) > MOST_TICKS:
        shown = np.unique(np.r_[shown[::-1][::2], shown[0]])
    axes.xaxis.set_major_locator(FixedLocator(shown.tolist()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda step, _: f"{step / 1000:g}k" if step >= 10_000 else f"{step:g}")
    )
    axes.set_xlabel("step")


def losses(checkpoints: pd.DataFrame) -> Figure:
    """Draw the held-out loss of lineages that were trained here.

    Parameters
    ----------
    checkpoints : DataFrame
        Of a `Trajectory`; of it what was used and has a loss.

    Returns
    -------
    Figure
        A line a lineage, and the level of a uniform guess.
    """
    used = checkpoints[checkpoints.status.eq("used") & checkpoints.loss.notna()]
    figure, axes = subplots(figsize=(6.4, 3.4))
    styles = _styles(used.lineage.unique())
    for name, part in used.groupby("lineage", sort=False):
        axes.plot(part.step, part.loss, marker="o", ms=4, label=name, **styles[name])
    level(axes, "uniform guess, $\\ln 256$", (1, np.log(256)), xycoords=_EDGE, ha="right")
    _step_axis(axes, used.step)
    axes.set(ylabel="held-out loss, nats a byte", ylim=(0, np.log(256) + 0.6))
    legend(axes, at="lower left")
    return figure


def leaving_the_null(heads: pd.DataFrame) -> Figure:
    """Draw median closure, its null, and their quotient.

    Parameters
    ----------
    heads : DataFrame
        Of a `Trajectory`: ``closure``, ``null`` and their quotient.

    Returns
    -------
    Figure
        Left, the median closure of each lineage and, thin, the median of a random orientation of
        the same spectra (``0.455 P0``). Right, the median of ``P / P0`` on a logarithmic axis.
    """
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 3.9))
    styles = _styles(heads.lineage.unique())
    for name, part in heads.groupby("lineage", sort=False):
        for axes, column in ((left, "closure"), (right, "null_ratio")):
            marks = {"marker": "o", "ms": 4, "label": name} | styles[name]
            median_line(axes, part, "step", column, **marks)
        null = CHI_SQUARE_MEDIAN * part.groupby("step").null.median()
        left.plot(null.index, null, linewidth=0.9, **styles[name])
    left.set(ylabel="median closure $P$ (thin: of a random turn)", ylim=(0, None))
    right.set(ylabel="median of $P / P_0$", yscale="log")
    for factor, said in ((1, "random turn"), (10, "ten times")):
        level(right, said, (0, factor * CHI_SQUARE_MEDIAN), shift=4, xycoords=_EDGE)
    for axes in (left, right):
        _step_axis(axes, heads.step)
    legend(left, at="upper left")
    return figure


def _quartiles(axes: Axes, steps: DataFrameGroupBy, column: str, alpha: float, **line) -> None:
    """Draw medians over the steps, and the range from quartile to quartile as a band."""
    low, middle, high = (steps[column].quantile(q) for q in (0.25, 0.5, 0.75))
    axes.plot(middle.index, middle, ms=4, **line)
    axes.fill_between(low.index, low, high, color=line["color"], alpha=alpha, lw=0)


def spectra_over_steps(heads: pd.DataFrame) -> Figure:
    """Draw what happens to the spectra meanwhile: effective rank and the null itself.

    Parameters
    ----------
    heads : DataFrame
        Of a `Trajectory`: ``effective_rank`` and ``null``.

    Returns
    -------
    Figure
        A line of medians a lineage, and a band from quartile to quartile.
    """
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 3.6))
    styles = _styles(heads.lineage.unique())
    for name, part in heads.groupby("lineage", sort=False):
        groups = part.groupby("step")
        for axes, column in ((left, "effective_rank"), (right, "null")):
            _quartiles(axes, groups, column, 0.12, marker="o", label=name, **styles[name])
    left.set(ylabel="effective rank", ylim=(0, None))
    right.set(ylabel="closed-form null $P_0$", yscale="log")
    for axes in (left, right):
        _step_axis(axes, heads.step)
    legend(left, at="lower left")
    return figure


def groups_over_steps(heads: pd.DataFrame) -> Figure:
    """Draw closure, capacity and attainment of heads that end strong and of ordinary ones.

    Parameters
    ----------
    heads : DataFrame
        Of a `Trajectory`; of it the heads of a group.

    Returns
    -------
    Figure
        A row a lineage: medians, and the range from quartile to quartile.
    """
    names = list(heads.lineage.unique())
    figure, grid = subplots(
        len(names), 3, figsize=(10.5, 2.6 * len(names) + 0.5), squeeze=False, sharey="col"
    )
    titles = ("closure $P$", "capacity, best found", "attainment $E$")
    for row, name in zip(grid, names, strict=True):
        for axes, quantity, title in zip(row, QUANTITIES, titles, strict=True):
            for group, (color, label) in GROUPS.items():
                chosen = heads.loc[(heads.lineage == name) & (heads.group == group)]
                steps = chosen.groupby("step")
                marker = "D" if group == "strong" else "o"
                _quartiles(axes, steps, quantity, 0.15, marker=marker, label=label, color=color)
            heading(axes, f"{name}: {title}")
            _step_axis(axes, heads.step[heads.lineage == name])
            guide(axes, y=0, width=0.8)
        row[1].set_ylim(0, 1.05)
    for axes in grid[:-1].flat:
        axes.set_xlabel("")
    legend(grid[0, 0], at="upper left", fontsize="small")
    return figure


def heads_over_steps(heads: pd.DataFrame) -> Figure:
    """Draw the closure of every single head over the steps.

    Parameters
    ----------
    heads : DataFrame
        Of a `Trajectory`, every head at every step.

    Returns
    -------
    Figure
        A panel a lineage; heads that end strong are highlighted.
    """
    names = list(heads.lineage.unique())
    figure, grid = subplots(
        1, len(names), figsize=(max(5.0, 3.6 * len(names)), 3.6), squeeze=False, sharey=True
    )
    for axes, name in zip(grid[0], names, strict=True):
        part = heads.loc[heads.lineage == name]
        for _, head in part.groupby(["layer", "head"]):
            color, alpha, width, z = HEADS[bool((head.group == "strong").any())]
            line = {"color": color, "alpha": alpha, "linewidth": width, "zorder": z}
            axes.plot(head.step, head.closure, **line)
        line = {"color": REFERENCE, "linewidth": 2, "linestyle": "--", "zorder": 4}
        median_line(axes, part, "step", "closure", **line)
        heading(axes, name)
        _step_axis(axes, part.step)
    grid[0, 0].set(ylabel="closure $P$", ylim=(0, min(1.02, 1.15 * heads.closure.max())))
    handles = [
        key(label, color, linestyle=dash)
        for color, dash, label in (
            (CONTROL, "-", "ends strong"), (TRAINED, "-", "others"), (REFERENCE, "--", "median")
        )
    ]  # fmt: skip
    legend(grid[0, 0], at="upper left", handles=handles, fontsize="small")
    return figure


def gaps_over_steps(gaps: pd.DataFrame, reference: pd.DataFrame | None = None) -> Figure:
    """Draw the gaps between the groups, with their bootstrap intervals.

    Parameters
    ----------
    gaps : DataFrame
        Of a `Trajectory`, of each lineage and of all pooled.
    reference : DataFrame, optional
        The paper's final gaps, to be marked at the right.

    Returns
    -------
    Figure
        A panel a quantity, a line a lineage; the pooled gap with its interval in black.
    """
    figure, grid = subplots(1, 3, figsize=(10.5, 3.6), sharey=True)
    names = [name for name in gaps.lineage.unique() if name != POOLED]
    styles = _styles(names)
    titles = ("gap in closure $P$", "gap in capacity", "gap in attainment $E$")
    for axes, quantity, title in zip(grid, QUANTITIES, titles, strict=True):
        part = gaps.loc[gaps.quantity == quantity]
        for name in names:
            one = part.loc[part.lineage == name]
            axes.plot(one.step, one.gap, linewidth=1, marker=".", label=name, **styles[name])
        pooled = part.loc[part.lineage == (POOLED if (part.lineage == POOLED).any() else names[0])]
        pooled = pooled.sort_values("step")
        axes.errorbar(
            pooled.step, pooled.gap, (pooled.gap - pooled.low, pooled.high - pooled.gap),
            color=REFERENCE, marker="s", ms=4, capsize=2, linewidth=1.4,
            label="pooled, 95% interval" if len(names) > 1 else "95% interval",
        )  # fmt: skip
        guide(axes, y=0, width=0.8)
        heading(axes, title)
        _step_axis(axes, part.step)
        if reference is not None:
            for value in reference[f"final_gap_{quantity}"]:
                axes.plot([1.03], [value], "<", transform=axes.get_yaxis_transform(),
                          color=REFERENCE, clip_on=False, ms=5)  # fmt: skip
    grid[0].set_ylabel("strong minus ordinary")
    legend(grid[0], at="upper left", fontsize="small")
    return figure
