"""Gain inheritance: products of heads that share a value factor (25), and their bound (20).

Everything is computed in the read gauge of `subspaces`: there siblings multiply as
``T_i T_j = W_i M_j Q^T``, so a table of their products is made of ``r x r`` matrices alone.

Names of the two comparisons of a product: *right* is ``T_i T_j`` against ``T_i``, on which
``T_j`` acts from the right and which a shared ``V`` makes proportional to it; *left* is the same
product against ``T_j``, which has no such law.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .closure import NOT_FINITE, T2_ZERO, T_ZERO, scores_from_cores
from .factors import EPS, as_float64, check_factors, finite_heads, gram
from .subspaces import ReadGauge, read_gauge

#: What `ActionScores.status` says, by its value. 0 is a pair whose scores are all defined.
ACTION_REASONS = (
    "",
    "weights of a factor are not finite",
    "an operator of the pair is zero to rounding",
    "T_j^2 is zero to rounding, so it has no alpha_j",
    "T_i T_j is zero to rounding",
)
PRODUCT_ZERO = 4


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
        nothing = torch.full((7, *groups, S, S), torch.nan, dtype=torch.float64)
        status = torch.zeros((*groups, S, S), dtype=torch.int64)
        return ActionScores(*nothing, status=status)
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
    triangles = (
        torch.linalg.qr(O.nan_to_num(0.0, 0.0, 0.0), mode="r").R for O in (O_left, O_right)
    )
    (left_norm, left), (right_norm, right) = map(_normalised, triangles)
    r = O_left.shape[-1]
    stack = torch.cat(torch.broadcast_tensors(left, right), dim=-2)
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
    zero_right = right_norm == 0
    gamma = ratio * (left_norm / right_norm.masked_fill(zero_right, 1.0)) ** 2
    gamma = gamma.masked_fill(zero_right, torch.inf).masked_fill(left_norm == 0, 0.0)
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
