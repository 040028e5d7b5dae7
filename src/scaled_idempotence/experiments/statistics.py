"""Small statistics over result tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


def auroc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Area under the ROC curve: the chance that a positive outscores a negative.

    Parameters
    ----------
    scores : (n,) array_like
        NaN entries are left out.
    positive : (n,) array_like of bool

    Returns
    -------
    float
        Ties count half; NaN where there is no positive or no negative.

    Examples
    --------
    >>> auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True])
    0.75
    """
    scores, positive = np.asarray(scores, dtype=float), np.asarray(positive, dtype=bool)
    known = ~np.isnan(scores)
    above, below = scores[known & positive], scores[known & ~positive]
    if not len(above) or not len(below):
        return float("nan")
    return float(stats.mannwhitneyu(above, below).statistic / (len(above) * len(below)))


def mean_interval(
    values: ArrayLike, *, n_resamples: int = 4000, confidence: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean.

    Parameters
    ----------
    values : (n,) array_like
        Such as paired differences, one a segment of a text.
    n_resamples : int
    confidence : float

    Returns
    -------
    low, high : float
        NaN for fewer than two values. With few values it is a little too narrow.

    Examples
    --------
    >>> low, high = mean_interval([1.0, 2.0, 3.0, 4.0])
    >>> low < 2.5 < high
    True
    """
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return float("nan"), float("nan")
    drawn = np.random.default_rng(0).integers(len(values), size=(n_resamples, len(values)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(values[drawn].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)
