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
