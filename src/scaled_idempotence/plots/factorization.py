"""Figures of factorization: core, support and their pairing."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..paper import STRONG
from .drawing import guide, heading, key, layer_axis, legend, square
from .style import CONTROL, REFERENCE, TRAINED, subplots


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
            heading(axes, f"{label}: {name}")
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
        A row a head, in descending order.
    closure : (n,) ndarray
    random_overlap : float
        ``r / d``; its root is the rms cosine of random subspaces.
    threshold : float
        Closure from which a head is drawn as strong.

    Returns
    -------
    Figure
        A line a head; dotted, the rms of random subspaces.
    """
    figure, axes = subplots(figsize=(7.5, 3.8))
    order = np.arange(1, cosines.shape[1] + 1)
    strong = closure >= threshold
    axes.plot(order, cosines[~strong].T, color=TRAINED, alpha=0.12, linewidth=0.8)
    axes.plot(order, cosines[strong].T, color=CONTROL, alpha=0.8, linewidth=1.1)
    handles = [
        key("ordinary heads", TRAINED),
        key("rms of random subspaces", REFERENCE, linestyle=":"),
    ]
    if strong.any():
        handles.insert(0, key("strong heads", CONTROL))
    axes.axhline(np.sqrt(random_overlap), color=REFERENCE, linestyle=":")
    axes.set(xlabel="principal angle, from the smallest", ylabel=r"$\cos\theta$", ylim=(0, 1.02))
    legend(axes, 3, handles=handles)
    return figure


def latent_against_closure(support: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw closure against that of the latent core, coloured by isotropy.

    Parameters
    ----------
    support : DataFrame
        From `scaled_idempotence.support`, with the isotropy of the angles.
    threshold : float
        Closure of a strong head, drawn as a level.

    Returns
    -------
    Figure
        A mark a head; on the diagonal uneven angles change nothing.
    """
    figure, axes = subplots(figsize=(5.8, 4.6))
    points = axes.scatter(
        support.latent_closure, support.closure, c=support.isotropy, cmap="viridis", s=18
    )
    square(axes, aspect="equal")
    guide(axes, y=threshold)
    axes.set(xlabel="closure of the latent core $P_I(K)$", ylabel="closure $P_D(K)$")
    figure.colorbar(points, ax=axes, label="isotropy $I_D$")
    return figure


def response_plane(support: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw what uneven angles do to each head's response: radial, rotation and leakage.

    Parameters
    ----------
    support : DataFrame
        From `scaled_idempotence.support`, with the parts of the response.
    threshold : float
        Closure from which a head is a diamond.

    Returns
    -------
    Figure
        A mark a head, darker with more leakage.
    """
    figure, axes = subplots(figsize=(6.8, 4.4))
    strong = support.closure >= threshold
    shades = {"cmap": "magma_r", "vmin": 0, "vmax": support.leakage.max()}
    edge = {"edgecolors": REFERENCE, "linewidths": 0.3}
    for mask, marker, size, label in ((~strong, "o", 18, "ordinary"), (strong, "D", 34, "strong")):
        part = support[mask]
        if len(part):
            mark = {"marker": marker, "s": size, "label": label} | edge
            points = axes.scatter(part.radial, part.rotation, c=part.leakage, **mark, **shades)
    guide(axes, x=0, y=0)
    axes.set(xlabel="radial $a$", ylabel="rotation $b$ (up: towards closure)")
    legend(axes, 2)
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
        Two marks a layer, on an axis that is linear near zero and logarithmic beyond.
    """
    figure, axes = subplots(figsize=(8.5, 3.6))
    guide(axes, y=0)
    axes.plot(layers.index, layers.interaction, "o", color=TRAINED, label="trained pairs")
    axes.plot(layers.index, layers.control_interaction, "x", color=CONTROL, label="wrong $V$")
    # Most layers lie within a decade or two of each other, the control near zero on either side.
    smallest = layers.interaction.abs().min()
    axes.set_yscale("symlog", linthresh=max(float(smallest), 1e-6))
    axes.set(ylabel="interaction $I_{DK}$ (layer mean)")
    layer_axis(axes)
    legend(axes, 2)
    return figure
