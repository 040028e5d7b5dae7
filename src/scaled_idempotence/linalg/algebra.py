"""The algebra ``A_V`` of scaled idempotents with one value factor (18, 19), and its anchor.

Everything is computed in the read gauge of `subspaces`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .closure import NOT_FINITE, OK, STATUS_REASONS, ClosureScores, trace
from .factors import as_float64, check_factors, finite_heads, over_transpose
from .pairing import trained_rank
from .subspaces import full_rank_qr, numerical_rank, read_gauge

#: What `AnchorScores.status` says, by its value: that of the head's closure, or its V's rank.
ANCHOR_REASONS = (*STATUS_REASONS, "V does not have full column rank, so P_V and A_V do not exist")
V_DEFICIENT = 4


class AlgebraParts(NamedTuple):
    """``O = a C_V + N + remainder`` with ``V^T N = 0``; see `algebra_parts`.

    Attributes
    ----------
    a : (...) Tensor
        Scale, in units of ``T``: the mean ``tr(T) / r`` of the eigenvalues.
    N : (..., d, r) Tensor
        Free oblique part, orthogonal to the columns of ``V``.
    remainder : (..., d, r) Tensor
        What keeps ``T`` out of the algebra: ``C_V (M - a I)``.
    anchor_energy, oblique_energy, remainder_energy : (...) Tensor
        Shares of ``|T|^2`` in ``a P_V``, ``N V^T`` and ``remainder V^T``. These three are
        orthogonal, so the shares add up to 1; NaN where ``T = 0``. The first is also the squared
        cosine of ``T`` with ``P_V``.
    """

    a: Tensor
    N: Tensor
    remainder: Tensor
    anchor_energy: Tensor
    oblique_energy: Tensor
    remainder_energy: Tensor


class AnchorScores(NamedTuple):
    """Where the heads of a layer stand towards the anchors of their value factors.

    Attributes
    ----------
    anchor_cosine : (H,) Tensor
        Squared cosine of ``T_h / alpha_h`` with ``P_V`` of its own ``V``.
    oblique_energy, remainder_energy : (H,) Tensor
        Shares of ``|T_h|^2`` in the free oblique part and outside of the algebra.
    retrieval : (H, G) Tensor
        Squared cosine of ``T_h`` with ``P_V`` of every value factor of the layer.
    retrieval_rank : (H,) Tensor of float64
        Rank of the trained factor in its row of `retrieval`; 1 is the first, ties count against.
    status : (H,) Tensor of int64
        0, or the index in `ANCHOR_REASONS` of why the head's scores are NaN.
    """

    anchor_cosine: Tensor
    oblique_energy: Tensor
    remainder_energy: Tensor
    retrieval: Tensor
    retrieval_rank: Tensor
    status: Tensor


def dual_basis(V: Tensor | np.ndarray) -> Tensor:
    """Dual basis ``C_V = V (V^T V)^-1`` (18): ``V^T C_V = I``, over the columns of ``V``.

    Parameters
    ----------
    V : (..., d, r) Tensor or ndarray

    Returns
    -------
    (..., d, r) Tensor

    Raises
    ------
    ValueError
        If a ``V`` is not finite or does not have full column rank.
    """
    return over_transpose(*full_rank_qr(V))


def algebra_element(
    a: Tensor | np.ndarray | float, N: Tensor | np.ndarray, V: Tensor | np.ndarray
) -> Tensor:
    """Output factor of an element ``(a C_V + N) V^T`` of the algebra ``A_V`` (18, 19).

    Parameters
    ----------
    a : (...) Tensor, ndarray or float
        Scale: the element ``T`` has ``T^2 = a T``.
    N : (..., d, r) Tensor or ndarray
        Free oblique part, with ``V^T N = 0``; `free_part` makes one of any matrix.
    V : (..., d, r) Tensor or ndarray
        Value factor of full column rank.

    Returns
    -------
    (..., d, r) Tensor
        ``O = a C_V + N``.

    Raises
    ------
    ValueError
        If ``V^T N`` is not zero to rounding, if ``V`` does not have full column rank, or if the
        shapes differ.

    Examples
    --------
    Two projections with one kernel, which are a left-zero band: each product is its left factor.

    >>> import torch
    >>> V = torch.tensor([[1.0], [0.0]])
    >>> S = algebra_element(1.0, torch.tensor([[0.0], [2.0]]), V) @ V.double().T
    >>> T = algebra_element(1.0, torch.tensor([[0.0], [-1.0]]), V) @ V.double().T
    >>> torch.equal(S @ T, S), torch.equal(T @ S, T)
    (True, True)
    """
    N, V = check_factors(N, V)
    # as_float64 would pass a Python float through float32.
    a = torch.as_tensor(a, dtype=torch.float64)
    Q, R = full_rank_qr(V)
    norm = torch.linalg.matrix_norm
    overlap, size = norm(Q.mT @ N), norm(N)
    if (overlap > 1e-10 * size).any():
        worst = (overlap / size).nan_to_num(0.0).max().item()
        raise ValueError(
            f"V^T N is not zero: N has {worst:.1e} of its norm within the columns of V, and an "
            "element of the algebra has none. Pass free_part(N, V)"
        )
    return a[..., None, None] * over_transpose(Q, R) + N


def free_part(X: Tensor | np.ndarray, V: Tensor | np.ndarray) -> Tensor:
    """Part ``N = (I - P_V) X`` of a factor that is orthogonal to the columns of ``V``.

    Parameters
    ----------
    X, V : (..., d, r) Tensor or ndarray

    Returns
    -------
    (..., d, r) Tensor
        ``V^T N = 0`` to the rounding of ``N`` itself.

    Raises
    ------
    ValueError
        If ``V`` does not have full column rank, or the shapes differ.
    """
    X, V = check_factors(X, V)
    return _complement(X, full_rank_qr(V)[0])


def algebra_parts(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> AlgebraParts:
    """Decompose ``T = O V^T`` into its scale, its free oblique part and what is not in ``A_V``.

    Parameters
    ----------
    O, V : (..., d, r) Tensor or ndarray
        Finite factors, ``V`` of full column rank; leading dimensions broadcast.

    Returns
    -------
    AlgebraParts

    Raises
    ------
    ValueError
        If a ``V`` does not have full column rank, weights are not finite, or the shapes differ.

    Notes
    -----
    ``T = a P_V + N V^T + C_V (M - a I) V^T``. In the read gauge the last term is
    ``Q (Q^T W - a I) Q^T``, whose norm is least at ``a = tr(Q^T W) / r = tr(M) / r``: no more than
    the mean eigenvalue. At that ``a`` all three terms are orthogonal, so the first two together
    are the member of ``A_V`` nearest to ``T`` over all scales *and* all oblique parts.
    """
    O, V = check_factors(O, V)
    if not finite_heads(O, V).all():
        raise ValueError("O or V holds weights that are not finite; leave those heads out")
    Q, R = full_rank_qr(V)
    W = O @ R.mT
    core = Q.mT @ W
    a = trace(core) / O.shape[-1]
    N = _complement(O, Q)
    remainder = O - N - a[..., None, None] * over_transpose(Q, R)
    return AlgebraParts(a, N, remainder, *_energies(W, Q, core, a))


def nearest_idempotent(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> Tensor:
    """Output factor of the scaled idempotent nearest to ``T = O V^T`` with the same ``V``.

    ``O' = O - C_V (M - a I)`` with ``a`` the minimiser of ``|C_V (M - a I) V^T|``. It keeps the
    oblique part of ``O`` and satisfies ``V^T O' = a I``, hence ``T'^2 = a T'``.

    Parameters
    ----------
    O, V : (..., d, r) Tensor or ndarray
        As for `algebra_parts`.

    Returns
    -------
    (..., d, r) Tensor
        ``O'``.

    Raises
    ------
    ValueError
        As `algebra_parts`: for a deficient ``V``, weights that are not finite, other shapes.

    See Also
    --------
    algebra_parts : The scale, and the size of what was taken away.

    Examples
    --------
    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> O, V = torch.randn(2, 8, 3, dtype=torch.float64, generator=generator)
    >>> T = nearest_idempotent(O, V) @ V.T
    >>> torch.allclose(T @ T, algebra_parts(O, V).a * T)
    True
    """
    parts = algebra_parts(O, V)
    return as_float64(O) - parts.remainder


def in_algebra(O: Tensor | np.ndarray, V: Tensor | np.ndarray, rtol: float = 1e-10) -> Tensor:
    """Tell whether ``T = O V^T`` belongs to ``A_V``, that is whether ``V^T O = a I`` (16, 18).

    Parameters
    ----------
    O, V : (..., d, r) Tensor or ndarray
        As for `algebra_parts`.
    rtol : float
        Largest ratio of the remainder to ``|T|``.

    Returns
    -------
    (...) Tensor of bool

    Raises
    ------
    ValueError
        As `algebra_parts`: for a deficient ``V``, weights that are not finite, other shapes.

    Notes
    -----
    Members satisfy ``T^2 = a T``. The converse takes an ``O`` of full column rank as well: where
    ``O`` is deficient, ``T^2 = a T`` says ``O (M - a I) = 0`` and no more, which an ``M`` that is
    not scalar can fulfil. Such a ``T`` is in the algebra of its own, smaller, row space.
    """
    parts = algebra_parts(O, V)
    return (parts.remainder_energy.sqrt() <= rtol) | parts.remainder_energy.isnan()


def anchor_scores(O: Tensor, V: Tensor, value_head: Tensor, closure: ClosureScores) -> AnchorScores:
    """Compare the heads of a layer with the anchors ``P_V = V (V^T V)^-1 V^T`` of its values.

    Parameters
    ----------
    O : (H, d, r) Tensor
    V : (G, d, r) Tensor
    value_head : (H,) Tensor of int64
        Factors of the layer and ``g(h)``, as `layer_scores` takes them.
    closure : ClosureScores (H,)
        Of the trained heads; where it is not defined, neither is anything here.

    Returns
    -------
    AnchorScores
        The scores are those of ``T / alpha`` and of ``T`` alike. A ``V`` without full column rank
        has no anchor: its heads are NaN with a status, and it competes in no retrieval.

    Notes
    -----
    Costs ``2 d H G r^2`` operations. An operator that reads through ``V`` overlaps with ``P_V``
    more than with other anchors almost by its making, so a rank of 1 says something only beside
    the ranks of ordinary heads.
    """
    r = V.shape[-1]
    finite = finite_heads(O, V[value_head])
    V_finite = V.isfinite().all(-1).all(-1)
    V = V.nan_to_num(0.0, 0.0, 0.0)
    full = V_finite & (numerical_rank(V) == r)
    own = read_gauge(O.nan_to_num(0.0, 0.0, 0.0), V[value_head])
    Q = torch.linalg.qr(V).Q
    core = own.Q.mT @ own.W
    anchor, oblique, remainder = _energies(own.W, own.Q, core, trace(core) / r)
    size = own.W.square().sum((-2, -1)) * r
    # <W Q^T, Q_g Q_g^T> = <Q_g^T W, Q_g^T Q>, one value head at a time: r x r cores of H heads.
    columns = [
        ((Q_g.mT @ own.W) * (Q_g.mT @ Q)[value_head]).sum((-2, -1)).square() / size for Q_g in Q
    ]
    status = closure.status.masked_fill(~full[value_head] & finite, V_DEFICIENT)
    status = status.masked_fill(~finite, NOT_FINITE)

    def defined(x: Tensor) -> Tensor:
        return torch.where(status == OK, x, torch.nan)

    retrieval = torch.stack(columns, dim=1).masked_fill(~full, torch.nan)
    retrieval = torch.where((status == OK)[:, None], retrieval, torch.nan)
    return AnchorScores(
        anchor_cosine=defined(anchor),
        oblique_energy=defined(oblique),
        remainder_energy=defined(remainder),
        retrieval=retrieval,
        retrieval_rank=trained_rank(retrieval, value_head),
        status=status,
    )


def _complement(X: Tensor, Q: Tensor) -> Tensor:
    """``(I - Q Q^T) X``, twice: once leaves rounding of the size of ``X`` within the range of Q."""
    for _ in range(2):
        X = X - Q @ (Q.mT @ X)
    return X


def _energies(W: Tensor, Q: Tensor, core: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Shares of ``|W|^2`` in the anchor, the oblique part and the remainder, in the read gauge."""
    size = W.square().sum((-2, -1))
    r = core.shape[-1]
    off = core - a[..., None, None] * torch.eye(r, dtype=torch.float64)
    oblique = (W - Q @ core).square().sum((-2, -1))
    return r * a**2 / size, oblique / size, off.square().sum((-2, -1)) / size
