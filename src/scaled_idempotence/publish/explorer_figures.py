"""The figures of the head explorer in Bokeh, and the sources of numbers behind them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .explorer_data import COMPARED, FACTS


def sources(label: str, facts: pd.DataFrame, n_matrices: int):
    from bokeh import models

    strongest = facts.dropna(subset="closure").nlargest(n_matrices, "closure").index
    matrix = np.full(len(facts), -1, dtype=np.int32)
    matrix[strongest] = np.arange(len(strongest))
    rank = facts.closure.rank(ascending=False, method="first").fillna(0).astype(np.int32)
    columns = {
        "layer": facts.layer.to_numpy(np.int32),
        "head": facts["head"].to_numpy(np.int32),
        "matrix": matrix,
        "rank": rank.to_numpy(),
    } | {name: facts[name].to_numpy(np.float32) for name in FACTS}
    heads = models.ColumnDataSource(columns, name=label)
    block, r = facts.attrs["block"], facts.attrs["d_head"]
    chosen = facts.loc[strongest]

    def stacked(name: str, width: int) -> np.ndarray:
        rows = [np.asarray(row, dtype=np.float32) for row in chosen[name]]
        return np.stack(rows) if rows else np.empty((0, width), np.float32)

    matrices = models.ColumnDataSource(
        {
            "core": np.rint(127 * stacked("core", block**2)).astype(np.int8),
            "response": np.rint(127 * stacked("response", block**2)).astype(np.int8),
            "cosines": np.rint(255 * stacked("cosines", r)).astype(np.uint8),
        }
    )
    return heads, matrices


def empty_figures() -> dict:
    """Empty figures with their sources, by the places they take in the page."""
    from bokeh import models

    from ..plots.style import CONTROL, REFERENCE, TRAINED, UNIT

    angles = models.ColumnDataSource({"direction": [], "cosine": []})
    angle_plot = _figure(
        height=210, y_range=(0, 1.02), x_range=(0, 1),
        x_axis_label="principal direction, from the best aligned", y_axis_label="cos θ",
    )  # fmt: skip
    angle_plot.line("direction", "cosine", source=angles, color=TRAINED, line_width=2)
    level = angle_plot.line([0, 10_000], [0, 0], color=REFERENCE, line_dash="dotted", line_width=2)

    names = list(COMPARED.values())
    colours = {"capacity": REFERENCE, "closure": TRAINED, "latent_closure": TRAINED}
    context = models.ColumnDataSource(
        {
            "what": names,
            "closure": [np.nan] * len(names),
            "color": [colours.get(column, CONTROL) for column in COMPARED],
        }
    )
    context_plot = _figure(
        height=210, x_range=UNIT,
        y_range=models.FactorRange(factors=names[::-1]), x_axis_label="closure",
    )  # fmt: skip
    bar = {"height": 0.08, "alpha": 0.6, "color": "color", "source": context}
    context_plot.hbar("what", right="closure", left=0, **bar)
    context_plot.scatter("closure", "what", source=context, color="color", size=9)

    map_plot, cells, chosen = _map()
    map_plot.tags = [chosen, level.data_source]
    made = {
        "map": (map_plot, cells),
        "angles": (angle_plot, angles),
        "context": (context_plot, context),
    }
    # Blue to red by way of white, as in the book's figures of cores.
    diverging = models.LinearColorMapper(palette=_diverging(), low=-1, high=1)
    for name, title in (("core", "core K"), ("support", "support D"), ("response", "response KDK")):
        blank = np.zeros((1, 1), np.float32)
        image = models.ColumnDataSource(
            {"image": [blank], "x": [0], "y": [0], "dw": [1], "dh": [1]}
        )
        plot = _figure(
            title=title, x_range=(0, 1), y_range=(1, 0),
            match_aspect=True, aspect_ratio=1,
        )  # fmt: skip
        plot.image(
            "image", x="x", y="y", dw="dw", dh="dh", source=image,
            # Bokeh documents the argument, and its stub lacks it.
            color_mapper=diverging,  # pyright: ignore[reportCallIssue]
        )  # fmt: skip
        made[name] = (plot, image)
    for plot, _ in made.values():
        plot.background_fill_color = plot.border_fill_color = "white"
        plot.grid.visible = False
        plot.outline_line_color = "#888888"
    return made


def _figure(**options):
    from bokeh.plotting import figure

    width = {"sizing_mode": "stretch_width", "min_width": 100}
    return figure(tools="", toolbar_location=None, **width, **options)


def _map():
    """The map of all heads, with its cells, and the chosen one of them."""
    from bokeh import models
    from bokeh.palettes import Viridis256

    cells = models.ColumnDataSource({"layer": [], "head": [], "closure": []})
    plot = _figure(
        height=240, x_range=(-0.5, 0.5), y_range=(0.5, -0.5),
        x_axis_label="layer", y_axis_label="query head",
    )  # fmt: skip
    colours = models.LinearColorMapper(palette=Viridis256, low=0, high=1, nan_color="#bbbbbb")
    cell = plot.rect(
        "layer", "head", width=1, height=1, source=cells, line_color="white", line_width=0.4,
        fill_color={"field": "closure", "transform": colours},
        nonselection_fill_alpha=1, nonselection_line_color="white",
    )  # fmt: skip
    # The chosen head in two lines, light on dark, so that it shows on every colour of the map.
    chosen = models.ColumnDataSource({"layer": [], "head": []})
    for colour, width in (("black", 5), ("#ffffff", 2)):
        frame = {"fill_alpha": 0, "line_color": colour, "line_width": width}
        plot.rect("layer", "head", width=1, height=1, source=chosen, **frame)
    tips = [("layer", "@layer"), ("head", "@head"), ("P", "@closure{0.0000}")]
    plot.add_tools(
        models.TapTool(renderers=[cell]), models.HoverTool(renderers=[cell], tooltips=tips)
    )
    plot.add_layout(models.ColorBar(color_mapper=colours, title="P", width=12, padding=4), "right")
    for axis in plot.axis:
        axis.ticker = models.BasicTicker(min_interval=1, num_minor_ticks=0)
    return plot, cells, chosen


def _diverging() -> list[str]:
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in mpl.colormaps["RdBu_r"](np.linspace(0, 1, 255))]
