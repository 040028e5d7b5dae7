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

from ..errors import ScaledIdempotenceError
from ..paper import STRONG
from .explorer_data import COMPARED, NEEDED, SHOWN, fitting, head_facts
from .explorer_data import explorable as explorable
from .explorer_figures import empty_figures, sources


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
    tables = {label: head_facts(results_dir, label) for label in labels}
    kept, counts = fitting(tables)
    return HeadExplorer(
        html=_render(kept, counts),
        models=tuple(kept),
        left_out=tuple(label for label in labels if label not in kept),
        matrices={label: (counts[label], len(facts)) for label, facts in kept.items()},
        block=max(facts.attrs["block"] for facts in kept.values()),
    )


def _render(tables: dict[str, pd.DataFrame], counts: dict[str, int]) -> str:
    from bokeh.document import Document
    from bokeh.embed import components
    from bokeh.models import CustomJS
    from bokeh.resources import Resources

    parts = {label: sources(label, facts, counts[label]) for label, facts in tables.items()}
    figures = empty_figures()
    plots = {name: plot for name, (plot, _) in figures.items()}
    show = CustomJS(
        args={
            "heads": [heads for heads, _ in parts.values()],
            "matrices": [matrices for _, matrices in parts.values()],
            "sources": {name: source for name, (_, source) in figures.items()},
            "plots": plots,
            "about": json.dumps(
                {
                    "models": [_about(label, facts) for label, facts in tables.items()],
                    "facts": [(name, column, absent) for _, column, name, absent in SHOWN],
                    "compared": list(COMPARED),
                    "strong": STRONG,
                }
            ),
        },
        code=_file("explorer.js"),
    )
    document = Document()
    for plot in plots.values():
        document.add_root(plot)
    document.js_on_event("document_ready", show)
    script, divisions = components(plots)
    bokeh = Resources(mode="inline", components=["bokeh"])
    inline = "\n".join(f"<script>{js}</script>" for js in bokeh.js_raw)
    options = "".join(f"<option>{html.escape(label)}</option>" for label in tables)
    body = _file("explorer.html").format(options=options, **divisions)
    return f"<style>{_file('explorer.css')}</style>\n{inline}\n{body}\n{script}"


def _about(label: str, facts: pd.DataFrame) -> dict:
    reasons = facts.reason[facts.reason.notna() & (facts.reason != "")]
    return {
        "label": label,
        "layers": sorted(int(layer) for layer in facts.layer.unique()),
        "n_heads": int(facts.loc[:, "head"].max()) + 1,
        "block": facts.attrs["block"],
        "d_head": facts.attrs["d_head"],
        "random": float(np.sqrt(facts.attrs["d_head"] / facts.attrs["d_model"])),
        "reasons": {str(index): str(row) for index, row in reasons.items()},
    }


def _file(name: str) -> str:
    return (Path(__file__).with_name("_explorer") / name).read_text(encoding="utf-8")
