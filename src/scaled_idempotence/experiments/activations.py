"""Natural activations: what heads do to the outputs that text makes them write (section 8)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..checkpoints.model import LayerFactors, OVModel
from ..compute.study import Experiment, Part, Plan, RunOptions
from ..errors import CannotRun
from ..linalg.activations import isotropic_inputs, output_response
from ..linalg.closure import closure_scores
from ..linalg.draws import draw_seed
from ..paper import DECILE, STRONG
from ..progress import progress_bar
from ..running.hooks import projection_inputs
from ..running.loading import MAX_BYTES, run_model
from ..running.text import TextSource, segments, text_inputs

QUANTILES = {"q05": 0.05, "q25": 0.25, "q75": 0.75, "q95": 0.95}
#: Gaussian draws a head for the comparison that needs no running model.
ISOTROPIC_DRAWS = 1024


def activations(
    model: OVModel,
    text: TextSource = None,
    *,
    n_segments: int = 4,
    length: int = 256,
    threshold: float = STRONG,
    tokenizer: Any = None,
    max_bytes: float = MAX_BYTES,
    **options: Unpack[RunOptions],
) -> pd.DataFrame:
    """Compare the outputs ``y`` of every head on text with ``T y``.

    Parameters
    ----------
    model : OVModel
        From `open_model`. transformers runs it; it may be opened with either norm.
    text : str, Path, Tensor or Segments, optional
        A text file, the id of a data set, or tokens; prose that ships with Python if left out.
    n_segments, length : int
        Segments of the text, and tokens of each.
    threshold : float
        Closure from which a head counts as strong.
    tokenizer : optional
        For a model in memory.
    max_bytes : float
        Size of the stored weights up to which a model is run.
    **options : RunOptions
        ``results_dir``, ``progress``, ``executor``, ``force``. The model runs here; an executor's
        workers read the layers' factors and compare.

    Returns
    -------
    DataFrame
        A row a head. ``cos2_median`` and the quantiles are over tokens, of the squared cosine of
        ``y`` and ``T y``; ``cos2_aggregated`` takes all tokens as one vector; ``rms_gain`` is
        ``g_y``; ``wrong_v_*`` are the same with the next value head in place of the head's own
        (NaN where there is one). ``isotropic_cos2_median`` is the median for Gaussian input, of
        the factors alone. ``group`` is ``"high"`` for the tenth of all heads with the highest
        closure, ``"low"`` for the tenth with the lowest, else empty; ``matched_low`` marks, in each
        layer that has high heads, as many with that layer's lowest closure.

        Where the model cannot run the table has the columns of the factors, NaN in the others, and
        ``attrs["reason"]`` says why; ``attrs["measured"]`` tells the two apart.
    """
    plan = partial(
        _plan, model, text, n_segments, length, tokenizer, max_bytes, options.get("progress", True)
    )
    return EXPERIMENT.table(
        model,
        {"name": model.name, "threshold": threshold},
        inputs=text_inputs(model, text, n_segments, length, tokenizer),
        plan=plan,
        **options,
    )


def _plan(
    model: OVModel,
    text: TextSource,
    n_segments: int,
    length: int,
    tokenizer: Any,
    max_bytes: float,
    progress: bool,
) -> Plan:
    """Run the model on the text; what the heads' outputs are made of goes to the layers."""
    inputs: list[Tensor | None] = [None] * len(model)
    remarks: dict[str, object] = {"measured": False, "reason": ""}
    try:
        running = run_model(model, tokenizer=tokenizer, max_bytes=max_bytes)
        chosen = segments(running, text, n_segments, length)
        with projection_inputs(running) as seen:
            for tokens in progress_bar(
                chosen.tokens.split(1), f"run {model.label}", "segment", progress
            ):
                running.hidden(tokens)
        # (H, tokens, r) a layer
        inputs = [torch.cat(one).flatten(0, 1).transpose(0, 1).cpu() for one in seen]
        remarks |= {"measured": True} | chosen.identity
    except CannotRun as error:
        remarks["reason"] = str(error)
    return Plan([Part(model, n, {"z": z}) for n, z in enumerate(inputs)], remarks)


def _with_groups(
    tables: Mapping[str, pd.DataFrame], _: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    table = tables["activations"]
    group, matched_low = decile_groups(table)
    table.insert(6, "group", group)
    table.insert(7, "matched_low", matched_low)
    return {"activations": table}


def activations_layer(
    layer: LayerFactors, *, z: Tensor | None, name: str, threshold: float
) -> pd.DataFrame:
    """Score the heads of one layer.

    Parameters
    ----------
    layer : LayerFactors
    z : (H, n, r) Tensor, optional
        Inputs of the output projection; None where there are none.
    name : str
        The model's, a part of the seeds.
    threshold : float
        Closure from which a head counts as strong.

    Returns
    -------
    DataFrame
        The columns of `activations` without those of the groups.
    """
    O, value_head = layer.O, layer.value_head
    V, G = layer.V[value_head], len(layer.V)
    H = len(O)
    scores = closure_scores(O, V)
    undefined = scores.status != 0
    seeds = [draw_seed(name, layer.index, head, "isotropic") for head in range(H)]

    def column(values: Tensor) -> np.ndarray:
        return values.masked_fill(undefined, torch.nan).numpy()

    columns = {
        "layer": np.full(H, layer.index),
        "head": np.arange(H),
        "value_head": value_head.numpy(),
        "closure": scores.closure.numpy(),
        "return_gain": scores.return_gain.numpy(),
        "strong": (scores.closure >= threshold).numpy(),  # never true of NaN
    }
    nothing = np.full(H, np.nan)
    measured = dict.fromkeys(
        ("cos2_median", *(f"cos2_{q}" for q in QUANTILES), "cos2_aggregated", "rms_gain"), nothing
    )
    measured |= dict.fromkeys(("wrong_v_cos2_median", "wrong_v_cos2_aggregated"), nothing)
    if z is not None:
        own = output_response(O, V, z)
        measured |= {
            "cos2_median": column(own.squared_cosine.nanquantile(0.5, dim=-1)),
            "cos2_aggregated": column(own.aggregated),
            "rms_gain": column(own.rms_gain),
        }
        for q, level in QUANTILES.items():
            measured[f"cos2_{q}"] = column(own.squared_cosine.nanquantile(level, dim=-1))
        if G > 1:
            wrong = output_response(O, layer.V[(value_head + 1) % G], z)
            measured |= {
                "wrong_v_cos2_median": column(wrong.squared_cosine.nanquantile(0.5, dim=-1)),
                "wrong_v_cos2_aggregated": column(wrong.aggregated),
            }
    finite = torch.where(undefined[:, None, None], 1.0, V)
    drawn = output_response(O, V, isotropic_inputs(finite, ISOTROPIC_DRAWS, seeds))
    isotropic = column(drawn.squared_cosine.nanquantile(0.5, dim=-1))
    return pd.DataFrame(columns | measured | {"isotropic_cos2_median": isotropic})


def decile_groups(heads: pd.DataFrame, share: float = DECILE) -> tuple[np.ndarray, np.ndarray]:
    """Choose the heads of the highest and of the lowest closure, and low ones layer by layer.

    Parameters
    ----------
    heads : DataFrame
        Columns ``layer`` and ``closure``.
    share : float
        Of the heads with a defined closure.

    Returns
    -------
    group : (n,) ndarray of str
        ``"high"``, ``"low"`` or ``""``: the two ends of the whole model.
    matched_low : (n,) ndarray of bool
        In each layer the lowest heads, as many as it has high ones; fewer where more than half of
        its heads are high.
    """
    heads = heads.reset_index(drop=True)
    group = np.full(len(heads), "", dtype=object)
    matched_low = np.zeros(len(heads), dtype=bool)
    order = heads.closure.dropna().sort_values(kind="stable").index.to_numpy()
    n = min(max(1, round(share * len(order))), len(order) // 2)
    group[order[:n]], group[order[len(order) - n :]] = "low", "high"
    for _, layer in heads.loc[order].groupby("layer", sort=False):
        high = group[layer.index] == "high"
        matched_low[layer.index[~high][: high.sum()]] = True
    return group, matched_low


def group_medians(table: pd.DataFrame) -> pd.DataFrame:
    """Summarise groups of heads: medians over heads of what is a median over tokens.

    Parameters
    ----------
    table : DataFrame
        From `activations`.

    Returns
    -------
    DataFrame
        Rows ``strong``, ``high``, ``low``, ``matched low`` and ``all``; columns ``heads``,
        ``closure``, ``cos2_median``, ``cos2_aggregated``, ``wrong_v_cos2_median``, ``rms_gain`` and
        ``isotropic_cos2_median``. Medians of nothing are NaN.
    """
    columns = [
        "closure", "cos2_median", "cos2_aggregated", "wrong_v_cos2_median", "rms_gain",
        "isotropic_cos2_median",
    ]  # fmt: skip
    groups = {
        "strong": table[table.strong],
        "high": table[table.group == "high"],
        "low": table[table.group == "low"],
        "matched low": table[table.matched_low],
        "all": table,
    }
    rows = {
        name: {"heads": len(part)} | part[columns].median().to_dict()
        for name, part in groups.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


EXPERIMENT = Experiment(__name__, activations_layer, finish=_with_groups)
