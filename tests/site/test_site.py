"""The built book as a reader without a network meets it. Runs with `make test-site`."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pandas as pd
import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"
TOC = ROOT / "_build" / "_toc.yml"


def documents():
    """Every page that the table of contents names, at any depth."""
    if not TOC.is_file():
        return []

    def files(entry):
        found = [entry["file"]] if "file" in entry else []
        for below in (
            *entry.get("parts", ()),
            *entry.get("chapters", ()),
            *entry.get("sections", ()),
        ):
            found += files(below)
        return found

    toc = yaml.safe_load(TOC.read_text(encoding="utf-8"))
    return [toc["root"], *files(toc)]


DOCUMENTS = documents()
EXECUTED = [name for name in DOCUMENTS if name.startswith("executed/")]


def soup(name: str) -> BeautifulSoup:
    return BeautifulSoup((SITE / f"{name}.html").read_text(encoding="utf-8"), "html.parser")


class Page:
    """A page in Chromium with the network off, and everything that went wrong on it."""

    def __init__(self, context, name: str):
        self.faults: list[str] = []
        self.page = context.new_page()
        self.page.on("requestfailed", lambda r: self.faults.append(f"failed request {r.url[:200]}"))
        self.page.on("pageerror", lambda e: self.faults.append(f"page error {e}"))
        self.page.on("console", self._console)
        self.page.on("request", self._request)
        self.page.add_init_script(path=Path(__file__).with_name("checks.js"))
        self.page.goto((SITE / f"{name}.html").as_uri())
        self.settle()

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.faults.append(f"console {message.type} {message.text[:300]}")

    def _request(self, request):
        if urlsplit(request.url).scheme not in ("file", "data", "blob"):
            self.faults.append(f"request to elsewhere {request.url[:200]}")

    def settle(self):
        """Wait until formulas are drawn and the explorer, where there is one, is ready."""
        self.page.wait_for_function(
            "() => !document.querySelector('main .math') || "
            "(window.MathJax?.startup?.promise !== undefined && "
            "document.querySelector('main mjx-container'))"
        )
        self.page.evaluate("() => window.MathJax?.startup?.promise")
        self.page.wait_for_function(
            "() => !document.querySelector('.head-explorer') || "
            "document.querySelector('.head-explorer').dataset.ready"
        )


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, one for all pages."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def visit(browser):
    """Open a page in a window of a width and a colour scheme; the last one stays open."""
    opened = {}

    def open_page(name: str, width: int = 1280, scheme: str = "light") -> Page:
        key = (name, width, scheme)
        if key not in opened:
            for context, _ in opened.values():
                context.close()
            opened.clear()
            context = browser.new_context(
                offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            context.set_default_timeout(30_000)
            opened[key] = (context, Page(context, name))
        return opened[key][1]

    yield open_page
    for context, _ in opened.values():
        context.close()


def test_there_is_a_book():
    assert (SITE / "index.html").is_file()
    assert len(EXECUTED) >= 1


@pytest.mark.parametrize("name", EXECUTED)
def test_executed_pages_show_figures_and_no_error(name):
    page = soup(name)
    assert page.select(".cell_output img, .cell_output .head-explorer")
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


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_browser_without_a_network_shows_the_page_whole(visit, name):
    opened = visit(name)
    assert opened.faults == []
    assert opened.page.evaluate("checks.images()") == []
    page = BeautifulSoup(opened.page.content(), "html.parser")
    sources = len(soup(name).select("main .math"))
    assert len(page.select("main mjx-container")) >= sources
    assert sources > 0 or name not in EXECUTED
    assert not page.select("mjx-merror")
    text = opened.page.evaluate("document.querySelector('main').innerText")
    assert not re.search(r"\\\(|\\\[|\$[^$\n]+\\[a-z]+[^$\n]*\$", text)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_narrow_window_in_dark_mode_can_be_read(visit, name):
    opened = visit(name, width=375, scheme="dark")
    page = opened.page
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 376
    assert page.evaluate("checks.cut(375)") == []
    assert page.evaluate("checks.contrast()") == []
    assert page.evaluate("checks.figures()") == []
    assert opened.faults == []


EXPLORERS = [name for name in EXECUTED if name.endswith("_head_explorer")]
STATUS = ".head-explorer .status"
MAP = ".head-explorer .map"


def chosen(page) -> tuple[str, int, int]:
    """The model, layer and head that the explorer says it shows."""
    said = re.match(r"(.+), layer (\d+), head (\d+):", page.inner_text(STATUS))
    return said[1], int(said[2]), int(said[3])


@pytest.mark.parametrize("name", EXPLORERS)
def test_the_explorer_follows_a_click_and_the_keyboard(visit, name):
    opened = visit(name)
    page = opened.page
    model, layer, head = chosen(page)
    facts = page.inner_text(".head-explorer .facts")
    table = pd.read_parquet(ROOT / "results" / model / "survey.parquet")
    best = table.loc[table.closure.idxmax()]
    assert (layer, head) == (best.layer, best["head"])
    assert f"{best.closure:.4f}" in page.inner_text(STATUS)

    page.locator(MAP).scroll_into_view_if_needed()
    box = page.locator(MAP).bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.4)
    page.wait_for_function(
        "(f) => document.querySelector('.head-explorer .facts').innerText !== f", arg=facts
    )
    clicked = chosen(page)
    assert clicked[1:] != (layer, head)

    page.focus(MAP)
    page.keyboard.press("Home")
    assert chosen(page) == (model, layer, head)
    step, sign = ("ArrowLeft", -1) if layer else ("ArrowRight", 1)
    page.keyboard.press(step)
    assert chosen(page) == (model, layer + sign, head)
    page.keyboard.press(
        "PageUp" if page.input_value(".head-explorer [name=rank]") == "2" else "Home"
    )
    page.keyboard.press("PageDown")
    second = table.nlargest(2, "closure").iloc[1]
    assert chosen(page) == (model, second.layer, second["head"])

    # The fields are reached with the tabulator key and changed with the keyboard alone.
    page.focus(".head-explorer [name=model]")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "head"
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("1")
    page.keyboard.press("Tab")
    assert chosen(page) == (model, second.layer, 1)

    labels = page.locator(".head-explorer [name=model] option").all_inner_texts()
    assert set(labels) == {
        folder.parent.name for folder in (ROOT / "results").glob("*/cores.parquet")
    }
    for label in labels:
        page.select_option(".head-explorer [name=model]", label=label)
        assert chosen(page)[0] == label
    assert opened.faults == []


@pytest.mark.parametrize("name", EXPLORERS)
def test_the_explorer_and_all_that_it_loads_weigh_less_than_3_megabytes(browser, name):
    context = browser.new_context(offline=True)
    page = context.new_page()
    loaded = []
    page.on("request", lambda request: loaded.append(request.url))
    page.goto((SITE / f"{name}.html").as_uri(), wait_until="networkidle")
    context.close()
    files = {unquote(urlsplit(url).path) for url in loaded if url.startswith("file:")}
    own = (SITE / f"{name}.html").stat().st_size
    theme = sum(Path(file).stat().st_size for file in files) - own
    # As every server sends text. A browser without a network reads it whole.
    sent = sum(len(gzip.compress(Path(file).read_bytes())) for file in files)
    print(
        f"{name}: {own:,} bytes, and {theme:,} of theme and formulas that every page loads; "
        f"{sent:,} bytes of all are sent"
    )
    assert own < 3_000_000
    assert sent < 3_000_000


def test_the_reference_has_every_public_name():
    import scaled_idempotence as si

    pages = [soup(name) for name in DOCUMENTS if name.startswith("book/api/")]
    described = {tag["id"] for page in pages for tag in page.select("main [id]")}
    for name in si.__all__:
        assert {f"scaled_idempotence.{name}", f"module-scaled_idempotence.{name}"} & described, name


def test_the_reference_has_every_command():
    import typer

    from scaled_idempotence.cli import app

    text = soup("book/api/command").select_one("main").get_text()
    for name in typer.main.get_command(app).commands:
        assert f"scaled-idempotence {name}" in text


def test_terms_and_citation_are_generated():
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    text = soup("book/citation").select_one("main").get_text()
    assert cff["preferred-citation"]["title"] in text
    assert cff["version"] in text
    terms = {
        tag.get_text().strip("# \n") for tag in soup("book/glossary").select("dl.glossary > dt")
    }
    assert {
        "closure",
        "transport core",
        "support",
        "orientation",
        "capacity",
        "attainment",
    } <= terms
