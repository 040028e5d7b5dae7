"""What a head does to its own output: ``y = O z`` against ``T y``, token by token.

``T y = O V^T O z = O M z``, so with ``A = O^T O`` the three products are ``<y, Ty> = z^T A M z``,
``|y|^2 = z^T A z`` and ``|Ty|^2 = (Mz)^T A (Mz)``: nothing longer than ``r`` is formed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .draws import draw_seed
from .factors import as_float64, check_factors, gram, return_core


class OutputResponse(NamedTuple):
    """How ``T`` acts on the outputs of a head.

    Attributes
    ----------
    squared_cosine : (..., n) Tensor
        Of ``y`` and ``T y``, in [0, 1]; NaN where one of them vanishes.
    aggregated : (...) Tensor
        ``(sum <y, Ty>)^2 / (sum |Ty|^2 sum |y|^2)``, the same over all tokens as one long vector.
    rms_gain : (...) Tensor
        ``sqrt(sum |Ty|^2 / sum |y|^2)``.
    """

    squared_cosine: Tensor
    aggregated: Tensor
    rms_gain: Tensor


def output_response(O: Tensor, V: Tensor, z: Tensor) -> OutputResponse:
    """Compare the outputs ``y = O z`` of heads with ``T y = O V^T y``.

    Parameters
    ----------
    O, V : (..., d, r) Tensor
        Factors; leading dimensions broadcast. With another value factor than the head's own this is
        the wrong-V control: ``y`` and ``O`` are held.
    z : (..., n, r) Tensor
        What enters ``O`` at ``n`` tokens.

    Returns
    -------
    OutputResponse

    Notes
    -----
    For ``z = V^T x`` with isotropic ``x`` the expectations in `aggregated` are those of
    ``z z^T = V^T V``, and it becomes the closure ``P(T)`` (5) itself. Natural inputs are not
    isotropic, which is what makes activations a check of their own.
    """
    O, V = check_factors(O, V)
    z = as_float64(z)
    A, M = gram(O), return_core(O, V)
    back = z @ M.mT  # rows are M z
    Az = z @ A
    inner = (Az * back).sum(-1)
    y2 = (Az * z).sum(-1).clamp_min(0.0)
    ty2 = ((back @ A) * back).sum(-1).clamp_min(0.0)
    together = inner.sum(-1).square() / (ty2.sum(-1) * y2.sum(-1))
    return OutputResponse(
        squared_cosine=(inner.square() / (ty2 * y2)).clamp_max(1.0),
        aggregated=together.clamp_max(1.0),
        rms_gain=(ty2.sum(-1) / y2.sum(-1)).sqrt(),
    )


def isotropic_inputs(V: Tensor, n: int, seeds: list[int]) -> Tensor:
    """Draw ``z = V^T x`` for isotropic Gaussian ``x``.

    Parameters
    ----------
    V : (H, d, r) Tensor
    n : int
        Draws a head.
    seeds : list of int
        One a head.

    Returns
    -------
    (H, n, r) Tensor
    """
    R = torch.linalg.qr(V, mode="r").R
    generators = [np.random.default_rng(draw_seed(seed, "x")) for seed in seeds]
    normal = np.stack([rng.standard_normal((n, V.shape[-1])) for rng in generators])
    # V = Q R, and Q^T x is as isotropic as x.
    return torch.from_numpy(normal) @ R
