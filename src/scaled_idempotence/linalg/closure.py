"""Closure score, fitted scale and return gain of an OV operator, from ``r x r`` cores.

With ``M = V^T O``, ``A = O^T O`` and ``B = V^T V``, the Frobenius inner product of ``O X V^T``
and ``O Y V^T`` is ``tr(X^T A Y B)`` (17). ``X`` and ``Y`` out of ``{I, M}`` give everything here:
``|T|^2 = tr(A B)``, ``<T^2, T> = tr((A M)^T B)`` and ``|T^2|^2 = tr((A M)^T (M B))``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .factors import (
    EPS,
    as_float64,
    cancelled,
    check_factors,
    compact_factors,
    finite_heads,
    gram,
    return_core,
)

#: What `ClosureScores.status` says, by its value. 0 is a head whose scores are defined.
STATUS_REASONS = (
    "",
    "weights are not finite",
    "T is zero to rounding",
    "T^2 is zero to rounding (nilpotent)",
)
OK, NOT_FINITE, T_ZERO, T2_ZERO = range(4)


class ClosureScores(NamedTuple):
    """Scores of a batch of operators.

    Attributes
    ----------
    closure : (...) Tensor
        ``P(T)`` (5), in [0, 1].
    alpha : (...) Tensor
        ``<T^2, T> / |T|^2`` (6), in units of ``T``; of either sign.
    return_gain : (...) Tensor
        ``g_T = |T^2| / |T| = |alpha| / sqrt(P)`` (26), in units of ``T``.
    status : (...) Tensor of int64
        0, or the index in `STATUS_REASONS` of why the three above are NaN.
    relative_norm : (...) Tensor
        ``|T|^2 / (|O|^2 |V|^2)``, about ``1 / r`` for factors that do not cancel in ``O V^T``;
        the relative rounding of the scores is its inverse times that of float64.
    """

    closure: Tensor
    alpha: Tensor
    return_gain: Tensor
    status: Tensor
    relative_norm: Tensor


def scores_from_cores(A: Tensor, B: Tensor, M: Tensor, width: int) -> ClosureScores:
    """Closure scores from Grams and return core alone (5, 6, 17, 26).

    Parameters
    ----------
    A, B : (..., r, r) Tensor
        Grams ``O^T O`` and ``V^T V``.
    M : (..., r, r) Tensor
        Return core ``V^T O``.
    width : int
        ``d``, the length of the sums behind the entries; sets the size of their rounding.

    Returns
    -------
    ClosureScores
        Over the broadcast leading dimensions.
    """
    a2, b2 = trace(A), trace(B)
    scale = (a2 * b2).sqrt()
    # Unit factors first: then no weight scale over- or underflows the sixth-order products, and
    # "zero" has one meaning. A zero factor gives 0 / 0, which the status accounts for.
    A, B, M = A / a2[..., None, None], B / b2[..., None, None], M / scale[..., None, None]
    MB = M @ B
    return scores_from_products(
        (A * B).sum((-2, -1)),
        (MB * A).sum((-2, -1)),
        (A @ M * MB).sum((-2, -1)),
        scale,
        A.shape[-1],
        width,
    )


def trace(X: Tensor) -> Tensor:
    """Trace of each of a batch of matrices; of a Gram, the squared norm of its factor.

    Parameters
    ----------
    X : (..., r, r) Tensor

    Returns
    -------
    (...) Tensor
    """
    return X.diagonal(dim1=-2, dim2=-1).sum(-1)


def scores_from_products(
    t_t: Tensor, t2_t: Tensor, t2_t2: Tensor, scale: Tensor, r: int, width: int
) -> ClosureScores:
    """Closure scores from the three inner products of ``T^2`` and ``T`` (5, 6, 26).

    Parameters
    ----------
    t_t, t2_t, t2_t2 : (...) Tensor
        ``<T, T>``, ``<T^2, T>`` and ``<T^2, T^2>`` of ``T = O V^T`` for factors of norm 1.
    scale : (...) Tensor
        Product of the factors' true norms.
    r : int
        Head dimension.
    width : int
        ``d``, the length of the sums behind the entries; sets the size of their rounding.

    Returns
    -------
    ClosureScores
    """
    t2_t2 = t2_t2.clamp_min(0.0)
    t_zero = (scale == 0) | (t_t <= r * EPS)
    t2_zero = t2_t2.sqrt() <= 64 * width * EPS * t_t
    status = torch.zeros(t2_t2.shape, dtype=torch.int64)
    status = status.masked_fill(t2_zero, T2_ZERO).masked_fill(t_zero, T_ZERO)
    # After the zeros: a head that is not finite is that before it is anything else.
    status = status.masked_fill(~torch.isfinite(t2_t2) & (scale != 0), NOT_FINITE)

    def defined(x: Tensor) -> Tensor:
        return torch.where(status == OK, x, torch.nan)

    return ClosureScores(
        closure=defined((t2_t * t2_t / (t2_t2 * t_t)).clamp_max(1.0)),
        alpha=defined(scale * t2_t / t_t),
        return_gain=defined(scale * (t2_t2 / t_t).sqrt()),
        status=status,
        relative_norm=t_t,
    )


def closure_scores(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> ClosureScores:
    """Closure, fitted scale and return gain of ``T = O V^T``.

    Parameters
    ----------
    O, V : (..., d, r) Tensor or ndarray
        Output and value factors of one head or of many; leading dimensions broadcast.

    Returns
    -------
    ClosureScores

    Raises
    ------
    ValueError
        If the shapes cannot be those of factors.

    See Also
    --------
    closure : The score alone.

    Notes
    -----
    The scores belong to ``T`` and do not change with the gauge ``O -> O G, V -> V G^-T``, but the
    rounding of the Grams grows with the square of the gauge's condition. Heads whose factors
    nearly cancel in ``O V^T`` are therefore computed again from orthonormal bases.
    """
    O, V = check_factors(O, V)
    scores = scores_from_cores(gram(O), gram(V), return_core(O, V), O.shape[-2])
    return recompute_cancelling(scores, O, V)


def cancels(scores: ClosureScores, r: int) -> Tensor:
    """Tell which heads lost digits in ``O V^T``, and are worth orthonormal bases.

    Parameters
    ----------
    scores : ClosureScores (...)
    r : int
        Head dimension.

    Returns
    -------
    (...) Tensor of bool
    """
    return scores.relative_norm < 1e-2 / r


def recompute_cancelling(scores: ClosureScores, O: Tensor, V: Tensor) -> ClosureScores:
    """Compute again, over orthonormal bases, the heads whose Grams lost digits.

    Parameters
    ----------
    scores : ClosureScores (...)
        From the Grams of ``O`` and ``V``.
    O, V : (..., d, r) Tensor

    Returns
    -------
    ClosureScores
    """
    d, r = O.shape[-2:]
    poor = cancels(scores, r)
    if not poor.any():
        return scores
    poor &= finite_heads(O, V)
    o, v = O.expand(*poor.shape, d, r)[poor], V.expand(*poor.shape, d, r)[poor]
    Q_O, K0, Q_V = compact_factors(o, v)
    # What orthonormal bases leave of a product that cancels to nothing is rounding, no operator.
    K0[cancelled(K0, o, v)] = 0.0
    identity = torch.eye(r, dtype=torch.float64).expand_as(K0)
    again = scores_from_cores(gram(K0), identity, Q_V.mT @ Q_O @ K0, d)
    return ClosureScores(
        *(old.masked_scatter(poor, new) for old, new in zip(scores, again, strict=True))
    )


def closure(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> Tensor:
    """Closure score ``P(T) = <T^2, T>^2 / (|T^2|^2 |T|^2)`` of ``T = O V^T`` (5).

    It is 1 exactly where ``T^2 = alpha T`` for a nonzero ``alpha``, and ``1 - P`` is the least
    normalised squared residual of fitting ``T^2`` by a multiple of ``T``.

    Parameters
    ----------
    O, V : (..., d, r) Tensor or ndarray
        Output and value factors; leading dimensions broadcast.

    Returns
    -------
    (...) Tensor
        In [0, 1]; NaN where ``T`` or ``T^2`` vanishes or weights are not finite.

    Raises
    ------
    ValueError
        If the shapes cannot be those of factors.

    Examples
    --------
    A scaled oblique projection closes exactly; an orthogonal wrong reading does not.

    >>> import torch
    >>> O = torch.tensor([[1.0], [2.0]])
    >>> V = torch.tensor([[3.0], [0.0]])
    >>> closure(O, V)
    tensor(1., dtype=torch.float64)
    """
    return closure_scores(O, V).closure


def copying_score(M: Tensor | np.ndarray) -> Tensor:
    """Copying score ``sum(lambda) / sum(|lambda|)`` over the eigenvalues of ``T`` [1]_.

    The nonzero eigenvalues of ``T = O V^T`` are those of ``M = V^T O``. The score is 1 where all
    of them are positive and -1 where all are negative; a head with ``T^2 = alpha T`` has the sign
    of ``alpha``.

    Parameters
    ----------
    M : (..., r, r) Tensor or ndarray
        Return cores.

    Returns
    -------
    (...) Tensor
        In [-1, 1]; NaN where every eigenvalue is zero or the core is not finite.

    References
    ----------
    .. [1] N. Elhage et al., "A Mathematical Framework for Transformer Circuits", 2021.
    """
    M = as_float64(M)
    finite = M.isfinite().all(-1).all(-1)
    eigenvalues = torch.linalg.eigvals(M.nan_to_num(0.0, 0.0, 0.0))
    # Complex eigenvalues of a real matrix pair up, so the sum is real: it is the trace.
    score = trace(M) / eigenvalues.abs().sum(-1)
    return torch.where(finite, score.clamp(-1.0, 1.0), torch.nan)
