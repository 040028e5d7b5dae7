"""Support geometry: what the principal angles, and the core without them, say of closure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .factors import as_float64
from .principal import core_closure

# Below this sine K^2 and K are parallel to rounding, and there is no plane to rotate in.
PARALLEL = 1e-12


class ResponseDecomposition(NamedTuple):
    """How uneven angles move the response of a core (14, 15).

    Attributes
    ----------
    latent : (...) Tensor
        ``s = sqrt(P_I)``, the cosine between ``K^2`` and ``K`` up to sign.
    radial : (...) Tensor
        ``a``, along ``K^2``: changes the response's length only.
    rotation : (...) Tensor
        ``b``, in the plane of ``K^2`` and ``K``: positive turns the response towards ``K``. Zero
        where ``K^2`` and ``K`` are parallel.
    leakage : (...) Tensor
        ``|w|``, out of that plane: always lowers closure.
    """

    latent: Tensor
    radial: Tensor
    rotation: Tensor
    leakage: Tensor

    @property
    def closure(self) -> Tensor:
        """``P_D(K)``, put together again from the four parts (15)."""
        s, a, b, w = self
        sine = (1 - s.square()).clamp_min(0.0).sqrt()
        return (s * (1 + a) + sine * b).square() / ((1 + a).square() + b.square() + w.square())


def overlap(cosines: Tensor | np.ndarray) -> Tensor:
    """Overlap ``G = |D|^2 / r`` of the read and the write subspace (11).

    Parameters
    ----------
    cosines : (..., r) Tensor or ndarray
        Cosines of the principal angles.

    Returns
    -------
    (...) Tensor
        In [0, 1]; its expectation for random subspaces is ``r / d``.
    """
    return as_float64(cosines).square().mean(-1)


def isotropy(cosines: Tensor | np.ndarray) -> Tensor:
    """Isotropy ``I_D = r mean(c)^2 / sum(c^2)`` of the principal angles (12).

    Parameters
    ----------
    cosines : (..., r) Tensor or ndarray

    Returns
    -------
    (...) Tensor
        In [1/r, 1]; 1 where all angles agree. NaN for orthogonal subspaces.
    """
    cosines = as_float64(cosines)
    return cosines.mean(-1).square() / cosines.square().mean(-1)


def latent_closure(K: Tensor | np.ndarray) -> Tensor:
    """Closure ``P_I(K)`` of the latent core: ``K^2`` in place of ``K D K`` (13).

    It is also the closure with the isoclinic support ``D_iso = (|D| / sqrt(r)) I``, since closure
    does not change when the support is scaled.

    Parameters
    ----------
    K : (..., r, r) Tensor or ndarray

    Returns
    -------
    (...) Tensor
    """
    K = as_float64(K)
    return core_closure(K, torch.ones(K.shape[-1], dtype=torch.float64))


def latent_scale(K: Tensor | np.ndarray) -> Tensor:
    """Fitted scale ``beta_K = <K^2, K> / |K|^2`` of the latent core (13).

    Parameters
    ----------
    K : (..., r, r) Tensor or ndarray
        Transport cores.

    Returns
    -------
    (...) Tensor
        In units of ``K``.
    """
    K = as_float64(K)
    return ((K @ K) * K).sum((-2, -1)) / K.square().sum((-2, -1))


def isoclinic(cosines: Tensor | np.ndarray) -> Tensor:
    """Diagonal of ``D_iso = (|D| / sqrt(r)) I``: equal angles with the same overlap.

    Parameters
    ----------
    cosines : (..., r) Tensor or ndarray
        Of the principal angles whose mean square is kept.

    Returns
    -------
    (..., r) Tensor
    """
    cosines = as_float64(cosines)
    return overlap(cosines).sqrt()[..., None].expand_as(cosines)


def response_decomposition(
    K: Tensor | np.ndarray, cosines: Tensor | np.ndarray
) -> ResponseDecomposition:
    """Split what uneven angles do to a core's response into three parts (14, 15).

    With ``c = tr(D) / r`` and ``D = c I + E``, the response is ``K D K = c K^2 + K E K``. Relative
    to ``c |K^2|`` the second term is ``a x + b u + w``: ``x`` along ``K^2``, ``u`` towards ``K`` in
    the plane of the two, ``w`` out of it.

    Parameters
    ----------
    K : (..., r, r) Tensor or ndarray
        Transport cores.
    cosines : (..., r) Tensor or ndarray

    Returns
    -------
    ResponseDecomposition
        NaN where ``K^2`` or all cosines vanish.
    """
    K, cosines = as_float64(K), as_float64(cosines)
    c = cosines.mean(-1)[..., None, None]
    K = K / _norm(K)
    square = K @ K
    x = square / _norm(square)
    F = (K * (cosines[..., None, :] - c)) @ K / (c * _norm(square))
    y = torch.where(_inner(x, K) < 0, -K, K)
    s = _inner(x, y)
    v = y - s * x
    # Once more: what is left along x after a near-cancellation would be taken for rotation.
    v = v - _inner(x, v) * x
    sine = _norm(v)
    u = torch.where(sine > PARALLEL, v / sine, 0.0)
    a, b = _inner(F, x), _inner(F, u)
    w = F - a * x - b * u
    return ResponseDecomposition(*(t[..., 0, 0] for t in (s, a, b, _norm(w))))


def _inner(X: Tensor, Y: Tensor) -> Tensor:
    return (X * Y).sum((-2, -1), keepdim=True)


def _norm(X: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(X, keepdim=True)
