"""What all figures share: the theme, the colours, and figures that belong to the caller."""

from __future__ import annotations

import matplotlib.pyplot as plt
import seaborn as sns

# Okabe and Ito's colours: told apart by readers with any colour vision, and in grey.
TRAINED = "#0072B2"
CONTROL = "#D55E00"
THIRD = "#009E73"
FOURTH = "#CC79A7"
REFERENCE = "#444444"
#: Limits of an axis of closure, or of a share: marks at 0 and 1 are seen whole.
UNIT = (-0.02, 1.02)


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
