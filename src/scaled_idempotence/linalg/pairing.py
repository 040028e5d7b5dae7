"""Every output factor of a layer against every value factor: is the trained pairing special?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from .closure import ClosureScores, cancels, recompute_cancelling, scores_from_products, trace
from .factors import BLOCK_BYTES, as_float64, gram


class LayerScores(NamedTuple):
    """Scores of a layer's trained heads and of all its pairings.

    Attributes
    ----------
    trained : ClosureScores (H,)
        Each ``O_h`` with its own ``V_g(h)``.
    cores : (H, r, r) Tensor
        Return core ``V_g(h)^T O_h`` of each.
    pairs : (H, G) Tensor
        Closure of ``O_h V_g^T`` for every value head ``g``.
    """

    trained: ClosureScores
    cores: Tensor
    pairs: Tensor


def layer_scores(O: Tensor, V: Tensor, value_head: Tensor) -> LayerScores:
    """Closure scores of the trained heads of a layer and of every other pairing of its factors.

    Parameters
    ----------
    O : (H, d, r) Tensor
        Output factors, one a query head.
    V : (G, d, r) Tensor
        Value factors, one a value head.
    value_head : (H,) Tensor of int64
        ``g(h)``, the value head that each query head reads.

    Returns
    -------
    LayerScores

    Notes
    -----
    Costs ``2 d H G r^2`` operations for the cores of all pairings, ``2 d (H + G) r^2`` for the
    Grams, of which there is one a value head, and ``4 H G r^3`` to score them. All but the last
    are products of long matrices, which run at the speed of the machine's GEMM.
    """
    H, d, r = O.shape
    G = V.shape[0]
    # As most checkpoints keep them, both are views: rows of all value heads, columns of all heads.
    rows = V.mT.reshape(G * r, d)
    B = rows.view(G, r, d) @ rows.view(G, r, d).mT
    b2 = trace(B)
    B = B / b2[:, None, None]
    A = grams(O)
    a2 = trace(A)
    A /= a2[:, None, None]
    scale = (a2[:, None] * b2).sqrt()
    cores = torch.empty(H, r, r, dtype=torch.float64)
    t2_t, t2_t2 = torch.empty_like(scale), torch.empty_like(scale)
    # Many heads at a time: on several cores only wide products are at the rate of GEMM. The scores,
    # by contrast, are of few heads at a time, whose cores stay in the cache meanwhile.
    wide = min(H, max(1, BLOCK_BYTES // (8 * G * r * r)))
    few = min(wide, max(1, BLOCK_BYTES // (64 * G * r * r)))
    # Made once: the first touch of new memory costs as much as a small product.
    products = torch.empty(wide * G * r * r, dtype=torch.float64)
    scratch = torch.empty(3, few * G * r * r, dtype=torch.float64)
    for start in range(0, H, wide):
        block = slice(start, min(start + wide, H))
        n = block.stop - start
        product = products[: G * r * n * r].view(G * r, n * r)
        torch.mm(rows, O[block].transpose(0, 1).reshape(d, n * r), out=product)
        # [g, i, h, j]: row i and column j of the core of output factor h with value factor g.
        M = product.view(G, r, n, r)
        cores[block] = M[value_head[block], :, torch.arange(n)]
        for first in range(0, n, few):
            M_few = M[:, :, first : first + few].transpose(1, 2)
            part = slice(start + first, start + first + M_few.shape[1])
            core, MB, MBM = (x[: M_few.numel()].view(M_few.shape) for x in scratch)
            torch.div(M_few, scale[part].T[..., None, None], out=core)
            torch.bmm(core.flatten(1, 2), B, out=MB.flatten(1, 2))
            t2_t[part] = torch.mul(MB, A[part], out=MBM).sum((2, 3)).T
            # <A M, M B> as <A, M B M^T>: no A M of every pairing.
            torch.bmm(MB.flatten(0, 1), core.flatten(0, 1).mT, out=MBM.flatten(0, 1))
            t2_t2[part] = MBM.mul_(A[part]).sum((2, 3)).T
    t_t = A.flatten(1) @ B.flatten(1).T
    table = scores_from_products(t_t, t2_t, t2_t2, scale, r, d)
    own = ClosureScores(*(field.gather(1, value_head[:, None]).squeeze(1) for field in table))
    # The value factors of all heads side by side would be another layer in memory: of those few
    # that need it they are taken.
    h = cancels(own, r).nonzero().squeeze(1)
    if len(h):
        again = ClosureScores(*(field[h] for field in own))
        again = recompute_cancelling(again, O[h], V[value_head[h]])
        for field, values in zip(own, again, strict=True):
            field[h] = values
    return LayerScores(own, cores, table.closure)


def grams(factors: Tensor) -> Tensor:
    """Gram matrix of each of many factors that lie side by side in one matrix.

    In a checkpoint the rows of a head are a power of two apart, and of a cache that is addressed by
    the last bits of an address such rows use a small part only: a Gram then takes more than twice
    the time. So a few heads at a time are copied. The upper half of the rows is a product with all
    columns, the lower with its own half of them; the quarter that is left is there by symmetry.

    Parameters
    ----------
    factors : (n, d, r) Tensor

    Returns
    -------
    (n, r, r) Tensor
    """
    n, d, r = factors.shape
    half = r // 2
    step = max(1, min(n, BLOCK_BYTES // (8 * d * r)))
    packed = torch.empty(step, d, r, dtype=factors.dtype)
    found = torch.empty(n, r, r, dtype=factors.dtype)
    for start in range(0, n, step):
        block = packed[: min(step, n - start)].copy_(factors[start : start + step])
        upper, lower = block[..., :half], block[..., half:]
        found[start : start + step, :half] = upper.mT @ block
        found[start : start + step, half:, half:] = gram(lower)
    found[:, half:, :half] = found[:, :half, half:].mT
    return found


def wrong_v_closure(pairs: Tensor, value_head: Tensor) -> Tensor:
    """Closure of each output factor with the next value head, cyclically: the wrong-V control.

    Parameters
    ----------
    pairs : (H, G) Tensor
        From `layer_scores`.
    value_head : (H,) Tensor of int64

    Returns
    -------
    (H,) Tensor
        For MHA the partner is head ``h + 1``; for GQA the whole next group. All NaN where there
        is one value head: no wrong one exists.
    """
    H, G = pairs.shape
    if G == 1:
        return torch.full((H,), torch.nan, dtype=torch.float64)
    return pairs[torch.arange(H), (value_head + 1) % G]


def trained_rank(pairs: Tensor, value_head: Tensor) -> Tensor:
    """Rank of the trained value factor among all of its layer, by closure; 1 is the highest.

    Parameters
    ----------
    pairs : (H, G) Tensor
        From `layer_scores`, or another score of all pairings.
    value_head : (H,) Tensor of int64

    Returns
    -------
    (H,) Tensor of float64
        Ties count against the trained one. NaN where its own closure is not defined.

    Notes
    -----
    If the trained factor were exchangeable with the other ``G - 1``, its rank would be uniform,
    so ``rank / G`` is the exact permutation p-value of one head; it cannot fall below ``1 / G``.
    """
    own = pairs.gather(1, value_head[:, None])
    rank = (pairs.nan_to_num(-torch.inf) >= own).sum(1).to(torch.float64)
    return torch.where(own.squeeze(1).isnan(), torch.nan, rank)


def layer_permutation_p(
    pairs: Tensor | np.ndarray, value_head: Tensor | np.ndarray, n_resamples: int = 9999
) -> float:
    """Permutation p-value of a layer's trained assignment of value factors.

    The statistic is the mean closure over the heads; the null assigns the ``G`` value factors to
    the groups at random. All ``G!`` assignments are enumerated where they are at most
    ``n_resamples`` (the p-value is exact then), else ``n_resamples`` are drawn with a fixed seed
    and the trained one is counted among them, which keeps the level exact.

    Parameters
    ----------
    pairs : (H, G) Tensor or ndarray
        From `layer_scores`.
    value_head : (H,) Tensor or ndarray of int
    n_resamples : int

    Returns
    -------
    float
        One-sided; NaN where there is one value head or no head is defined.
    """
    table = as_float64(pairs).numpy()
    groups = np.asarray(value_head)
    n_values = table.shape[1]
    usable = np.isfinite(table).all(axis=1)
    if n_values == 1 or not usable.any():
        return float("nan")
    table, groups = table[usable], groups[usable]
    heads = np.arange(len(groups))

    def mean_closure(assignment: np.ndarray, axis: int = -1) -> np.ndarray:
        del axis  # assignments lie along the last axis, as scipy passes them
        return table[heads, assignment[..., groups].astype(int)].mean(axis=-1)

    return float(
        stats.permutation_test(
            (np.arange(n_values),),
            mean_closure,
            permutation_type="pairings",
            alternative="greater",
            vectorized=True,
            n_resamples=n_resamples,
            rng=0,
        ).pvalue
    )
