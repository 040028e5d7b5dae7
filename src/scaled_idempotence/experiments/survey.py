"""Closure survey: every head of a model, its scores and its wrong-V control (section 2)."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import pandas as pd
import torch

from ..checkpoints.model import LayerFactors, OVModel
from ..compute.study import Experiment, RunOptions
from ..linalg.closure import STATUS_REASONS, copying_score
from ..linalg.factors import effective_rank, singular_values
from ..linalg.pairing import layer_permutation_p, layer_scores, trained_rank, wrong_v_closure
from ..paper import STRONG, THRESHOLDS


def survey(model: OVModel, **options: Unpack[RunOptions]) -> pd.DataFrame:
    """Score the closure of every head of a model.

    Parameters
    ----------
    model : OVModel
        From `open_model`.
    **options : RunOptions
        ``results_dir``, ``progress``, ``executor``, ``force``.

    Returns
    -------
    DataFrame
        A row a head. ``closure`` is ``P(T)`` (5), ``alpha`` the fitted scale (6), ``return_gain``
        ``g_T`` (26); ``wrong_v_closure`` pairs the head's ``O`` with the next value head (NaN where
        there is one); ``trained_rank`` is the rank of the trained ``V`` among the layer's and
        ``permutation_p`` its exact p-value, ``layer_permutation_p`` that of the layer's whole
        assignment; ``reason`` says why scores are NaN. ``attrs`` holds the model's identity.

    Examples
    --------
    >>> import scaled_idempotence as si
    >>> heads = si.survey(si.open_model("smollm2-135m"), progress=False)
    >>> round(float(heads.closure.max()), 4)
    0.9533
    """
    return EXPERIMENT.table(model, **options)


def survey_layer(layer: LayerFactors) -> pd.DataFrame:
    """Score the heads of one layer.

    Parameters
    ----------
    layer : LayerFactors

    Returns
    -------
    DataFrame
        The columns of `survey`.
    """
    O, V, value_head = layer.O, layer.V, layer.value_head
    H, G = O.shape[0], V.shape[0]
    scores, cores, pairs = layer_scores(O, V, value_head)
    rank = trained_rank(pairs, value_head)
    # Group by group, so that no value factor is copied once a query head.
    spectrum = singular_values(O.unflatten(0, (G, -1)), V[:, None]).flatten(0, 1)
    # Of a head without defined scores nothing else is reported either: no row is half a result.
    undefined = scores.status != 0

    def column(values: torch.Tensor) -> np.ndarray:
        return values.masked_fill(undefined, torch.nan).numpy()

    return pd.DataFrame(
        {
            "layer": layer.index,
            "head": np.arange(H),
            "value_head": value_head.numpy(),
            "closure": scores.closure.numpy(),
            "alpha": scores.alpha.numpy(),
            "return_gain": scores.return_gain.numpy(),
            "wrong_v_closure": column(wrong_v_closure(pairs, value_head)),
            "copying_score": column(copying_score(cores)),
            "effective_rank": column(effective_rank(spectrum)),
            "trained_rank": column(rank),
            "permutation_p": column(rank / G),
            "layer_permutation_p": layer_permutation_p(pairs, value_head),
            "reason": [STATUS_REASONS[code] for code in scores.status.tolist()],
        }
    )


def sweep(heads: pd.DataFrame, thresholds: tuple[float, ...] = THRESHOLDS) -> pd.DataFrame:
    """Count the heads, and the wrong-V pairings, at or above each closure threshold.

    Parameters
    ----------
    heads : DataFrame
        From `survey`.
    thresholds : tuple of float

    Returns
    -------
    DataFrame
        Columns ``threshold``, ``heads``, ``share`` (of the heads with a defined score),
        ``negative_alpha`` (share of those heads) and ``wrong_v``, NaN where no control exists.
    """
    defined = heads[heads.closure.notna()]
    rows = []
    for threshold in thresholds:
        above = defined[defined.closure >= threshold]
        control = defined.wrong_v_closure.dropna()
        rows.append(
            {
                "threshold": threshold,
                "heads": len(above),
                "share": len(above) / len(defined) if len(defined) else np.nan,
                "negative_alpha": (above.alpha < 0).mean() if len(above) else np.nan,
                "wrong_v": (control >= threshold).sum() if len(control) else np.nan,
            }
        )
    return pd.DataFrame(rows)


def summary(heads: pd.DataFrame, threshold: float = STRONG) -> pd.Series:
    """Summarise a survey in the figures of the paper's Table 1.

    Parameters
    ----------
    heads : DataFrame
        From `survey`.
    threshold : float
        Closure from which a head counts as strong.

    Returns
    -------
    Series
        ``heads``, ``undefined``, quantiles of closure (``min``, ``q10``, ``median``, ``q90``,
        ``max``), ``strong``, ``strong_share``, ``negative_alpha`` (share of the strong heads),
        ``wrong_v_median`` and ``wrong_v_max``.
    """
    defined = heads[heads.closure.notna()]
    strong = defined[defined.closure >= threshold]
    quantiles = defined.closure.quantile([0, 0.1, 0.5, 0.9, 1]).to_numpy()
    return pd.Series(
        {
            "heads": len(heads),
            "undefined": len(heads) - len(defined),
            **dict(zip(("min", "q10", "median", "q90", "max"), quantiles, strict=True)),
            "strong": len(strong),
            "strong_share": len(strong) / len(defined) if len(defined) else np.nan,
            "negative_alpha": (strong.alpha < 0).mean() if len(strong) else np.nan,
            "wrong_v_median": defined.wrong_v_closure.median(),
            "wrong_v_max": defined.wrong_v_closure.max(),
        },
        name=heads.attrs.get("model"),
    )


EXPERIMENT = Experiment(__name__, survey_layer)
