import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from scaled_idempotence.linalg import principal as p
from scaled_idempotence.linalg.closure import closure
from tests.operators import dense, dense_closure, factors, orthogonal


@given(factors(batch=(2,), max_r=64, max_extra=48))
def test_coordinates_rebuild_the_operator_and_its_square(pair):
    O, V = pair
    K, cosines, Q_O, Q_V = p.principal_coordinates(O, V)
    T = dense(O, V)
    D = torch.diag_embed(cosines)
    size = float(torch.linalg.matrix_norm(T).max())
    torch.testing.assert_close(Q_O @ K @ Q_V.mT, T, rtol=0, atol=1e-12 * size)
    square = Q_O @ (K @ D @ K) @ Q_V.mT
    torch.testing.assert_close(square, T @ T, rtol=0, atol=1e-12 * size**2)
    torch.testing.assert_close(Q_O.mT @ Q_V, D, rtol=0, atol=1e-12)
    eye = torch.eye(O.shape[-1], dtype=torch.float64).expand_as(K)
    for Q in (Q_O, Q_V):
        torch.testing.assert_close(Q.mT @ Q, eye, rtol=0, atol=1e-12)
    assert (cosines.diff() <= 1e-14).all()
    assert (cosines >= 0).all()
    assert (cosines <= 1).all()


@given(factors(max_r=64, max_extra=48))
def test_closure_through_the_core_is_closure(pair):
    O, V = pair
    K, cosines, _, _ = p.principal_coordinates(O, V)
    assert p.core_closure(K, cosines).item() == pytest.approx(closure(O, V).item(), abs=1e-10)
    assert p.core_closure(K, cosines).item() == pytest.approx(
        dense_closure(dense(O, V)).item(), abs=1e-10
    )


@given(factors(), st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_closure_does_not_see_scales(pair, of_core, of_support):
    K, cosines, _, _ = p.principal_coordinates(*pair)
    plain = p.core_closure(K, cosines).item()
    assert p.core_closure(K * of_core, cosines * of_support).item() == pytest.approx(
        plain, rel=1e-9
    )


@given(factors(), st.integers(0, 10**6))
def test_coordinates_do_not_depend_on_the_gauge(pair, seed):
    O, V = pair
    O = O / O.norm()
    assume(torch.linalg.cond(O) < 1e3)
    r = O.shape[-1]
    gauge = orthogonal(r, seed) @ torch.diag(torch.logspace(0, 1, r, dtype=torch.float64))
    one = p.principal_coordinates(O, V)
    other = p.principal_coordinates(O @ gauge, V @ torch.linalg.inv(gauge).mT)
    torch.testing.assert_close(other.cosines, one.cosines, rtol=0, atol=1e-11)
    gaps = (one.cosines[:-1] - one.cosines[1:]).min() if r > 1 else torch.tensor(1.0)
    # Bases are known to rounding over the gap between angles.
    assume(gaps > 1e-4)
    assume(one.cosines[-1] > 1e-4)
    torch.testing.assert_close(other.K, one.K, rtol=0, atol=float(1e-7 * one.K.norm()))


def isoclinic_pair(blocks, seed, d=40):
    """Factors whose principal angles repeat: cosines from `blocks`, each so many times."""
    rng = np.random.default_rng(seed)
    c = torch.tensor([cosine for cosine, times in blocks for _ in range(times)]).double()
    r = len(c)
    basis = orthogonal(d, seed)
    U, rest = basis[:, :r], basis[:, r : 2 * r]
    V = U * c + rest * (1 - c**2).sqrt()
    K = torch.from_numpy(rng.normal(size=(r, r)))
    return U @ K, V, c


@pytest.mark.parametrize("blocks", [[(0.6, 5)], [(1.0, 2), (0.5, 3), (0.2, 1)], [(0.7, 2), (0, 3)]])
@pytest.mark.parametrize("seed", range(5))
def test_rotations_inside_blocks_of_equal_angles_do_not_show(blocks, seed):
    """Coordinates are functions of T also where the decomposition leaves a choice."""
    O, V, c = isoclinic_pair(blocks, seed)
    one = p.principal_coordinates(O, V)
    torch.testing.assert_close(one.cosines, c, rtol=0, atol=1e-7)
    gauge = orthogonal(len(c), seed + 1)
    other = p.principal_coordinates(O @ gauge, V @ gauge)
    # Signs inside a block follow the ambient bases, which are the same columns now.
    torch.testing.assert_close(other.K, one.K, rtol=0, atol=1e-6)
    torch.testing.assert_close(other.Q_O, one.Q_O, rtol=0, atol=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 6), st.integers(1, 8))
def test_the_table_is_every_core_on_every_support(seed, n, m, r):
    rng = np.random.default_rng(seed)
    K = torch.from_numpy(rng.normal(size=(2, n, r, r)))
    cosines = torch.from_numpy(rng.random((2, m, r)))
    table = p.closure_table(K, cosines)
    direct = p.core_closure(K[:, :, None], cosines[:, None])
    torch.testing.assert_close(table, direct, rtol=1e-8, atol=1e-12)


def test_a_bad_head_is_nan_and_alone():
    O = torch.randn(3, 12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    V = O.roll(1, 0).clone()
    truth = p.principal_coordinates(O[[0, 2]], V[[0, 2]])
    V[1, 2, 2] = torch.inf
    got = p.principal_coordinates(O, V)
    for field, true in zip(got, truth, strict=True):
        assert field[1].isnan().all()
        torch.testing.assert_close(field[[0, 2]], true)


def test_rank_one():
    u, v = torch.tensor([[3.0], [0], [0]]), torch.tensor([[4.0], [3.0], [0]])
    K, cosines, Q_O, _ = p.principal_coordinates(u, v)
    assert K.item() == pytest.approx(15)
    assert cosines.item() == pytest.approx(0.8)
    assert Q_O.flatten().tolist() == [1, 0, 0]
