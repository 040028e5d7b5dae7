"""Figures of value sharing: products of siblings, and anchors."""

from __future__ import annotations

from collections.abc import Set

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from ..paper import STRONG
from .drawing import diagonal, guide, heading, legend, log_square, mark_heads, strip
from .style import CONTROL, REFERENCE, TRAINED, UNIT, subplots


def multiplication_tables(products: pd.DataFrame, strong: Set[int] = frozenset()) -> Figure:
    """Draw a layer's products ``T_i T_j`` as tables: against the left and against the right factor.

    Parameters
    ----------
    products : DataFrame
        One layer, from `scaled_idempotence.experiments.sharing.product_tables`.
    strong : set of int
        Heads to mark on the axes.

    Returns
    -------
    Figure
        A row a value group: left, squared cosine with the left factor (the law); right, with the
        right factor (no law).
    """
    groups = products.value_head.unique()
    S = products[products.value_head == groups[0]].left_head.nunique()
    side = float(np.clip(0.5 * S, 2.4, 5.0))
    figure, grid = subplots(
        len(groups), 2, figsize=(2 * side + 2.5, side * len(groups)), squeeze=False
    )
    sides = (("right_product_closure", "with $T_i$"), ("left_product_closure", "with $T_j$"))
    for row, group in zip(grid, groups, strict=True):
        part = products[products.value_head == group]
        for axes, (column, title) in zip(row, sides, strict=True):
            matrix = part.pivot(index="left_head", columns="right_head", values=column)
            sns.heatmap(
                matrix, ax=axes, vmin=0, vmax=1, cmap="viridis", square=True, cbar=False,
                annot=S <= 8, fmt=".2f", annot_kws={"fontsize": "small"},
            )  # fmt: skip
            labels = [f"{head}*" if head in strong else str(head) for head in matrix.index]
            axes.set_xticklabels(labels if S <= 16 else [])
            axes.set_yticklabels(labels if S <= 16 else [], rotation=0)
            axes.set(xlabel="right head $j$", ylabel="left head $i$")
            heading(axes, f"value head {group}: {title}")
    figure.colorbar(
        grid[0, 0].collections[0], ax=grid, label="squared cosine of $T_i T_j$", shrink=0.7
    )
    return figure


def gain_inheritance(pairs: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """Draw gain inheritance of every pair with its control, beside the paper's medians.

    Parameters
    ----------
    pairs : DataFrame
        From `scaled_idempotence.sharing`.
    paper : DataFrame
        `scaled_idempotence.paper.SHARING`.

    Returns
    -------
    Figure
        Left, the ratio ``rho``; right, the squared cosine of the product with its left factor.
    """
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 3.8))
    rows = [("siblings", "", TRAINED)]
    if pairs.control_rho.notna().any():
        rows.append(("next value group", "control_", CONTROL))
    for axes, column in ((left, "rho"), (right, "right_product_closure")):
        for height, (_, kind, color) in enumerate(rows):
            values = pairs.loc[:, kind + column]
            strip(axes, values, height, color, spread=0.18, bar=0.3, alpha=0.6)
        axes.set_yticks(range(len(rows)), [label for label, *_ in rows])
        axes.invert_yaxis()
    for height, (_, kind, _) in enumerate(rows):
        ticks = paper[kind + "rho"]
        left.plot(ticks, [height + 0.38] * len(ticks), "|", color=REFERENCE, ms=8)
    guide(left, x=1)
    left.set(xlabel=r"$\rho_{ij} = \beta_{ij} / \alpha_j$ (ticks: the paper's models)")
    right.set(xlabel="squared cosine of $T_i T_j$ with $T_i$", xlim=UNIT)
    return figure


def bound_against_residual(pairs: pd.DataFrame) -> Figure:
    """Draw the observed residual of every pair against its bound (20).

    Parameters
    ----------
    pairs : DataFrame
        From `scaled_idempotence.sharing`.

    Returns
    -------
    Figure
        A mark a pair; the bound rules the shaded part out.
    """
    figure, axes = subplots(figsize=(5.4, 4.2))
    finite = pairs.loc[np.isfinite(pairs.bound)]
    axes.plot(finite.bound, finite.residual, "o", color=TRAINED, ms=5, alpha=0.7)
    ends = log_square(axes, finite.filter(["bound", "residual"]), 1.5)
    axes.fill_between(ends, ends, ends[1], color=REFERENCE, alpha=0.12, linewidth=0)
    axes.set_xlabel(r"bound $\gamma_{ij}\,\|T_j^2 - \alpha_j T_j\|^2$")
    axes.set_ylabel(r"$\|T_i T_j - \alpha_j T_i\|^2$")
    return figure


def anchors(table: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw every head's shares in the anchor and in the free oblique part, and its retrieval.

    Parameters
    ----------
    table : DataFrame
        ``anchors`` of `scaled_idempotence.sharing`.
    threshold : float
        Closure from which a head is drawn as strong.

    Returns
    -------
    Figure
        Left, the two shares (what is missing to 1 is outside of the algebra); right, squared
        cosine with the trained anchor against the best other one of the layer.
    """
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 4.2))
    strong = table.closure >= threshold
    mark_heads(left, table, strong, "anchor_cosine", "oblique_energy", ms=4.5)
    mark_heads(right, table, strong, "best_other_cosine", "anchor_cosine", ms=4.5)
    diagonal(left, (0, 1), (1, 0))
    left.set(xlim=UNIT, ylim=UNIT, xlabel="anchor: squared cosine with $P_V$")
    left.set_ylabel(r"free oblique part, share of $\|T\|^2$")
    legend(left, 2)
    if table.best_other_cosine.notna().any():
        lowest = table[["best_other_cosine", "anchor_cosine"]].min(axis=None)
        diagonal(right, (max(lowest, 1e-9), 1))
        right.set(xscale="log", yscale="log", xlabel="best of the layer's other anchors")
        right.set_ylabel("anchor of the trained $V$")
    else:
        right.set_axis_off()
        right.text(0.5, 0.5, "one value head: nothing to retrieve from", ha="center")
    return figure
