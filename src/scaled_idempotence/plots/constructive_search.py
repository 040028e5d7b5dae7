"""Figures of the constructive search: capacity and attainment."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from .drawing import guide, layer_axis, legend, median_line, square
from .style import CONTROL, REFERENCE, THIRD, TRAINED, UNIT, subplots


def landscape(paths: dict[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw closure along the path from the trained orientation to the best one found.

    Parameters
    ----------
    paths : dict of str to (t, closure)
        By head; ``t`` is 0 at the trained orientation and 1 at the best one.

    Returns
    -------
    Figure
        A line a head, with its ends marked.
    """
    figure, axes = subplots(figsize=(7.5, 4.0))
    palette = sns.color_palette("colorblind", len(paths))
    for color, (label, (t, closure)) in zip(palette, paths.items(), strict=True):
        axes.plot(t, closure, color=color, label=label)
        axes.plot(t[[0, -1]], closure[[0, -1]], "o", color=color, ms=5)
    axes.set(xlabel="position on the path (0: trained, 1: best found)", ylim=UNIT)
    axes.set_ylabel("closure $P_D(K)$")
    legend(axes, fontsize="small")
    return figure


def capacity_by_layer(table: pd.DataFrame) -> Figure:
    """Draw closure, capacity and the scrambles of the blind sample over depth.

    Parameters
    ----------
    table : DataFrame
        From `scaled_idempotence.attainment`; of it the sample ``hash``.

    Returns
    -------
    Figure
        Left, each head's closure joined to its capacity; right, the share attained.
    """
    blind = table.loc[table["sample"] == "hash"].sort_values(["layer", "head"])
    x = blind.layer + 0.3 * (blind.groupby("layer").cumcount() - 0.5)
    figure, (left, right) = subplots(1, 2, figsize=(10.5, 4.0), sharex=True)
    left.vlines(x, blind.closure, blind.capacity, color=REFERENCE, alpha=0.4, linewidth=1)
    left.plot(x, blind.capacity, "^", color=THIRD, ms=5, label="capacity (lower bound)")
    left.plot(x, blind.closure, "o", color=TRAINED, ms=4, label="trained")
    left.plot(x, blind.scramble, "x", color=CONTROL, ms=4, label="median scramble")
    left.set(xlabel="layer", ylabel="closure", ylim=UNIT)
    legend(left, 3, fontsize="small")
    right.plot(x, blind.attainment, "o", color=TRAINED, ms=4)
    median_line(right, blind, "layer", "attainment", color=REFERENCE, label="layer median")
    guide(right, y=0)
    right.set(ylabel="attainment $E$", ylim=(min(UNIT[0], blind.attainment.min()), UNIT[1]))
    layer_axis(right)
    legend(right, fontsize="small")
    return figure


def strong_against_matched(table: pd.DataFrame) -> Figure:
    """Draw closure, capacity and attainment of strong heads and of layer-matched ordinary ones.

    Parameters
    ----------
    table : DataFrame
        From `scaled_idempotence.attainment`; of it the samples ``strong`` and ``matched``.

    Returns
    -------
    Figure
        Boxes from quartile to quartile, and a mark a head.
    """
    both = table[table["sample"].isin(["strong", "matched"])]
    long = both.melt(
        id_vars="sample", value_vars=["closure", "capacity", "attainment"], var_name="quantity"
    )
    figure, axes = subplots(figsize=(7.5, 4.0))
    shared = {"data": long, "ax": axes, "x": "quantity", "y": "value", "hue": "sample"}
    shared |= {"hue_order": ["strong", "matched"], "palette": [CONTROL, TRAINED]}
    sns.boxplot(**shared, showfliers=False, fill=False, width=0.7)
    sns.stripplot(**shared, dodge=True, size=4, alpha=0.7, jitter=False, legend=False)
    axes.set(xlabel="", ylabel="")
    legend(axes, 2)
    return figure


def simple_constructions(table: pd.DataFrame) -> Figure:
    """Draw what two pairings reach without any search, against the best orientation found.

    Parameters
    ----------
    table : DataFrame
        From `scaled_idempotence.attainment`; every head once, whatever samples it is in.

    Returns
    -------
    Figure
        A mark a head and pairing; on the dotted line the search found nothing better.
    """
    heads = table.drop_duplicates(["layer", "head"])
    figure, axes = subplots(figsize=(5.8, 4.6))
    for column, color, marker, label in (
        ("sorted_pairing", CONTROL, "x", "sorted pairing"),
        ("shifted_pairing", TRAINED, "o", "shifted pairing"),
    ):
        axes.plot(heads[column], heads.capacity, marker, color=color, ms=4, alpha=0.7, label=label)
    square(axes, aspect="equal")
    axes.set(xlabel="closure of the construction", ylabel="best found")
    legend(axes, 2)
    return figure
