"""Figures of scrambling: orientations against their null."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from scipy import stats

from ..paper import STRONG
from .drawing import diagonal, layer_axis, legend, mark_heads, median_line
from .style import CONTROL, REFERENCE, THIRD, TRAINED, subplots


def trained_against_scrambled(orientation: pd.DataFrame) -> Figure:
    """Draw closure before and after scrambling: head by head, and by layer.

    Parameters
    ----------
    orientation : DataFrame
        From `scaled_idempotence.orientation`.

    Returns
    -------
    Figure
        Left, a mark a head and kind of scramble on logarithmic axes; right, layer medians.
    """
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 4.2))
    kinds = (
        ("permutation_closure", CONTROL, "x", "signed permutations"),
        ("haar_closure", THIRD, "+", "Haar rotations"),
    )
    for column, color, marker, label in kinds:
        mark = {"color": color, "label": label, "ms": 4, "alpha": 0.8}
        left.plot(orientation[column], orientation.closure, marker, **mark)
    values = orientation[["closure", "permutation_closure", "haar_closure"]]
    ends = (values.min(axis=None) / 2, 1)
    diagonal(left, ends)
    left.set(xscale="log", yscale="log", xlabel="closure, scrambled", ylabel="closure, trained")
    legend(left, at="lower right")
    trained = {"color": TRAINED, "marker": "o", "ms": 4, "label": "trained"}
    median_line(right, orientation, "layer", "closure", **trained)
    for column, color, marker, label in kinds:
        scrambled = {"color": color, "marker": marker, "linestyle": "--", "ms": 5, "label": label}
        median_line(right, orientation, "layer", column, **scrambled)
    right.set(yscale="log", ylabel="closure, layer median")
    layer_axis(right)
    legend(right, 3, fontsize="small")
    return figure


def closure_against_null(orientation: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw every head's closure against its own closed-form null.

    Parameters
    ----------
    orientation : DataFrame
        From `scaled_idempotence.orientation`.
    threshold : float
        Closure from which a head is drawn as strong.

    Returns
    -------
    Figure
        A mark a head, on logarithmic axes.
    """
    figure, axes = subplots(figsize=(6.8, 4.4))
    mark_heads(axes, orientation, orientation.closure >= threshold, "null", "closure")
    ends = np.array([orientation.null.min() / 1.2, orientation.null.max() * 1.2])
    axes.plot(ends, ends, color=REFERENCE, label="$P = P_0$")
    axes.plot(
        ends, stats.chi2.isf(0.01, df=1) * ends, "--", color=REFERENCE, label="1% of random turns"
    )
    axes.set(xscale="log", yscale="log", ylabel="closure $P$")
    axes.set_xlabel(r"null $P_0 = \sum s_i^6 / (\sum s_i^2)^3$")
    legend(axes, 2)
    return figure


def null_distribution(ratios: dict[str, np.ndarray]) -> Figure:
    """Draw quantiles of scrambled closure over its null against those of chi-square, 1 d.o.f.

    Parameters
    ----------
    ratios : dict of str to (n,) ndarray
        ``P / P0`` of many Haar scrambles, by head.

    Returns
    -------
    Figure
        Dots a head; on the dotted line its scrambles are chi-square.
    """
    figure, axes = subplots(figsize=(5.4, 4.4))
    palette = sns.color_palette("colorblind", len(ratios))
    largest = 0.0
    for color, (label, values) in zip(palette, ratios.items(), strict=True):
        theory = stats.chi2.ppf((np.arange(len(values)) + 0.5) / len(values), df=1)
        axes.plot(theory, np.sort(values), ".", color=color, label=label, ms=4)
        largest = max(largest, theory[-1])
    diagonal(axes, [0, largest])
    axes.set(xlabel=r"quantiles of $\chi^2_1$", ylabel="quantiles of $P / P_0$, scrambled")
    legend(axes, at="best")
    return figure
