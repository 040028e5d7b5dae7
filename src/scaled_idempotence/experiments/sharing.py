"""Value sharing: how siblings multiply, and how near heads are to their anchor (section 7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..checkpoints.model import LayerFactors, OVModel
from ..compute.study import Experiment, Plan, RunOptions
from ..linalg.algebra import ANCHOR_REASONS, anchor_scores
from ..linalg.closure import ClosureScores, closure_scores
from ..linalg.gain import (
    ACTION_REASONS,
    ActionScores,
    domination,
    inheritance_bound,
    next_group_scores,
    sibling_cosines,
    sibling_scores,
)
from ..linalg.subspaces import kernel_angles, range_angles
from ..paper import STRONG, THRESHOLDS

#: What a table of products means for a topology; `Sharing.pairs.attrs["remark"]`.
REMARKS = {
    "MHA": "every head has a value factor of its own: there are no siblings and no products to "
    "compare; anchors and retrieval apply",
    "GQA": "the control's left head has the same query slot in the next value group, cyclically",
    "MQA": "all heads of a layer share one value factor: there is no next group, so no control, "
    "and retrieval has one candidate",
}

#: Files of the tables, and their names in `Sharing`.
TABLES = {f"sharing_{field}": field for field in ("pairs", "siblings", "anchors")}


@dataclass(frozen=True)
class Sharing:
    """Tables of `sharing`.

    Attributes
    ----------
    pairs : DataFrame
        A row for each strong right head and each of its siblings as left head.
    siblings : DataFrame
        A row for each pair of strong siblings.
    anchors : DataFrame
        A row a head.
    """

    pairs: pd.DataFrame = field(repr=False)
    siblings: pd.DataFrame = field(repr=False)
    anchors: pd.DataFrame = field(repr=False)


def sharing(
    model: OVModel,
    *,
    threshold: float = STRONG,
    **options: Unpack[RunOptions],
) -> Sharing:
    """Measure how the heads of a value group act on each other, and how near they are to ``A_V``.

    Parameters
    ----------
    model : OVModel
        From `open_model`.
    threshold : float
        Closure from which a head counts as strong.
    **options : RunOptions
        ``results_dir``, ``progress``, ``executor``, ``force``.

    Returns
    -------
    Sharing
        ``pairs``: the product ``T_i T_j`` of left head ``i`` and strong right head ``j``.
        ``right_closure`` and ``right_alpha`` are those of ``T_j``; ``F``, ``beta`` and ``rho`` are
        gain inheritance (25); ``right_product_closure`` and ``left_product_closure`` are the
        squared cosines of the product with ``T_i`` and with ``T_j``; ``residual`` is bounded by
        ``bound``, which is ``gamma`` times ``own_residual`` (20). The columns ``control_*`` have in
        place of ``i`` the head ``control_head``, of the same query slot in the next value group.
        Empty for MHA; no control (NaN, head -1) where there is one group.

        ``siblings``: ``band_residual`` is ``|P_i P_j - P_i|^2 / |P_i|^2`` of ``P = T / alpha`` with
        ``i`` the left head, and ``band_residual_reverse`` the same with the two exchanged;
        ``squared_cosine`` is that between them, angles are in radians.

        ``anchors``: squared cosine with ``P_V``, shares of ``|T|^2`` in the oblique part and
        outside of the algebra, and the rank of the trained ``V`` among the ``n_candidates`` value
        factors of the layer by that cosine, with ``best_other_cosine`` the highest of the others.

        ``attrs`` of each hold the model's identity, the threshold, and a remark on the topology.

    Examples
    --------
    >>> import scaled_idempotence as si
    >>> result = si.sharing(si.open_model("smollm2-135m"), progress=False)
    >>> len(result.pairs), round(float(result.pairs.rho.median()), 3)
    (26, 0.949)
    """
    tables = EXPERIMENT.run(
        model,
        {"threshold": threshold},
        plan=lambda: Plan.by_layer(model, remark=REMARKS[model.topology]),
        **options,
    )
    return Sharing(**{field: tables[name] for name, field in TABLES.items()})


def _layer_tables(layer: LayerFactors, threshold: float) -> dict[str, pd.DataFrame]:
    part = sharing_layer(layer, threshold)
    return {name: getattr(part, field) for name, field in TABLES.items()}


def sharing_layer(layer: LayerFactors, threshold: float = STRONG) -> Sharing:
    """Measure one layer.

    Parameters
    ----------
    layer : LayerFactors
    threshold : float

    Returns
    -------
    Sharing
        The tables of `sharing`, without ``attrs``.
    """
    heads = _Heads.of(layer)
    strong = heads.scores.closure >= threshold  # never true of NaN
    return Sharing(
        pairs=_pairs(layer.index, heads, strong),
        siblings=_siblings(layer.index, heads, strong),
        anchors=_anchors(layer, heads, strong),
    )


def product_tables(layer: LayerFactors) -> pd.DataFrame:
    """Multiplication tables of a layer's value groups, as squared cosines: for pictures.

    Parameters
    ----------
    layer : LayerFactors

    Returns
    -------
    DataFrame
        A row for each ordered pair of a group, ``left_head == right_head`` included, where both
        closures are ``P(T)``: columns ``layer``, ``value_head``, ``left_head``, ``right_head``,
        ``right_product_closure``, ``left_product_closure`` and ``reason``. Pivot by the two heads
        for a matrix. For MHA each group is one head.
    """
    heads = _Heads.of(layer)
    table = sibling_scores(heads.O, layer.V)
    everywhere = torch.ones(table.status.shape, dtype=torch.bool)
    group, left, right = everywhere.nonzero(as_tuple=True)
    return pd.DataFrame(
        {
            "layer": layer.index,
            "value_head": group.numpy(),
            "left_head": heads.number(group, left),
            "right_head": heads.number(group, right),
            "right_product_closure": table.right_product_closure.flatten().numpy(),
            "left_product_closure": table.left_product_closure.flatten().numpy(),
            "reason": [ACTION_REASONS[code] for code in table.status.flatten().tolist()],
        }
    )


def sharing_sweep(result: Sharing, thresholds: tuple[float, ...] = THRESHOLDS) -> pd.DataFrame:
    """Summarise gain inheritance and retrieval at several closure thresholds.

    Parameters
    ----------
    result : Sharing
        Computed with a threshold no higher than the lowest of `thresholds`.
    thresholds : tuple of float

    Returns
    -------
    DataFrame
        A row a threshold: ``strong`` heads of the model, ``right_heads`` with siblings, ``pairs``,
        the medians over pairs of ``F``, ``rho``, ``control_F``, ``control_rho``,
        ``left_product_closure``, ``bound_ratio`` (residual / bound), those over heads of
        ``anchor_cosine`` and ``oblique_energy``, and ``retrieved_first``, the share of heads whose
        trained ``V`` ranks first. Medians of nothing are NaN.

    Raises
    ------
    ValueError
        If pairs below a threshold were not computed.
    """
    computed = result.pairs.attrs["threshold"]
    if min(thresholds) < computed:
        raise ValueError(
            f"the sweep starts at {min(thresholds)}, but pairs were computed from {computed} up; "
            f"call sharing(model, threshold={min(thresholds)})"
        )
    rows = []
    for threshold in thresholds:
        pairs = result.pairs[result.pairs.right_closure >= threshold]
        heads = result.anchors[result.anchors.closure >= threshold]
        ranks = heads.retrieval_rank.dropna()
        rows.append(
            {
                "threshold": threshold,
                "strong": len(heads),
                "right_heads": len(pairs[["layer", "right_head"]].drop_duplicates()),
                "pairs": len(pairs),
                "F": pairs.F.median(),
                "rho": pairs.rho.median(),
                "control_F": pairs.control_F.median(),
                "control_rho": pairs.control_rho.median(),
                "left_product_closure": pairs.left_product_closure.median(),
                "bound_ratio": (pairs.residual / pairs.bound).median(),
                "anchor_cosine": heads.anchor_cosine.median(),
                "oblique_energy": heads.oblique_energy.median(),
                "retrieved_first": (ranks == 1).mean() if len(ranks) else np.nan,
            }
        )
    return pd.DataFrame(rows)


class _Heads(NamedTuple):
    """Heads of a layer by value group and query slot."""

    O: Tensor  # [G, S, d, r]
    V: Tensor  # [G, d, r]
    scores: ClosureScores  # [G, S]

    @classmethod
    def of(cls, layer: LayerFactors) -> _Heads:
        G = layer.V.shape[0]
        # value_head_index lays groups out one after another, so query slots are a reshape away.
        O = layer.O.unflatten(0, (G, -1))
        return cls(O, layer.V, closure_scores(O, layer.V[:, None]))

    def number(self, group: Tensor, slot: Tensor) -> np.ndarray:
        """Numbers of query heads in the layer."""
        return (group * self.O.shape[1] + slot).numpy()


def _take(table: ActionScores, *index: Tensor) -> ActionScores:
    return ActionScores(*(field[index] for field in table))


def _pairs(layer: int, heads: _Heads, strong: Tensor) -> pd.DataFrame:
    O, V, scores = heads
    G, S = strong.shape
    siblings = strong[:, None, :] & ~torch.eye(S, dtype=torch.bool)  # [G, i, j]
    group, left, right = siblings.nonzero(as_tuple=True)
    # Few groups hold a strong head: only theirs are the tables worth making.
    used, at = group.unique(return_inverse=True)
    table = sibling_scores(O[used], V[used])
    products, own = _take(table, at, left, right), _take(table, at, right, right)
    control = _take(next_group_scores(O, V), group, left, right) if len(group) else products
    gamma = domination(O[group, left], O[group, right])
    control_head = heads.number((group + 1) % G, left)
    return pd.DataFrame(
        {
            "layer": np.full(len(group), layer),
            "left_head": heads.number(group, left),
            "right_head": heads.number(group, right),
            "value_head": group.numpy(),
            "left_closure": scores.closure[group, left].numpy(),
            "right_closure": scores.closure[group, right].numpy(),
            "right_alpha": scores.alpha[group, right].numpy(),
            "F": products.F.numpy(),
            "beta": products.beta.numpy(),
            "rho": products.rho.numpy(),
            "right_product_closure": products.right_product_closure.numpy(),
            "left_product_closure": products.left_product_closure.numpy(),
            "control_head": control_head if G > 1 else np.full(len(group), -1),
            "control_F": control.F.numpy(),
            "control_beta": control.beta.numpy(),
            "control_rho": control.rho.numpy(),
            "control_right_product_closure": control.right_product_closure.numpy(),
            "control_left_product_closure": control.left_product_closure.numpy(),
            "gamma": gamma.numpy(),
            "own_residual": own.residual.numpy(),
            "bound": inheritance_bound(gamma, own.residual).numpy(),
            "residual": products.residual.numpy(),
            "reason": [ACTION_REASONS[code] for code in products.status.tolist()],
            "control_reason": [ACTION_REASONS[code] for code in control.status.tolist()],
        }
    ).astype({"reason": "str", "control_reason": "str"})


def _siblings(layer: int, heads: _Heads, strong: Tensor) -> pd.DataFrame:
    O, V, scores = heads
    both = torch.triu(strong[:, :, None] & strong[:, None, :], diagonal=1)
    group, left, right = both.nonzero(as_tuple=True)
    used, at = group.unique(return_inverse=True)
    band = sibling_scores(O[used], V[used]).band_residual
    two = (O[group, left], O[group, right], V[group])
    ranges, kernels = range_angles(*two), kernel_angles(*two)
    return pd.DataFrame(
        {
            "layer": np.full(len(group), layer),
            "left_head": heads.number(group, left),
            "right_head": heads.number(group, right),
            "value_head": group.numpy(),
            "left_closure": scores.closure[group, left].numpy(),
            "right_closure": scores.closure[group, right].numpy(),
            "band_residual": band[at, left, right].numpy(),
            "band_residual_reverse": band[at, right, left].numpy(),
            "squared_cosine": sibling_cosines(O[used], V[used])[at, left, right].numpy(),
            "kernel_angle_max": _largest(kernels),
            "range_angle_min": ranges[:, 0].numpy(),
            "range_angle_median": np.nanmedian(ranges.numpy(), axis=-1),
            "range_angle_max": _largest(ranges),
        }
    )


def _anchors(layer: LayerFactors, heads: _Heads, strong: Tensor) -> pd.DataFrame:
    scores = ClosureScores(*(field.flatten() for field in heads.scores))
    anchors = anchor_scores(layer.O, layer.V, layer.value_head, scores)
    H, G = anchors.retrieval.shape
    others = anchors.retrieval.nan_to_num(-1.0)
    others[torch.arange(H), layer.value_head] = -1.0
    best_other = others.amax(1)
    return pd.DataFrame(
        {
            "layer": layer.index,
            "head": np.arange(H),
            "value_head": layer.value_head.numpy(),
            "closure": scores.closure.numpy(),
            "alpha": scores.alpha.numpy(),
            "strong": strong.flatten().numpy(),
            "anchor_cosine": anchors.anchor_cosine.numpy(),
            "oblique_energy": anchors.oblique_energy.numpy(),
            "remainder_energy": anchors.remainder_energy.numpy(),
            "retrieval_rank": anchors.retrieval_rank.numpy(),
            "n_candidates": G,
            "best_other_cosine": best_other.masked_fill(best_other < 0, torch.nan).numpy(),
            "reason": [ANCHOR_REASONS[code] for code in anchors.status.tolist()],
        }
    )


def _largest(angles: Tensor) -> np.ndarray:
    """Largest of ascending angles that end in NaN for what the ranks do not allow."""
    return angles.nan_to_num(-1.0).amax(-1).numpy()


EXPERIMENT = Experiment(__name__, _layer_tables, tuple(TABLES))
