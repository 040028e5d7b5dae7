"""Figures of the chapters on weights: closure, geometry, orientation, capacity, sharing."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy import stats

from ..experiments.survey import STRONG, THRESHOLDS, sweep
from .style import CONTROL, REFERENCE, TRAINED, by_strength, subplots


def closure_map(heads: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw the layer x head map of closure; strong heads are framed.

    Parameters
    ----------
    heads : DataFrame
        From `survey`.
    threshold : float
        Closure from which a head counts as strong.

    Returns
    -------
    Figure
    """
    grid = heads.pivot(index="head", columns="layer", values="closure")
    n_heads, n_layers = grid.shape
    width = float(np.clip(0.28 * n_layers + 2.0, 5.0, 13.0))
    height = float(np.clip(0.28 * n_heads + 1.2, 2.2, 9.0))
    figure, axes = subplots(figsize=(width, height))
    sns.heatmap(
        grid,
        ax=axes,
        vmin=0,
        vmax=1,
        cmap="viridis",
        linewidths=0.4 if grid.size <= 2000 else 0,
        cbar_kws={"label": "closure $P(T)$", "pad": 0.02},
        xticklabels=max(1, n_layers // 15),
        yticklabels=max(1, n_heads // 16),
    )
    for head, layer in zip(*np.nonzero(grid.to_numpy() >= threshold), strict=True):
        axes.add_patch(
            plt.Rectangle((layer, head), 1, 1, fill=False, edgecolor=CONTROL, linewidth=2, zorder=3)
        )
    axes.set(xlabel="layer", ylabel="query head")
    axes.tick_params(axis="y", rotation=0)
    axes.set_title(
        f"{heads.attrs.get('model', 'model')}: framed heads have $P \\geq {threshold:g}$",
        fontsize="medium",
        loc="left",
    )
    return figure


def closure_distribution(heads: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw the distribution of closure beside that of the wrong-V control.

    Parameters
    ----------
    heads : DataFrame
        From `survey`.
    threshold : float

    Returns
    -------
    Figure
        Left, empirical distributions on a logarithmic axis; right, closure sorted by rank.
    """
    trained = heads.closure.dropna()
    control = heads.wrong_v_closure.dropna()
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 3.8))
    sns.ecdfplot(x=trained, ax=left, color=TRAINED, label="trained pair $O_h V_{g(h)}^T$")
    if len(control):
        sns.ecdfplot(
            x=control, ax=left, color=CONTROL, linestyle="--", label="wrong $V$ of the same layer"
        )
    left.set_xscale("log")
    left.set(xlabel="closure $P$", ylabel="share of heads at or below")
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    for values, color, marker in ((trained, TRAINED, "o"), (control, CONTROL, "x")):
        ordered = np.sort(values)[::-1]
        rank = (np.arange(len(ordered)) + 0.5) / max(1, len(ordered))
        right.plot(rank, ordered, marker, color=color, markersize=3)
    right.axhline(threshold, color=REFERENCE, linewidth=1, linestyle=":")
    right.annotate(
        f"strong: $P \\geq {threshold:g}$",
        (1.0, threshold),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        color=REFERENCE,
    )
    right.set(xlabel="heads, sorted by closure", ylabel="closure $P$", ylim=(-0.02, 1.02))
    right.xaxis.set_major_formatter(PercentFormatter(1.0))
    left.legend(loc="upper left", frameon=False)
    return figure


def threshold_sweep(
    heads: pd.DataFrame, thresholds: tuple[float, ...] = THRESHOLDS, reference: float | None = None
) -> Figure:
    """Draw the share of heads, and of wrong-V pairings, at or above each threshold.

    Parameters
    ----------
    heads : DataFrame
        From `survey`.
    thresholds : tuple of float
    reference : float, optional
        A share to mark at the strong threshold, such as the paper's.

    Returns
    -------
    Figure
    """
    table = sweep(heads, thresholds)
    figure, axes = subplots(figsize=(6.4, 3.6))
    axes.plot(table.threshold, table.share, "o-", color=TRAINED, label="trained pairs")
    if table.wrong_v.notna().all():
        n_control = heads.wrong_v_closure.notna().sum()
        axes.plot(
            table.threshold, table.wrong_v / n_control, "x--", color=CONTROL, label="wrong $V$"
        )
    if reference is not None:
        axes.plot([STRONG], [reference], "D", color=REFERENCE, label="paper's six models")
    axes.axvline(STRONG, color=REFERENCE, linewidth=1, linestyle=":")
    axes.set(xlabel="threshold on closure $P$", ylabel="share of heads at or above")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return figure


def gain_and_sign(heads: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw closure against return gain, by the sign of alpha, and against the copying score.

    Parameters
    ----------
    heads : DataFrame
        From `survey`.
    threshold : float

    Returns
    -------
    Figure
        Left, return gain relative to the model's median over closure; right, copying score.
    """
    defined = heads[heads.closure.notna()]
    sign = np.where(defined.alpha < 0, "negative", "positive")
    relative = defined.return_gain / defined.return_gain.median()
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 3.8), sharey=True)
    style = {
        "hue": sign,
        "style": sign,
        "hue_order": ["positive", "negative"],
        "style_order": ["positive", "negative"],
        "palette": [TRAINED, CONTROL],
        "s": 28,
        "alpha": 0.8,
        "linewidth": 0,
    }
    sns.scatterplot(x=relative, y=defined.closure, ax=left, legend=True, **style)
    sns.scatterplot(x=defined.copying_score, y=defined.closure, ax=right, legend=False, **style)
    for axes in (left, right):
        axes.axhline(threshold, color=REFERENCE, linewidth=1, linestyle=":")
    left.set_xscale("log")
    left.set(xlabel="return gain $g_T$ / the model's median", ylabel="closure $P$")
    left.axvline(1, color=REFERENCE, linewidth=1, linestyle=":")
    left.legend(
        title=r"sign of $\alpha$", frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2
    )
    right.set(xlabel=r"copying score $\sum\lambda\,/\,\sum|\lambda|$", xlim=(-1.05, 1.05))
    return figure


def closure_by_layer(heads: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw every head's closure over depth, with the layer medians.

    Parameters
    ----------
    heads : DataFrame
        From `survey`.
    threshold : float

    Returns
    -------
    Figure
    """
    figure, axes = subplots(figsize=(8.5, 3.6))
    strong = heads.closure >= threshold
    axes.plot(heads.layer[~strong], heads.closure[~strong], "o", color=TRAINED, alpha=0.45, ms=4)
    axes.plot(heads.layer[strong], heads.closure[strong], "D", color=CONTROL, ms=5)
    medians = heads.groupby("layer").closure.median()
    axes.plot(medians.index, medians, color=REFERENCE, label="layer median")
    axes.axhline(threshold, color=REFERENCE, linewidth=1, linestyle=":")
    axes.set(xlabel="layer", ylabel="closure $P$", ylim=(-0.02, 1.02))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return figure


def core_anatomy(cores: dict[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw heads as transport core K, support D and response K D K.

    Parameters
    ----------
    cores : dict of str to (K, cosines)
        ``K`` (r, r) and ``cosines`` (r,) of each head, by the row's label.

    Returns
    -------
    Figure
        A row a head. Cores are scaled to unit largest entry, so colours compare shapes.
    """
    figure, grid = subplots(
        len(cores), 3, figsize=(10.5, 3.4 * len(cores)), squeeze=False, sharex=True, sharey=True
    )
    for row, (label, (K, cosines)) in zip(grid, cores.items(), strict=True):
        D = np.diag(cosines)
        for axes, name, matrix in zip(
            row, ("core $K$", "support $D$", "response $K D K$"), (K, D, K @ D @ K), strict=True
        ):
            image = axes.imshow(
                matrix / np.abs(matrix).max(), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="none"
            )
            axes.set_title(f"{label}: {name}", fontsize="small", loc="left")
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    figure.colorbar(image, ax=grid, label="entry / largest entry", shrink=0.7)
    return figure


def principal_angles(
    cosines: np.ndarray, closure: np.ndarray, random_overlap: float, threshold: float = STRONG
) -> Figure:
    """Draw the cosines of the principal angles of every head.

    Parameters
    ----------
    cosines : (n, r) ndarray
    closure : (n,) ndarray
    random_overlap : float
        ``r / d``; its root is the rms cosine of random subspaces.
    threshold : float

    Returns
    -------
    Figure
    """
    figure, axes = subplots(figsize=(7.5, 3.8))
    order = np.arange(1, cosines.shape[1] + 1)
    strong = closure >= threshold
    axes.plot(order, cosines[~strong].T, color=TRAINED, alpha=0.12, linewidth=0.8)
    axes.plot(order, cosines[strong].T, color=CONTROL, alpha=0.8, linewidth=1.1)
    handles = [
        plt.Line2D([], [], color=TRAINED, label="ordinary heads"),
        plt.Line2D([], [], color=REFERENCE, linestyle=":", label="rms of random subspaces"),
    ]
    if strong.any():
        handles.insert(0, plt.Line2D([], [], color=CONTROL, label="strong heads"))
    axes.axhline(np.sqrt(random_overlap), color=REFERENCE, linestyle=":")
    axes.set(xlabel="principal angle, from the smallest", ylabel=r"$\cos\theta$", ylim=(0, 1.02))
    axes.legend(handles=handles, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return figure


def latent_against_closure(support: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw closure against that of the latent core, coloured by isotropy.

    Parameters
    ----------
    support : DataFrame
        From `scaled_idempotence.support`.
    threshold : float

    Returns
    -------
    Figure
    """
    figure, axes = subplots(figsize=(5.8, 4.6))
    points = axes.scatter(
        support.latent_closure, support.closure, c=support.isotropy, cmap="viridis", s=18
    )
    axes.plot([0, 1], [0, 1], color=REFERENCE, linewidth=1, linestyle=":")
    axes.axhline(threshold, color=REFERENCE, linewidth=1, linestyle=":")
    axes.set(
        xlabel="closure of the latent core $P_I(K)$",
        ylabel="closure $P_D(K)$",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
        aspect="equal",
    )
    figure.colorbar(points, ax=axes, label="isotropy $I_D$")
    return figure


def response_plane(support: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw what uneven angles do to each head's response: radial, rotation and leakage.

    Parameters
    ----------
    support : DataFrame
        From `scaled_idempotence.support`.
    threshold : float

    Returns
    -------
    Figure
    """
    figure, axes = subplots(figsize=(6.8, 4.4))
    strong = support.closure >= threshold
    shades = {"cmap": "magma_r", "vmin": 0, "vmax": support.leakage.max()}
    for mask, marker, size, label in ((~strong, "o", 18, "ordinary"), (strong, "D", 34, "strong")):
        part = support[mask]
        if len(part):
            points = axes.scatter(
                part.radial,
                part.rotation,
                c=part.leakage,
                marker=marker,
                s=size,
                edgecolors=REFERENCE,
                linewidths=0.3,
                label=label,
                **shades,
            )
    axes.axhline(0, color=REFERENCE, linewidth=1, linestyle=":")
    axes.axvline(0, color=REFERENCE, linewidth=1, linestyle=":")
    axes.set(xlabel="radial $a$", ylabel="rotation $b$ (up: towards closure)")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    figure.colorbar(points, ax=axes, label="leakage $|w|$")
    return figure


def interaction_by_layer(layers: pd.DataFrame) -> Figure:
    """Draw the factorial interaction of every layer beside its wrong-V control.

    Parameters
    ----------
    layers : DataFrame
        From `scaled_idempotence.experiments.factorial.layer_interactions`.

    Returns
    -------
    Figure
    """
    figure, axes = subplots(figsize=(8.5, 3.6))
    axes.axhline(0, color=REFERENCE, linewidth=1, linestyle=":")
    axes.plot(layers.index, layers.interaction, "o", color=TRAINED, label="trained pairs")
    axes.plot(layers.index, layers.control_interaction, "x", color=CONTROL, label="wrong $V$")
    # Most layers lie within a decade or two of each other, the control near zero on either side.
    smallest = layers.interaction.abs().min()
    axes.set_yscale("symlog", linthresh=max(float(smallest), 1e-6))
    axes.set(xlabel="layer", ylabel="interaction $I_{DK}$ (layer mean)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return figure


def trained_against_scrambled(orientation: pd.DataFrame) -> Figure:
    """Draw closure before and after scrambling: head by head, and by layer.

    Parameters
    ----------
    orientation : DataFrame
        From `scaled_idempotence.orientation`.

    Returns
    -------
    Figure
        Left, a mark a head and kind of scramble on logarithmic axes; right, layer medians.
    """
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 4.2))
    kinds = (
        ("permutation_closure", CONTROL, "x", "signed permutations"),
        ("haar_closure", "#009E73", "+", "Haar rotations"),
    )
    for column, color, marker, label in kinds:
        left.plot(
            orientation[column],
            orientation.closure,
            marker,
            color=color,
            ms=4,
            label=label,
            alpha=0.8,
        )
    values = orientation[["closure", "permutation_closure", "haar_closure"]]
    ends = np.array([values.min(axis=None) / 2, 1.0])
    left.plot(ends, ends, color=REFERENCE, linewidth=1, linestyle=":")
    left.set(xscale="log", yscale="log", xlabel="closure, scrambled", ylabel="closure, trained")
    left.legend(frameon=False, loc="lower right")
    medians = orientation.groupby("layer")[list(values)].median()
    right.plot(medians.index, medians.closure, "o-", color=TRAINED, ms=4, label="trained")
    for column, color, marker, label in kinds:
        right.plot(medians.index, medians[column], marker + "--", color=color, ms=5, label=label)
    right.set(yscale="log", xlabel="layer", ylabel="closure, layer median")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize="small")
    return figure


def closure_against_null(orientation: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw every head's closure against its own closed-form null.

    Parameters
    ----------
    orientation : DataFrame
        From `scaled_idempotence.orientation`.
    threshold : float

    Returns
    -------
    Figure
    """
    figure, axes = subplots(figsize=(6.8, 4.4))
    for part, style in by_strength(orientation, orientation.closure >= threshold):
        axes.plot(part.null, part.closure, **style)
    ends = np.array([orientation.null.min() / 1.2, orientation.null.max() * 1.2])
    axes.plot(ends, ends, color=REFERENCE, label="$P = P_0$")
    axes.plot(
        ends, stats.chi2.isf(0.01, df=1) * ends, "--", color=REFERENCE, label="1% of random turns"
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel=r"null $P_0 = \sum s_i^6 / (\sum s_i^2)^3$",
        ylabel="closure $P$",
    )
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return figure


def null_distribution(ratios: dict[str, np.ndarray]) -> Figure:
    """Draw quantiles of scrambled closure over its null against those of chi-square, 1 d.o.f.

    Parameters
    ----------
    ratios : dict of str to (n,) ndarray
        ``P / P0`` of many Haar scrambles, by head.

    Returns
    -------
    Figure
    """
    figure, axes = subplots(figsize=(5.4, 4.4))
    palette = sns.color_palette("colorblind", len(ratios))
    largest = 0.0
    for color, (label, values) in zip(palette, ratios.items(), strict=True):
        theory = stats.chi2.ppf((np.arange(len(values)) + 0.5) / len(values), df=1)
        axes.plot(theory, np.sort(values), ".", color=color, label=label, ms=4)
        largest = max(largest, theory[-1])
    axes.plot([0, largest], [0, largest], color=REFERENCE, linewidth=1, linestyle=":")
    axes.set(xlabel=r"quantiles of $\chi^2_1$", ylabel="quantiles of $P / P_0$, scrambled")
    axes.legend(frameon=False)
    return figure


def multiplication_tables(products: pd.DataFrame, strong: set[int] = frozenset()) -> Figure:
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


def landscape(paths: dict[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw closure along the path from the trained orientation to the best one found.

    Parameters
    ----------
    paths : dict of str to (t, closure)
        By head; ``t`` is 0 at the trained orientation and 1 at the best one.

    Returns
    -------
    Figure
    """
    figure, axes = subplots(figsize=(7.5, 4.0))
    palette = sns.color_palette("colorblind", len(paths))
    for color, (label, (t, closure)) in zip(palette, paths.items(), strict=True):
        axes.plot(t, closure, color=color, label=label)
        axes.plot(t[[0, -1]], closure[[0, -1]], "o", color=color, ms=5)
    axes.set(
        xlabel="position on the path (0: trained, 1: best found)",
        ylabel="closure $P_D(K)$",
        ylim=(-0.02, 1.02),
    )
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), fontsize="small")
    return figure


def capacity_by_layer(table: pd.DataFrame) -> Figure:
    """Draw closure, capacity and the scrambles of the blind sample over depth.

    Parameters
    ----------
    table : DataFrame
        From `scaled_idempotence.attainment`.

    Returns
    -------
    Figure
        Left, each head's closure joined to its capacity; right, the share attained.
    """
    blind = table[table["sample"] == "hash"].sort_values(["layer", "head"])
    x = blind.layer + 0.3 * (blind.groupby("layer").cumcount() - 0.5)
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 4.0), sharex=True)
    left.vlines(x, blind.closure, blind.capacity, color=REFERENCE, alpha=0.4, linewidth=1)
    left.plot(x, blind.capacity, "^", color="#009E73", ms=5, label="capacity (lower bound)")
    left.plot(x, blind.closure, "o", color=TRAINED, ms=4, label="trained")
    left.plot(x, blind.scramble, "x", color=CONTROL, ms=4, label="median scramble")
    left.set(xlabel="layer", ylabel="closure", ylim=(-0.02, 1.02))
    left.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize="small")
    right.plot(x, blind.attainment, "o", color=TRAINED, ms=4)
    medians = blind.groupby("layer").attainment.median()
    right.plot(medians.index, medians, color=REFERENCE, label="layer median")
    right.axhline(0, color=REFERENCE, linewidth=1, linestyle=":")
    right.set(
        xlabel="layer", ylabel="attainment $E$", ylim=(min(-0.02, blind.attainment.min()), 1.02)
    )
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), fontsize="small")
    return figure


def strong_against_matched(table: pd.DataFrame) -> Figure:
    """Draw closure, capacity and attainment of strong heads and of layer-matched ordinary ones.

    Parameters
    ----------
    table : DataFrame
        From `scaled_idempotence.attainment`.

    Returns
    -------
    Figure
    """
    both = table[table["sample"].isin(["strong", "matched"])]
    long = both.melt(
        id_vars="sample", value_vars=["closure", "capacity", "attainment"], var_name="quantity"
    )
    figure, axes = subplots(figsize=(7.5, 4.0))
    style = {"x": "quantity", "y": "value", "hue": "sample", "hue_order": ["strong", "matched"]}
    palette = [CONTROL, TRAINED]
    sns.boxplot(
        data=long, **style, palette=palette, ax=axes, showfliers=False, fill=False, width=0.7
    )
    sns.stripplot(
        data=long, **style, palette=palette, ax=axes, dodge=True, size=4, alpha=0.7, jitter=False,
        legend=False,
    )  # fmt: skip
    axes.set(xlabel="", ylabel="")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return figure


def simple_constructions(table: pd.DataFrame) -> Figure:
    """Draw what two pairings reach without any search, against the best orientation found.

    Parameters
    ----------
    table : DataFrame
        From `scaled_idempotence.attainment`.

    Returns
    -------
    Figure
    """
    heads = table.drop_duplicates(["layer", "head"])
    figure, axes = subplots(figsize=(5.8, 4.6))
    for column, color, marker, label in (
        ("sorted_pairing", CONTROL, "x", "sorted pairing"),
        ("shifted_pairing", TRAINED, "o", "shifted pairing"),
    ):
        axes.plot(heads[column], heads.capacity, marker, color=color, ms=4, alpha=0.7, label=label)
    axes.plot([0, 1], [0, 1], color=REFERENCE, linewidth=1, linestyle=":")
    axes.set(
        xlabel="closure of the construction",
        ylabel="best found",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
        aspect="equal",
    )
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return figure
