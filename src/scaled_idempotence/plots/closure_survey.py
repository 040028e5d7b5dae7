"""Figures of the closure survey."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from ..experiments.survey import sweep
from ..paper import STRONG, THRESHOLDS
from .drawing import guide, heads_over_depth, layer_axis, legend, level, median_line
from .style import CONTROL, REFERENCE, TRAINED, UNIT, subplots


def closure_map(heads: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw the layer x head map of closure; strong heads are framed.

    Parameters
    ----------
    heads : DataFrame
        From `survey`; its ``attrs`` name the model.
    threshold : float
        Closure from which a head counts as strong.

    Returns
    -------
    Figure
        A cell a head, layers from left to right.
    """
    grid = heads.pivot(index="head", columns="layer", values="closure")
    n_heads, n_layers = grid.shape
    width = float(np.clip(0.28 * n_layers + 2.0, 5.0, 13.0))
    height = float(np.clip(0.28 * n_heads + 1.2, 2.2, 9.0))
    figure, axes = subplots(figsize=(width, height))
    sns.heatmap(
        grid, ax=axes, vmin=0, vmax=1, cmap="viridis", linewidths=0.4 if grid.size <= 2000 else 0,
        cbar_kws={"label": "closure $P(T)$", "pad": 0.02},
        xticklabels=max(1, n_layers // 15), yticklabels=max(1, n_heads // 16),
    )  # fmt: skip
    for head, layer in zip(*np.nonzero(grid.to_numpy() >= threshold), strict=True):
        frame = {"fill": False, "edgecolor": CONTROL, "linewidth": 2, "zorder": 3}
        axes.add_patch(Rectangle((layer, head), 1, 1, **frame))
    axes.set(xlabel="layer", ylabel="query head")
    axes.tick_params(axis="y", rotation=0)
    name = heads.attrs.get("model", "model")
    said = f"{name}: framed heads have $P \\geq {threshold:g}$"
    axes.set_title(said, fontsize="medium", loc="left")
    return figure


def closure_distribution(heads: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw the distribution of closure beside that of the wrong-V control.

    Parameters
    ----------
    heads : DataFrame
        From `survey`, with the wrong-V control where there is one.
    threshold : float
        Closure of a strong head, a level of the right panel.

    Returns
    -------
    Figure
        Left, empirical distributions on a logarithmic axis; right, closure sorted by rank.
    """
    trained = heads.closure.dropna()
    control = heads.wrong_v_closure.dropna()
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 3.8))
    sns.ecdfplot(x=trained, ax=left, color=TRAINED, label="trained pair $O_h V_{g(h)}^T$")
    if len(control):
        sns.ecdfplot(
            x=control, ax=left, color=CONTROL, linestyle="--", label="wrong $V$ of the same layer"
        )
    left.set_xscale("log")
    left.set(xlabel="closure $P$", ylabel="share of heads at or below")
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    for values, color, marker in ((trained, TRAINED, "o"), (control, CONTROL, "x")):
        ordered = np.sort(values)[::-1]
        rank = (np.arange(len(ordered)) + 0.5) / max(1, len(ordered))
        right.plot(rank, ordered, marker, color=color, markersize=3)
    level(right, f"strong: $P \\geq {threshold:g}$", (1.0, threshold), ha="right")
    right.set(xlabel="heads, sorted by closure", ylabel="closure $P$", ylim=UNIT)
    right.xaxis.set_major_formatter(PercentFormatter(1.0))
    legend(left, at="upper left")
    return figure


def threshold_sweep(
    heads: pd.DataFrame, thresholds: tuple[float, ...] = THRESHOLDS, reference: float | None = None
) -> Figure:
    """Draw the share of heads, and of wrong-V pairings, at or above each threshold.

    Parameters
    ----------
    heads : DataFrame
        From `survey`.
    thresholds : tuple of float
        Closures, from left to right.
    reference : float, optional
        A share to mark at the strong threshold, such as the paper's.

    Returns
    -------
    Figure
        Two lines, and the reference as a mark.
    """
    table = sweep(heads, thresholds)
    figure, axes = subplots(figsize=(6.4, 3.6))
    axes.plot(table.threshold, table.share, "o-", color=TRAINED, label="trained pairs")
    if table.wrong_v.notna().all():
        n_control = heads.wrong_v_closure.notna().sum()
        axes.plot(
            table.threshold, table.wrong_v / n_control, "x--", color=CONTROL, label="wrong $V$"
        )
    if reference is not None:
        axes.plot([STRONG], [reference], "D", color=REFERENCE, label="paper's six models")
    guide(axes, x=STRONG)
    axes.set(xlabel="threshold on closure $P$", ylabel="share of heads at or above")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(bottom=0)
    legend(axes, 3)
    return figure


def gain_and_sign(heads: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw closure against return gain, by the sign of alpha, and against the copying score.

    Parameters
    ----------
    heads : DataFrame
        From `survey`; heads without a closure are left out.
    threshold : float
        Closure of a strong head, a level of both panels.

    Returns
    -------
    Figure
        Left, return gain relative to the model's median over closure; right, copying score.
    """
    defined = heads[heads.closure.notna()]
    sign, signs = np.where(defined.alpha < 0, "negative", "positive"), ["positive", "negative"]
    relative = defined.return_gain / defined.return_gain.median()
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 3.8), sharey=True)
    for axes, x in ((left, relative), (right, defined.copying_score)):
        sns.scatterplot(
            x=x, y=defined.closure, ax=axes, legend=axes is left, hue=sign, hue_order=signs,
            style=sign, style_order=signs, palette=[TRAINED, CONTROL], s=28, alpha=0.8, linewidth=0,
        )  # fmt: skip
    for axes in (left, right):
        guide(axes, y=threshold)
    left.set(xscale="log", xlabel="return gain $g_T$ / the model's median", ylabel="closure $P$")
    guide(left, x=1)
    legend(left, title=r"sign of $\alpha$", columns=2)
    right.set(xlabel=r"copying score $\sum\lambda\,/\,\sum|\lambda|$", xlim=(-1.05, 1.05))
    return figure


def closure_by_layer(heads: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw every head's closure over depth, with the layer medians.

    Parameters
    ----------
    heads : DataFrame
        From `survey`, any number of heads a layer.
    threshold : float
        Closure from which a head is marked as strong.

    Returns
    -------
    Figure
        A mark a head; the line is the median.
    """
    figure, axes = subplots(figsize=(8.5, 3.6))
    heads_over_depth(axes, heads, threshold, "layer", alpha=0.45, ms=4)
    median_line(axes, heads, "layer", "closure", color=REFERENCE, label="layer median")
    guide(axes, y=threshold)
    axes.set(ylabel="closure $P$", ylim=UNIT)
    layer_axis(axes)
    legend(axes, loc="lower right", bbox_to_anchor=(1, 1))
    return figure
