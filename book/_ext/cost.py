"""What the page on cost says, out of ``benchmarks/results.json`` and nothing else.

The file's content is the substitution ``cost`` of every page, with the tables in ``cost_tables``
and the figure drawn beside the build.
"""

import json
from pathlib import Path

import pandas as pd

from scaled_idempotence import plots

FIGURE = Path("_build/cost/growth.png")


def _table(headings, rows):
    lines = [headings, ["---", *["--:"] * (len(headings) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def ratios(shapes):
    """The bare survey against its peers, a row a shape."""
    headings = ["layer of", "heads", "$r$", "$d$", "survey", "dense", "`FactoredMatrix`", "GEMM"]
    return _table(
        headings,
        [
            [
                name,
                f"{row['heads']}/{row['value_heads']}",
                row["d_head"],
                f"{row['d_model']:,}",
                f"{1e3 * row['seconds']:,.1f} ms",
                f"{row['over_dense']:,.0f} x",
                f"{row['over_factored']:,.0f} x",
                f"{row['share_of_gemm']:.0%}",
            ]
            for name, row in sorted(shapes.items(), key=lambda item: item[1]["d_model"])
        ],
    )


def rehearsals(models):
    """Surveys from a hub, a column a model."""
    rows = {
        "layers, heads": "{layers}, {heads:,}",
        "checkpoint": "{whole:,.1f} GB in {shards} files",
        "read": "{read:.2f} GB, {share:.2%}",
        "requests": "{requests:,}",
        "time": "{seconds:,.0f} s",
        "of it transfer": "{transfer_seconds:,.0f} s",
        "of it computing": "{compute_seconds:,.0f} s",
        "peak memory": "{peak_mb:,.0f} MB",
    }
    scaled = [
        row
        | {
            "whole": row["checkpoint_bytes"] / 1e9,
            "read": row["bytes_sent"] / 1e9,
            "peak_mb": row["peak"] / 1e6,
        }
        for row in models.values()
    ]
    return _table(
        ["", *(f"`{name}`" for name in models)],
        [[label, *(text.format(**row) for row in scaled)] for label, text in rows.items()],
    )


def capacities(rows):
    """The capacity search against its peer, a row a setting."""
    return _table(
        ["search", "time a head", "times faster", "median closure", "5% quantile"],
        [
            [
                name,
                f"{1e3 * row['seconds_a_head']:,.1f} ms",
                f"{row['ratio']:,.1f}",
                f"{row['median']:.4f}",
                f"{row['low']:.4f}",
            ]
            for name, row in rows.items()
        ],
    )


def _substitute(app, config):
    root = Path(app.srcdir)
    cost = json.loads((root / "benchmarks/results.json").read_text(encoding="utf-8"))
    growth = cost["growth"]
    plots.set_theme()
    figure = plots.cost_growth(pd.DataFrame(growth["rows"]), pd.DataFrame(growth["exponents"]))
    (root / FIGURE).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(root / FIGURE, dpi=110)
    config.myst_substitutions["cost"] = cost
    config.myst_substitutions["cost_tables"] = {
        "ratios": ratios(cost["survey"]["shapes"]),
        "rehearsals": rehearsals(cost["rehearsal"]["models"]),
        "capacities": capacities(cost["capacity"]["rows"]),
    }


def setup(app):
    # Before myst-parser reads its options, at builder-inited.
    app.connect("config-inited", _substitute)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
