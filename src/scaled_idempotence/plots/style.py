"""What all figures share: the theme, the colours, and figures that belong to the caller."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.lines import Line2D

# Okabe and Ito's colours: told apart by readers with any colour vision, and in grey.
TRAINED = "#0072B2"
CONTROL = "#D55E00"
REFERENCE = "#444444"


def set_theme() -> None:
    """Set the book's seaborn theme; notebooks call it once."""
    sns.set_theme(
        context="notebook",
        style="ticks",
        rc={
            "axes.spines.top": False,
            "axes.spines.right": False,
            "figure.constrained_layout.use": True,
            "figure.dpi": 110,
            # An opaque page: figures stay readable where a site's theme is dark.
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
        },
    )


def subplots(*args, **kwargs) -> tuple:
    """`plt.subplots` of a figure that belongs to the caller alone.

    Left open, pyplot would keep it in memory and a notebook would show it a second time.
    """
    figure, axes = plt.subplots(*args, **kwargs)
    plt.close(figure)
    return figure, axes


def key(label: str, **line) -> Line2D:
    """An entry of a legend that stands for more than one thing drawn."""
    return Line2D([], [], label=label, **line)


def by_strength(table: pd.DataFrame, strong: pd.Series) -> Iterator[tuple[pd.DataFrame, dict]]:
    """Split a table into ordinary and strong heads, each with what `Axes.plot` draws it as.

    Parameters
    ----------
    table : DataFrame
        A row a head.
    strong : Series of bool

    Yields
    ------
    part : DataFrame
        Not empty; the strong heads last, so that they lie on top.
    style : dict
    """
    for mask, color, marker, label in (
        (~strong, TRAINED, "o", "ordinary heads"),
        (strong, CONTROL, "D", "strong heads"),
    ):
        if mask.any():
            marks = {"linestyle": "", "marker": marker, "alpha": 0.7}
            yield table.loc[mask], {"color": color, "label": label, "ms": 4, **marks}
