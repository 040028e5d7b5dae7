"""Scrambles: turn a core between its bases and keep everything else, or know what that gives.

``K' = P_L K P_R^T`` with orthogonal ``P_L, P_R`` has the singular values of ``K``, and the bases
and angles are not touched, so any change of closure is due to orientation alone (22).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from .draws import draw_seed, haar_of_normal
from .factors import above_rounding, as_float64, over_transpose


class ScrambleAudit(NamedTuple):
    """What a scramble promises to keep, measured.

    Attributes
    ----------
    singular_values : (...) Tensor
        Largest deviation of a singular value, relative to the largest one.
    norm : (...) Tensor
        Relative deviation of the Frobenius norm.
    """

    singular_values: Tensor
    norm: Tensor


class RankAudit(NamedTuple):
    """Numerical rank of a core.

    Attributes
    ----------
    rank : (...) Tensor of int64
        Singular values above ``max(m, n) * eps * s_max``.
    ratio : (...) Tensor
        ``s_min / s_max``.
    """

    rank: Tensor
    ratio: Tensor


def _generators(
    K: Tensor, seeds: Sequence | int, kind: str, draws: int
) -> list[np.random.Generator]:
    """One generator for each core and draw, so that no draw depends on another."""
    batch = K.shape[:-2]
    if isinstance(seeds, int):
        seeds = [f"{seeds}:{index}" for index in np.ndindex(batch)]
    n_heads = int(np.prod(batch, dtype=int))
    if len(seeds) != n_heads:
        raise ValueError(
            f"got {len(seeds)} seeds, expected one for each of the {n_heads} cores of a batch of "
            f"shape {batch}; or pass one integer for all"
        )
    return [
        np.random.default_rng(draw_seed(seed, kind, draw))
        for seed in seeds
        for draw in range(draws)
    ]


def signed_permutation_scramble(
    K: Tensor | np.ndarray, draws: int = 8, seeds: Sequence | int = 0
) -> Tensor:
    """Scramble cores by independent signed permutations from both sides (22).

    Parameters
    ----------
    K : (..., r, r) Tensor or ndarray
        Transport cores.
    draws : int
        Scrambles a core; the paper compares the median of eight.
    seeds : int, or sequence of str or int
        One for all, or one for each core in the batch's order. A core's draws depend on its own
        seed alone.

    Returns
    -------
    (..., draws, r, r) Tensor
        The entries of ``K`` in another order, with other signs.

    Raises
    ------
    ValueError
        If the number of seeds is not that of the cores.
    """
    K = as_float64(K)
    r, rows, columns, signs = K.shape[-1], [], [], []
    for rng in _generators(K, seeds, "signed permutation", draws):
        rows.append(rng.permutation(r))
        columns.append(rng.permutation(r))
        signs.append(rng.choice((-1.0, 1.0), size=(2, r)))
    shape = (*K.shape[:-2], draws)
    rows = torch.from_numpy(np.array(rows)).view(*shape, r, 1).expand(*shape, r, r)
    columns = torch.from_numpy(np.array(columns)).view(*shape, 1, r).expand(*shape, r, r)
    signs = torch.from_numpy(np.array(signs)).view(*shape, 2, r)
    turned = K[..., None, :, :].expand(*shape, r, r).gather(-2, rows).gather(-1, columns)
    return turned * signs[..., 0, :, None] * signs[..., 1, None, :]


def haar_orthogonal(r: int, generators: Sequence[np.random.Generator]) -> Tensor:
    """Draw orthogonal matrices from the Haar measure.

    Parameters
    ----------
    r : int
    generators : sequence of numpy.random.Generator
        One a matrix.

    Returns
    -------
    (n, r, r) Tensor
    """
    normal = torch.from_numpy(np.stack([rng.standard_normal((r, r)) for rng in generators]))
    return haar_of_normal(normal)


def haar_scramble(K: Tensor | np.ndarray, draws: int = 2, seeds: Sequence | int = 0) -> Tensor:
    """Scramble cores by independent Haar-orthogonal matrices from both sides (22).

    Parameters
    ----------
    K : (..., r, r) Tensor or ndarray
        Transport cores.
    draws : int
        Scrambles a core.
    seeds : int, or sequence of str or int
        As for `signed_permutation_scramble`.

    Returns
    -------
    (..., draws, r, r) Tensor
        With the singular values of ``K`` to rounding.

    Raises
    ------
    ValueError
        If there is not one seed a core.
    """
    K = as_float64(K)
    generators = _generators(K, seeds, "haar", draws)
    # Left and right come out of one generator in turn, so they are drawn in two calls.
    left, right = (
        haar_orthogonal(K.shape[-1], generators).view(*K.shape[:-2], draws, *K.shape[-2:])
        for _ in range(2)
    )
    return left @ K[..., None, :, :] @ right.mT


def scramble_audit(K: Tensor, scrambled: Tensor) -> ScrambleAudit:
    """Measure what scrambles promise to keep.

    Parameters
    ----------
    K : (..., r, r) Tensor
    scrambled : (..., draws, r, r) Tensor

    Returns
    -------
    ScrambleAudit
        The worst over the draws.
    """
    s = torch.linalg.svdvals(K)[..., None, :]
    s_max = s[..., :1]
    deviation = ((torch.linalg.svdvals(scrambled) - s) / s_max).abs().amax((-2, -1))
    norm = torch.linalg.matrix_norm(K)[..., None]
    return ScrambleAudit(
        deviation, ((torch.linalg.matrix_norm(scrambled) - norm) / norm).abs().amax(-1)
    )


def rank_audit(s: Tensor, width: int) -> RankAudit:
    """Numerical rank, and how far the smallest singular value is from zero.

    Parameters
    ----------
    s : (..., r) Tensor
        Singular values, descending.
    width : int
        Larger side of the matrix that they belong to.

    Returns
    -------
    RankAudit
    """
    return RankAudit(above_rounding(s, width).sum(-1), s[..., -1] / s[..., 0])


def refactor(K: Tensor, Q_O: Tensor, Q_V: Tensor, V: Tensor) -> Tensor:
    """Write ``Q_O K Q_V^T`` as ``O' V^T`` with a given ``V``, so that a group keeps its value.

    Parameters
    ----------
    K : (..., r, r) Tensor
        Any core between the two bases.
    Q_O, Q_V : (..., d, r) Tensor
        Orthonormal bases.
    V : (..., d, r) Tensor
        Value factor of full column rank with the range of ``Q_V``.

    Returns
    -------
    (..., d, r) Tensor
        ``O'``.
    """
    # With V = Q R the wanted O' solves O' R^T = Q_O K Q_V^T Q.
    Q, R = torch.linalg.qr(V)
    return over_transpose(Q_O @ (K @ (Q_V.mT @ Q)), R)


def null_closure(s: Tensor | np.ndarray) -> Tensor:
    """Expected closure of a core with a random orientation, to first order and in closed form.

    With ``K = U diag(s) W^T`` and Haar-random ``U, W`` the response ``K D K`` has a random
    direction and ``P`` is about ``P0`` times a chi-square variable of one degree of freedom,
    ``P0 = sum(s^6) / sum(s^2)^3``, whatever the angles are.

    Parameters
    ----------
    s : (..., r) Tensor or ndarray
        Singular values of ``T`` (those of ``K``), in any unit.

    Returns
    -------
    (...) Tensor
        ``1 / r^2`` for a flat spectrum, 1 for rank one.

    See Also
    --------
    null_test : z and p value of an observed closure.
    """
    energy = as_float64(s).square()
    energy = energy / energy.sum(-1, keepdim=True)
    return energy.pow(3).sum(-1)


def null_test(closure: Tensor, null: Tensor) -> tuple[Tensor, Tensor]:
    """Compare an observed closure with its closed-form null.

    Parameters
    ----------
    closure : (...) Tensor
    null : (...) Tensor
        From `null_closure`.

    Returns
    -------
    z : (...) Tensor
        ``sqrt(P / P0)``, the size of a standard normal variable under the null.
    p : (...) Tensor
        Its two-sided p-value.
    """
    ratio = closure / null
    p = torch.from_numpy(np.asarray(stats.chi2.sf(ratio.numpy(), df=1)))
    return ratio.sqrt(), p
