"""The built book as a reader without a network meets it. Runs with `make test-site`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"
TOC = ROOT / "_build" / "_toc.yml"


def documents():
    if not TOC.is_file():
        return []
    toc = yaml.safe_load(TOC.read_text(encoding="utf-8"))
    return [toc["root"], *(c["file"] for part in toc["parts"] for c in part["chapters"])]


DOCUMENTS = documents()
EXECUTED = [name for name in DOCUMENTS if name.startswith("executed/")]


def soup(name: str) -> BeautifulSoup:
    return BeautifulSoup((SITE / f"{name}.html").read_text(encoding="utf-8"), "html.parser")


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """The page's DOM after its scripts ran in Chromium, with no host to be reached."""
    made = {}

    def render(name: str) -> BeautifulSoup:
        if name not in made:
            profile = tmp_path_factory.mktemp("profile")
            command = [
                "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND",
                "--virtual-time-budget=30000", "--dump-dom", (SITE / f"{name}.html").as_uri(),
            ]  # fmt: skip
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=120, check=True
            )
            made[name] = BeautifulSoup(result.stdout, "html.parser")
        return made[name]

    return render


def test_there_is_a_book():
    assert (SITE / "index.html").is_file()
    assert len(EXECUTED) >= 1


@pytest.mark.parametrize("name", EXECUTED)
def test_executed_pages_show_figures_and_no_error(name):
    page = soup(name)
    assert page.select(".cell_output img")
    assert not page.select(".traceback, .output.error")
    for output in page.select(".cell_output"):
        assert "Error" not in output.get_text()
        assert "Warning" not in output.get_text()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_nothing_is_loaded_from_elsewhere(name):
    page = soup(name)
    sources = [tag["src"] for tag in page.select("script[src], img[src], iframe[src]")]
    sources += [tag["href"] for tag in page.select("link[rel=stylesheet][href]")]
    assert [url for url in sources if urlsplit(url).netloc] == []
    for url in sources:
        assert (
            url.startswith("data:")
            or (SITE / name).parent.joinpath(unquote(urlsplit(url).path)).resolve().is_file()
        ), url


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_image_has_an_alternative_text(name):
    page = soup(name)
    assert all(image.get("alt") for image in page.select("img"))
    for image in page.select(".cell_output img"):
        assert len(image["alt"]) > 20, image


@pytest.mark.parametrize("name", DOCUMENTS)
def test_internal_links_are_sound(name):
    here = SITE / f"{name}.html"
    for link in soup(name).select("a[href]"):
        parts = urlsplit(link["href"])
        if parts.scheme or parts.netloc:
            continue
        target = (here.parent / unquote(parts.path)).resolve() if parts.path else here
        if target.is_dir():
            target /= "index.html"
        assert target.is_file(), link["href"]
        if parts.fragment and target.suffix == ".html":
            assert f'id="{parts.fragment}"' in target.read_text(encoding="utf-8"), link["href"]


@pytest.mark.parametrize("name", EXECUTED)
def test_the_launch_button_opens_the_source_notebook(name):
    urls = [a["href"] for a in soup(name).select("a[href*='colab.research.google.com']")]
    assert urls
    for url in urls:
        path = re.search(r"/blob/[^/]+/(.+)$", url).group(1)
        assert path == f"notebooks/{Path(name).name}.ipynb"
        assert (ROOT / path).is_file()


@pytest.mark.parametrize("name", [n for n in DOCUMENTS if n == "book/theory" or n in EXECUTED])
def test_formulas_are_drawn_without_a_network(rendered, name):
    page = rendered(name)
    sources = len(soup(name).select("main .math"))
    assert sources > 5
    assert len(page.select("main mjx-container")) >= sources
    assert not page.select("mjx-merror")
    assert not re.search(r"\\\(|\\\[", page.select_one("main").get_text())
