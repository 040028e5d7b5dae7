"""Changes of an output factor: towards the algebra, at random, to nothing, or to a new orientation.

All are given as ``O' - O`` with ``V`` held, so that a share ``t`` of one is a multiple of it and
``t = 0`` is no change at all.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .algebra import algebra_parts
from .draws import draw_seed
from .factors import check_factors, gram, over_transpose
from .orientations import orientation_path
from .principal import principal_coordinates
from .scramble import refactor


def operator_norm2(change: Tensor, V: Tensor) -> Tensor:
    """Squared Frobenius norm of ``X V^T``, from the Grams of both.

    Parameters
    ----------
    change, V : (..., d, r) Tensor

    Returns
    -------
    (...) Tensor
    """
    return (gram(change) * gram(V)).sum((-2, -1)).clamp_min(0.0)


def projection_change(O: Tensor, V: Tensor) -> Tensor:
    """Change that makes ``T = O V^T`` the nearest member of the algebra: ``-C_V (M - a I)``.

    Parameters
    ----------
    O, V : (..., d, r) Tensor

    Returns
    -------
    (..., d, r) Tensor
        ``O' - O`` of `nearest_idempotent`.

    Raises
    ------
    ValueError
        If a ``V`` does not have full column rank or weights are not finite.
    """
    return -algebra_parts(O, V).remainder


def random_change(
    change: Tensor, V: Tensor, *identity: str | int, returning: bool = False
) -> Tensor:
    """Random change through the same ``V`` with the same ``|(O' - O) V^T|`` as a given one.

    Parameters
    ----------
    change, V : (d, r) Tensor
        The given change sets the size.
    *identity : str or int
        Seed: what the draw is for.
    returning : bool
        Draw among the changes ``C_V X`` with ``X`` of trace zero. Like the projection's they
        leave the oblique part and the scale as they are and act on the return core ``V^T O`` alone,
        so that only the direction in there is random. Otherwise all ``d r`` entries are drawn.

    Returns
    -------
    (d, r) Tensor
    """
    change, V = check_factors(change, V)
    d, r = V.shape
    rng = np.random.default_rng(draw_seed(*identity))
    if returning:
        # In the read gauge |C_V X V^T| is |Y|, so Y is drawn without a preferred direction.
        Y = torch.from_numpy(rng.standard_normal((r, r)))
        Y.diagonal().sub_(Y.trace() / r)
        Q, R = torch.linalg.qr(V)
        drawn = over_transpose(Q @ Y, R)
    else:
        drawn = torch.from_numpy(rng.standard_normal((d, r)))
    size = operator_norm2(change, V) / operator_norm2(drawn, V)
    return drawn * size.sqrt()


def orientation_changes(
    O: Tensor,
    V: Tensor,
    trained: tuple[Tensor, Tensor],
    best: tuple[Tensor, Tensor],
    s: Tensor,
    t: Tensor,
) -> Tensor:
    """Changes along the geodesic from the trained orientation to another one.

    Parameters
    ----------
    O, V : (d, r) Tensor
    trained, best : pair of (r, r) Tensor
        ``(U_L, U_R)``, such as `best_orientation` finds.
    s : (r,) Tensor
        Singular values of the core.
    t : (n,) Tensor
        Positions: 0 is as trained, 1 the other orientation, and beyond both the geodesic goes on.

    Returns
    -------
    (n, d, r) Tensor
        Singular values, angles and ``V`` stay as they are on the whole path.
    """
    coordinates = principal_coordinates(O, V)

    def factor(position: Tensor) -> Tensor:
        U_L, U_R = orientation_path(s, trained, best, position)
        return refactor(U_L * s @ U_R.mT, coordinates.Q_O, coordinates.Q_V, V)

    # Against the path's own start, and no rounding where nothing is to move.
    change = factor(t) - factor(torch.zeros(1, dtype=torch.float64))
    return change.masked_fill((t == 0).reshape(-1, 1, 1), 0.0)
