"""The head explorer: one self-contained piece of HTML, made from result tables with Bokeh.

Everything it needs is inside it, Bokeh's own script too, so it works in a saved page and without
a network. The controls are the browser's own, so a keyboard and a screen reader can use them.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ..checkpoints.bundled import DEFAULT_MODEL
from ..compute.results import load_result
from ..errors import ScaledIdempotenceError
from ..paper import STRONG

#: Bytes that the numbers of all heads, and then the matrices of the strongest, may take as text.
FACTS_BUDGET = 900_000
DATA_BUDGET = 1_350_000
BASE64 = 4 / 3

# What is said of a head: table, column, its name, and what stands for a number that is not there.
SHOWN = (
    ("survey", "closure", "closure P", "not defined"),
    ("survey", "alpha", "fitted scale α", "not defined"),
    ("survey", "return_gain", "return gain", "not defined"),
    ("survey", "copying_score", "copying score", "not defined"),
    ("survey", "effective_rank", "effective rank", "not defined"),
    ("survey", "wrong_v_closure", "wrong-V closure", "does not apply"),
    ("orientation", "null", "null, closed form", "not run"),
    ("orientation", "null_p", "its p-value", "not run"),
    ("orientation", "permutation_closure", "signed permutations, median", "not run"),
    ("orientation", "haar_closure", "Haar scrambles, median", "not run"),
    ("support", "overlap", "overlap of subspaces", "not run"),
    ("support", "isotropy", "isotropy of angles", "not run"),
    ("support", "latent_closure", "closure of latent core", "not run"),
    ("attainment", "capacity", "capacity, at least", "not searched"),
    ("attainment", "attainment", "attainment", "not searched"),
)
FACTS = tuple(column for _, column, _, _ in SHOWN)
# The closures that are drawn beside each other, from above.
COMPARED = {
    "capacity": "capacity",
    "closure": "trained",
    "latent_closure": "latent core",
    "haar_closure": "Haar",
    "permutation_closure": "permutation",
    "null": "null",
    "wrong_v_closure": "wrong V",
}
NEEDED = ("survey", "cores")


@dataclass(frozen=True)
class HeadExplorer:
    """An explorer of the heads of some models; a notebook shows it as it is.

    Attributes
    ----------
    html : str
        Self-contained HTML, to be put into a page once.
    models : tuple of str
        Labels of the models in it.
    left_out : tuple of str
        Labels that would have made it too large.
    matrices : dict of str to (int, int)
        For each model, of how many heads the matrices are in it, and how many heads there are.
    block : int
        Largest number of principal directions that the matrices show.
    """

    html: str
    models: tuple[str, ...]
    left_out: tuple[str, ...]
    matrices: dict[str, tuple[int, int]]
    block: int

    def _repr_html_(self) -> str:
        return self.html


def explorable(results_dir: str | Path) -> list[str]:
    """List the models whose tables an explorer can show.

    Parameters
    ----------
    results_dir : str or Path

    Returns
    -------
    list of str
        Labels of the folders that hold the tables ``survey`` and ``cores``, the default model's
        first.
    """
    folders = [path for path in Path(results_dir).glob("*") if path.is_dir()]
    folders.sort(key=lambda folder: (folder.name != DEFAULT_MODEL, folder.name))
    return [
        folder.name
        for folder in folders
        if all((folder / f"{table}.parquet").is_file() for table in NEEDED)
    ]


def head_explorer(
    results_dir: str | Path = "results", models: Sequence[str] | None = None
) -> HeadExplorer:
    """Make an interactive map of every head of some models.

    Parameters
    ----------
    results_dir : str or Path
        Tables, as `scaled-idempotence run` writes them.
    models : sequence of str, optional
        Labels; all that `results_dir` has tables of by default. The first one is shown first.

    Returns
    -------
    HeadExplorer

    Raises
    ------
    ScaledIdempotenceError
        If there is no model to show.

    Notes
    -----
    The size is bounded. Matrices are rounded to 8 bits; where they would take too much, they are
    kept for each model's heads of highest closure, and models whose numbers alone would take too
    much are left out. What was kept is said in the page and in the attributes.
    """
    labels = list(explorable(results_dir) if models is None else models)
    if not labels:
        raise ScaledIdempotenceError(
            f"{results_dir} holds no model with the tables {' and '.join(NEEDED)}: "
            "`scaled-idempotence run MODEL` computes them"
        )
    tables = {label: _facts(results_dir, label) for label in labels}
    kept, left_out, used = {}, [], 0.0
    for label, facts in tables.items():
        size = _facts_bytes(facts)
        if used + size > FACTS_BUDGET and kept:
            left_out.append(label)
            continue
        kept[label] = facts
        used += size
    shares = _matrix_counts(kept, DATA_BUDGET - used)
    block = max(facts.attrs["block"] for facts in kept.values())
    return HeadExplorer(
        html=_render(kept, shares),
        models=tuple(kept),
        left_out=tuple(left_out),
        matrices={label: (shares[label], len(facts)) for label, facts in kept.items()},
        block=block,
    )


def _facts(results_dir: str | Path, label: str) -> pd.DataFrame:
    """A row a head, of every table that there is; NaN for what was not computed."""
    heads = load_result(results_dir, label, "survey")
    attrs = dict(heads.attrs)
    columns = {
        table: [column for source, column, _, _ in SHOWN if source == table]
        for table in dict.fromkeys(source for source, *_ in SHOWN)
    }
    joined = heads[["layer", "head", "reason", *columns.pop("survey")]]
    for table, names in columns.items():
        try:
            found = load_result(results_dir, label, table)
        except ScaledIdempotenceError:
            joined = joined.assign(**dict.fromkeys(names, np.nan))
            continue
        # A head may be in several samples; its figures are the same in each.
        found = found.loc[:, ["layer", "head", *names]].drop_duplicates(["layer", "head"])
        joined = joined.merge(found, on=["layer", "head"], how="left", validate="1:1")
    cores = load_result(results_dir, label, "cores")
    attrs["block"] = min(int(cores.attrs["block"]), int(attrs["d_head"]))
    joined = joined.merge(cores, on=["layer", "head"], how="left", validate="1:1")
    joined = joined.sort_values(["layer", "head"], ignore_index=True)
    joined.attrs = attrs
    return joined


def _facts_bytes(facts: pd.DataFrame) -> float:
    return len(facts) * (len(FACTS) * 4 + 3 * 4) * BASE64


def _matrix_bytes(facts: pd.DataFrame) -> float:
    return (2 * facts.attrs["block"] ** 2 + facts.attrs["d_head"]) * BASE64


def _matrix_counts(tables: dict[str, pd.DataFrame], budget: float) -> dict[str, int]:
    """Share a budget of bytes: equal parts, and what small models leave goes to the others."""
    wanted = {label: int(facts.closure.notna().sum()) for label, facts in tables.items()}
    counts = {}
    order = sorted(tables, key=lambda label: wanted[label] * _matrix_bytes(tables[label]))
    for position, label in enumerate(order):
        each = _matrix_bytes(tables[label])
        counts[label] = min(wanted[label], max(0, int(budget / (len(order) - position) / each)))
        budget -= counts[label] * each
    return counts


def _sources(label: str, facts: pd.DataFrame, n_matrices: int):
    from bokeh.models import ColumnDataSource

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
    heads = ColumnDataSource(columns, name=label)
    block, r = facts.attrs["block"], facts.attrs["d_head"]
    chosen = facts.loc[strongest]

    def stacked(name: str, width: int) -> np.ndarray:
        rows = [np.asarray(row, dtype=np.float32) for row in chosen[name]]
        return np.stack(rows) if rows else np.empty((0, width), np.float32)

    matrices = ColumnDataSource(
        {
            "core": np.rint(127 * stacked("core", block**2)).astype(np.int8),
            "response": np.rint(127 * stacked("response", block**2)).astype(np.int8),
            "cosines": np.rint(255 * stacked("cosines", r)).astype(np.uint8),
        }
    )
    return heads, matrices


def _render(tables: dict[str, pd.DataFrame], counts: dict[str, int]) -> str:
    from bokeh.document import Document
    from bokeh.embed import components
    from bokeh.models import CustomJS
    from bokeh.resources import Resources

    parts = {label: _sources(label, facts, counts[label]) for label, facts in tables.items()}
    about = [
        {
            "label": label,
            "layers": sorted(int(layer) for layer in facts.layer.unique()),
            "n_heads": int(facts.loc[:, "head"].max()) + 1,
            "block": facts.attrs["block"],
            "d_head": facts.attrs["d_head"],
            "random": float(np.sqrt(facts.attrs["d_head"] / facts.attrs["d_model"])),
            "reasons": {
                str(index): str(row) for index, row in facts.reason.items() if pd.notna(row) and row
            },
        }
        for label, facts in tables.items()
    ]
    figures = _figures()
    show = CustomJS(
        args={
            "heads": [heads for heads, _ in parts.values()],
            "matrices": [matrices for _, matrices in parts.values()],
            "sources": {name: source for name, (_, source) in figures.items()},
            "plots": {name: plot for name, (plot, _) in figures.items()},
            "about": json.dumps(
                {
                    "models": about,
                    "facts": [(name, column, absent) for _, column, name, absent in SHOWN],
                    "compared": list(COMPARED),
                    "strong": STRONG,
                }
            ),
        },
        code=_file("explorer.js"),
    )
    document = Document()
    for plot, _ in figures.values():
        document.add_root(plot)
    document.js_on_event("document_ready", show)
    script, divisions = components({name: plot for name, (plot, _) in figures.items()})
    bokeh = Resources(mode="inline", components=["bokeh"])
    inline = "\n".join(f"<script>{js}</script>" for js in bokeh.js_raw)
    options = "".join(f"<option>{html.escape(label)}</option>" for label in tables)
    body = _file("explorer.html").format(options=options, **divisions)
    return f"<style>{_file('explorer.css')}</style>\n{inline}\n{body}\n{script}"


def _file(name: str) -> str:
    return (Path(__file__).with_name("_explorer") / name).read_text(encoding="utf-8")


def _figures() -> dict:
    """Empty figures with their sources, by the places they take in the page."""
    from bokeh.models import (
        BasicTicker,
        ColorBar,
        ColumnDataSource,
        FactorRange,
        HoverTool,
        LinearColorMapper,
        Range1d,
        TapTool,
    )
    from bokeh.palettes import Viridis256
    from bokeh.plotting import figure

    from ..plots.style import CONTROL, REFERENCE, TRAINED

    common = {"toolbar_location": None, "sizing_mode": "stretch_width", "min_width": 100}
    cells = ColumnDataSource({"layer": [], "head": [], "closure": []})
    map_plot = figure(
        height=240,
        tools="",
        x_range=Range1d(start=-0.5, end=0.5),
        y_range=Range1d(start=0.5, end=-0.5),
        x_axis_label="layer",
        y_axis_label="query head",
        **common,
    )
    colours = LinearColorMapper(palette=Viridis256, low=0, high=1, nan_color="#bbbbbb")
    cell = map_plot.rect(
        "layer",
        "head",
        width=1,
        height=1,
        source=cells,
        fill_color={"field": "closure", "transform": colours},
        line_color="white",
        line_width=0.4,
        nonselection_fill_alpha=1,
        nonselection_line_color="white",
    )
    # The chosen head in two lines, light on dark, so that it shows on every colour of the map.
    chosen = ColumnDataSource({"layer": [], "head": []})
    for colour, width in (("black", 5), ("#ffffff", 2)):
        map_plot.rect(
            "layer",
            "head",
            width=1,
            height=1,
            source=chosen,
            fill_alpha=0,
            line_color=colour,
            line_width=width,
        )
    tips = [("layer", "@layer"), ("head", "@head"), ("P", "@closure{0.0000}")]
    map_plot.add_tools(TapTool(renderers=[cell]), HoverTool(renderers=[cell], tooltips=tips))
    bar = ColorBar(color_mapper=colours, title="P", width=12, padding=4)
    map_plot.add_layout(bar, "right")

    angles = ColumnDataSource({"direction": [], "cosine": []})
    angle_plot = figure(
        height=210,
        tools="",
        y_range=Range1d(start=0, end=1.02),
        x_range=Range1d(start=0, end=1),
        x_axis_label="principal direction, from the best aligned",
        y_axis_label="cos θ",
        **common,
    )
    angle_plot.line("direction", "cosine", source=angles, color=TRAINED, line_width=2)
    level = angle_plot.line([0, 10_000], [0, 0], color=REFERENCE, line_dash="dotted", line_width=2)

    names = list(COMPARED.values())
    context = ColumnDataSource(
        {
            "what": names,
            "closure": [np.nan] * len(names),
            "color": [
                {"capacity": REFERENCE, "closure": TRAINED, "latent_closure": TRAINED}.get(
                    column, CONTROL
                )
                for column in COMPARED
            ],
        }
    )
    context_plot = figure(
        height=210,
        tools="",
        x_range=Range1d(start=-0.02, end=1.02),
        y_range=FactorRange(factors=names[::-1]),
        x_axis_label="closure",
        **common,
    )
    context_plot.hbar(
        "what", right="closure", left=0, height=0.08, source=context, color="color", alpha=0.6
    )
    context_plot.scatter("closure", "what", source=context, color="color", size=9)

    made = {
        "map": (map_plot, cells),
        "angles": (angle_plot, angles),
        "context": (context_plot, context),
    }
    # Blue to red by way of white, as in the book's figures of cores.
    diverging = LinearColorMapper(palette=_diverging(), low=-1, high=1)
    for name, title in (("core", "core K"), ("support", "support D"), ("response", "response KDK")):
        blank = np.zeros((1, 1), np.float32)
        image = ColumnDataSource({"image": [blank], "x": [0], "y": [0], "dw": [1], "dh": [1]})
        plot = figure(
            title=title,
            tools="",
            x_range=Range1d(start=0, end=1),
            y_range=Range1d(start=1, end=0),
            match_aspect=True,
            aspect_ratio=1,
            **common,
        )
        plot.image(
            "image", x="x", y="y", dw="dw", dh="dh", source=image,
            # Bokeh documents the argument, and its stub lacks it.
            color_mapper=diverging,  # pyright: ignore[reportCallIssue]
        )  # fmt: skip
        made[name] = (plot, image)
    for axis in map_plot.axis:
        axis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
    for plot, _ in made.values():
        plot.background_fill_color = plot.border_fill_color = "white"
        plot.grid.visible = False
        plot.outline_line_color = "#888888"
    made["map"][0].tags = [chosen, level.data_source]
    return made


def _diverging() -> list[str]:
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in mpl.colormaps["RdBu_r"](np.linspace(0, 1, 255))]
