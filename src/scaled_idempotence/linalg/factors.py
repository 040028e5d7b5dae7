"""The factors of an OV operator, their Grams, and what follows from singular values alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

EPS = torch.finfo(torch.float64).eps

# What is worked on at once: enough for LAPACK and GEMM at full speed, little beside a layer's
# factors in a wide model.
BLOCK_BYTES = 16 * 2**20


class CompactFactors(NamedTuple):
    """``T = Q_O K0 Q_V^T`` with orthonormal ``Q_O`` and ``Q_V``; see `compact_factors`."""

    Q_O: Tensor
    K0: Tensor
    Q_V: Tensor


def as_float64(array: Tensor | np.ndarray) -> Tensor:
    """Give a real tensor in float64, whatever the precision it is stored in.

    Half precisions reach neither LAPACK nor a trustworthy sum, so everything is upcast first.

    Parameters
    ----------
    array : (...) Tensor or ndarray
        Real numbers.

    Returns
    -------
    (...) Tensor
        The same numbers in float64; the input itself if that is what it was.

    Raises
    ------
    TypeError
        If the numbers are complex.
    """
    tensor = torch.as_tensor(array)
    if tensor.is_complex():
        raise TypeError(f"got a tensor of {tensor.dtype}, expected real numbers")
    return tensor.to(torch.float64)


def check_factors(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> tuple[Tensor, Tensor]:
    """Upcast a pair of factors and check that their shapes can be those of ``T = O V^T``.

    Parameters
    ----------
    O, V : (..., d, r) Tensor or ndarray
        Output and value factors, leading dimensions broadcastable against each other.

    Returns
    -------
    O, V : (..., d, r) Tensor
        In float64, not yet broadcast.

    Raises
    ------
    ValueError
        If the trailing shapes differ, if ``r`` is 0 or larger than ``d``, or if the leading
        dimensions do not broadcast.
    """
    O, V = as_float64(O), as_float64(V)
    got = f"O has shape {tuple(O.shape)} and V has shape {tuple(V.shape)}"
    if O.ndim < 2 or V.ndim < 2:
        raise ValueError(f"{got}; both must be [..., d, r]")
    if O.shape[-2:] != V.shape[-2:]:
        hint = " V looks transposed: pass V.mT" if O.shape[-2:] == V.mT.shape[-2:] else ""
        raise ValueError(f"{got}; both must be [..., d, r] with the same d and r.{hint}")
    d, r = O.shape[-2:]
    if not 1 <= r <= d:
        raise ValueError(f"{got}: d = {d}, r = {r}; a head needs 1 <= r <= d. Transposed?")
    try:
        torch.broadcast_shapes(O.shape[:-2], V.shape[:-2])
    except RuntimeError:
        raise ValueError(
            f"{got}; the leading dimensions do not broadcast. For grouped values pass "
            "V[value_head], one value factor a query head"
        ) from None
    return O, V


def value_head_index(n_heads: int, n_value_heads: int) -> Tensor:
    """Value head of each query head, ``g(h) = h // (H / G)``.

    Parameters
    ----------
    n_heads : int
        Query heads ``H`` of a layer.
    n_value_heads : int
        Value heads ``G`` of the layer: ``H`` for MHA, 1 for MQA.

    Returns
    -------
    (H,) Tensor of int64

    Raises
    ------
    ValueError
        If ``H`` is not a positive multiple of ``G``: no grouping is defined then, and indexing
        would silently pair heads with values that they never read.
    """
    if n_heads < 1 or n_value_heads < 1 or n_heads % n_value_heads:
        raise ValueError(
            f"{n_heads} query heads cannot share {n_value_heads} value heads evenly: the number "
            "of query heads must be a positive multiple of the number of value heads. Check "
            "num_attention_heads and num_key_value_heads in the model's configuration"
        )
    return torch.arange(n_heads) // (n_heads // n_value_heads)


def topology(n_heads: int, n_value_heads: int) -> str:
    """Name the value sharing of a layer: ``"MHA"``, ``"GQA"`` or ``"MQA"``."""
    if n_heads == n_value_heads:
        return "MHA"
    return "MQA" if n_value_heads == 1 else "GQA"


def gram(factor: Tensor) -> Tensor:
    """Gram matrix ``X^T X`` of a factor.

    Parameters
    ----------
    factor : (..., d, r) Tensor
        ``O`` or ``V``.

    Returns
    -------
    (..., r, r) Tensor
        ``A = O^T O`` or ``B = V^T V`` of the paper's equation (17).
    """
    return factor.mT @ factor


def return_core(O: Tensor, V: Tensor) -> Tensor:
    """Return core ``M = V^T O`` (4), through which ``T^2 = O M V^T``.

    Parameters
    ----------
    O, V : (..., d, r) Tensor

    Returns
    -------
    (..., r, r) Tensor
    """
    return V.mT @ O


def compact_factors(O: Tensor, V: Tensor) -> CompactFactors:
    """Rewrite ``O V^T`` over orthonormal bases of the write and the read subspace.

    This is the gauge in which nothing is lost: the factors' own condition, which the product
    ``O V^T`` does not see, enters once and not squared as it does in the Grams.

    Parameters
    ----------
    O, V : (..., d, r) Tensor
        Finite factors.

    Returns
    -------
    CompactFactors
        ``Q_O, Q_V`` (..., d, r) and ``K0 = R_O R_V^T`` (..., r, r).
    """
    Q_O, R_O = torch.linalg.qr(O)
    Q_V, R_V = torch.linalg.qr(V)
    return CompactFactors(Q_O, R_O @ R_V.mT, Q_V)


def finite_heads(O: Tensor, V: Tensor) -> Tensor:
    """Tell which heads hold only finite weights.

    Parameters
    ----------
    O, V : (..., d, r) Tensor

    Returns
    -------
    (...) Tensor of bool
        Over the broadcast leading dimensions.
    """
    # Extremes carry NaN and infinity along, and unlike isfinite they need no copy of a layer.
    finite = (X.amax((-2, -1)).isfinite() & X.amin((-2, -1)).isfinite() for X in (O, V))
    return torch.logical_and(*finite)


def cancelled(product: Tensor, O: Tensor, V: Tensor) -> Tensor:
    """Tell which products ``O V^T`` are nothing but the rounding of what cancels in them.

    Parameters
    ----------
    product : (..., n, r) Tensor
        Any matrix with the norm of ``O V^T``.
    O, V : (..., d, r) Tensor

    Returns
    -------
    (...) Tensor of bool
    """
    norm = torch.linalg.matrix_norm
    return norm(product) <= product.shape[-1] * EPS * norm(O) * norm(V)


def above_rounding(s: Tensor, width: int) -> Tensor:
    """Tell which singular values count for the numerical rank: those above ``width eps s_max``.

    Parameters
    ----------
    s : (..., r) Tensor
        Descending.
    width : int
        Larger side of the matrix that they belong to.

    Returns
    -------
    (..., r) Tensor of bool
    """
    return width * EPS * s[..., :1] < s


def over_transpose(X: Tensor, R: Tensor) -> Tensor:
    """``X R^-T``, as ``C_V = Q R^-T`` of ``V = Q R``.

    Parameters
    ----------
    X : (..., n, r) Tensor
    R : (..., r, r) Tensor
        Upper triangular.

    Returns
    -------
    (..., n, r) Tensor
    """
    # A triangular solve, and no general one: batched LU returns wrong numbers for large r on
    # several threads (pytorch #142815).
    return torch.linalg.solve_triangular(R.mT, X, upper=False, left=False)


def singular_values(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> Tensor:
    """Singular values of ``T = O V^T``, from an ``r x r`` matrix.

    Parameters
    ----------
    O, V : (..., d, r) Tensor or ndarray

    Returns
    -------
    (..., r) Tensor
        Descending; NaN for heads with weights that are not finite.
    """
    O, V = check_factors(O, V)
    finite = finite_heads(O, V)[..., None]
    s = torch.linalg.svdvals(triangular_factor(O) @ triangular_factor(V).mT)
    return torch.where(finite, s, torch.nan)


def triangular_factor(factor: Tensor) -> Tensor:
    """Triangular factor ``R`` of ``X = Q R``, a few matrices at a time.

    Parameters
    ----------
    factor : (..., d, r) Tensor

    Returns
    -------
    (..., r, r) Tensor
        Of zeros in place of what is not finite: LAPACK would refuse the whole batch for it, and a
        head without weights must not hide the others.
    """
    d, r = factor.shape[-2:]
    # LAPACK works in a copy; of all heads of a wide model at once it would be a second layer.
    blocks = factor.reshape(-1, d, r).split(max(1, BLOCK_BYTES // (8 * d * r)))
    triangles = [torch.linalg.qr(X.nan_to_num(0.0, 0.0, 0.0), mode="r").R for X in blocks]
    return torch.cat(triangles).view(*factor.shape[:-2], r, r)


def effective_rank(s: Tensor | np.ndarray) -> Tensor:
    """Effective rank: the exponential of the entropy of the normalised singular values [1]_.

    Parameters
    ----------
    s : (..., r) Tensor or ndarray
        Singular values, non-negative, in any order and unit.

    Returns
    -------
    (...) Tensor
        Between 1 (rank one) and ``r`` (flat spectrum); NaN where all of ``s`` is zero.

    References
    ----------
    .. [1] O. Roy and M. Vetterli, "The effective rank: a measure of effective dimensionality",
       EUSIPCO 2007.

    Examples
    --------
    >>> import torch
    >>> effective_rank(torch.tensor([[1.0, 1.0, 1.0], [5.0, 0.0, 0.0]])).round(decimals=9)
    tensor([3., 1.], dtype=torch.float64)
    """
    s = as_float64(s)
    p = s / s.sum(-1, keepdim=True)  # 0 / 0 is the NaN that a zero head should have
    return torch.special.entr(p).sum(-1).exp()
