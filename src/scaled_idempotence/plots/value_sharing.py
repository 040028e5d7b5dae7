"""Figures of value sharing: products of siblings, and anchors."""

from __future__ import annotations

from collections.abc import Set

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from ..paper import STRONG
from .style import CONTROL, REFERENCE, TRAINED, by_strength, subplots


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
    sides = (
        ("right_product_closure", "with $T_i$"),
        ("left_product_closure", "with $T_j$"),
    )
    for row, group in zip(grid, groups, strict=True):
        part = products[products.value_head == group]
        for axes, (column, title) in zip(row, sides, strict=True):
            matrix = part.pivot(index="left_head", columns="right_head", values=column)
            sns.heatmap(
                matrix,
                ax=axes,
                vmin=0,
                vmax=1,
                cmap="viridis",
                square=True,
                cbar=False,
                annot=S <= 8,
                fmt=".2f",
                annot_kws={"fontsize": "small"},
            )
            labels = [f"{head}*" if head in strong else str(head) for head in matrix.index]
            axes.set_xticklabels(labels if S <= 16 else [])
            axes.set_yticklabels(labels if S <= 16 else [], rotation=0)
            axes.set(xlabel="right head $j$", ylabel="left head $i$")
            axes.set_title(f"value head {group}: {title}", fontsize="small", loc="left")
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
    rows = [("siblings", pairs.rho, TRAINED)]
    if pairs.control_rho.notna().any():
        rows.append(("next value group", pairs.control_rho, CONTROL))
    for axes, prefix in ((left, "rho"), (right, "right_product_closure")):
        for height, (_, _, color) in enumerate(rows):
            column = prefix if height == 0 else f"control_{prefix}"
            values = pairs[column]
            # Deterministic jitter: the same figure every time.
            spread = np.linspace(-0.18, 0.18, len(values))
            axes.plot(values, height + spread, "o", color=color, ms=4, alpha=0.6)
            axes.plot(
                [values.median()] * 2, [height - 0.3, height + 0.3], color=color, linewidth=2.5
            )
        axes.set_yticks(range(len(rows)), [label for label, *_ in rows])
        axes.invert_yaxis()
    for column, height in (("rho", 0), ("control_rho", 1))[: len(rows)]:
        left.plot(paper[column], [height + 0.38] * len(paper), "|", color=REFERENCE, ms=8)
    left.axvline(1, color=REFERENCE, linewidth=1, linestyle=":")
    left.set(xlabel=r"$\rho_{ij} = \beta_{ij} / \alpha_j$ (ticks: the paper's models)")
    right.set(xlabel="squared cosine of $T_i T_j$ with $T_i$", xlim=(-0.02, 1.02))
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
    """
    figure, axes = subplots(figsize=(5.4, 4.2))
    finite = pairs[np.isfinite(pairs.bound)]
    axes.plot(finite.bound, finite.residual, "o", color=TRAINED, ms=5, alpha=0.7)
    values = finite[["bound", "residual"]]
    ends = np.array([values.min(axis=None) / 1.5, values.max(axis=None) * 1.5])
    axes.fill_between(ends, ends, ends[1], color=REFERENCE, alpha=0.12, linewidth=0)
    axes.plot(ends, ends, color=REFERENCE, linewidth=1, linestyle=":")
    axes.set(
        xscale="log",
        yscale="log",
        xlim=ends,
        ylim=ends,
        xlabel=r"bound $\gamma_{ij}\,\|T_j^2 - \alpha_j T_j\|^2$",
        ylabel=r"$\|T_i T_j - \alpha_j T_i\|^2$",
    )
    return figure


def anchors(table: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw every head's shares in the anchor and in the free oblique part, and its retrieval.

    Parameters
    ----------
    table : DataFrame
        ``anchors`` of `scaled_idempotence.sharing`.
    threshold : float

    Returns
    -------
    Figure
        Left, the two shares (what is missing to 1 is outside of the algebra); right, squared
        cosine with the trained anchor against the best other one of the layer.
    """
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 4.2))
    for part, style in by_strength(table, table.closure >= threshold):
        left.plot(part.anchor_cosine, part.oblique_energy, **style | {"ms": 4.5})
        right.plot(part.best_other_cosine, part.anchor_cosine, **style | {"ms": 4.5})
    left.plot([0, 1], [1, 0], color=REFERENCE, linewidth=1, linestyle=":")
    left.set(
        xlabel="anchor: squared cosine with $P_V$",
        ylabel=r"free oblique part, share of $\|T\|^2$",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
    )
    left.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    if table.best_other_cosine.notna().any():
        values = table[["best_other_cosine", "anchor_cosine"]]
        ends = np.array([max(values.min(axis=None), 1e-9), 1.0])
        right.plot(ends, ends, color=REFERENCE, linewidth=1, linestyle=":")
        right.set(
            xscale="log",
            yscale="log",
            xlabel="best of the layer's other anchors",
            ylabel="anchor of the trained $V$",
        )
    else:
        right.set_axis_off()
        right.text(0.5, 0.5, "one value head: nothing to retrieve from", ha="center")
    return figure
