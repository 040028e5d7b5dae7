"""Figures of function: heads changed inside the running model."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, StrMethodFormatter

from .drawing import guide, heading, key, legend, row_axis, square
from .style import CONTROL, REFERENCE, THIRD, TRAINED, subplots

#: Interventions of `function`: colour, marker, words.
INTERVENTIONS = {
    "random": (TRAINED, "o", "random, same size"),
    "random return": (THIRD, "s", "random return core, same size"),
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
        ``effects`` of `scaled_idempotence.function`; of it the scope ``together``.

    Returns
    -------
    Figure
        A row a group of heads, a mark a change.
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
    handles = [
        key(label, color, marker)
        for kind, (color, marker, label) in INTERVENTIONS.items()
        if (together.intervention == kind).any()
    ]
    counts = together.drop_duplicates("group").set_index("group").n_heads
    row_axis(axes, [f"{group} ({counts[group]})" for group in groups])
    _symlog(axes, together.filter(["low", "high", "delta"]))
    guide(axes, x=0)
    measure, unit = (effects.attrs.get(name, name) for name in ("measure", "unit"))
    change = measure if measure == "output change" else f"change of {measure}"
    axes.set(xlabel=f"{change} ({unit})")
    legend(axes, 2, handles=handles, fontsize="small")
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
        ``effects`` of `scaled_idempotence.function`; of it the scope ``single``.

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
    colors = dict(zip(dict.fromkeys(single.group), (CONTROL, TRAINED, THIRD), strict=False))
    markers = dict(zip(colors, "Dos", strict=False))
    for group, part in table.groupby(level="group", sort=False):
        axes.plot(
            part["random"], part["projected"], markers[group], color=colors[group], ms=6,
            alpha=0.8, label=f"{group} heads",
        )  # fmt: skip
    values = table[["random", "projected"]]
    low, high = min(0.0, values.min(axis=None)), max(0.0, values.max(axis=None))
    margin = 0.06 * (high - low)
    square(axes, [low - margin, high + margin])
    axes.axhline(0, color=REFERENCE, linewidth=0.6)
    axes.axvline(0, color=REFERENCE, linewidth=0.6)
    axes.set(xlabel="random change of the same size", ylabel="to the exact member")
    legend(axes, 3, fontsize="small", columnspacing=0.8, handletextpad=0.2)
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
            guide(axes, x=0)
            guide(axes, x=1)
        guide(upper, y=0)
        one = f"{of.group}: layer {of.layer}, head {of['head']}"
        heading(upper, f"{of.group}, together" if of.scope == "together" else one)
        lower.set(xlabel="$t$ (0: trained, 1: end of the path)", ylim=(-0.04, 1.04))
    measure = dose.attrs.get("measure", "measure")
    grid[0, 0].set(ylabel=measure if measure == "output change" else f"change of {measure}")
    grid[1, 0].set(ylabel="closure")
    handles = [
        key(label, color, "o", linestyle=style, ms=4) for color, style, label in PATHS.values()
    ]
    legend(figure, 2, at="outside upper left", handles=handles)
    return figure
