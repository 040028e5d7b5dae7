"""The page "Which models work" shows the table of layouts and builds without a warning."""

import subprocess
import sys

import pytest
from bs4 import BeautifulSoup

from scaled_idempotence.checkpoints.families import summaries
from scaled_idempotence.checkpoints.layouts import LAYOUTS


def test_every_architecture_is_in_the_summary_once():
    found = summaries()
    types = [kind for summary in found for kind in summary.model_types]
    assert len(types) == len(set(types))
    listed = {a for row in LAYOUTS if row.naming == "transformers" for a in row.architectures}
    assert set(types) == listed
    in_gguf = {a for row in LAYOUTS if row.naming == "gguf" for a in row.architectures}
    assert {name for summary in found for name in summary.gguf} == in_gguf
    assert all(summary.values and summary.norms for summary in found)


def test_the_page_builds_without_warnings(root, tmp_path):
    pytest.importorskip("myst_parser")
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_bytes((root / "book" / "models.md").read_bytes())
    (source / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(root / 'book' / '_ext')!r})\n"
        "extensions = ['myst_parser', 'models_table']\n"
        "myst_enable_extensions = ['dollarmath', 'amsmath']\n"
    )
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "-n", "-q"]
    result = subprocess.run(
        [*command, str(source), str(tmp_path / "html")], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    page = BeautifulSoup((tmp_path / "html" / "index.html").read_text(), "html.parser")
    rows = page.find("table").find_all("tr")
    assert len(rows) == len(summaries()) + 1
    shown = {code.get_text() for code in page.find("table").find_all("code")}
    assert {a for row in LAYOUTS for a in row.architectures} == shown
