"""The figure of the page on cost."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from .style import CONTROL, REFERENCE, TRAINED, subplots


def cost_growth(rows: pd.DataFrame, exponents: pd.DataFrame) -> Figure:
    """Draw how the time of a layer grows, by method.

    Parameters
    ----------
    rows : DataFrame
        Columns ``grows`` (what does), ``size``, ``method`` and ``seconds``.
    exponents : DataFrame
        Columns ``grows``, ``method`` and ``exponent``, for the legend.

    Returns
    -------
    Figure
        A panel a thing that grows, with logarithmic axes.
    """
    styles = {
        "survey": (TRAINED, "o", "survey"),
        "factored": (REFERENCE, "s", "FactoredMatrix"),
        "dense": (CONTROL, "^", "dense"),
    }
    panels = list(dict.fromkeys(rows.grows))
    figure, axes = subplots(
        1, len(panels), figsize=(4.2 * len(panels), 4.6), sharey=True, squeeze=False
    )
    for ax, grows in zip(axes[0], panels, strict=True):
        for method, (color, marker, name) in styles.items():
            part = rows[(rows.grows == grows) & (rows.method == method)]
            slope = exponents[(exponents.grows == grows) & (exponents.method == method)]
            if len(part):
                label = f"{name}: {slope.exponent.item():.2f}"
                ax.plot(part["size"], part.seconds, marker=marker, color=color, label=label)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xticks(sorted(set(rows.loc[rows.grows == grows, "size"])))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
        ax.set_xlabel(grows)
        # Below the panel: inside, it would lie on one curve or another.
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2)}
        ax.legend(title="exponent", fontsize="small", title_fontsize="small", **below)
    axes[0, 0].set_ylabel("seconds a layer")
    return figure
