"""Figures of scrambling: orientations against their null."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy import stats

from ..paper import STRONG
from .style import CONTROL, REFERENCE, TRAINED, by_strength, subplots


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
        ("haar_closure", "#009E73", "+", "Haar rotations"),
    )
    for column, color, marker, label in kinds:
        left.plot(
            orientation[column],
            orientation.closure,
            marker,
            color=color,
            ms=4,
            label=label,
            alpha=0.8,
        )
    values = orientation[["closure", "permutation_closure", "haar_closure"]]
    ends = np.array([values.min(axis=None) / 2, 1.0])
    left.plot(ends, ends, color=REFERENCE, linewidth=1, linestyle=":")
    left.set(xscale="log", yscale="log", xlabel="closure, scrambled", ylabel="closure, trained")
    left.legend(frameon=False, loc="lower right")
    medians = orientation.groupby("layer")[list(values)].median()
    right.plot(medians.index, medians.closure, "o-", color=TRAINED, ms=4, label="trained")
    for column, color, marker, label in kinds:
        right.plot(medians.index, medians[column], marker + "--", color=color, ms=5, label=label)
    right.set(yscale="log", xlabel="layer", ylabel="closure, layer median")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize="small")
    return figure


def closure_against_null(orientation: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw every head's closure against its own closed-form null.

    Parameters
    ----------
    orientation : DataFrame
        From `scaled_idempotence.orientation`.
    threshold : float

    Returns
    -------
    Figure
    """
    figure, axes = subplots(figsize=(6.8, 4.4))
    for part, style in by_strength(orientation, orientation.closure >= threshold):
        axes.plot(part.null, part.closure, **style)
    ends = np.array([orientation.null.min() / 1.2, orientation.null.max() * 1.2])
    axes.plot(ends, ends, color=REFERENCE, label="$P = P_0$")
    axes.plot(
        ends, stats.chi2.isf(0.01, df=1) * ends, "--", color=REFERENCE, label="1% of random turns"
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel=r"null $P_0 = \sum s_i^6 / (\sum s_i^2)^3$",
        ylabel="closure $P$",
    )
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
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
    """
    figure, axes = subplots(figsize=(5.4, 4.4))
    palette = sns.color_palette("colorblind", len(ratios))
    largest = 0.0
    for color, (label, values) in zip(palette, ratios.items(), strict=True):
        theory = stats.chi2.ppf((np.arange(len(values)) + 0.5) / len(values), df=1)
        axes.plot(theory, np.sort(values), ".", color=color, label=label, ms=4)
        largest = max(largest, theory[-1])
    axes.plot([0, largest], [0, largest], color=REFERENCE, linewidth=1, linestyle=":")
    axes.set(xlabel=r"quantiles of $\chi^2_1$", ylabel="quantiles of $P / P_0$, scrambled")
    axes.legend(frameon=False)
    return figure
