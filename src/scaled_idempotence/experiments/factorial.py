"""Factorial reassignment of transport cores and supports inside a layer (21; section 4)."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..checkpoints.model import LayerFactors, OVModel
from ..compute.study import Experiment, RunOptions
from ..linalg.principal import closure_table, principal_coordinates


def factorial(model: OVModel, **options: Unpack[RunOptions]) -> pd.DataFrame:
    """Reassign ``K`` and ``D`` separately over the heads of a layer.

    Parameters
    ----------
    model : OVModel
        From `open_model`.
    **options : RunOptions
        ``results_dir``, ``progress``, ``executor``, ``force``.

    Returns
    -------
    DataFrame
        A row a head. ``own`` is ``P_{D_h}(K_h)``, ``other_core`` the mean over donors of
        ``P_{D_h}(K_h')``, ``other_support`` that of ``P_{D_h''}(K_h)``, ``both`` the mean over all
        pairs, and ``interaction`` is ``own - other_core - other_support + both`` (21). The
        ``control_`` columns repeat this with the next value head in place of each head's own.
        All NaN where a layer has one value head, which leaves no donor.

    See Also
    --------
    layer_interactions : Layer means, which are the units of the test.

    Notes
    -----
    A donor's ``K`` or ``D`` comes from the head of the same query slot in another value group, so
    whole groups move and the slot stays. For MHA a group is one head.
    """
    return EXPERIMENT.table(model, **options)


def factorial_layer(layer: LayerFactors) -> pd.DataFrame:
    """Reassign cores and supports in one layer.

    Parameters
    ----------
    layer : LayerFactors

    Returns
    -------
    DataFrame
        The columns of `factorial`.
    """
    H, G = layer.O.shape[0], layer.V.shape[0]
    own = _interaction(layer.O, layer.V[layer.value_head], G)
    control = _interaction(layer.O, layer.V[(layer.value_head + 1) % G], G)
    names = ("own", "other_core", "other_support", "both", "interaction")
    return pd.DataFrame(
        {"layer": layer.index, "head": np.arange(H)}
        | dict(zip(names, own.numpy(), strict=True))
        | {f"control_{name}": x for name, x in zip(names, control.numpy(), strict=True)}
    )


def _interaction(O: Tensor, V: Tensor, n_groups: int) -> Tensor:
    """The five quantities of (21), a row each, for every query head."""
    H = O.shape[0]
    if n_groups == 1:
        return torch.full((5, H), torch.nan, dtype=torch.float64)
    K, cosines, _, _ = principal_coordinates(O, V)
    # Heads lie group by group; donors are the groups, and each slot has a table of its own.
    K = K.unflatten(0, (n_groups, -1)).transpose(0, 1)
    cosines = cosines.unflatten(0, (n_groups, -1)).transpose(0, 1)
    table = closure_table(K, cosines)  # [slot, core's group, support's group]
    own = table.diagonal(dim1=-2, dim2=-1)
    # A head without a core is no donor: it is left out of the means of the others.
    other_core, other_support = table.nanmean(-2), table.nanmean(-1)
    both = table.nanmean((-2, -1))[:, None].expand_as(own)
    interaction = own - other_core - other_support + both
    parts = torch.stack([own, other_core, other_support, both, interaction])
    return parts.masked_fill(own.isnan(), torch.nan).transpose(1, 2).reshape(5, H)


def layer_interactions(table: pd.DataFrame) -> pd.DataFrame:
    """Layer means of the interaction and of its control.

    Parameters
    ----------
    table : DataFrame
        From `factorial`.

    Returns
    -------
    DataFrame
        Indexed by layer, columns ``interaction`` and ``control_interaction``.
    """
    return table.groupby("layer")[["interaction", "control_interaction"]].mean()


EXPERIMENT = Experiment(__name__, factorial_layer)
