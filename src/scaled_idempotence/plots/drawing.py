"""What figures draw again and again: legends, guides, axes of layers and of rows, and marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from .style import CONTROL, REFERENCE, TRAINED, UNIT


def key(label: str, color: str, marker: str = "", **line) -> Line2D:
    """An entry of a legend that stands for more than one thing drawn: a line, or marks alone."""
    line.setdefault("linestyle", "" if marker else "-")
    return Line2D([], [], label=label, color=color, marker=marker, **line)


def legend(of: Axes | Figure, columns: int = 1, at: str = "", **options) -> None:
    """Put a legend above the axes, where it hides nothing, or into a place that is free."""
    if not at:
        options.setdefault("bbox_to_anchor", (0, 1))
    options.setdefault("loc", at or "lower left")
    of.legend(frameon=False, ncols=columns, **options)


def heading(axes: Axes, text: str) -> None:
    """Name one panel of several."""
    axes.set_title(text, fontsize="small", loc="left")


def guide(axes: Axes, x: float | None = None, y: float | None = None, width: float = 1) -> None:
    """Draw a dotted line across the axes, at a value to compare with."""
    dotted = {"color": REFERENCE, "linewidth": width, "linestyle": ":"}
    if x is not None:
        axes.axvline(x, **dotted)
    if y is not None:
        axes.axhline(y, **dotted)


def diagonal(axes: Axes, x: Sequence[float] = (0, 1), y: Sequence[float] = ()) -> None:
    """Draw the dotted line on which both coordinates are equal, or another one."""
    axes.plot(x, y or x, color=REFERENCE, linewidth=1, linestyle=":")


def square(axes: Axes, ends: Sequence[float] = (), **settings) -> None:
    """Give both axes the same limits, those of closure by default, and draw the diagonal."""
    diagonal(axes, ends or (0, 1))
    axes.set(**settings, xlim=ends or UNIT, ylim=ends or UNIT)


def log_square(axes: Axes, values: pd.DataFrame, margin: float) -> tuple[float, float]:
    """Make both axes logarithmic, with the same limits, a margin around values; return them."""
    ends = values.min(axis=None) / margin, values.max(axis=None) * margin
    square(axes, ends, xscale="log", yscale="log")
    return ends


def level(axes: Axes, text: str, at: tuple[float, float], shift: float = 0, **place) -> None:
    """Draw a horizontal guide, and say just above it what it is."""
    guide(axes, y=at[1])
    offset = {"xytext": (shift, 3), "textcoords": "offset points"}
    axes.annotate(text, at, color=REFERENCE, **offset, **place)


def layer_axis(axes: Axes) -> None:
    """Label the axis of depth, with ticks at whole layers."""
    axes.set_xlabel("layer")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def row_axis(axes: Axes, labels: Sequence[str], above: float = 0.5, below: float = 0.5) -> None:
    """Label rows by name, the first one on top, with some room above and below."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 1 + below, -above)


def median_line(axes: Axes, table: pd.DataFrame, x: str, y: str, **line) -> None:
    """Draw the median of a column over the values of another."""
    middle = table.groupby(x)[y].median()
    axes.plot(middle.index, middle, **line)


def strip(
    axes: Axes, values: pd.Series, height: float, color: str, marker: str = "o", *,
    spread: float = 0.09, bar: float = 0.16, alpha: float = 0.5,
) -> None:  # fmt: skip
    """Draw values on a row with their median; the jitter is the same every time."""
    if not len(values):
        return
    jitter = np.linspace(-spread, spread, len(values))
    axes.plot(values, height + jitter, marker, color=color, ms=4, alpha=alpha)
    axes.plot([values.median()] * 2, [height - bar, height + bar], color=color, linewidth=2.5)


def by_strength(
    table: pd.DataFrame, strong: pd.Series, ms: float = 4
) -> Iterator[tuple[pd.DataFrame, dict]]:
    """Split a table into ordinary and strong heads, each with what `Axes.plot` draws it as.

    Parameters
    ----------
    table : DataFrame
        A row a head.
    strong : Series of bool
    ms : float
        Size of a mark.

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
            yield table.loc[mask], {"color": color, "label": label, "ms": ms, **marks}


def mark_heads(
    axes: Axes, table: pd.DataFrame, strong: pd.Series, x: str, y: str, ms: float = 4
) -> None:
    """Draw a mark a head, one column against another."""
    for part, style in by_strength(table, strong, ms):
        axes.plot(part[x], part[y], **style)


def heads_over_depth(
    axes: Axes, table: pd.DataFrame, threshold: float, x: str, alpha: float, ms: float
) -> None:
    """Draw the closure of every head over depth, the ordinary ones faintly."""
    strong = table.closure >= threshold
    axes.plot(table[x][~strong], table.closure[~strong], "o", color=TRAINED, alpha=alpha, ms=ms)
    axes.plot(table[x][strong], table.closure[strong], "D", color=CONTROL, ms=ms + 1)
