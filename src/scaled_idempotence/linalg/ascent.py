"""The ascent behind `capacity`: preconditioned L-BFGS on the orbit of ``G = U_R^T D U_L``.

Batched over independent searches, in matrix products only; see `capacity` for why this method.
"""

from __future__ import annotations

import torch
from torch import Tensor

_WINDOW = 10  # steps between two looks at the progress
_MEMORY = 4  # pairs kept by L-BFGS; 8 and 16 gain nothing here
_MAX_TURN = 0.7  # largest rotation angle of one step: keeps the exponential's error below 1e-5
_LOCAL_FLOOR, _GLOBAL_FLOOR = 1e-2, 1e-4  # where the curvature vanishes
_SHRINK, _ARMIJO, _BEND = 0.3, 1e-4, 1e-10  # line search, and curvature worth remembering


def _turn(Z: Tensor, G: Tensor, scale: Tensor, symmetric: bool) -> tuple[Tensor, Tensor]:
    """``exp(t A) G exp(t B)``, and the largest ``t <= scale`` that keeps its angles small."""
    A = _unpack(Z, symmetric)
    A2 = A @ A
    # Eigenvalues of a skew matrix come in pairs, so |A|_2^4 <= |A^2|_F^2 / 2. Two roots, since
    # pow() rounds an element by its place in the batch.
    angle = (_dot(A2[0], A2[0]).maximum(_dot(A2[-1], A2[-1])) / 2).sqrt().sqrt()
    t = scale * (_MAX_TURN / angle.clamp_min(1e-300)).clamp_max(1.0)
    A, A2 = A * t, A2 * t.square()
    A3 = A2 @ A
    # Taylor to order 6 in three products; the distance from orthogonal is angle^8 / 5760.
    tail = torch.add(A / 24, A2, alpha=1 / 120).add_(A3, alpha=1 / 720)
    tail.diagonal(dim1=-2, dim2=-1).add_(1 / 6)
    E = A3 @ tail
    E += torch.add(A, A2, alpha=0.5)
    E.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return E[0] @ G @ (E[0].mT if symmetric else E[1]), t


def _direction(gradient: Tensor, curvature: Tensor, pairs: list) -> Tensor:
    """L-BFGS two-loop recursion; a pair is (step, loss of gradient, 1 / their product or 0)."""
    Z, weights = gradient, []
    for step, loss, rho in reversed(pairs):
        weights.append(rho * _dot(step, Z))
        Z = torch.addcmul(Z, weights[-1], loss, value=-1)
    Z = Z / curvature
    for (step, loss, rho), weight in zip(pairs, reversed(weights), strict=True):
        Z = torch.addcmul(Z, weight - rho * _dot(loss, Z), step)
    return Z


def ascend(
    s: Tensor, G: Tensor, symmetric: bool, max_steps: int, tol: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Climb ``log P`` from each G (b, r, r); also the steps taken and whether progress had stopped.

    One trial step a head and iteration: who fails keeps its point and tries a shorter one with the
    next iteration, so no head waits for the line search of another. Sizes are padded to a multiple
    of 8, for which every kernel used here gives a head the same bits in any batch.
    """
    b, r = s.shape
    pad = padded(r) - r
    s, G = torch.nn.functional.pad(s, (0, pad)), torch.nn.functional.pad(G, (0, pad, 0, pad))
    result, n_steps = G.clone(), torch.zeros(b, dtype=torch.int64)
    converged = torch.zeros(b, dtype=torch.bool)
    active = torch.arange(b)
    f, a, n, WG = _objective(s, G)
    gradient = _gradient(s, G, a, n, WG, symmetric)
    scale, last, pairs = torch.ones_like(f), f, []
    for step in range(1, max_steps + 1):
        curvature = _curvature(s, G, a, n)
        Z = _direction(gradient, curvature, pairs)
        slope = _dot(Z, gradient)
        if not (uphill := slope > 0).all():
            Z = torch.where(uphill, Z, gradient / curvature)
            slope = torch.where(uphill, slope, _dot(Z, gradient))
        G_new, t = _turn(Z, G, scale, symmetric)
        f_new, a_new, n_new, WG = _objective(s, G_new)
        taken = f_new >= f + _ARMIJO * t * slope
        # A rejected trial leaves a pair of weight 0, without the infinities it may have met.
        gradient_new = _gradient(s, G_new, a_new, n_new, WG, symmetric)
        gradient_new = torch.where(taken, gradient_new, gradient)
        moved, loss = t * Z, gradient - gradient_new
        product = _dot(moved, loss)
        bends = product > _BEND * (_dot(moved, moved) * _dot(loss, loss)).sqrt()
        pairs = [*pairs, (moved, loss, torch.where(bends, 1 / product, 0.0))][-_MEMORY:]
        G, gradient = torch.where(taken, G_new, G), gradient_new
        f, a, n = (torch.where(taken, *x) for x in ((f_new, f), (a_new, a), (n_new, n)))
        scale = torch.where(taken, torch.ones_like(scale), scale * _SHRINK)
        if step % _WINDOW == 0 or step == max_steps:
            n_steps[active] = step
            result[active] = G
            if step % _WINDOW == 0:
                stopped = ~(f - last >= tol).flatten()
                converged[active] = stopped
                keep = (~stopped).nonzero()[:, 0]
                if len(keep) == 0:
                    break
                if len(keep) < len(active):
                    # Those who have arrived leave the batch; the others' numbers do not notice.
                    active, s, G, f, a, n = (x[keep] for x in (active, s, G, f, a, n))
                    gradient, scale = gradient[keep], scale[keep]
                    pairs = [tuple(x[keep] for x in pair) for pair in pairs]
                last = f
    return result[:, :r, :r], n_steps, converged


def padded(r: int) -> int:
    return -(-r // 8) * 8


def _dot(X: Tensor, Y: Tensor) -> Tensor:
    # Summed one axis at a time: see closure_of_orientation.
    return (X * Y).sum(-1).sum(-1)[:, None, None]


def _objective(s: Tensor, G: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``log P`` without its constant, the two moments behind it (b, 1, 1), and ``S^2 G S^2``."""
    s2 = s.square()
    WG = G * (s2[:, :, None] * s2[:, None, :])
    a = (s2 * s * G.diagonal(dim1=-2, dim2=-1)).sum(-1)[:, None, None]
    n = _dot(WG, G)
    return 2 * a.abs().log() - n.log(), a, n, WG


# Tangents. G turns to exp(A) G exp(B) with A, B skew. Half of A + B stands in the strict upper
# triangle of one matrix Z, half of A - B in its strict lower triangle: in these coordinates the
# Hessian at a diagonal G is diagonal.


def _unpack(Z: Tensor, symmetric: bool) -> Tensor:
    """``A, B`` stacked (2, b, r, r), or ``A`` alone (1, b, r, r) where ``B = -A``."""
    upper, lower = Z.triu(1), Z.tril(-1)
    against = lower - lower.mT
    if symmetric:
        return against[None]
    both = upper - upper.mT
    return torch.stack([both + against, both - against])


def _gradient(s: Tensor, G: Tensor, a: Tensor, n: Tensor, WG: Tensor, symmetric: bool) -> Tensor:
    """Gradient of ``log P``, packed (b, r, r)."""
    H = WG * (-2 / n)
    H.diagonal(dim1=-2, dim2=-1).add_(2 / a[..., 0] * s**3)
    left = H @ G.mT
    right = left.mT if symmetric else G.mT @ H
    both, against = left + right, left - right
    return (both - both.mT).triu(1) + (against - against.mT).tril(-1)


def _curvature(s: Tensor, G: Tensor, a: Tensor, n: Tensor) -> Tensor:
    """Absolute diagonal of the Hessian of ``log P`` in packed coordinates, kept off zero (b, r, r).

    Exact where G is stationary and diagonal. Elsewhere it leaves out the squared first derivatives,
    and rows and columns share their mean weight.
    """
    s2, g = s.square(), G.diagonal(dim1=-2, dim2=-1)
    G2 = G.square()
    weight = (G2 * s2[:, None, :]).sum(-1) + (G2 * s2[:, :, None]).sum(-2)
    weight = weight * (2 / n[..., 0])  # the two sides' mean, and the factor 4 of the coordinates
    own = s2 * weight - 4 / a[..., 0] * s**3 * g
    pull = 4 / a[..., 0] * s**3
    gap = (s2[:, :, None] - s2[:, None, :]).square() * (4 / n)
    scale = _exchange(s2, weight)  # Gauss-Newton part, never negative
    same = own[:, :, None] + own[:, None, :] - scale
    cross = gap * torch.addcmul(G * G.mT, g[:, :, None], g[:, None, :]) - _exchange(pull, g)
    # A + B above the diagonal, A - B below it.
    r = g.shape[-1]
    side = torch.ones(r, r, dtype=s.dtype).triu(1).mul_(2).sub_(1)
    curvature = torch.addcmul(same, cross, side).abs_()
    floor = _GLOBAL_FLOOR * scale.amax(-1).amax(-1)[:, None, None]
    return curvature.add_(scale, alpha=_LOCAL_FLOOR).add_(floor)


def _exchange(x: Tensor, y: Tensor) -> Tensor:
    """``x_i y_j + x_j y_i``."""
    return torch.addcmul(x[:, :, None] * y[:, None, :], y[:, :, None], x[:, None, :])
