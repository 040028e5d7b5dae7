"""Figures of function: heads changed inside the running model."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, StrMethodFormatter

from .style import CONTROL, REFERENCE, TRAINED, subplots

GREEN = "#009E73"
PURPLE = "#CC79A7"

#: Interventions of `function`: colour, marker, words.
INTERVENTIONS = {
    "random": (TRAINED, "o", "random, same size"),
    "random return": (GREEN, "s", "random return core, same size"),
    "projected": (CONTROL, "D", "to the exact member"),
    "zeroed": (REFERENCE, "X", "zeroed"),
}
PATHS = {
    "algebra": (CONTROL, "-", "towards the exact member"),
    "orientation": (TRAINED, "--", "towards the best orientation found"),
}


def interventions(effects: pd.DataFrame) -> Figure:
    """Draw what changing a group of heads together does to the model, with intervals.

    Parameters
    ----------
    effects : DataFrame
        ``effects`` of `scaled_idempotence.function`.

    Returns
    -------
    Figure
    """
    together = effects.loc[effects.scope == "together"]
    groups = list(dict.fromkeys(together.group))
    figure, axes = subplots(figsize=(8.5, 0.9 * len(groups) + 1.6))
    for row, group in enumerate(groups):
        part = together.loc[together.group == group]
        for n, (kind, (color, marker, _)) in enumerate(INTERVENTIONS.items()):
            rows = part.loc[part.intervention == kind]
            y = row + 0.17 * (n - 1.5)
            axes.hlines([y] * len(rows), rows.low, rows.high, color=color, linewidth=2)
            axes.plot(rows.delta, [y] * len(rows), marker, color=color, ms=6)
    for kind, (color, marker, label) in INTERVENTIONS.items():
        if (together.intervention == kind).any():
            axes.plot([], [], marker, color=color, label=label)
    counts = together.drop_duplicates("group").set_index("group").n_heads
    axes.set_yticks(range(len(groups)), [f"{group} ({counts[group]})" for group in groups])
    axes.set_ylim(len(groups) - 0.5, -0.5)
    _symlog(axes, together.filter(["low", "high", "delta"]))
    axes.axvline(0, color=REFERENCE, linewidth=1, linestyle=":")
    measure, unit = (effects.attrs.get(key, key) for key in ("measure", "unit"))
    change = measure if measure == "output change" else f"change of {measure}"
    axes.set(xlabel=f"{change} ({unit})")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize="small")
    return figure


def _symlog(axes, values: pd.DataFrame) -> None:
    """Powers of ten on both sides of zero, from about the smallest size that is shown."""
    sizes = values.abs().to_numpy().ravel()
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    if not len(sizes):
        return
    lowest = np.floor(np.log10(np.quantile(sizes, 0.1)))
    highest = np.ceil(np.log10(sizes.max()))
    axes.set_xscale("symlog", linthresh=10.0**lowest, linscale=0.6)
    ticks = 10.0 ** np.arange(lowest, highest + 1)
    smallest = float(values.min(axis=None))
    negative = -ticks[ticks <= -smallest]
    left = 1.5 * smallest if smallest < 0 else -(10.0 ** (lowest - 1))
    axes.set_xlim(left, 1.5 * float(values.max(axis=None)))
    axes.xaxis.set_major_locator(FixedLocator([*negative, 0, *ticks]))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def single_heads(effects: pd.DataFrame) -> Figure:
    """Draw, for heads changed one at a time, the projection's effect against the random change's.

    Parameters
    ----------
    effects : DataFrame
        ``effects`` of `scaled_idempotence.function`.

    Returns
    -------
    Figure
        A mark a head; above the diagonal the step to the exact member matters more.
    """
    single = effects[effects.scope == "single"]
    table = single.pivot_table(
        index=["group", "layer", "head"], columns="intervention", values="delta", sort=False
    )
    figure, axes = subplots(figsize=(5.6, 4.6))
    colors = dict(zip(dict.fromkeys(single.group), (CONTROL, TRAINED, GREEN), strict=False))
    markers = dict(zip(colors, "Dos", strict=False))
    for group, part in table.groupby(level="group", sort=False):
        axes.plot(
            part["random"], part["projected"], markers[group], color=colors[group], ms=6,
            alpha=0.8, label=f"{group} heads",
        )  # fmt: skip
    values = table[["random", "projected"]]
    low, high = min(0.0, values.min(axis=None)), max(0.0, values.max(axis=None))
    margin = 0.06 * (high - low)
    ends = [low - margin, high + margin]
    axes.plot(ends, ends, color=REFERENCE, linewidth=1, linestyle=":")
    axes.axhline(0, color=REFERENCE, linewidth=0.6)
    axes.axvline(0, color=REFERENCE, linewidth=0.6)
    axes.set(
        xlabel="random change of the same size",
        ylabel="to the exact member",
        xlim=ends,
        ylim=ends,
    )
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize="small",
                columnspacing=0.8, handletextpad=0.2)  # fmt: skip
    return figure


def dose_response(dose: pd.DataFrame) -> Figure:
    """Draw the model's measure and the heads' closure along both paths.

    Parameters
    ----------
    dose : DataFrame
        ``dose`` of `scaled_idempotence.function`.

    Returns
    -------
    Figure
        A column a curve; above the change of the measure with its interval, below closure.
    """
    curves = [part for _, part in dose.groupby(["scope", "group", "layer", "head"], sort=False)]
    figure, grid = subplots(
        2, len(curves), figsize=(3.7 * len(curves), 5.4), squeeze=False, sharex=True,
        height_ratios=(2, 1),
    )  # fmt: skip
    for part, (upper, lower) in zip(curves, grid.T, strict=True):
        of = part.iloc[0]
        for path, (color, style, label) in PATHS.items():
            line = part[part.path == path]
            if len(line):
                upper.plot(line.t, line.delta, style, color=color, marker="o", ms=4, label=label)
                upper.fill_between(line.t, line.low, line.high, color=color, alpha=0.15, lw=0)
                lower.plot(line.t, line.closure, style, color=color, marker="o", ms=4)
        for axes in (upper, lower):
            axes.axvline(0, color=REFERENCE, linewidth=1, linestyle=":")
            axes.axvline(1, color=REFERENCE, linewidth=1, linestyle=":")
        upper.axhline(0, color=REFERENCE, linewidth=1, linestyle=":")
        one = f"{of.group}: layer {of.layer}, head {of['head']}"
        title = f"{of.group}, together" if of.scope == "together" else one
        upper.set_title(title, fontsize="small", loc="left")
        lower.set(xlabel="$t$ (0: trained, 1: end of the path)", ylim=(-0.04, 1.04))
    measure = dose.attrs.get("measure", "measure")
    grid[0, 0].set(ylabel=measure if measure == "output change" else f"change of {measure}")
    grid[1, 0].set(ylabel="closure")
    handles = [
        figure.axes[0].plot([], [], style, color=color, marker="o", ms=4, label=label)[0]
        for color, style, label in PATHS.values()
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False)
    return figure
