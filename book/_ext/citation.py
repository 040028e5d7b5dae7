"""The directive ``citation``: CITATION.cff as a page, with the entries to copy."""

from pathlib import Path

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]


def people(authors: list[dict]) -> str:
    """Join authors as BibTeX wants them; an organisation's name stays in one piece."""
    named = []
    for author in authors:
        if "name" in author:
            named.append("{" + author["name"] + "}")
        else:
            given = author.get("given-names")
            named.append(author["family-names"] + (f", {given}" if given else ""))
    return " and ".join(named)


def software_bibtex(cff: dict) -> str:
    """Make a BibTeX entry of the software."""
    released = str(cff["date-released"])
    fields = {
        "title": "{" + cff["title"] + "}",
        "author": people(cff["authors"]),
        "version": cff["version"],
        "year": released[:4],
        "url": cff["repository-code"],
        "license": cff["license"],
    }
    return entry("software", cff["title"], fields)


def paper_bibtex(cff: dict) -> str:
    """Make a BibTeX entry of the paper."""
    paper = cff["preferred-citation"]
    arxiv = next(
        one["value"].removeprefix("arXiv:")
        for one in paper["identifiers"]
        if one["value"].startswith("arXiv:")
    )
    families = [author["family-names"].lower() for author in paper["authors"]]
    fields = {
        "title": "{" + paper["title"] + "}",
        "author": people(paper["authors"]),
        "year": str(paper["year"]),
        "eprint": arxiv,
        "archiveprefix": "arXiv",
        "url": paper["url"],
    }
    return entry("misc", f"{families[0]}{paper['year']}", fields)


def entry(kind: str, key: str, fields: dict[str, str]) -> str:
    """Write a BibTeX entry."""
    body = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@{kind}{{{key},\n{body}}}"


class Citation(SphinxDirective):
    """``citation`` takes no argument and no content."""

    def run(self) -> list[nodes.Node]:
        """Give the message and the two entries."""
        path = ROOT / "CITATION.cff"
        self.env.note_dependency(str(path))
        cff = yaml.safe_load(path.read_text(encoding="utf-8"))
        made: list[nodes.Node] = [nodes.paragraph("", cff["message"])]
        for text, title in (
            (paper_bibtex(cff), "The paper"),
            (software_bibtex(cff), "The software"),
        ):
            made.append(nodes.rubric("", title))
            block = nodes.literal_block(text, text, language="bibtex")
            made.append(block)
        return made


def setup(app):
    app.add_directive("citation", Citation)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
