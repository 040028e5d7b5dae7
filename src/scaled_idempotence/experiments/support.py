"""Support geometry of every head: angles, latent core, response decomposition (section 3)."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import pandas as pd
import torch

from ..checkpoints.model import LayerFactors, OVModel
from ..compute.study import Experiment, RunOptions
from ..linalg.closure import closure_scores
from ..linalg.principal import core_closure, principal_coordinates
from ..linalg.support import (
    isotropy,
    latent_closure,
    latent_scale,
    overlap,
    response_decomposition,
)


def support(model: OVModel, **options: Unpack[RunOptions]) -> pd.DataFrame:
    """Describe the support and the latent core of every head.

    Parameters
    ----------
    model : OVModel
        From `open_model`.
    **options : RunOptions
        ``results_dir``, ``progress``, ``executor``, ``force``.

    Returns
    -------
    DataFrame
        A row a head. ``closure`` is ``P(T)`` from the factors and ``identity_error`` its distance
        from ``P_D(K)`` (10); ``overlap`` and ``isotropy`` are ``G`` (11) and ``I_D`` (12),
        ``random_overlap`` is ``r / d``; ``latent_closure`` and ``latent_scale`` are ``P_I(K)`` and
        ``beta_K`` (13); ``radial``, ``rotation`` and ``leakage`` are ``a``, ``b`` and ``|w|`` (14).
        NaN for heads without a defined closure.
    """
    return EXPERIMENT.table(model, **options)


def support_layer(layer: LayerFactors) -> pd.DataFrame:
    """Describe the heads of one layer.

    Parameters
    ----------
    layer : LayerFactors

    Returns
    -------
    DataFrame
        The columns of `support`.
    """
    V = layer.V[layer.value_head]
    H, d, r = layer.O.shape
    scores = closure_scores(layer.O, V)
    K, cosines, _, _ = principal_coordinates(layer.O, V)
    parts = response_decomposition(K, cosines)
    columns = {
        "identity_error": (core_closure(K, cosines) - scores.closure).abs(),
        "overlap": overlap(cosines),
        "isotropy": isotropy(cosines),
        "largest_cosine": cosines[:, 0],
        "smallest_cosine": cosines[:, -1],
        "latent_closure": latent_closure(K),
        "latent_scale": latent_scale(K),
        "radial": parts.radial,
        "rotation": parts.rotation,
        "leakage": parts.leakage,
    }
    undefined = scores.status != 0
    return pd.DataFrame(
        {
            "layer": layer.index,
            "head": np.arange(H),
            "closure": scores.closure.numpy(),
            "random_overlap": r / d,
        }
        | {name: x.masked_fill(undefined, torch.nan).numpy() for name, x in columns.items()}
    )


EXPERIMENT = Experiment(__name__, support_layer)
