import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from scaled_idempotence.linalg import closure as c
from tests.operators import dense, dense_alpha, dense_closure, dense_gain, factors


@given(factors(batch=(2,)))
def test_scores_equal_the_dense_computation(pair):
    O, V = pair
    T = dense(O, V)
    scores = c.closure_scores(O, V)
    assert (scores.status == c.OK).all()
    torch.testing.assert_close(scores.closure, dense_closure(T), rtol=1e-8, atol=1e-10)
    gain = dense_gain(T)
    torch.testing.assert_close(scores.return_gain, gain, rtol=1e-9, atol=0)
    # alpha may be a small difference of large terms: its error is measured against the gain.
    assert ((scores.alpha - dense_alpha(T)).abs() <= 1e-9 * gain).all()
    torch.testing.assert_close(
        scores.return_gain * scores.closure.sqrt(), scores.alpha.abs(), rtol=1e-9, atol=0
    )


@given(factors(), st.floats(-3, 3).filter(lambda a: abs(a) > 1e-3))
def test_a_scaled_oblique_projection_closes_exactly(pair, alpha):
    O, V = pair
    O = O / O.norm()
    # (16): make V^T O = alpha I. Factors that are nearly singular cannot carry the identity.
    M = V.mT @ O
    assume(torch.linalg.cond(M) < 1e4)
    O = alpha * O @ torch.linalg.inv(M)
    scores = c.closure_scores(O, V)
    assert scores.closure.item() == pytest.approx(1, abs=1e-10)
    assert scores.alpha.item() == pytest.approx(alpha, rel=1e-8)


@given(factors(), st.integers(0, 2**32 - 1), st.integers(0, 7))
def test_scores_do_not_depend_on_the_gauge(pair, seed, log_condition):
    O, V = pair
    r = O.shape[-1]
    rng = np.random.default_rng(seed)
    left, right = (torch.from_numpy(np.linalg.qr(rng.normal(size=(r, r)))[0]) for _ in range(2))
    stretch = torch.logspace(0, log_condition, r, dtype=torch.float64)
    gauge = left @ torch.diag(stretch) @ right
    inverse = right.mT @ torch.diag(1 / stretch) @ left.mT
    plain = c.closure_scores(O, V)
    turned = c.closure_scores(O @ gauge, V @ inverse.mT)
    # The product itself is only known to eps times the gauge's condition.
    tolerance = max(1e-10, 1e-13 * 10.0**log_condition)
    assert turned.closure.item() == pytest.approx(plain.closure.item(), abs=tolerance)
    assert abs(turned.alpha - plain.alpha) <= 10 * tolerance * plain.return_gain


@given(factors(), st.integers(-90, 90))
def test_scaling_moves_alpha_and_nothing_else(pair, power):
    O, V = pair
    plain, scaled = c.closure_scores(O, V), c.closure_scores(O * 2.0**power, V)
    assert scaled.closure.item() == pytest.approx(plain.closure.item(), rel=1e-12)
    assert scaled.alpha.item() == pytest.approx(plain.alpha.item() * 2.0**power, rel=1e-9)


def test_a_rank_deficient_idempotent_core_does_not_close():
    """M^2 = M exactly, and yet P = 0.45: closeness of M^2 to M is not closure (spec, section 2)."""
    r, rank = 20, 9
    O = torch.zeros(60, r, dtype=torch.float64)
    O[:r] = torch.eye(r, dtype=torch.float64)
    V = torch.zeros_like(O)
    V[:rank, :rank] = torch.eye(rank, dtype=torch.float64)
    V[r : r + r - rank, rank:] = torch.eye(r - rank, dtype=torch.float64)
    M = V.mT @ O
    torch.testing.assert_close(M @ M, M, rtol=0, atol=0)
    assert c.closure(O, V).item() == pytest.approx(0.45, abs=1e-14)
    assert dense_closure(dense(O, V)).item() == pytest.approx(0.45, abs=1e-14)


def test_rank_one_closes_unless_nilpotent():
    u = torch.tensor([[1.0], [2.0], [0.0]])
    v = torch.tensor([[3.0], [0.0], [1.0]])
    assert c.closure(u, v).item() == pytest.approx(1)
    assert c.closure_scores(u, v).alpha.item() == pytest.approx(3)
    w = torch.tensor([[2.0], [-1.0], [0.0]])  # w . u = 0: T^2 = 0
    scores = c.closure_scores(u, w)
    assert scores.closure.isnan()
    assert c.STATUS_REASONS[scores.status] == "T^2 is zero to rounding (nilpotent)"


def test_nilpotent_up_to_rounding_is_not_scored():
    rng = np.random.default_rng(0)
    basis = torch.from_numpy(np.linalg.qr(rng.normal(size=(40, 16)))[0])
    mix = torch.from_numpy(rng.normal(size=(2, 8, 8)))
    scores = c.closure_scores(basis[:, :8] @ mix[0], basis[:, 8:] @ mix[1])
    assert scores.status == c.T2_ZERO
    assert scores.closure.isnan()


def test_zero_and_bad_heads_are_told_apart():
    O = torch.randn(5, 12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    V = O.roll(1, 0).clone()
    O[1] = 0
    V[2, 0, 0] = torch.nan
    O[3, 5, 1] = torch.inf
    scores = c.closure_scores(O, V)
    assert scores.status.tolist() == [c.OK, c.T_ZERO, c.NOT_FINITE, c.NOT_FINITE, c.OK]
    assert scores.closure.isnan().tolist() == [False, True, True, True, False]
    assert scores.alpha.isnan().tolist() == scores.return_gain.isnan().tolist()


def test_a_product_that_cancels_to_nothing_is_zero():
    O = torch.zeros(8, 2, dtype=torch.float64)
    V = torch.zeros(8, 2, dtype=torch.float64)
    O[:, 0], V[:, 1] = 1, 1  # each column of O meets a zero column of V
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    assert c.closure_scores(O @ turn, V @ turn).status == c.T_ZERO


def test_numpy_and_half_precision_are_taken():
    rng = np.random.default_rng(0)
    O, V = rng.normal(size=(2, 3, 10, 4))
    truth = dense_closure(dense(torch.from_numpy(O), torch.from_numpy(V)))
    torch.testing.assert_close(c.closure(O, V), truth)
    half = torch.from_numpy(O).to(torch.bfloat16), torch.from_numpy(V).to(torch.bfloat16)
    truth = dense_closure(dense(half[0].double(), half[1].double()))
    torch.testing.assert_close(c.closure(*half), truth)


@given(factors())
def test_copying_score_is_that_of_the_dense_spectrum(pair):
    O, V = pair
    eigenvalues = np.linalg.eigvals(dense(O, V).numpy())
    truth = eigenvalues.sum().real / np.abs(eigenvalues).sum()
    assert c.copying_score(V.mT @ O).item() == pytest.approx(truth, abs=1e-6)


def test_copying_score_of_known_spectra():
    cores = torch.stack([torch.eye(3), -torch.eye(3), torch.diag(torch.tensor([1.0, -1, 0]))])
    assert c.copying_score(cores).tolist() == [1, -1, 0]
    assert math.isnan(c.copying_score(torch.zeros(3, 3)))
