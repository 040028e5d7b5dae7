"""The scoreboard as tables for a page."""

from __future__ import annotations

from html import escape
from pathlib import Path
from urllib.parse import quote

import pandas as pd
from pandas.io.formats.style import Styler

from ..claims import CHAPTERS
from ..compute.results import ALL_MODELS
from ..verdict import FAILS, SYMBOLS


def section_table(board: pd.DataFrame, section: str, results_dir: str | Path) -> Styler:
    """Show one section of a scoreboard: claims with what "holds" means, the paper, and models.

    Parameters
    ----------
    board : DataFrame
        From `scaled_idempotence.scoreboard`.
    section : str
        One of its sections.
    results_dir : str or Path
        Models are linked to the pages that were executed beside it.

    Returns
    -------
    Styler
        With CSS classes for the book's style sheet; the verdicts are told by words and symbols
        too, since a notebook elsewhere has no such sheet.
    """
    part = board[board.section == section]
    models = list(dict.fromkeys(part.model))
    lineages = (part.subject == "lineage").any()
    executed = Path(results_dir).resolve().parent / "executed"
    headers = {
        model: _header(model, executed, ALL_MODELS if lineages else model, CHAPTERS[section])
        for model in models
    }
    rows, classes = [], []
    for _, claim in part.groupby("claim", sort=False):
        first = claim.iloc[0]
        by_model = claim.set_index("model")
        ours = {headers[model]: _cell(by_model.loc[model]) for model in models}
        rows.append({"claim": _claim(first), "paper": escape(first.paper) or "–", **ours})
        kinds = {headers[m]: "verdict-" + by_model.verdict[m].replace(" ", "-") for m in models}
        classes.append({"claim": "claim", "paper": "", **kinds})
    table = pd.DataFrame(rows)
    return (
        table.style.hide(axis="index")
        .set_td_classes(pd.DataFrame(classes))
        .set_table_attributes('class="claims"')
    )


def _header(name: str, executed: Path, folder: str, chapter: str) -> str:
    if not (executed / folder / f"{chapter}.ipynb").is_file():
        return escape(name)
    return f'<a href="../{quote(folder)}/{chapter}.html">{escape(name)}</a>'


def _claim(row: pd.Series) -> str:
    beyond = "" if row.origin == "paper" else " <em>(beyond the paper)</em>"
    return (
        f"{escape(row.statement)}{beyond}"
        f'<br><small class="criterion">Holds if {escape(row.criterion)}.</small>'
    )


def _cell(row: pd.Series) -> str:
    lines = [f"{SYMBOLS[row.verdict]} {escape(row.ours) if row.ours else row.verdict}"]
    if row.verdict == FAILS:
        lines[0] += f"<br><strong>{FAILS}</strong>"
    lines += [f"<small>{escape(text)}</small>" for text in (row.place, row.remark) if text]
    return "<br>".join(lines)
