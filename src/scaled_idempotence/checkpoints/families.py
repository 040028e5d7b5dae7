"""The table of layouts in words, a row a family, for listings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .layouts import LAYOUTS
from .schema import Layout


# --- for listings ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class FamilySummary:
    """What the table says of one family, in words.

    Parameters
    ----------
    family : str
    model_types : tuple of str
        ``model_type`` of ``config.json``.
    parts : tuple of str
        Stacks or towers; empty where there is one.
    values : tuple of str
        How the values are stored in files of transformers.
    norms : tuple of str
        What folding does.
    gguf : tuple of str
        ``general.architecture`` of GGUF files; empty where llama.cpp has none.
    remarks : tuple of str
    """

    family: str
    model_types: tuple[str, ...]
    parts: tuple[str, ...]
    values: tuple[str, ...]
    norms: tuple[str, ...]
    gguf: tuple[str, ...]
    remarks: tuple[str, ...]


def summaries() -> list[FamilySummary]:
    """Summarise the table, a row a family, in the table's order.

    Returns
    -------
    list of FamilySummary
    """

    def collect(rows: Sequence[Layout], of: Callable[[Layout], Sequence[str]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for row in rows for text in of(row) if text))

    def norms(row: Layout) -> list[str]:
        before = f"before: {row.norm_before.title}" if row.norm_before else ""
        after = f"after: {row.norm_after.title}" if row.norm_after else ""
        return [before, after, row.norm_remark]

    found = []
    for family in dict.fromkeys(row.family for row in LAYOUTS):
        rows = [row for row in LAYOUTS if row.family == family]
        own = [row for row in rows if row.naming == "transformers"]
        found.append(
            FamilySummary(
                family=family,
                model_types=collect(own, lambda row: row.architectures),
                parts=collect(own, lambda row: [row.part]),
                values=collect(own, lambda row: [row.value.title]),
                norms=collect(own, norms),
                gguf=collect(
                    [row for row in rows if row.naming == "gguf"], lambda row: row.architectures
                ),
                remarks=collect(own, lambda row: [row.remark]),
            )
        )
    return found
