"""Independent truth for the linear algebra: dense d x d matrices, and random factors."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor


def dense(O: Tensor, V: Tensor) -> Tensor:
    return O @ V.mT


def dense_closure(T: Tensor) -> Tensor:
    T2 = T @ T
    return (T2 * T).sum((-2, -1)) ** 2 / ((T2**2).sum((-2, -1)) * (T**2).sum((-2, -1)))


def dense_alpha(T: Tensor) -> Tensor:
    return ((T @ T) * T).sum((-2, -1)) / (T**2).sum((-2, -1))


def dense_gain(T: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(T @ T) / torch.linalg.matrix_norm(T)


@st.composite
def factors(draw, batch=(), max_r=16, max_extra=24):
    """Random factors O, V of shape (*batch, d, r), at times ill scaled or nearly rank deficient."""
    r = draw(st.integers(1, max_r))
    d = r + draw(st.integers(0, max_extra))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pair = [torch.from_numpy(rng.normal(size=(*batch, d, r))) for _ in range(2)]
    if draw(st.booleans()):
        # Columns of very different length: nearly rank deficient.
        pair[0] = pair[0] * torch.logspace(0, -draw(st.integers(0, 8)), r, dtype=torch.float64)
    scale = 10.0 ** draw(st.integers(-12, 12))
    return pair[0] * scale, pair[1]


def orthogonal(r: int, seed: int) -> Tensor:
    """An orthogonal matrix that is not the identity."""
    return torch.from_numpy(np.linalg.qr(np.random.default_rng(seed).normal(size=(r, r)))[0])
