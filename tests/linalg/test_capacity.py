"""Tests of the capacity search against dense recomputation and facts that hold for any search."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scaled_idempotence.linalg.capacity import capacity
from scaled_idempotence.linalg.orientations import (
    closure_of_orientation,
    orientation_path,
    shifted_pairing,
    sorted_pairing,
)


def spectra(*batch, r, seed=0):
    """Spectra shaped like a head's: decaying singular values, cosines spread over [0, 0.8]."""
    g = torch.Generator().manual_seed(seed)
    s = torch.rand(*batch, r, generator=g, dtype=torch.float64) * 2 - 1
    c = torch.rand(*batch, r, generator=g, dtype=torch.float64) * 0.8
    return s.exp().sort(-1, descending=True).values, c.sort(-1, descending=True).values


def haar(r, seed):
    g = torch.Generator().manual_seed(seed)
    Q, R = torch.linalg.qr(torch.randn(r, r, generator=g, dtype=torch.float64))
    return Q * R.diagonal().sign()


def dense_closure(s, c, U_L, U_R):
    """P_D(K) as it is defined (10), from K and D, with nothing of the module."""
    K, D = U_L @ torch.diag(s) @ U_R.T, torch.diag(c)
    X = K @ D @ K
    return float((X * K).sum() ** 2 / ((X * X).sum() * (K * K).sum()))


def assert_sound(found, s, c):
    """The construction is orthogonal and its closure is what is claimed."""
    eye = torch.eye(s.shape[-1], dtype=torch.float64)
    for U in (found.U_L, found.U_R):
        assert (U.mT @ U - eye).abs().max() < 1e-10
    r = s.shape[-1]
    rows = zip(
        s.reshape(-1, r),
        c.reshape(-1, r),
        found.U_L.reshape(-1, r, r),
        found.U_R.reshape(-1, r, r),
        strict=True,
    )
    for P, row in zip(found.closure.flatten().tolist(), rows, strict=True):
        assert pytest.approx(dense_closure(*row), abs=1e-10) == P
        assert P <= 1 + 1e-12
    assert (found.closure >= found.start_closure.nan_to_num(nan=0.0).amax(-1)).all()
    assert torch.equal(found.closure, found.final_closure.amax(-1))
    taken = found.final_closure.gather(-1, found.best_start[..., None])[..., 0]
    assert torch.equal(taken, found.closure)


# ---- the construction ----------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 15))
def test_returned_orientation_is_sound(r, seed, n_starts, max_steps):
    s, c = spectra(3, r=r, seed=seed)
    found = capacity(s, c, n_starts=n_starts, max_steps=max_steps, seed=seed)
    assert_sound(found, s, c)
    assert found.n_starts == n_starts
    assert (found.n_steps <= max_steps).all()


@pytest.mark.parametrize("r", [5, 13, 64])
def test_trained_orientation_is_a_floor(r):
    s, c = spectra(2, r=r)
    U_L, U_R = torch.stack([haar(r, 1), haar(r, 2)]), torch.stack([haar(r, 3), haar(r, 4)])
    found = capacity(s, c, trained=(U_L, U_R), n_starts=0, max_steps=25)
    assert found.starts == ("trained",)
    assert_sound(found, s, c)
    for h in range(2):
        P = dense_closure(s[h], c[h], U_L[h], U_R[h])
        assert found.start_closure[h, 0] == pytest.approx(P, abs=1e-12)
        assert found.closure[h] > P + 0.2


def test_scale_and_order_of_the_spectrum_do_not_matter():
    s, c = spectra(r=16)
    want = capacity(s, c).closure
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    found = capacity(1e3 * s[order], 0.1 * c[order.flip(0)])
    assert_sound(found, s[order], c[order.flip(0)])
    assert found.closure == pytest.approx(float(want), abs=2e-3)


# ---- how good it is ------------------------------------------------------------------------------


def test_reaches_the_known_optimum_of_reciprocal_spectra():
    s = torch.linspace(3, 1, 24, dtype=torch.float64)
    c = 0.9 / s / (1 / s).max()
    found = capacity(s, c, n_starts=4, max_steps=300, tol=1e-10)
    assert found.closure == pytest.approx(1.0, abs=1e-12)
    # The Haar starts know nothing of pairings and have to get there by the ascent.
    assert (found.final_closure[2:] > 0.98).all()


def test_two_by_two_against_a_grid_of_all_orientations():
    s, c = torch.tensor([1.0, 0.35], dtype=torch.float64), torch.tensor([0.8, 0.1]).double()
    angle = torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64)
    cos, sin = angle.cos(), angle.sin()
    turns = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    flip = torch.tensor([1.0, -1.0], dtype=torch.float64)
    best = 0.0
    for right in (turns, turns * flip):
        G = right[None].mT @ (c[:, None] * turns[:, None])
        a = (s**3 * G.diagonal(dim1=-2, dim2=-1)).sum(-1)
        n = (s[:, None] * G * s).square().sum((-1, -2))
        best = max(best, float((a.square() / n).max() / s.square().sum()))
    found = capacity(s, c, n_starts=6, max_steps=200, tol=1e-10)
    assert found.closure == pytest.approx(best, abs=1e-4)


def test_beats_shifted_pairing_which_beats_sorted_pairing():
    s, c = spectra(6, r=32)
    P_sorted = closure_of_orientation(s, c, *sorted_pairing(s, c))
    P_shifted = closure_of_orientation(s, c, *shifted_pairing(s, c))
    found = capacity(s, c)
    assert (P_shifted > P_sorted + 0.02).all()
    assert (found.closure > P_shifted + 1e-4).all()
    assert torch.allclose(found.start_closure[:, 0], P_shifted, atol=1e-14)


def test_searches_from_unlike_starts_agree():
    s, c = spectra(4, r=24)
    found = capacity(s, c, n_starts=4, max_steps=400, tol=1e-7)
    spread = found.final_closure.amax(-1) - found.final_closure.amin(-1)
    assert found.start_closure[:, 2:].max() < 0.2 < found.final_closure.min()
    assert spread.max() < 0.02


def test_kicked_pairing_leaves_its_saddle():
    s, c = spectra(r=32)
    found = capacity(s, c, n_starts=2)
    assert found.final_closure[1] > found.start_closure[1] + 0.05


@pytest.mark.parametrize("trained", [False, True])
def test_more_starts_never_give_less(trained):
    s, c = spectra(3, r=20)
    given = (torch.stack([haar(20, k) for k in range(3)]),) * 2 if trained else None
    runs = [capacity(s, c, trained=given, n_starts=n, max_steps=30) for n in (1, 2, 3, 4)]
    for fewer, more in itertools.pairwise(runs):
        assert more.starts[: fewer.n_starts] == fewer.starts
        assert torch.equal(more.final_closure[:, : fewer.n_starts], fewer.final_closure)
        assert (more.closure >= fewer.closure).all()


def test_trained_orientation_adds_a_start_and_changes_no_other():
    s, c = spectra(2, r=12)
    U = torch.stack([haar(12, k) for k in range(2)])
    without = capacity(s, c, n_starts=4, max_steps=20)
    with_trained = capacity(s, c, trained=(U, U), n_starts=4, max_steps=20)
    assert torch.equal(with_trained.final_closure[:, 1:], without.final_closure)


def test_more_steps_never_give_less():
    s, c = spectra(3, r=20)
    runs = [capacity(s, c, n_starts=3, max_steps=m, tol=0.0).final_closure for m in (0, 5, 20, 80)]
    for short, long in itertools.pairwise(runs):
        assert (long >= short - 1e-9).all()


# ---- reproducibility -----------------------------------------------------------------------------


@pytest.mark.parametrize("r", [5, 13, 27, 64])
def test_head_does_not_depend_on_its_batch(r):
    s, c = spectra(9, r=r)
    seeds = list(range(100, 109))
    together = capacity(s, c, n_starts=3, max_steps=40, seed=seeds)
    for h in (0, 4, 8):
        alone = capacity(s[h], c[h], n_starts=3, max_steps=40, seed=seeds[h])
        assert alone.closure.shape == ()
        assert alone.U_L.shape == (r, r)
        assert torch.equal(alone.closure, together.closure[h])
        assert torch.equal(alone.U_L, together.U_L[h])
        assert torch.equal(alone.n_steps, together.n_steps[h])
    order = [6, 2, 7]
    again = capacity(s[order], c[order], n_starts=3, max_steps=40, seed=[seeds[h] for h in order])
    assert torch.equal(again.final_closure, together.final_closure[order])


def test_same_seed_same_bits_and_other_seed_other_starts():
    s, c = spectra(2, r=16)
    first, same, other = (capacity(s, c, n_starts=3, max_steps=10, seed=k) for k in (7, 7, 8))
    assert torch.equal(first.U_L, same.U_L)
    assert torch.equal(first.closure, same.closure)
    assert not torch.equal(first.start_closure[:, 2], other.start_closure[:, 2])


def test_threads_change_neither_bits_nor_themselves():
    s, c = spectra(5, r=64)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(capacity(s, c, n_starts=3, max_steps=20))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert torch.equal(other.final_closure, found[0].final_closure)
        assert torch.equal(other.U_L, found[0].U_L)


def test_leading_dimensions_are_kept():
    s, c = spectra(2, 3, r=7)
    found = capacity(s, c, n_starts=2, max_steps=5)
    assert found.closure.shape == (2, 3)
    assert found.U_R.shape == (2, 3, 7, 7)
    assert found.start_closure.shape == found.converged.shape == (2, 3, 2)
    assert_sound(found, s, c)


def test_interrupt_and_progress():
    s, c = spectra(4, r=128)
    seen, threads = [], torch.get_num_threads()

    def stop(done, total):
        seen.append((done, total))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capacity(s, c, n_starts=8, max_steps=1, progress=stop)
    assert seen[0][0] < seen[0][1] == 32
    assert torch.get_num_threads() == threads
    seen.clear()
    capacity(s, c, n_starts=8, max_steps=1, progress=lambda *x: seen.append(x))
    assert seen[-1] == (32, 32)


# ---- degenerate and wrong input ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("s", "c"),
    [
        ([2.0], [0.5]),
        ([1.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.5]),
        ([3.0, 2.0, 2.0, 0.0, 0.0], [0.9, 0.9, 0.4, 0.0, 0.0]),
        ([1.0, 0.0, 0.0], [0.7, 0.0, 0.0]),
        ([1.0, 1e-9, 1e-12], [1.0, 1e-14, 0.0]),
        ([1e-150, 5e-151], [0.5, 0.1]),
    ],
)
def test_degenerate_spectra(s, c):
    s, c = torch.tensor(s, dtype=torch.float64), torch.tensor(c, dtype=torch.float64)
    found = capacity(s, c, n_starts=4)
    eye = torch.eye(len(s), dtype=torch.float64)
    assert (found.U_L.mT @ found.U_L - eye).abs().max() < 1e-10
    want = dense_closure(s / s.max(), c, found.U_L, found.U_R)
    assert found.closure == pytest.approx(want, abs=1e-10)
    assert 0 < found.closure <= 1 + 1e-12


def test_flat_spectrum_and_flat_angles_close_exactly():
    found = capacity(torch.ones(6), torch.full((6,), 0.3))
    assert found.closure == pytest.approx(1.0, abs=1e-14)


def test_undefined_heads_give_nan_and_leave_the_others_alone():
    s, c = spectra(3, r=6)
    alone = capacity(s[1], c[1])
    s[0], c[2] = 0, 0
    found = capacity(s, c)
    assert found.closure.isnan().tolist() == [True, False, True]
    assert torch.equal(found.closure[1], alone.closure)
    assert torch.equal(found.U_L[0], torch.eye(6, dtype=torch.float64))
    assert capacity(torch.zeros(2, 3), torch.ones(2, 3)).closure.isnan().all()


def test_no_heads():
    assert capacity(torch.ones(0, 4), torch.ones(0, 4)).closure.shape == (0,)


GOOD = torch.ones(2, 3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("s", "c", "options", "message"),
    [
        (GOOD, GOOD[0], {}, r"\(2, 3\) and c \(3,\)"),
        (torch.ones(2, 0), torch.ones(2, 0), {}, "r >= 1"),
        (-GOOD, GOOD, {}, r"-1\.0.*at least 0"),
        (GOOD, 1.5 * GOOD, {}, r"1\.5.*\[0, 1\]"),
        (GOOD, -0.5 * GOOD, {}, r"-0\.5.*\[0, 1\]"),
        (GOOD * math.nan, GOOD, {}, "s holds 6 values"),
        (GOOD, GOOD * math.inf, {}, "c holds 6 values"),
        (GOOD, GOOD, {"n_starts": 0}, "n_starts is 0"),
        (GOOD, GOOD, {"max_steps": -1}, "max_steps is -1"),
        (GOOD, GOOD, {"seed": [1, 2, 3]}, "3 seeds for 2 heads"),
        (GOOD, GOOD, {"trained": (torch.eye(3),) * 2}, r"trained\[0\].*\(3, 3\).*\(2, 3, 3\)"),
        (GOOD, GOOD, {"trained": (2 * torch.eye(3).repeat(2, 1, 1),) * 2}, "from orthogonal"),
    ],
)
def test_wrong_input_is_named(s, c, options, message):
    with pytest.raises(ValueError, match=message):
        capacity(s, c, **options)


def test_cosines_may_round_past_one():
    assert capacity(GOOD, GOOD * (1 + 5e-13)).closure.isfinite().all()


# ---- constructions and paths ---------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10**6))
def test_shifted_pairing_is_the_best_shift(r, seed):
    s, c = spectra(r=r, seed=seed)
    best = 0.0
    for k in range(r):
        rising = sorted(c.tolist())
        y = torch.tensor(rising[k:] + rising[:k][::-1], dtype=torch.float64)
        best = max(best, dense_closure(s, y, torch.eye(r).double(), torch.eye(r).double()))
    order = torch.randperm(r, generator=torch.Generator().manual_seed(seed))
    U_L, U_R = shifted_pairing(s[order], c[order.flip(0)])
    assert dense_closure(s[order], c[order.flip(0)], U_L, U_R) == pytest.approx(best, abs=1e-12)
    assert torch.equal(U_L.sum(0), torch.ones(r).double())


def test_sorted_pairing_pairs_large_with_small_and_is_stationary():
    s, c = spectra(r=8)
    U_L, U_R = sorted_pairing(s, c)
    assert torch.equal((U_R.T @ torch.diag(c) @ U_L).diagonal(), c.flip(0))
    P = dense_closure(s, c, U_L, U_R)
    X = torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for h in (1e-3, 1e-4):
        turned = dense_closure(s, c, U_L @ torch.matrix_exp(h * (X - X.T)), U_R)
        assert abs(turned - P) < 100 * h**2


@pytest.mark.parametrize("r", [1, 4, 5, 24])
@pytest.mark.parametrize("reflect", [False, True])
def test_path_stays_orthogonal_and_joins_its_ends(r, reflect):
    s, c = spectra(r=r)
    start, end = (haar(r, 0), haar(r, 1)), (haar(r, 2), haar(r, 3))
    flip = torch.ones(r, dtype=torch.float64)
    flip[-1] = -1
    # Bring both factors onto the start's component, then, if asked, one of them off it.
    end = tuple(
        U1 * torch.where(flip < 0, torch.linalg.det(U0.T @ U1).sign(), 1.0)
        for U0, U1 in zip(start, end, strict=True)
    )
    if reflect:
        end = end[0] * flip, end[1] * flip
    t = torch.linspace(0, 1, 5)
    U_L, U_R = orientation_path(s, start, end, t)
    eye = torch.eye(r, dtype=torch.float64)
    for U in (U_L, U_R):
        assert (U.mT @ U - eye).abs().max() < 1e-10
    P = [dense_closure(s, c, *U) for U in zip(U_L, U_R, strict=True)]
    assert P[0] == pytest.approx(dense_closure(s, c, *start), abs=1e-10)
    assert P[-1] == pytest.approx(dense_closure(s, c, *end), abs=1e-10)
    # Constant speed: what a geodesic of the group is.
    for U in (U_L, U_R):
        pace = [U[k].T @ U[k + 1] for k in range(4)]
        assert max((x - pace[0]).abs().max() for x in pace) < 1e-10


def test_path_between_components_changes_the_least_singular_value():
    s, _ = spectra(r=6)
    start, end = (haar(6, 0), haar(6, 1)), (haar(6, 2), haar(6, 3))
    dets = [torch.linalg.det(U0.T @ U1) for U0, U1 in zip(start, end, strict=True)]
    flip = torch.tensor([-1.0, 1, 1, 1, 1, 1], dtype=torch.float64)
    end = (end[0] * flip if dets[0] * dets[1] > 0 else end[0], end[1])
    U_L, U_R = orientation_path(s, start, end, torch.tensor([1.0]))
    K_end = (end[0] * s) @ end[1].T
    K_path = (U_L[0] * s) @ U_R[0].T
    off = min((K_path - K_end).norm(), (K_path + K_end).norm())
    assert off == pytest.approx(2 * float(s.min()), rel=1e-8)


def test_path_through_half_a_turn_is_refused():
    s, eye = torch.ones(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    half = torch.diag(torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64))
    with pytest.raises(ValueError, match="half a turn"):
        orientation_path(s, (eye, eye), (half, eye), torch.tensor([0.5]))


def test_path_takes_the_nearer_of_a_core_and_its_negative():
    """A head with negative alpha is next to the negative of a construction: no detour through 0."""
    s, c = spectra(r=6)
    U = haar(6, 0)
    U_L, U_R = orientation_path(s, (U, U), (-U, U), torch.linspace(0, 1, 5))
    closures = closure_of_orientation(s, c, U_L, U_R)
    torch.testing.assert_close(closures, closures[:1].expand(5))
