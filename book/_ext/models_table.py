"""The directive ``models-table``: which architectures open, from the table of layouts itself."""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from scaled_idempotence.checkpoints.families import FamilySummary, summaries

HEADINGS = ("family", "model types", "values", "norms that can be folded", "in GGUF as")
WIDTHS = (14, 26, 20, 26, 14)


def _cell(*paragraphs: nodes.Node) -> nodes.entry:
    return nodes.entry("", *paragraphs)


def _words(texts: tuple[str, ...]) -> list[nodes.paragraph]:
    return [nodes.paragraph("", text) for text in texts] or [nodes.paragraph("", "–")]


def _names(names: tuple[str, ...]) -> nodes.paragraph:
    paragraph = nodes.paragraph("", "" if names else "–")
    for position, name in enumerate(names):
        if position:
            paragraph += nodes.Text(", ")
        paragraph += nodes.literal("", name)
    return paragraph


def _row(summary: FamilySummary) -> nodes.row:
    types = [_names(summary.model_types)]
    if summary.parts:
        types.append(nodes.paragraph("", "parts: " + ", ".join(summary.parts)))
    return nodes.row(
        "",
        _cell(nodes.paragraph("", summary.family)),
        _cell(*types),
        _cell(*_words((*summary.values, *summary.remarks))),
        _cell(*_words(summary.norms)),
        _cell(_names(summary.gguf)),
    )


def table(found: list[FamilySummary]) -> nodes.table:
    """Make the table of a list of families."""
    headings = nodes.row("", *(_cell(nodes.paragraph("", text)) for text in HEADINGS))
    group = nodes.tgroup(
        "",
        *(nodes.colspec(colwidth=width) for width in WIDTHS),
        nodes.thead("", headings),
        nodes.tbody("", *map(_row, found)),
        cols=len(HEADINGS),
    )
    return nodes.table("", group)


class ModelsTable(SphinxDirective):
    """``models-table`` takes no argument and no content."""

    def run(self):
        """Give the table."""
        return [table(summaries())]


def setup(app):
    app.add_directive("models-table", ModelsTable)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
