"""Orientations of a spectrum on a support: their closure, simple constructions, paths between them.

An orientation is a pair of orthogonal factors: ``K = U_L diag(s) U_R^T``. On the support
``D = diag(c)`` everything about its closure is in ``G = U_R^T D U_L``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_TOLERANCE = 1e-12  # rounding allowed on the cosines' range


class Orientation(NamedTuple):
    """Singular value decomposition ``K = U_L diag(s) U_R^T``; see `trained_orientation`."""

    s: Tensor
    U_L: Tensor
    U_R: Tensor


def trained_orientation(K: Tensor) -> Orientation:
    """Take a core apart into its spectrum and its orientation.

    Parameters
    ----------
    K : (..., r, r) Tensor
        Transport cores.

    Returns
    -------
    Orientation
        ``s`` (..., r), descending, and ``U_L, U_R`` (..., r, r).
    """
    U_L, s, Vh = torch.linalg.svd(K)
    return Orientation(s, U_L, Vh.mT)


def closure_of_orientation(s: Tensor, c: Tensor, U_L: Tensor, U_R: Tensor) -> Tensor:
    """Closure (10) of ``U_L diag(s) U_R^T`` for the support ``diag(c)``, without forming either.

    Parameters
    ----------
    s, c : (..., r) Tensor
        Singular values and cosines.
    U_L, U_R : (..., r, r) Tensor
        Orthogonal factors.

    Returns
    -------
    (...) Tensor
        NaN where ``K`` or ``K D K`` vanishes.
    """
    s, c = check_spectrum(s, c)
    s, c = s / s.amax(-1, keepdim=True), c / c.amax(-1, keepdim=True)
    # Two sums over the last axis: one over both splits by thread, and its bits with the batch.
    G = paired_gram(c, U_L.double(), U_R.double())
    a = (s**3 * G.diagonal(dim1=-2, dim2=-1)).sum(-1)
    n = (s[..., :, None] * G * s[..., None, :]).square().sum(-1).sum(-1)
    return a.square() / (n * s.square().sum(-1))


def sorted_pairing(s: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Orientation that gives the largest singular value the smallest cosine, and so on.

    The obvious construction: ``G = U_R^T D U_L`` is diagonal and rises where ``1/s`` rises. It is
    a stationary point of the closure, usually a saddle.

    Parameters
    ----------
    s, c : (..., r) Tensor
        Singular values and cosines, in any order.

    Returns
    -------
    U_L, U_R : (..., r, r) Tensor
        The same permutation matrix twice.
    """
    P = _permutation(*_order(*check_spectrum(s, c)))
    return P, P


def shifted_pairing(s: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted pairing after the k smallest cosines were left to the k smallest singular values.

    Those rows carry next to no weight (``s^3`` and ``s^4``), so they take the cosines that would do
    harm elsewhere. Every k from 0 to r - 1 is tried; k = 0 is `sorted_pairing`.

    Parameters
    ----------
    s, c : (..., r) Tensor
        As for `sorted_pairing`.

    Returns
    -------
    U_L, U_R : (..., r, r) Tensor
        The same permutation matrix twice.

    Examples
    --------
    >>> import torch
    >>> s = torch.tensor([4.0, 2.0, 1.0, 0.1], dtype=torch.float64)
    >>> c = torch.tensor([0.8, 0.4, 0.2, 0.0], dtype=torch.float64)
    >>> U_L, U_R = shifted_pairing(s, c)  # the cosine 0 goes to the singular value 0.1
    >>> (U_R.mT @ torch.diag(c) @ U_L).diagonal().tolist()
    [0.2, 0.4, 0.8, 0.0]
    """
    s, c = check_spectrum(s, c)
    r = s.shape[-1]
    rows, ranks = _order(s, c)
    shift = torch.arange(r)[:, None]
    place = torch.arange(r).expand(r, r)
    # Row k: ascending from rank k on, then the k spared ranks in descending order.
    choice = torch.where(place < r - shift, place + shift, r - 1 - place)
    x = (s / s.amax(-1, keepdim=True)).gather(-1, rows)[..., None, :]
    y = c.gather(-1, ranks)[..., choice]
    score = (x**3 * y).sum(-1).square() / (x.square() * y).square().sum(-1)
    k = score.nan_to_num(nan=-1.0).argmax(-1)
    P = _permutation(rows, ranks.gather(-1, choice[k]))
    return P, P


def orientation_path(
    s: Tensor, start: tuple[Tensor, Tensor], end: tuple[Tensor, Tensor], t: Tensor
) -> tuple[Tensor, Tensor]:
    """Geodesics of the orthogonal group from one orientation to another.

    Flipping a column of ``U_L`` and ``U_R`` together leaves ``K`` as it is, and flipping all of
    ``U_L`` leaves its closure; those signs are chosen so that the path is short and each factor
    turns without a reflection. For even ``r`` the orientations can lie on different components
    all the same; the end's ``U_L`` then has the column of the smallest singular value flipped,
    which changes ``K`` there by twice that value.

    Parameters
    ----------
    s : (r,) Tensor
        Singular values.
    start, end : pair of (r, r) Tensor
        ``(U_L, U_R)`` of both ends.
    t : (n,) Tensor
        Positions, 0 at the start and 1 at the end.

    Returns
    -------
    U_L, U_R : (n, r, r) Tensor

    Raises
    ------
    ValueError
        If a factor has to turn some plane by half a circle: no shortest path is distinguished.
    """
    L0, R0, L1, R1 = (U.double() for U in (*start, *end))
    # K and -K have one closure: of the two ends, take the one that is nearer.
    if (R0 * R1 - L0 * L1).sum(-2).abs().sum() > (R0 * R1 + L0 * L1).sum(-2).abs().sum():
        L1 = -L1
    likeness = (L0 * L1 + R0 * R1).sum(-2)
    sign = torch.where(likeness < 0, -1.0, 1.0).to(L0)
    if torch.linalg.det(R0.mT @ (R1 * sign)) < 0:
        sign[likeness.abs().argmin()] *= -1
    L1, R1 = L1 * sign, R1 * sign
    if torch.linalg.det(L0.mT @ L1) < 0:
        if len(s) % 2:
            L1 = -L1  # K and -K have one closure
        else:
            L1 = L1.clone()
            L1[:, s.argmin()] *= -1
    t = torch.as_tensor(t, dtype=L0.dtype).reshape(-1, 1, 1)
    turn_L, turn_R = _rotation_log(L0.mT @ L1), _rotation_log(R0.mT @ R1)
    return L0 @ torch.matrix_exp(t * turn_L), R0 @ torch.matrix_exp(t * turn_R)


def check_spectrum(s, c) -> tuple[Tensor, Tensor]:
    """Checked float64 copies of the singular values and cosines."""
    s, c = (torch.as_tensor(x).detach().to("cpu", torch.float64) for x in (s, c))
    if s.ndim == 0 or s.shape != c.shape or s.shape[-1] == 0:
        raise ValueError(
            f"s has shape {tuple(s.shape)} and c {tuple(c.shape)}: both must be (..., r) with "
            "r >= 1; take them from one call of principal_coordinates"
        )
    for name, x in (("s", s), ("c", c)):
        if not x.isfinite().all():
            raise ValueError(
                f"{name} holds {int((~x.isfinite()).sum())} values that are NaN or infinite, all "
                "must be finite: leave out the heads whose factors are not"
            )
    if (s < 0).any():
        raise ValueError(
            f"s goes down to {float(s.min())}: singular values are at least 0; pass those of K"
        )
    if (c < -_TOLERANCE).any() or (c > 1 + _TOLERANCE).any():
        raise ValueError(
            f"c lies in [{float(c.min())}, {float(c.max())}]: cosines of principal angles lie in "
            "[0, 1]; pass the singular values of Q_O^T Q_V, not angles"
        )
    return s, c.clamp(0, 1)


def paired_gram(c: Tensor, U_L: Tensor, U_R: Tensor) -> Tensor:
    """``G = U_R^T diag(c) U_L``."""
    return U_R.mT @ (c[..., :, None] * U_L)


def _order(s: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Indices of the singular values, largest first, and of the cosines, smallest first."""
    return s.argsort(dim=-1, descending=True, stable=True), c.argsort(dim=-1, stable=True)


def _permutation(rows: Tensor, ranks: Tensor) -> Tensor:
    """Matrix P (..., r, r) for which ``P^T diag(c) P`` has ``c[ranks[i]]`` at place ``rows[i]``."""
    r = rows.shape[-1]
    source = torch.empty_like(rows).scatter_(-1, rows, ranks)
    return torch.nn.functional.one_hot(source, r).mT.to(torch.float64)


def _rotation_log(W: Tensor) -> Tensor:
    """Skew logarithm of a rotation (r, r), by square roots down to small angles and a series."""
    eye = torch.eye(len(W), dtype=W.dtype)
    if torch.linalg.svdvals(eye + W).amin() < 1e-7:
        raise ValueError(
            "the ends differ by half a turn of some plane, where the shortest path is not unique: "
            "turn one of them a little first"
        )
    halvings = 6
    for _ in range(halvings):
        X, _, Yh = torch.linalg.svd(eye + W)
        W = X @ Yh  # the polar factor of I + W is the square root of W
    X = (W - eye) @ torch.linalg.pinv(W + eye)  # tanh of half the logarithm; its norm is below 0.03
    X2 = X @ X
    series = eye + X2 @ (eye / 3 + X2 @ (eye / 5 + X2 @ (eye / 7 + X2 / 9)))
    L = 2 ** (halvings + 1) * X @ series
    return 0.5 * (L - L.mT)
