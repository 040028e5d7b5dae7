"""Products of heads that share a value factor, and the algebra they would live in.

Everything here is computed in the *read gauge*: with ``V = Q R`` the operator ``T = O V^T`` is
``W Q^T`` with ``W = O R^T`` and orthonormal ``Q``. There ``B = I`` and ``|T| = |W|``, the return
core is ``Q^T W``, both ``V`` and ``C_V = V (V^T V)^-1`` become ``Q``, and ``P_V = Q Q^T``; the
condition of ``V`` enters once and not squared. Siblings multiply as ``T_i T_j = W_i M_j Q^T``, so
a table of their products is made of ``r x r`` matrices alone.

Names of the two comparisons of a product: *right* is ``T_i T_j`` against ``T_i``, on which
``T_j`` acts from the right and which a shared ``V`` makes proportional to it; *left* is the same
product against ``T_j``, which has no such law.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .closure import (
    NOT_FINITE,
    OK,
    STATUS_REASONS,
    T2_ZERO,
    T_ZERO,
    ClosureScores,
    scores_from_cores,
)
from .factors import EPS, as_float64, check_factors, finite_heads, gram
from .pairing import trained_rank

#: What `ActionScores.status` says, by its value. 0 is a pair whose scores are all defined.
ACTION_REASONS = (
    "",
    "weights of a factor are not finite",
    "an operator of the pair is zero to rounding",
    "T_j^2 is zero to rounding, so it has no alpha_j",
    "T_i T_j is zero to rounding",
)
PRODUCT_ZERO = 4

#: What `AnchorScores.status` says, by its value: that of the head's closure, or its V's rank.
ANCHOR_REASONS = (*STATUS_REASONS, "V does not have full column rank, so P_V and A_V do not exist")
V_DEFICIENT = 4


class ReadGauge(NamedTuple):
    """Operators ``T = W Q^T`` that read through orthonormal columns; see `read_gauge`."""

    W: Tensor
    Q: Tensor


class ActionScores(NamedTuple):
    """How right heads ``T_j`` act on left heads ``T_i``; entry ``[i, j]`` is ``T_i T_j``.

    Attributes
    ----------
    right_product_closure : (..., S, S) Tensor
        Squared cosine of ``T_i T_j`` with ``T_i``, in [0, 1].
    left_product_closure : (..., S, S) Tensor
        Squared cosine of ``T_i T_j`` with ``T_j``, in [0, 1].
    F : (..., S, S) Tensor
        ``1 - |T_i T_j - alpha_j T_i|^2 / |T_i T_j|^2`` (25) with ``alpha_j`` fitted to ``T_j``
        alone; at most 1, and negative where the action is far from that scale.
    beta : (..., S, S) Tensor
        ``<T_i T_j, T_i> / |T_i|^2`` (25), the scale that would fit, in units of ``T``.
    rho : (..., S, S) Tensor
        ``beta / alpha_j`` (25); 1 where the gain is inherited whole.
    residual : (..., S, S) Tensor
        ``|T_i T_j - alpha_j T_i|^2``, the left side of (20), in units of ``|T|^4``.
    band_residual : (..., S, S) Tensor
        ``|P_i P_j - P_i|^2 / |P_i|^2`` of the normalised ``P = T / alpha``: 0 in a left-zero band.
        It does not depend on ``alpha_i``.
    status : (..., S, S) Tensor of int64
        0, or the index in `ACTION_REASONS` of why some of the above are NaN.
    """

    right_product_closure: Tensor
    left_product_closure: Tensor
    F: Tensor
    beta: Tensor
    rho: Tensor
    residual: Tensor
    band_residual: Tensor
    status: Tensor


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
    norm = torch.linalg.matrix_norm
    cancelled = norm(W) <= W.shape[-1] * EPS * norm(O) * norm(V)
    return ReadGauge(W.masked_fill(cancelled[..., None, None], 0.0), Q)


def sibling_scores(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> ActionScores:
    """Score the products ``T_i T_j`` of all ordered pairs of heads that share a value factor.

    Parameters
    ----------
    O : (..., S, d, r) Tensor or ndarray
        Output factors of the ``S`` siblings of each group.
    V : (..., d, r) Tensor or ndarray
        The value factor of each group.

    Returns
    -------
    ActionScores
        The diagonal is ``T_j^2``: there both product closures and `F` are ``P(T_j)``, and `rho`
        is 1.

    Raises
    ------
    ValueError
        If the shapes cannot be those of groups of siblings.

    See Also
    --------
    next_group_scores : The control, with left heads that do not share the value factor.
    inheritance_bound : The bound on `residual`.

    Notes
    -----
    Costs ``2 d S r^2`` operations for the cores and ``2 S^2 r^3`` for the products of a group.

    Examples
    --------
    Two different projections with one kernel: each product is its left factor.

    >>> import torch
    >>> V = torch.tensor([[1.0], [0.0]])
    >>> O = torch.tensor([[[1.0], [2.0]], [[1.0], [-1.0]]])
    >>> table = sibling_scores(O, V)
    >>> round(table.right_product_closure[0, 1].item(), 6)
    1.0
    >>> round(table.left_product_closure[0, 1].item(), 6)
    0.1
    """
    O, V, finite = _check_groups(O, V)
    heads = read_gauge(O, V[..., None, :, :])
    return _action_scores(heads, heads, None, finite, finite)


def next_group_scores(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> ActionScores:
    """Score the products of each group's heads with left heads of the next group, cyclically.

    The control of gain inheritance: entry ``[g, i, j]`` is ``T_c T_j`` with ``T_j`` of group ``g``
    and, in place of its sibling ``i``, the head ``c`` in the same slot ``i`` of group ``g + 1``.
    `alpha_j` stays what ``T_j`` gives.

    Parameters
    ----------
    O : (..., G, S, d, r) Tensor or ndarray
        Output factors of a layer, by value group and query slot.
    V : (..., G, d, r) Tensor or ndarray
        Value factors of the layer.

    Returns
    -------
    ActionScores
        Tables (..., G, S, S); read ``T_c`` for ``T_i`` in its documentation. With one group there
        is no other one, and everything is NaN with status 0.

    Raises
    ------
    ValueError
        If the shapes cannot be those of a layer's groups.
    """
    O, V, finite = _check_groups(O, V)
    if O.ndim < 4:
        raise ValueError(f"O has shape {tuple(O.shape)}; it must be [..., G, S, d, r]")
    *groups, S = O.shape[:-2]
    if groups[-1] == 1:
        nothing = torch.full((*groups, S, S), torch.nan, dtype=torch.float64)
        status = torch.zeros((*groups, S, S), dtype=torch.int64)
        return ActionScores(*(nothing.clone() for _ in ActionScores._fields[:-1]), status)
    right = read_gauge(O, V[..., None, :, :])
    left = ReadGauge(right.W.roll(-1, -4), right.Q.roll(-1, -4))
    return _action_scores(left, right, left.Q.mT @ right.Q, finite.roll(-1, -2), finite)


def domination(O_left: Tensor | np.ndarray, O_right: Tensor | np.ndarray) -> Tensor:
    """Largest generalised eigenvalue ``gamma_ij`` of the Grams ``(A_i, A_j)`` of the bound (20).

    It is the largest ``|O_i x|^2 / |O_j x|^2``: how much more than ``O_j`` the factor ``O_i`` can
    write of the same value vector.

    Parameters
    ----------
    O_left, O_right : (..., d, r) Tensor or ndarray
        ``O_i`` and ``O_j``; leading dimensions broadcast.

    Returns
    -------
    (...) Tensor
        At least ``|O_i|^2 / |O_j|^2``. Infinite where ``O_j`` maps a direction to zero (to
        rounding, relative to what ``O_i`` makes of it) that ``O_i`` does not: the bound says
        nothing then. Directions that both map to zero do not count. NaN for weights that are not
        finite.

    Raises
    ------
    ValueError
        If the shapes cannot be those of factors.

    Notes
    -----
    The Grams would square the condition of ``O_j``, and inverting it would fail where it is
    singular. This takes instead the generalised singular values of the pair [1]_: over an
    orthonormal basis of the columns of ``[O_i; O_j]`` the two blocks have cosines and sines as
    singular values, and ``gamma = (c / s)^2`` at the least sine. Neither the gauge that both share
    nor a common kernel matters. The relative error is about ``r * eps / s``.

    References
    ----------
    .. [1] C. F. Van Loan, "Generalizing the singular value decomposition", SIAM J. Numer. Anal. 13,
       1976.
    """
    O_left, O_right = check_factors(O_left, O_right)
    finite = finite_heads(O_left, O_right)
    norms, triangles = [], []
    for O in (O_left, O_right):
        R = torch.linalg.qr(O.nan_to_num(0.0, 0.0, 0.0), mode="r").R
        norm = torch.linalg.matrix_norm(R)
        norms.append(norm)
        triangles.append(R / norm.masked_fill(norm == 0, 1.0)[..., None, None])
    r = O_left.shape[-1]
    stack = torch.cat(torch.broadcast_tensors(*triangles), dim=-2)
    # The columns' own lengths are a gauge that both factors share: take it out, it is free.
    lengths = torch.linalg.vector_norm(stack, dim=-2, keepdim=True)
    U, S, _ = torch.linalg.svd(stack / lengths.masked_fill(lengths == 0, 1.0), full_matrices=False)
    common_kernel = 2 * r * EPS * S[..., :1] >= S
    # A direction that neither factor writes gets sine 1, so that it is never the least.
    blocks = [U[..., r:, :].masked_fill(common_kernel[..., None, :], 0.0)]
    blocks.append(torch.diag_embed(common_kernel.to(torch.float64)))
    sine = torch.linalg.svdvals(torch.cat(blocks, dim=-2))[..., -1]
    # Of factors of equal norm gamma is at least 1, so 1 - s^2 never cancels.
    ratio = (1.0 - sine**2) / sine**2
    ratio = ratio.masked_fill(sine <= 4 * r * EPS, torch.inf)
    zero_left, zero_right = norms[0] == 0, norms[1] == 0
    gamma = ratio * (norms[0] / norms[1].masked_fill(zero_right, 1.0)) ** 2
    gamma = gamma.masked_fill(zero_right, torch.inf).masked_fill(zero_left, 0.0)
    return torch.where(finite, gamma, torch.nan)


def inheritance_bound(gamma: Tensor, own_residual: Tensor) -> Tensor:
    """Bound ``gamma_ij |T_j^2 - alpha_j T_j|^2`` on the residual of inheritance (20).

    Parameters
    ----------
    gamma : (...) Tensor
        From `domination`.
    own_residual : (...) Tensor
        ``|T_j^2 - alpha_j T_j|^2``, the diagonal of `ActionScores.residual`.

    Returns
    -------
    (...) Tensor
        Infinite, that is no bound, wherever `gamma` is, also at a residual of 0.
    """
    return torch.where(gamma.isposinf() & ~own_residual.isnan(), torch.inf, gamma * own_residual)


def sibling_cosines(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> Tensor:
    """Squared cosines between the operators of siblings, in whatever scale: are they duplicates?

    Parameters
    ----------
    O : (..., S, d, r) Tensor or ndarray
    V : (..., d, r) Tensor or ndarray

    Returns
    -------
    (..., S, S) Tensor
        In [0, 1], 1 on the diagonal; NaN where an operator is zero or not finite.
    """
    O, V, finite = _check_groups(O, V)
    W = read_gauge(O, V[..., None, :, :]).W.flatten(-2)
    unit = W / torch.linalg.vector_norm(W, dim=-1, keepdim=True)
    unit = torch.where(finite[..., None], unit, torch.nan)
    return (unit @ unit.mT).square().clamp_max(1.0)


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
        Finite output factors of the two, and the value factor that they share; leading dimensions
        broadcast.

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
    Q, R = _full_rank_qr(V)
    return _dual_from_qr(Q, R)


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
    Q, R = _full_rank_qr(V)
    norm = torch.linalg.matrix_norm
    overlap, size = norm(Q.mT @ N), norm(N)
    if (overlap > 1e-10 * size).any():
        worst = (overlap / size).nan_to_num(0.0).max().item()
        raise ValueError(
            f"V^T N is not zero: N has {worst:.1e} of its norm within the columns of V, and an "
            "element of the algebra has none. Pass free_part(N, V)"
        )
    return a[..., None, None] * _dual_from_qr(Q, R) + N


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
    return _complement(X, _full_rank_qr(V)[0])


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
    Q, R = _full_rank_qr(V)
    W = O @ R.mT
    core = Q.mT @ W
    a = _trace(core) / O.shape[-1]
    N = _complement(O, Q)
    remainder = O - N - a[..., None, None] * _dual_from_qr(Q, R)
    return AlgebraParts(a, N, remainder, *_energies(W, Q, core, a))


def nearest_idempotent(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> Tensor:
    """Output factor of the scaled idempotent nearest to ``T = O V^T`` with the same ``V``.

    ``O' = O - C_V (M - a I)`` with ``a`` the minimiser of ``|C_V (M - a I) V^T|``. It keeps the
    oblique part of ``O`` and satisfies ``V^T O' = a I``, hence ``T'^2 = a T'``.

    Parameters
    ----------
    O, V : (..., d, r) Tensor or ndarray
        Finite factors, ``V`` of full column rank; leading dimensions broadcast.

    Returns
    -------
    (..., d, r) Tensor
        ``O'``.

    Raises
    ------
    ValueError
        If a ``V`` does not have full column rank, weights are not finite, or the shapes differ.

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
        Finite factors, ``V`` of full column rank; leading dimensions broadcast.
    rtol : float
        Largest ratio of the remainder to ``|T|``.

    Returns
    -------
    (...) Tensor of bool

    Raises
    ------
    ValueError
        If a ``V`` does not have full column rank, weights are not finite, or the shapes differ.

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
        Output factors, one a query head.
    V : (G, d, r) Tensor
        Value factors, one a value head.
    value_head : (H,) Tensor of int64
        ``g(h)``, the value head that each query head reads.
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
    full = V_finite & (_numerical_rank(V) == r)
    own = read_gauge(O.nan_to_num(0.0, 0.0, 0.0), V[value_head])
    Q = torch.linalg.qr(V).Q
    core = own.Q.mT @ own.W
    anchor, oblique, remainder = _energies(own.W, own.Q, core, _trace(core) / r)
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


def _check_groups(O: Tensor | np.ndarray, V: Tensor | np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Check groups of siblings; weights that are not finite come back as 0, and are told."""
    O, V = as_float64(O), as_float64(V)
    if O.ndim < 3 or V.ndim < 2 or O.shape[:-3] != V.shape[:-2]:
        raise ValueError(
            f"O has shape {tuple(O.shape)} and V has shape {tuple(V.shape)}; siblings must be "
            "O [..., S, d, r] with one V [..., d, r] a group. A layer's O [H, d, r] makes groups "
            "as O.unflatten(0, (G, H // G))"
        )
    check_factors(O, V[..., None, :, :])
    finite = finite_heads(O, V[..., None, :, :])
    O = torch.where(finite[..., None, None], O, 0.0)
    return O, V.nan_to_num(0.0, 0.0, 0.0), finite


def _action_scores(
    left: ReadGauge,
    right: ReadGauge,
    overlap: Tensor | None,
    left_finite: Tensor,
    right_finite: Tensor,
) -> ActionScores:
    """Score ``T_i T_j = W_i (Q_l^T W_j) Q_r^T`` for left heads ``i`` and right heads ``j``.

    ``overlap`` is ``Q_l^T Q_r``, or None for the identity of siblings: a product with that would
    leave rounding in residuals that vanish.
    """
    d, r = right.W.shape[-2:]
    # Unit operators first, as in the closure: no weight scale over- or underflows the products.
    left_norm, W_l = _normalised(left.W)
    right_norm, W_r = _normalised(right.W)
    eye = torch.eye(r, dtype=torch.float64)
    own = scores_from_cores(gram(W_r), eye, right.Q.mT @ W_r, d)
    alpha = own.alpha[..., None, :]
    M = left.Q.mT @ W_r
    # Triangular factors stand for the Grams: |W_i X| = |R_i X|, squared only at the end.
    R = torch.linalg.qr(W_l, mode="r").R
    product = _norms2(R, M)
    A = gram(W_l) if overlap is None else gram(W_l) @ overlap
    with_left = A.flatten(-2) @ M.flatten(-2).mT
    with_right = W_l.flatten(-2) @ (W_r @ M.mT).flatten(-2).mT
    same_reader = eye if overlap is None else overlap
    residual = _norms2(R, M - own.alpha[..., None, None] * same_reader)
    if overlap is not None:
        # What T_i reads outside of the right heads' value space, T_i T_j never reads.
        residual = residual + alpha**2 * (1.0 - _norms2(R, overlap)).clamp_min(0.0)

    product_zero = product.sqrt() <= 64 * d * EPS
    status = torch.zeros(product.shape, dtype=torch.int64).masked_fill(product_zero, PRODUCT_ZERO)
    status = status.masked_fill((own.status == T2_ZERO)[..., None, :], T2_ZERO)
    operator_zero = (left_norm == 0)[..., :, None] | (right_norm == 0)[..., None, :]
    status = status.masked_fill(operator_zero, T_ZERO)
    finite = left_finite[..., :, None] & right_finite[..., None, :]
    status = status.masked_fill(~finite, NOT_FINITE)
    broken = (status == NOT_FINITE) | (status == T_ZERO)
    # Without T_j^2 there is no alpha_j, but its products with others still have directions.
    directed = ~broken & ~product_zero
    right_norm_j = right_norm[..., None, :]
    norms = left_norm[..., :, None] * right_norm_j

    def where(condition: Tensor, x: Tensor) -> Tensor:
        return torch.where(condition, x, torch.nan)

    return ActionScores(
        right_product_closure=where(directed, (with_left**2 / product).clamp_max(1.0)),
        left_product_closure=where(directed, (with_right**2 / product).clamp_max(1.0)),
        F=where(directed, 1.0 - residual / product),
        beta=where(~broken, with_left * right_norm_j),
        rho=where(~broken, with_left / alpha),
        residual=where(~broken, (residual.sqrt() * norms).square()),
        band_residual=where(~broken, residual / alpha**2),
        status=status,
    )


def _normalised(W: Tensor) -> tuple[Tensor, Tensor]:
    """Norms, and the matrices over them; zero stays zero."""
    norm = torch.linalg.matrix_norm(W)
    return norm, W / norm.masked_fill(norm == 0, 1.0)[..., None, None]


def _norms2(R: Tensor, X: Tensor) -> Tensor:
    """Table ``|R_i X_j|^2`` (..., S, S) of (..., S, r, r); rows in turn, so memory is one row's."""
    rows = [(R_i[..., None, :, :] @ X).square().sum((-2, -1)) for R_i in R.unbind(-3)]
    return torch.stack(rows, dim=-2)


def _trace(X: Tensor) -> Tensor:
    return X.diagonal(dim1=-2, dim2=-1).sum(-1)


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


def _range_basis(X: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal basis of the range, zero columns in place of what is missing; and the rank."""
    U, S, _ = torch.linalg.svd(X, full_matrices=False)
    keep = max(X.shape[-2:]) * EPS * S[..., :1] < S
    return U * keep[..., None, :], keep.sum(-1)


def _numerical_rank(V: Tensor) -> Tensor:
    """Number of singular values above ``max(d, r) eps s_max``."""
    S = torch.linalg.svdvals(torch.linalg.qr(V, mode="r").R)
    return (max(V.shape[-2:]) * EPS * S[..., :1] < S).sum(-1)


def _full_rank_qr(V: Tensor | np.ndarray) -> tuple[Tensor, Tensor]:
    """Reduced QR of value factors that must have full column rank."""
    V = as_float64(V)
    if not V.isfinite().all():
        raise ValueError("V holds weights that are not finite; leave those heads out")
    rank, r = _numerical_rank(V), V.shape[-1]
    if (rank < r).any():
        at = tuple((rank < r).nonzero()[0].tolist())
        where = f"V{list(at)}" if at else "V"
        raise ValueError(
            f"{where} has numerical rank {int(rank[at])}, expected full column rank r = {r}: "
            "C_V = V (V^T V)^-1 and the algebra A_V exist for that only. Leave such heads out, or "
            "factor T over a basis of its row space first"
        )
    return torch.linalg.qr(V)


def _dual_from_qr(Q: Tensor, R: Tensor) -> Tensor:
    """``C_V = Q R^-T`` of ``V = Q R``."""
    return torch.linalg.solve_triangular(R.mT, Q, upper=False, left=False)
