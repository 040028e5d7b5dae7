"""Orientation scrambles of every head, beside their closed-form null (22; section 5)."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import pandas as pd
import torch

from ..checkpoints.model import LayerFactors, OVModel
from ..compute.study import Experiment, RunOptions
from ..linalg.closure import closure_scores
from ..linalg.factors import effective_rank
from ..linalg.principal import core_closure, principal_coordinates
from ..linalg.scramble import (
    haar_scramble,
    null_closure,
    null_test,
    rank_audit,
    scramble_audit,
    signed_permutation_scramble,
)
from ..paper import HAAR_DRAWS, PERMUTATION_DRAWS


def orientation(
    model: OVModel,
    *,
    permutation_draws: int = PERMUTATION_DRAWS,
    haar_draws: int = HAAR_DRAWS,
    **options: Unpack[RunOptions],
) -> pd.DataFrame:
    """Scramble the orientation of every head's core and compare closure.

    Parameters
    ----------
    model : OVModel
        From `open_model`.
    permutation_draws, haar_draws : int
        Scrambles a head by signed permutations and by Haar-orthogonal matrices.
    **options : RunOptions
        ``results_dir``, ``progress``, ``executor``, ``force``.

    Returns
    -------
    DataFrame
        A row a head. ``permutation_closure`` and ``haar_closure`` are medians over the draws,
        ``permutation_max`` and ``haar_max`` the highest, ``haar_mean`` the mean; ``null`` is the
        closed form ``P0``, with ``null_z`` and ``null_p`` of the trained closure;
        ``effective_rank``, ``rank`` and ``singular_ratio`` (``s_min / s_max``) audit the spectrum;
        ``singular_value_error`` and ``norm_error`` say how well the scrambles kept what they must.

    Notes
    -----
    A head's draws come from seeds made of model, layer, head, kind and draw: they do not depend on
    the order of layers, on the batch or on where they are computed. ``norm`` is no part of them.
    """
    parameters = {
        "name": model.name,
        "permutation_draws": permutation_draws,
        "haar_draws": haar_draws,
    }
    return EXPERIMENT.table(model, parameters, **options)


def orientation_layer(
    layer: LayerFactors, name: str, permutation_draws: int, haar_draws: int
) -> pd.DataFrame:
    """Scramble the heads of one layer.

    Parameters
    ----------
    layer : LayerFactors
    name : str
        The model's name, a part of the seeds.
    permutation_draws, haar_draws : int

    Returns
    -------
    DataFrame
        The columns of `orientation`.
    """
    V = layer.V[layer.value_head]
    H, d, _ = layer.O.shape
    scores = closure_scores(layer.O, V)
    undefined = scores.status != 0
    K, cosines, _, _ = principal_coordinates(layer.O, V)
    # Any core will do where there is none: its row is blanked below.
    K = torch.where(K.isfinite(), K, 1.0)
    cosines = torch.where(cosines.isfinite(), cosines, 1.0)
    seeds = [f"{name}:{layer.index}:{head}" for head in range(H)]
    permuted = signed_permutation_scramble(K, permutation_draws, seeds)
    turned = haar_scramble(K, haar_draws, seeds)
    permutation = core_closure(permuted, cosines[:, None])
    haar = core_closure(turned, cosines[:, None])
    s = torch.linalg.svdvals(K)
    null = null_closure(s)
    z, p = null_test(scores.closure, null)
    ranks = rank_audit(s, d)
    audits = [scramble_audit(K, draws) for draws in (permuted, turned)]
    columns = {
        # quantile, not torch.median: of an even number of draws that would be the lower one.
        "permutation_closure": permutation.quantile(0.5, dim=-1),
        "permutation_max": permutation.amax(-1),
        "haar_closure": haar.quantile(0.5, dim=-1),
        "haar_max": haar.amax(-1),
        "haar_mean": haar.mean(-1),
        "null": null,
        "null_z": z,
        "null_p": p,
        "effective_rank": effective_rank(s),
        "rank": ranks.rank.double(),
        "singular_ratio": ranks.ratio,
        "singular_value_error": torch.stack([a.singular_values for a in audits]).amax(0),
        "norm_error": torch.stack([a.norm for a in audits]).amax(0),
    }
    return pd.DataFrame(
        {"layer": layer.index, "head": np.arange(H), "closure": scores.closure.numpy()}
        | {name: x.masked_fill(undefined, torch.nan).numpy() for name, x in columns.items()}
    )


def orientation_summary(table: pd.DataFrame) -> pd.Series:
    """Summarise scrambles in the figures of the paper's orientation study.

    Parameters
    ----------
    table : DataFrame
        From `orientation`.

    Returns
    -------
    Series
        Medians over heads of the trained, permuted and Haar closure; ``permutation_wins`` and
        ``haar_wins``, the shares of heads whose trained closure is higher; ``permutation_layers``
        and ``haar_layers``, the layers whose median is; ``layers``; ``highest``, the highest
        closure of any scramble.
    """
    defined = table[table.closure.notna()]
    medians = defined.groupby("layer")[["closure", "permutation_closure", "haar_closure"]].median()
    return pd.Series(
        {
            "heads": len(defined),
            "trained": defined.closure.median(),
            "permutation": defined.permutation_closure.median(),
            "haar": defined.haar_closure.median(),
            "permutation_wins": (defined.closure > defined.permutation_closure).mean(),
            "haar_wins": (defined.closure > defined.haar_closure).mean(),
            "layers": len(medians),
            "permutation_layers": (medians.closure > medians.permutation_closure).sum(),
            "haar_layers": (medians.closure > medians.haar_closure).sum(),
            "highest": defined[["permutation_max", "haar_max"]].max(axis=None),
        }
    )


EXPERIMENT = Experiment(__name__, orientation_layer)
