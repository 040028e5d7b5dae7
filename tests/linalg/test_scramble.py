import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scaled_idempotence.linalg import scramble as s
from scaled_idempotence.linalg.principal import core_closure, principal_coordinates
from tests.operators import dense, factors, orthogonal

KINDS = (s.signed_permutation_scramble, s.haar_scramble)


def random_cores(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("scramble", KINDS)
@given(st.integers(0, 10**6), st.integers(1, 64))
def test_scrambles_keep_the_singular_values(scramble, seed, r):
    K = random_cores(seed, 2, r, r) @ torch.diag(torch.logspace(0, -6, r, dtype=torch.float64))
    turned = scramble(K, 3)
    assert turned.shape == (2, 3, r, r)
    truth = torch.linalg.svdvals(K)[:, None].expand(2, 3, r)
    torch.testing.assert_close(
        torch.linalg.svdvals(turned), truth, rtol=0, atol=float(1e-12 * truth.max())
    )
    audit = s.scramble_audit(K, turned)
    assert audit.singular_values.max() < 1e-12
    assert audit.norm.max() < 1e-12


def test_signed_permutations_keep_the_entries():
    K = random_cores(0, 7, 7)
    turned = s.signed_permutation_scramble(K, 5)
    for draw in turned:
        assert sorted(draw.abs().flatten().tolist()) == sorted(K.abs().flatten().tolist())
    assert len({tuple(draw.flatten().tolist()) for draw in turned}) == 5


def test_the_audit_notices_a_scramble_that_keeps_nothing():
    K = random_cores(1, 2, 5, 5)
    turned = s.haar_scramble(K, 2)
    turned[1, 1, 0, 0] += 1e-6
    audit = s.scramble_audit(K, turned)
    assert audit.singular_values[0] < 1e-12 < 1e-9 < audit.singular_values[1]


@pytest.mark.parametrize("scramble", KINDS)
def test_the_draws_of_a_head_are_its_own(scramble):
    K = random_cores(2, 6, 9, 9)
    seeds = [f"model:3:{head}" for head in range(6)]
    together = scramble(K, 4, seeds)
    order = [4, 0, 5, 2, 1, 3]
    assert torch.equal(scramble(K[order], 4, [seeds[n] for n in order]), together[order])
    for head in range(6):
        alone = scramble(K[head], 4, [seeds[head]])
        torch.testing.assert_close(alone, together[head], rtol=0, atol=1e-12)
    # More draws do not change the first ones.
    assert torch.equal(scramble(K, 2, seeds), together[:, :2])
    assert not torch.equal(scramble(K, 4, 1), together)


def test_draws_do_not_depend_on_the_number_of_threads():
    K = random_cores(3, 4, 32, 32)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append([scramble(K, 3) for scramble in KINDS])
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_as_many_seeds_as_heads():
    with pytest.raises(ValueError, match="got 2 seeds, expected one for each of the 3 cores"):
        s.haar_scramble(random_cores(0, 3, 4, 4), 2, ["a", "b"])


def test_haar_draws_are_haar():
    """Entries of a Haar matrix of order n have variance 1/n and no preferred sign anywhere."""
    rng = [np.random.default_rng(n) for n in range(4000)]
    Q = s.haar_orthogonal(3, rng)
    eye = torch.eye(3, dtype=torch.float64).expand_as(Q)
    torch.testing.assert_close(Q @ Q.mT, eye, rtol=0, atol=1e-12)
    error = 4 / np.sqrt(len(rng))
    assert Q.mean(0).abs().max() < error
    assert (Q.square().mean(0) - 1 / 3).abs().max() < error
    # The trace of a Haar matrix has variance 1; without the sign fix its mean is not 0.
    trace = Q.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert abs(trace.mean()) < error
    assert abs(trace.var() - 1) < 2 * error
    assert abs((torch.linalg.det(Q) > 0).double().mean() - 0.5) < error


@given(factors(max_r=24))
def test_refactoring_keeps_the_value_factor(pair):
    O, V = pair
    K, cosines, Q_O, Q_V = principal_coordinates(O, V)
    turned = s.haar_scramble(K, 1)[0]
    again = s.refactor(turned, Q_O, Q_V, V)
    wanted = Q_O @ turned @ Q_V.mT
    slack = 1e-13 * float(torch.linalg.cond(V)) * float(wanted.norm()) + 1e-300
    torch.testing.assert_close(dense(again, V), wanted, rtol=0, atol=100 * slack)
    # Spans and angles are those of the trained head.
    if torch.linalg.cond(O / O.norm()) < 1e4 and torch.linalg.cond(V) < 1e4:
        kept = principal_coordinates(again, V)
        torch.testing.assert_close(kept.cosines, cosines, rtol=0, atol=1e-9)


def test_siblings_keep_sharing_after_a_scramble():
    O, V = random_cores(5, 3, 20, 4), random_cores(6, 1, 20, 4)
    K, _, Q_O, Q_V = principal_coordinates(O, V)
    turned = s.signed_permutation_scramble(K, 1)[:, 0]
    T = dense(s.refactor(turned, Q_O, Q_V, V), V)
    torch.testing.assert_close(T, Q_O @ turned @ Q_V.mT)


@pytest.mark.parametrize(("k", "r"), [(1, 5), (3, 5), (5, 5)])
def test_the_null_of_equal_singular_values(k, r):
    spectrum = torch.zeros(r)
    spectrum[:k] = 7.0
    assert s.null_closure(spectrum).item() == pytest.approx(1 / k**2)


def test_the_null_is_the_mean_of_many_scrambles():
    """At r = 48 the first-order mean holds within a few percent, whatever the angles are."""
    r, draws = 48, 4000
    spectrum = torch.linspace(1.0, 0.3, r, dtype=torch.float64)
    K = orthogonal(r, 0) @ torch.diag(spectrum) @ orthogonal(r, 1)
    for cosines in (torch.full((r,), 0.5), torch.linspace(0.95, 0.05, r)):
        ratio = core_closure(s.haar_scramble(K, draws), cosines) / s.null_closure(spectrum)
        # A chi-square variable of one degree of freedom has variance 2.
        assert ratio.mean().item() == pytest.approx(1, abs=0.05 + 3 * np.sqrt(2 / draws))
        assert ratio.quantile(0.5).item() == pytest.approx(stats.chi2.median(df=1), abs=0.06)


def test_the_null_gives_p_values():
    z, p = s.null_test(torch.tensor([0.01, 0.04]).double(), torch.tensor([0.01, 0.01]).double())
    assert z.tolist() == pytest.approx([1, 2])
    assert p.tolist() == pytest.approx([2 * stats.norm.sf(1), 2 * stats.norm.sf(2)])


def test_rank_audit():
    audit = s.rank_audit(torch.tensor([[4.0, 2.0, 1e-17], [4.0, 2.0, 1.0]]).double(), 100)
    assert audit.rank.tolist() == [2, 3]
    assert audit.ratio.tolist() == pytest.approx([2.5e-18, 0.25])
