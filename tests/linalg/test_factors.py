import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scaled_idempotence.linalg import factors as f
from tests.operators import dense, factors


@given(factors(batch=(3,)))
def test_singular_values_are_those_of_the_dense_operator(pair):
    O, V = pair
    r = O.shape[-1]
    truth = torch.linalg.svdvals(dense(O, V))[..., :r]
    got = f.singular_values(O, V)
    torch.testing.assert_close(got, truth, rtol=1e-10, atol=float(1e-12 * truth.max()))


@given(factors())
def test_compact_factors_rebuild_the_operator(pair):
    O, V = pair
    Q_O, K0, Q_V = f.compact_factors(O, V)
    T = dense(O, V)
    torch.testing.assert_close(Q_O @ K0 @ Q_V.mT, T, rtol=0, atol=float(1e-12 * T.norm()))


@given(st.integers(1, 12), st.integers(1, 12))
def test_value_head_index_groups_evenly(n_values, per_group):
    index = f.value_head_index(n_values * per_group, n_values)
    assert index.bincount().tolist() == [per_group] * n_values
    assert (index.diff() >= 0).all()


@pytest.mark.parametrize(("heads", "values"), [(14, 4), (0, 1), (4, 0), (2, 4)])
def test_uneven_groups_are_refused(heads, values):
    with pytest.raises(ValueError, match=rf"{heads} query heads cannot share {values} value heads"):
        f.value_head_index(heads, values)


def test_effective_rank_of_known_spectra():
    s = torch.tensor([[1.0, 1, 1, 1], [3, 0, 0, 0], [2, 2, 0, 0], [0, 0, 0, 0]])
    rank = f.effective_rank(s)
    assert rank[:3].tolist() == pytest.approx([4, 1, 2])
    assert rank[3].isnan()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_half_precision_is_upcast_first(dtype):
    O = torch.randn(2, 9, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert f.singular_values(O, O).dtype == torch.float64


def test_wrong_shapes_are_told():
    with pytest.raises(ValueError, match=r"V looks transposed: pass V\.mT"):
        f.check_factors(torch.ones(5, 2), torch.ones(2, 5))
    with pytest.raises(ValueError, match="1 <= r <= d"):
        f.check_factors(torch.ones(2, 5), torch.ones(2, 5))
    with pytest.raises(ValueError, match="V\\[value_head\\]"):
        f.check_factors(torch.ones(6, 5, 2), torch.ones(3, 5, 2))
    with pytest.raises(ValueError, match=r"\[\.\.\., d, r\]"):
        f.check_factors(np.ones(5), np.ones(5))
    with pytest.raises(TypeError, match="complex"):
        f.as_float64(torch.ones(2, dtype=torch.complex64))


def test_one_bad_head_does_not_hide_the_others():
    O = torch.randn(3, 8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    V = O.flip(0).clone()
    truth = f.singular_values(O, V)
    V[1, 3, 0] = torch.nan
    got = f.singular_values(O, V)
    assert got[1].isnan().all()
    torch.testing.assert_close(got[[0, 2]], truth[[0, 2]])
