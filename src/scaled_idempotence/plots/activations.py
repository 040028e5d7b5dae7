"""Figures of natural activations."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from ..paper import STRONG
from .drawing import by_strength, guide, key, legend, log_square, mark_heads, square, strip
from .style import CONTROL, TRAINED, UNIT, subplots


def activation_cosines(table: pd.DataFrame, threshold: float = STRONG) -> Figure:
    """Draw what heads do to their own outputs against what their weights promise.

    Parameters
    ----------
    table : DataFrame
        From `scaled_idempotence.activations`.
    threshold : float
        Closure of a strong head, drawn as a level.

    Returns
    -------
    Figure
        Left, each head's median over tokens with its middle half against closure; right, groups of
        heads with the wrong-V control. Where nothing was measured, the left panel alone, for
        Gaussian inputs.
    """
    measured = bool(table.attrs.get("measured", table.cos2_median.notna().any()))
    figure, axes = subplots(1, 2 if measured else 1, figsize=(10.5 if measured else 5.6, 4.2))
    left = axes[0] if measured else axes
    column = "cos2_median" if measured else "isotropic_cos2_median"
    for part, style in by_strength(table, table.strong):
        if measured:
            span = {"color": style["color"], "alpha": 0.3, "lw": 1}
            left.vlines(part.closure, part.cos2_q25, part.cos2_q75, **span)
        left.plot(part.closure, part[column], **style)
    square(left)
    guide(left, x=threshold)
    left.set(
        xlabel="closure $P(T)$, from the weights",
        ylabel=r"squared cosine of $y$ and $T y$" + ("" if measured else ", Gaussian input"),
    )
    legend(left, 2)
    if measured:
        _groups(axes[1], table)
    return figure


def _groups(axes, table: pd.DataFrame) -> None:
    groups = {
        "strong": table.loc[table.strong],
        "top decile": table.loc[table.group == "high"],
        "bottom decile": table.loc[table.group == "low"],
        "low, same layers": table.loc[table.matched_low],
    }
    groups = {name: part for name, part in groups.items() if len(part)}
    for row, part in enumerate(groups.values()):
        for column, color, marker, shift in (
            ("cos2_median", TRAINED, "o", -0.16),
            ("wrong_v_cos2_median", CONTROL, "x", 0.16),
        ):
            values = part[column].dropna().sort_values()
            strip(axes, values, row + shift, color, marker, spread=0.1, bar=0.14, alpha=0.6)
    handles = [key("trained pair", TRAINED, "o")]
    if table.wrong_v_cos2_median.notna().any():
        handles.append(key("wrong $V$", CONTROL, "x"))
    axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.set(xlabel="median squared cosine over tokens, by head", xlim=UNIT)
    legend(axes, 2, handles=handles)


def activation_gain(table: pd.DataFrame) -> Figure:
    """Draw the gain on natural outputs against the return gain of the weights.

    Parameters
    ----------
    table : DataFrame
        From `scaled_idempotence.activations`, measured.

    Returns
    -------
    Figure
        A mark a head, on logarithmic axes.
    """
    figure, axes = subplots(figsize=(5.4, 4.4))
    mark_heads(axes, table, table.strong, "return_gain", "rms_gain")
    log_square(axes, table.filter(["return_gain", "rms_gain"]), 1.3)
    axes.set(
        xlabel="return gain $g_T$, from the weights", ylabel="RMS gain $g_y$ on natural outputs"
    )
    legend(axes, 2)
    return figure
