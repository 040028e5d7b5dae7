"""Subspaces of a head: the read gauge, numerical ranks, and angles between ranges and kernels.

In the *read gauge*, with ``V = Q R``, the operator ``T = O V^T`` is ``W Q^T`` with ``W = O R^T``
and orthonormal ``Q``. There ``B = I`` and ``|T| = |W|``, the return core is ``Q^T W``, both ``V``
and ``C_V = V (V^T V)^-1`` become ``Q``, and ``P_V = Q Q^T``; the condition of ``V`` enters once and
not squared.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .factors import above_rounding, as_float64, cancelled, check_factors


class ReadGauge(NamedTuple):
    """Operators ``T = W Q^T`` that read through orthonormal columns; see `read_gauge`."""

    W: Tensor
    Q: Tensor


def read_gauge(O: Tensor, V: Tensor) -> ReadGauge:
    """Rewrite ``T = O V^T`` as ``W Q^T`` with orthonormal ``Q``.

    Parameters
    ----------
    O, V : (..., d, r) Tensor
        Finite factors; leading dimensions broadcast. A rank-deficient ``V`` is no trouble here.

    Returns
    -------
    ReadGauge
        ``W`` over the broadcast leading dimensions, ``Q`` over those of ``V``. An operator that
        cancels to rounding in ``O V^T`` has ``W = 0``.
    """
    Q, R = torch.linalg.qr(V)
    W = O @ R.mT
    return ReadGauge(W.masked_fill(cancelled(W, O, V)[..., None, None], 0.0), Q)


def principal_angles(X: Tensor | np.ndarray, Y: Tensor | np.ndarray) -> Tensor:
    """Principal angles between the column spaces of two matrices.

    Parameters
    ----------
    X, Y : (..., m, n) Tensor or ndarray
        Finite matrices of one shape; leading dimensions broadcast. Columns that depend on others
        to rounding (``max(m, n) eps s_max``) span nothing.

    Returns
    -------
    (..., min(m, n)) Tensor
        Ascending, in radians; as many as the smaller rank, then NaN.

    Notes
    -----
    Each angle comes from its sine and its cosine [1]_, so that small ones and those near
    ``pi / 2`` are both exact to rounding.

    References
    ----------
    .. [1] A. Bjorck and G. H. Golub, "Numerical methods for computing angles between linear
       subspaces", Math. Comp. 27, 1973.
    """
    (X, rank_x), (Y, rank_y) = _range_basis(as_float64(X)), _range_basis(as_float64(Y))
    smaller_x = (rank_x < rank_y)[..., None, None]
    large, small = torch.where(smaller_x, Y, X), torch.where(smaller_x, X, Y)
    k = torch.minimum(rank_x, rank_y)[..., None]
    inner = large.mT @ small
    cosine, sine = torch.linalg.svdvals(inner), torch.linalg.svdvals(small - large @ inner)
    # Both descend, padded with zeros after the first k: the n-th largest cosine has the n-th
    # smallest of those k sines.
    index = torch.arange(cosine.shape[-1]).expand_as(cosine)
    sine = sine.gather(-1, (k - 1 - index).clamp_min(0))
    return torch.where(index < k, torch.atan2(sine, cosine), torch.nan)


def range_angles(
    O_left: Tensor | np.ndarray, O_right: Tensor | np.ndarray, V: Tensor | np.ndarray
) -> Tensor:
    """Principal angles between the ranges of two siblings.

    Parameters
    ----------
    O_left, O_right, V : (..., d, r) Tensor or ndarray
        Finite output factors of the two, and the value factor that they share; leading dimensions
        broadcast.

    Returns
    -------
    (..., r) Tensor
        In radians, ascending, as `principal_angles` gives them.

    Raises
    ------
    ValueError
        If the shapes cannot be those of factors.
    """
    left, right = (read_gauge(*check_factors(O, V)).W for O in (O_left, O_right))
    return principal_angles(left, right)


def kernel_angles(
    O_left: Tensor | np.ndarray, O_right: Tensor | np.ndarray, V: Tensor | np.ndarray
) -> Tensor:
    """Principal angles between the row spaces of two siblings, whose complements are the kernels.

    The nonzero angles between two subspaces are those between their orthogonal complements.

    Parameters
    ----------
    O_left, O_right, V : (..., d, r) Tensor or ndarray
        As for `range_angles`.

    Returns
    -------
    (..., r) Tensor
        In radians, ascending. All 0 for siblings of full rank ``r``: they share the kernel, which
        is the complement of ``V``. Siblings of lower rank can differ.

    Raises
    ------
    ValueError
        If the shapes cannot be those of factors.
    """
    # Row spaces lie within the columns of Q, which the two share; R of W = Q' R has the same ones.
    left, right = (
        torch.linalg.qr(read_gauge(*check_factors(O, V)).W, mode="r").R.mT
        for O in (O_left, O_right)
    )
    return principal_angles(left, right)


def _range_basis(X: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal basis of the range, zero columns in place of what is missing; and the rank."""
    U, S, _ = torch.linalg.svd(X, full_matrices=False)
    keep = above_rounding(S, max(X.shape[-2:]))
    return U * keep[..., None, :], keep.sum(-1)


def numerical_rank(V: Tensor) -> Tensor:
    """Number of singular values above ``max(d, r) eps s_max``.

    Parameters
    ----------
    V : (..., d, r) Tensor
        Finite factors.

    Returns
    -------
    (...) Tensor of int64
    """
    S = torch.linalg.svdvals(torch.linalg.qr(V, mode="r").R)
    return above_rounding(S, max(V.shape[-2:])).sum(-1)


def full_rank_qr(V: Tensor | np.ndarray) -> tuple[Tensor, Tensor]:
    """Reduced QR of value factors that must have full column rank.

    Parameters
    ----------
    V : (..., d, r) Tensor or ndarray

    Returns
    -------
    Q : (..., d, r) Tensor
    R : (..., r, r) Tensor

    Raises
    ------
    ValueError
        If a ``V`` is not finite or does not have full column rank.
    """
    V = as_float64(V)
    if not V.isfinite().all():
        raise ValueError("V holds weights that are not finite; leave those heads out")
    rank, r = numerical_rank(V), V.shape[-1]
    if (rank < r).any():
        at = tuple((rank < r).nonzero()[0].tolist())
        where = f"V{list(at)}" if at else "V"
        raise ValueError(
            f"{where} has numerical rank {int(rank[at])}, expected full column rank r = {r}: "
            "C_V = V (V^T V)^-1 and the algebra A_V exist for that only. Leave such heads out, or "
            "factor T over a basis of its row space first"
        )
    return torch.linalg.qr(V)
