"""Angles, and the leading block of core and response, of every head: what a picture of it needs."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import pandas as pd
import torch

from ..checkpoints.model import LayerFactors, OVModel
from ..compute.study import Experiment, RunOptions
from ..linalg.closure import closure_scores
from ..linalg.principal import principal_coordinates

#: Principal directions, from the best aligned, whose block of the core is kept.
BLOCK = 24


def cores(
    model: OVModel,
    *,
    block: int = BLOCK,
    **options: Unpack[RunOptions],
) -> pd.DataFrame:
    """Keep the principal angles of every head and the leading block of its core and response.

    Parameters
    ----------
    model : OVModel
        From `open_model`.
    block : int
        How many principal directions, from the best aligned, the blocks hold; all of them where
        ``r`` is smaller.
    **options : RunOptions
        ``results_dir``, ``progress``, ``executor``, ``force``.

    Returns
    -------
    DataFrame
        A row a head. ``cosines`` is the diagonal of the support ``D`` (7), all ``r`` of it,
        descending. ``core`` and ``response`` are the leading blocks of ``K`` (8) and of ``K D K``
        (9), by rows, each divided by ``core_scale`` and ``response_scale``: the largest absolute
        entry of the whole matrix. Numbers in the lists are in single precision. ``core_share``
        and ``response_share`` are the shares of the squared norm inside the block. NaN, and empty
        lists, for heads without a defined closure.

    Raises
    ------
    ValueError
        If ``block`` is not positive.
    """
    if block < 1:
        raise ValueError(f"block is {block}, expected a positive number of principal directions")
    return EXPERIMENT.table(model, {"block": block}, **options)


def cores_layer(layer: LayerFactors, block: int) -> pd.DataFrame:
    """Keep the angles and blocks of the heads of one layer.

    Parameters
    ----------
    layer : LayerFactors
    block : int

    Returns
    -------
    DataFrame
        The columns of `cores`.
    """
    V = layer.V[layer.value_head]
    undefined = closure_scores(layer.O, V).status != 0
    K, cosines, _, _ = principal_coordinates(layer.O, V)
    KDK = (K * cosines[:, None, :]) @ K
    columns = {"layer": layer.index, "head": np.arange(len(K)), "cosines": _lists(cosines)}
    for name, matrix in {"core": K, "response": KDK}.items():
        scale = matrix.abs().amax((-2, -1))
        scaled = matrix / scale[:, None, None]
        leading = scaled[:, :block, :block]
        share = leading.square().sum((-2, -1)) / scaled.square().sum((-2, -1))
        columns[name] = _lists(leading.flatten(1))
        columns[f"{name}_scale"] = scale.masked_fill(undefined, torch.nan).numpy()
        columns[f"{name}_share"] = share.masked_fill(undefined, torch.nan).numpy()
    table = pd.DataFrame(columns)
    for name in ("cosines", "core", "response"):
        table.loc[undefined.numpy(), name] = pd.Series(
            [np.empty(0, np.float32)] * len(table), dtype=object
        )
    return table


def _lists(rows: torch.Tensor) -> list[np.ndarray]:
    return list(rows.numpy().astype(np.float32))


EXPERIMENT = Experiment(__name__, cores_layer)
