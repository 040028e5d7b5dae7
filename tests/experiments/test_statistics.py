import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaled_idempotence.experiments.statistics import auroc


@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 20))
def test_auroc_is_the_chance_of_outscoring(seed, n, m):
    rng = np.random.default_rng(seed)
    scores, positive = rng.integers(0, 5, n + m), np.r_[np.ones(n), np.zeros(m)].astype(bool)
    above, below = scores[positive][:, None], scores[~positive][None]
    truth = np.mean((above > below) + 0.5 * (above == below))
    assert auroc(scores, positive) == pytest.approx(truth)


def test_auroc_without_a_class_is_nan():
    assert np.isnan(auroc([1.0, 2.0], [True, True]))
    assert auroc([1.0, np.nan, 0.0], [True, True, False]) == 1
