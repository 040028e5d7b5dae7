import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scaled_idempotence.linalg import closure, factors, pairing
from tests.operators import dense, dense_alpha, dense_closure


def layer(seed, n_values, per_group, d=24, r=4):
    rng = np.random.default_rng(seed)
    H = n_values * per_group
    O = torch.from_numpy(rng.normal(size=(H, d, r)))
    V = torch.from_numpy(rng.normal(size=(n_values, d, r)))
    return O, V, factors.value_head_index(H, n_values)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4))
def test_all_pairs_equal_the_dense_computation(seed, n_values, per_group):
    O, V, g = layer(seed, n_values, per_group)
    scores = pairing.layer_scores(O, V, g)
    T = dense(O[:, None], V[None])
    torch.testing.assert_close(scores.pairs, dense_closure(T), rtol=1e-9, atol=1e-12)
    trained = dense(O, V[g])
    torch.testing.assert_close(scores.trained.closure, dense_closure(trained), rtol=1e-9, atol=0)
    torch.testing.assert_close(scores.trained.alpha, dense_alpha(trained), rtol=1e-8, atol=1e-12)


def test_blocks_of_value_heads_change_nothing(monkeypatch):
    O, V, g = layer(3, 7, 2)
    whole = pairing.layer_scores(O, V, g)
    monkeypatch.setattr(pairing, "BLOCK_BYTES", 1)
    blocked = pairing.layer_scores(O, V, g)
    torch.testing.assert_close(blocked.pairs, whole.pairs, rtol=1e-12, atol=0)
    for one, other in zip(blocked.trained, whole.trained, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


def test_trained_scores_are_those_of_closure_scores():
    O, V, g = layer(4, 3, 3)
    gauge = torch.diag(torch.logspace(0, 6, 4, dtype=torch.float64))
    turn = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).double()).Q
    # A gauge that makes the Grams lose digits is noticed here too.
    O[:3], V[0] = O[:3] @ turn @ gauge, V[0] @ turn @ torch.linalg.inv(gauge)
    scores = pairing.layer_scores(O, V, g).trained
    truth = dense_closure(dense(O, V[g]))
    torch.testing.assert_close(scores.closure, truth, rtol=1e-7, atol=0)
    torch.testing.assert_close(scores.closure, closure.closure(O, V[g]), rtol=1e-9, atol=0)


def test_wrong_v_is_the_next_group():
    O, V, g = layer(5, 3, 2)
    pairs = pairing.layer_scores(O, V, g).pairs
    truth = dense_closure(dense(O, V[[1, 1, 2, 2, 0, 0]]))
    torch.testing.assert_close(pairing.wrong_v_closure(pairs, g), truth)


def test_one_value_head_has_no_wrong_one():
    O, V, g = layer(6, 1, 4)
    pairs = pairing.layer_scores(O, V, g).pairs
    assert pairing.wrong_v_closure(pairs, g).isnan().all()
    assert np.isnan(pairing.layer_permutation_p(pairs, g))


def test_ranks_count_ties_against_the_trained():
    pairs = torch.tensor([[0.9, 0.1, 0.2], [0.5, 0.5, 0.1], [0.3, 0.2, torch.nan]])
    rank = pairing.trained_rank(pairs.double(), torch.arange(3))
    assert rank[:2].tolist() == [1, 2]
    assert rank[2].isnan()


@given(st.integers(0, 10**6))
def test_permutation_p_is_the_share_of_assignments_as_good(seed):
    rng = np.random.default_rng(seed)
    pairs, groups = rng.random((8, 4)), np.repeat(np.arange(4), 2)
    means = [
        pairs[np.arange(8), np.array(order)[groups]].mean()
        for order in itertools.permutations(range(4))
    ]
    truth = np.mean(np.array(means) >= means[0] - 1e-12)
    assert pairing.layer_permutation_p(pairs, groups) == pytest.approx(truth)


def test_permutation_p_is_uniform_under_exchangeable_values():
    rng = np.random.default_rng(0)
    p = [
        pairing.layer_permutation_p(rng.random((8, 4)), np.repeat(np.arange(4), 2))
        for _ in range(400)
    ]
    # 24 assignments: P(p <= 1/4) is exactly 1/4; three standard errors around it.
    assert abs(np.mean(np.array(p) <= 0.25) - 0.25) < 3 * np.sqrt(0.25 * 0.75 / 400)


def test_large_layers_are_sampled_with_a_fixed_seed():
    pairs = np.eye(20) + 0.01
    p = [pairing.layer_permutation_p(pairs, np.arange(20), n_resamples=99) for _ in range(2)]
    assert p == [1 / 100, 1 / 100]
