"""Small statistics over result tables."""

from __future__ import annotations

import math
from typing import NamedTuple

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


class Gap(NamedTuple):
    """A difference of two medians, with a bootstrap interval (NaN where there is none)."""

    above: float
    below: float
    gap: float
    low: float
    high: float


def weighted_median(values: ArrayLike, weights: ArrayLike) -> np.ndarray:
    """Median of values that each count several times.

    Parameters
    ----------
    values : (n,) array_like
    weights : (..., n) array_like of int
        How often each value counts.

    Returns
    -------
    (...) ndarray
        The ordinary median of the values, each repeated as often as its weight says; NaN where
        all weights are 0.

    Examples
    --------
    >>> weighted_median([1.0, 2.0, 7.0], [[1, 1, 1], [1, 0, 1], [0, 1, 3]]).tolist()
    [2.0, 4.0, 7.0]
    """
    values, weights = np.asarray(values, dtype=float), np.asarray(weights)
    order = np.argsort(values, kind="stable")
    values = np.append(values[order], np.nan)
    counts = np.cumsum(weights[..., order], axis=-1)
    total = counts[..., -1:]
    # The middle one, or the two in the middle, by the number of values at or before each.
    low = (counts <= (total - 1) // 2).sum(-1)
    high = (counts <= total // 2).sum(-1)
    middle = (values[low] + values[high]) / 2
    return np.where(total[..., 0] > 0, middle, np.nan)


def hierarchical_weights(
    models: ArrayLike, layers: ArrayLike, n_resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw models with replacement, then, in each model drawn, layers with replacement.

    Parameters
    ----------
    models, layers : (n,) array_like
        Of each observation. Observations of one layer are kept together.
    n_resamples : int
    rng : numpy.random.Generator

    Returns
    -------
    (n_resamples, n) ndarray of int
        How often each observation is drawn.

    Notes
    -----
    With one model, only its layers are drawn. A model drawn ``c`` times has its ``L`` layers drawn
    ``c`` times anew; a sum of independent multinomials is one multinomial of ``c L`` draws.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> weights = hierarchical_weights(["a", "a", "b"], [0, 1, 0], 1000, rng)
    >>> weights.mean(0).round(1).tolist()
    [1.0, 1.0, 1.0]
    """
    _, model = np.unique(np.asarray(models), return_inverse=True)
    _, layer = np.unique(np.asarray(layers), return_inverse=True)
    units, unit = np.unique(np.stack([model, layer]), axis=1, return_inverse=True)
    n_models = model.max() + 1
    drawn = rng.multinomial(n_models, np.full(n_models, 1 / n_models), size=n_resamples)
    weights = np.empty((n_resamples, units.shape[1]), dtype=np.int64)
    for number in range(n_models):
        members = np.flatnonzero(units[0] == number)
        share = np.full(len(members), 1 / len(members))
        weights[:, members] = rng.multinomial(drawn[:, number] * len(members), share)
    return weights[:, unit.ravel()]


def hierarchical_gap(
    values: ArrayLike,
    above: ArrayLike,
    models: ArrayLike,
    layers: ArrayLike,
    *,
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Gap:
    """Gap between the medians of two groups, with a hierarchical percentile bootstrap.

    Parameters
    ----------
    values : (n,) array_like
        NaN entries are left out.
    above : (n,) array_like of bool
        Whether an observation is of the first group.
    models, layers : (n,) array_like
        Units of the two levels. Only layers that have observations of both groups are used, so
        that each draw is matched by layer.
    n_resamples : int
    confidence : float
    seed : int

    Returns
    -------
    Gap
        ``above`` and ``below`` are the medians of the two groups. Everything is NaN where no layer
        has both; the interval also where it could only have zero width: one layer in all.

    See Also
    --------
    hierarchical_weights : The draws.

    Examples
    --------
    >>> layers = [0, 0, 1, 1, 2, 2]
    >>> gap = hierarchical_gap([3, 1, 4, 2, 5, 3], [1, 0] * 3, ["m"] * 6, layers)
    >>> gap.gap, gap.low <= 2 <= gap.high
    (2.0, True)
    """
    values = np.asarray(values, dtype=float)
    above = np.asarray(above, dtype=bool)
    _, model = np.unique(np.asarray(models), return_inverse=True)
    _, layer = np.unique(np.asarray(layers), return_inverse=True)
    unit = model * (layer.max(initial=0) + 1) + layer
    known = ~np.isnan(values)
    both = np.intersect1d(unit[known & above], unit[known & ~above])
    used = known & np.isin(unit, both)
    if not len(both):
        return Gap(*[float("nan")] * 5)
    values, above = values[used], above[used]
    medians = float(np.median(values[above])), float(np.median(values[~above]))
    low = high = float("nan")
    if len(both) > 1:
        rng = np.random.default_rng(seed)
        weights = hierarchical_weights(model[used], layer[used], n_resamples, rng)
        gaps = weighted_median(values[above], weights[:, above]) - weighted_median(
            values[~above], weights[:, ~above]
        )
        tail = (1 - confidence) / 2
        low, high = map(float, np.quantile(gaps, [tail, 1 - tail]))
    return Gap(*medians, medians[0] - medians[1], low, high)


def mean_interval(
    values: ArrayLike, *, n_resamples: int = 4000, confidence: float = 0.95
) -> tuple[float, float]:
    """Bootstrap interval of a mean, by percentiles that are expanded for small samples.

    Parameters
    ----------
    values : (n,) array_like
        Such as paired differences, one a segment of a text.
    n_resamples : int
    confidence : float

    Returns
    -------
    low, high : float
        NaN for fewer than two values.

    Notes
    -----
    Plain percentiles of the bootstrap are too narrow by a factor of about ``sqrt((n - 1) / n)``
    times the ratio of a normal quantile to Student's. Hesterberg (2015, "What teachers should know
    about the bootstrap", The American Statistician 69) takes percentiles further out by as much.

    Examples
    --------
    >>> low, high = mean_interval([1.0, 2.0, 3.0, 4.0])
    >>> low < 2.5 < high
    True
    """
    values = np.asarray(values, dtype=float)
    n = len(values)
    if n < 2:
        return float("nan"), float("nan")
    drawn = np.random.default_rng(0).integers(n, size=(n_resamples, n))
    tail = stats.norm.cdf(math.sqrt(n / (n - 1)) * stats.t.ppf((1 - confidence) / 2, n - 1))
    low, high = np.quantile(values[drawn].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)
