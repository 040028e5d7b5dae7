"""Principal coordinates: an OV operator as a transport core K between two bases at angles D.

With orthonormal principal bases ``Q_O`` of the write subspace and ``Q_V`` of the read subspace,
``Q_O^T Q_V = D = diag(cos theta)`` (7), ``T = Q_O K Q_V^T`` (8) and
``T^2 = Q_O (K D K) Q_V^T`` (9).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .factors import as_float64, check_factors, compact_factors, finite_heads

# Cosines that differ by less are one principal angle: rotating inside such a block moves D by no
# more than this, an order of magnitude below what the identities are held to.
DEGENERATE = 1e-11


class PrincipalCoordinates(NamedTuple):
    """Principal coordinates of a batch of operators; ``T = Q_O K Q_V^T``.

    Attributes
    ----------
    K : (..., r, r) Tensor
        Transport core (8), in units of ``T``.
    cosines : (..., r) Tensor
        Cosines of the principal angles (7), descending, in [0, 1]: the diagonal of the support D.
    Q_O, Q_V : (..., d, r) Tensor
        Orthonormal principal bases of the write and the read subspace (the paper's ``Q_O A`` and
        ``Q_V B``), with ``Q_O^T Q_V = diag(cosines)``.
    """

    K: Tensor
    cosines: Tensor
    Q_O: Tensor
    Q_V: Tensor


def principal_coordinates(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> PrincipalCoordinates:
    """Principal coordinates of ``T = O V^T`` (7, 8).

    Parameters
    ----------
    O, V : (..., d, r) Tensor or ndarray
        Output and value factors of full column rank; leading dimensions broadcast.

    Returns
    -------
    PrincipalCoordinates
        NaN for heads with weights that are not finite.

    Raises
    ------
    ValueError
        If the shapes cannot be those of ``O`` and ``V``.

    Notes
    -----
    A singular value decomposition leaves signs open, and whole rotations where angles repeat. Two
    conventions close them, so that the coordinates are functions of ``T`` and neither the device
    nor the gauge of the factors shows: the largest entry of each column of ``Q_O`` is positive, and
    inside a block of equal angles the symmetric part of ``K`` is diagonal and descending (``K``
    itself, at right angles, where the two bases turn independently).

    Examples
    --------
    >>> import torch
    >>> O = torch.randn(10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> K, cosines, Q_O, Q_V = principal_coordinates(O, O.roll(1, 0))
    >>> torch.allclose(Q_O @ K @ Q_V.mT, O @ O.roll(1, 0).mT)
    True
    """
    O, V = check_factors(O, V)
    finite = finite_heads(O, V)
    O, V = (torch.where(x.isfinite(), x, 0.0) for x in (O, V))
    Q_O, K, Q_V = compact_factors(O, V)
    A, cosines, Bh = torch.linalg.svd(Q_O.mT @ Q_V)
    Q_O, Q_V = Q_O @ A, Q_V @ Bh.mT
    K = A.mT @ K @ Bh.mT
    cosines = cosines.clamp(0.0, 1.0)
    K, Q_O, Q_V = _fix_blocks(K, cosines, Q_O, Q_V)
    K, Q_O, Q_V = _fix_signs(K, Q_O, Q_V)
    finite = finite[..., None]
    K, Q_O, Q_V = (torch.where(finite[..., None], X, torch.nan) for X in (K, Q_O, Q_V))
    return PrincipalCoordinates(K, torch.where(finite, cosines, torch.nan), Q_O, Q_V)


def _fix_signs(K: Tensor, Q_O: Tensor, Q_V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    largest = Q_O.abs().argmax(-2, keepdim=True)
    sign = torch.where(Q_O.gather(-2, largest) < 0, -1.0, 1.0)
    return sign.mT * K * sign, Q_O * sign, Q_V * sign


def _fix_blocks(
    K: Tensor, cosines: Tensor, Q_O: Tensor, Q_V: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Choose bases inside blocks of equal angles; they are rare, so heads go one by one."""
    tied = (cosines[..., :-1] - cosines[..., 1:] < DEGENERATE).any(-1)
    tied |= cosines[..., -1] < DEGENERATE
    if not tied.any():
        return K, Q_O, Q_V
    r = cosines.shape[-1]
    left = torch.eye(r, dtype=torch.float64).expand_as(K).clone()
    right = left.clone()
    for head in tied.nonzero().tolist():
        core, c = K[tuple(head)], cosines[tuple(head)]
        edges = (c[:-1] - c[1:] >= DEGENERATE).nonzero().flatten() + 1
        for block in torch.tensor_split(torch.arange(r), edges):
            own = core[block][:, block]
            if c[block[0]] < DEGENERATE:
                U, _, Wh = torch.linalg.svd(own)
                W = Wh.mT
            elif len(block) > 1:
                U = torch.linalg.eigh((own + own.mT) / 2).eigenvectors.flip(-1)
                W = U
            else:
                continue
            left[(*head, block[:, None], block)] = U
            right[(*head, block[:, None], block)] = W
    return left.mT @ K @ right, Q_O @ left, Q_V @ right


def core_closure(K: Tensor | np.ndarray, cosines: Tensor | np.ndarray) -> Tensor:
    """Closure score ``P_D(K) = <K D K, K>^2 / (|K D K|^2 |K|^2)`` of a core on a support (10).

    Parameters
    ----------
    K : (..., r, r) Tensor or ndarray
        Transport cores.
    cosines : (..., r) Tensor or ndarray
        Diagonals of the supports; leading dimensions broadcast.

    Returns
    -------
    (...) Tensor
        In [0, 1], invariant to scaling ``K`` or ``cosines``; NaN where ``K`` or ``K D K`` is zero.

    See Also
    --------
    scaled_idempotence.closure : The same score from the factors.
    """
    K, cosines = as_float64(K), as_float64(cosines)
    K = K / torch.linalg.matrix_norm(K)[..., None, None]
    KDK = (K * cosines[..., None, :]) @ K
    KDK = KDK / torch.linalg.matrix_norm(KDK)[..., None, None]
    return (KDK * K).sum((-2, -1)).square().clamp_max(1.0)


def closure_table(K: Tensor, cosines: Tensor) -> Tensor:
    """Closure of every core on every support.

    ``P_D(K)`` is a ratio of a squared linear and a quadratic form in the diagonal ``d`` of ``D``:
    ``<K D K, K> = sum_i d_i (K K^T K)_ii`` and
    ``|K D K|^2 = sum_ij d_i d_j (K^T K)_ij (K K^T)_ij``. So each further support costs ``r^2``.

    Parameters
    ----------
    K : (..., n, r, r) Tensor
    cosines : (..., m, r) Tensor

    Returns
    -------
    (..., n, m) Tensor
        Entry ``i, j`` is ``P_{D_j}(K_i)``.
    """
    K = K / torch.linalg.matrix_norm(K)[..., None, None]
    cosines = cosines / torch.linalg.vector_norm(cosines, dim=-1, keepdim=True)
    outer, inner = K @ K.mT, K.mT @ K
    linear = (outer * K.mT).sum(-1)  # (K K^T K)_ii = sum_j (K K^T)_ij K_ji
    numerator = (linear @ cosines.mT).square()
    forms = (outer * inner).flatten(-3, -2) @ cosines.mT
    forms = forms.unflatten(-2, K.shape[-3:-1])
    denominator = (forms * cosines.mT[..., None, :, :]).sum(-2)
    return (numerator / denominator).clamp_max(1.0)
