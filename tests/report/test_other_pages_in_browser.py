"""Pages of models, campaigns, dynamics, paths and comparisons in a real browser."""

from __future__ import annotations

import io
from base64 import b64decode
from collections.abc import Iterator

import numpy as np
import pytest
from ase.build import molecule
from browser import Browser
from PIL import Image
from report_runs import HOSTILE
from test_courses import a_search
from test_directories import campaign  # noqa: F401  a fixture
from test_evaluation_page import found  # noqa: F401
from test_notebook import water
from test_onthefly_pages import dynamics, path  # noqa: F401
from test_page_in_browser import MIDDLE, POINT
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.report import view
from nugget.report.evaluation_page import evaluation_page
from nugget.report.md_page import md_page
from nugget.report.page import write_page
from nugget.report.path_page import path_page
from nugget.report.searches_page import compare_page, compared

SIZES = ((1280, False), (390, True))  # a desk, and a phone at night


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("downloads"))
    yield made
    made.close()


def quiet(browser: Browser, address: str) -> None:
    """Nothing on the console, nothing asked of anybody, nothing beyond the edge."""
    assert browser.messages == []
    assert {url for url in browser.requests if not url.startswith("data:")} <= {address}
    assert browser.js("window.hacked") is None
    assert browser.js("document.documentElement.scrollWidth <= innerWidth")


def look(browser: Browser, file, html: str, plot: int | None) -> None:
    """Open a page at both sizes; a click on a point shows its structure."""
    write_page(file, html)
    for width, dark in SIZES:
        browser.requests.clear()
        browser.messages.clear()
        browser.open(file.as_uri(), width=width, dark=dark)
        if plot is not None:
            last = browser.js(f"nugget.plots[{plot}].points.length") - 1
            x, y, structure = browser.js(POINT.format(plot=plot, point=last))
            browser.click(x, y)
            assert browser.js("nugget.store.selected") == structure is not None
        quiet(browser, file.as_uri())


def test_a_model(browser, found, tmp_path):  # noqa: F811
    look(browser, tmp_path / "m.html", evaluation_page(found, HOSTILE, HOSTILE), 0)
    browser.open((tmp_path / "m.html").as_uri())
    colours = "document.querySelectorAll('.of-gallery .switch button')"
    assert browser.js(f"{colours}.length") == 10  # two galleries, five colours
    browser.js(f"[...{colours}].find((one) => one.textContent.includes('force error')).click()")
    assert browser.js("nugget.viewers.some((one) => one.mode === 'force error')")


def test_dynamics_and_paths(browser, dynamics, path, tmp_path):  # noqa: F811
    look(browser, tmp_path / "d.html", md_page(dynamics), 0)
    slider = "document.querySelector('.film input')"
    browser.js(f"{slider}.value = 5; {slider}.dispatchEvent(new Event('input'))")
    chosen = browser.js("nugget.store.selected")
    assert browser.js("nugget.store.frames[nugget.store.selected].label").startswith("step 24")
    look(browser, tmp_path / "p.html", path_page(path[0]), 0)
    assert chosen == 5


def test_a_comparison(browser, tmp_path):
    runs = [a_search(tmp_path / name, [3.0, None, 1.0], k) for k, name in enumerate("ab")]
    look(browser, tmp_path / "c.html", compare_page(compared(runs)), None)
    x, y = browser.js(MIDDLE.format(node="document.querySelectorAll('tr.clickable td')[9]"))
    browser.click(x, y)
    assert browser.js("nugget.store.selected") == 1


def test_every_search_of_a_campaign(browser, campaign, tmp_path):  # noqa: F811
    assert CliRunner().invoke(app, ["report", str(campaign), "-o", str(tmp_path / "r.html")])
    address = (tmp_path / "r.html").as_uri()
    browser.open(address)
    assert browser.js("document.querySelectorAll('td a').length") == 4
    browser.js("document.querySelector('td a').click()")
    browser.wait("location.pathname.endsWith('.html') && !location.pathname.endsWith('r.html')")
    browser.wait("document.documentElement?.dataset.ready === 'yes'")
    assert browser.js("document.querySelector('h1').textContent").startswith("Search for Au₆")


def test_a_notebook(browser, tmp_path):
    file = tmp_path / "n.html"
    look(browser, file, view(water()).html, None)
    assert browser.js("document.querySelectorAll('canvas.viewer').length") == 1
    assert browser.js("document.querySelector('header.top, .inspector, .film input')") is None
    look(browser, file, view([molecule("H2O"), molecule("CH4")]).html, None)
    assert browser.js("document.querySelectorAll('.film input').length") == 1
    # As a notebook shows it: a frame of another origin.
    file.write_text(f"<!doctype html><body>{view(water())._repr_html_()}</body>")
    browser.messages.clear()
    browser.open(file.as_uri(), ready=False)
    browser.wait("document.readyState === 'complete'")
    browser.frames(10)
    shot = browser.send("Page.captureScreenshot", format="png")["data"]
    picture = np.asarray(Image.open(io.BytesIO(b64decode(shot))).convert("RGB"), float)
    red = (picture[..., 0] > 150) & (picture[..., 1] < 90) & (picture[..., 2] < 90)
    assert red.sum() > 200  # an oxygen atom
    assert browser.messages == []
