"""Check the executed pages and write the table of contents of the book that they make.

``python book/_ext/assemble.py`` reads ``_toc.yml`` and ``executed/<model>/*.ipynb`` and writes
``_build/_toc.yml``: the committed table and a part for every further model. It ends with 1, and
says why, if a page that would be published is missing or unfit.
"""

import argparse
import sys
from pathlib import Path

import yaml

from scaled_idempotence.publish.pages import check_pages

APPENDIX = "Appendix"


def assemble(root: Path) -> tuple[dict, list[str]]:
    """Make the table of contents.

    Parameters
    ----------
    root : Path
        The top level of the repository.

    Returns
    -------
    toc : dict
        In sphinx-external-toc's form.
    faults : list of str
        What keeps the book from being built; empty for none.
    """
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    pages = {
        str(path.relative_to(root).with_suffix("")): found
        for path, found in check_pages(root / "executed").items()
    }
    faults = [f"{page}: {fault}" for page, found in pages.items() for fault in found]
    committed = {chapter["file"] for part in toc["parts"] for chapter in part["chapters"]}
    wanted = {file for file in committed if file.startswith("executed/")}
    faults += [f"{file}: there is no executed copy; run `make book`" for file in wanted - {*pages}]

    further: dict[str, list[str]] = {}
    for page in sorted(pages.keys() - committed):
        further.setdefault(page.split("/")[1], []).append(page)
    names = [part.get("caption") for part in toc["parts"]]
    at = names.index(APPENDIX) if APPENDIX in names else len(names)
    toc["parts"][at:at] = [
        {"caption": model, "chapters": [{"file": page} for page in files]}
        for model, files in further.items()
    ]
    return toc, faults


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    root = parser.parse_args().root
    toc, faults = assemble(root)
    for fault in faults:
        print(f"not fit to publish: {fault}", file=sys.stderr)
    if faults:
        return 1
    target = root / "_build" / "_toc.yml"
    target.parent.mkdir(exist_ok=True)
    target.write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
