import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaled_idempotence.statistics import (
    auroc,
    hierarchical_gap,
    hierarchical_weights,
    mean_interval,
    weighted_median,
)


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


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_the_weighted_median_is_that_of_the_repeated_values(seed, n):
    rng = np.random.default_rng(seed)
    values, weights = rng.integers(0, 6, n).astype(float), rng.integers(0, 4, (3, n))
    expected = [np.median(np.repeat(values, w)) if w.sum() else np.nan for w in weights]
    np.testing.assert_array_equal(weighted_median(values, weights), expected)


def test_the_draws_are_those_of_a_loop():
    """Mean and covariance of the weights, against models and layers drawn one after another."""
    models = np.array([0, 0, 0, 1, 1, 2])
    layers = np.array([0, 1, 1, 0, 1, 0])
    rng = np.random.default_rng(0)
    weights = hierarchical_weights(models, layers, 40_000, rng)
    assert (weights[:, 1] == weights[:, 2]).all()  # of one layer: drawn together
    loop = np.zeros((8000, 6))
    for row in loop:
        for model in rng.integers(3, size=3):
            own = np.unique(layers[models == model])
            for layer in rng.choice(own, size=len(own)):
                row += (models == model) & (layers == layer)
    np.testing.assert_allclose(weights.mean(0), loop.mean(0), atol=0.05)
    np.testing.assert_allclose(np.cov(weights.T), np.cov(loop.T), atol=0.12)


def planted(rng, n_models, n_layers, n_heads, between, within):
    """Heads of two groups; the gap is 1 in the mean over models, whose own gaps differ."""
    model, layer, head = np.meshgrid(
        np.arange(n_models), np.arange(n_layers), np.arange(2 * n_heads), indexing="ij"
    )
    above = head < n_heads
    gap = 1 + rng.normal(0, between, (n_models, 1, 1))
    values = rng.normal(0, within, model.shape) + gap * above
    return [x.ravel() for x in (values, above, model, layer)]


def coverage(n_sets, draw, confidence, *, as_one_layer_a_head=False):
    covered = 0
    for seed in range(n_sets):
        values, above, model, layer = draw(np.random.default_rng(seed))
        if as_one_layer_a_head:  # heads as if they were independent
            model, layer = np.zeros_like(model), np.arange(len(layer)) // 2
            order = np.argsort(~above, kind="stable").reshape(2, -1).T.ravel()
            values, above = values[order], above[order]
        gap = hierarchical_gap(values, above, model, layer, n_resamples=400, confidence=confidence)
        covered += gap.low <= 1 <= gap.high
    return covered / n_sets


@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_the_interval_covers_the_truth_as_often_as_it_says(confidence):
    """40 models that differ more than their heads do, where the percentile interval is right."""
    n_sets = 300

    def draw(rng):
        return planted(rng, 40, 2, 2, between=1.0, within=0.3)

    error = np.sqrt(confidence * (1 - confidence) / n_sets)
    assert abs(coverage(n_sets, draw, confidence) - confidence) < 3 * error + 0.02
    # The same data with heads taken as independent: the interval is far too narrow, and this test
    # would see it.
    naive = coverage(100, draw, confidence, as_one_layer_a_head=True)
    assert naive < confidence - 0.2


def test_layers_are_the_units_within_one_model():
    def draw(rng):
        values, above, layer, _ = planted(rng, 40, 1, 4, between=1.0, within=0.3)
        return values, above, np.zeros_like(layer), layer

    assert abs(coverage(200, draw, 0.9) - 0.9) < 3 * np.sqrt(0.09 / 200) + 0.02


def test_gaps_where_nothing_can_be_compared():
    nothing = hierarchical_gap([1.0, 2.0], [True, False], [0, 0], [0, 1])
    assert np.isnan(nothing).all()  # no layer has both groups
    one = hierarchical_gap([3.0, 1.0, np.nan], [True, False, False], [0, 0, 0], [0, 0, 1])
    assert (one.gap, one.above, one.below) == (2, 3, 1)
    assert np.isnan([one.low, one.high]).all()
    assert np.isnan(hierarchical_gap([], [], [], [])).all()


def test_the_interval_of_a_mean_covers_also_with_eight_values():
    """Plain percentiles cover 90% of the means of eight normal values, not the 95% they say."""
    n_sets = 1000
    samples = np.random.default_rng(5).normal(1, 1, (n_sets, 8))
    limits = np.array([mean_interval(values, n_resamples=1000) for values in samples])
    covered = np.mean((limits[:, 0] <= 1) & (limits[:, 1] >= 1))
    assert abs(covered - 0.95) < 3 * np.sqrt(0.95 * 0.05 / n_sets)


def test_the_interval_of_one_value_is_unknown():
    assert np.isnan(mean_interval([0.3])).all()
