"""Pages in a real browser: what is drawn, clicked, turned, typed and downloaded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.io import read
from browser import Browser
from report_runs import HOSTILE, make_run

from nugget.report.page import Structures, page, sections, write_page
from nugget.report.search_page import SearchPage
from nugget.search.record import End, Record
from nugget.search.store import Store

TAB, ENTER, RIGHT, LEFT = 9, 13, 39, 37
PHONE = 390
# Where a point of a plot is on the screen, after scrolling there.
POINT = """(() => {{
  const plot = nugget.plots[{plot}], point = plot.points[{point}];
  plot.canvas.scrollIntoView({{ block: "center" }});
  const box = plot.canvas.getBoundingClientRect(), [x, y] = plot.pixelOf(point);
  return [box.left + x, box.top + y, plot.table.structures[point.row]];
}})()"""
MIDDLE = """(() => {{
  const node = {node};
  node.scrollIntoView({{ block: "center" }});
  const box = node.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
}})()"""
INSPECTOR = "nugget.viewers.at(-1)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("downloads"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / f"{HOSTILE[:20].replace('/', '')}run"
    make_run(directory).keep_end(End("finished", HOSTILE, 12, 12))
    return directory


@pytest.fixture(scope="module")
def records(run: Path) -> list[Record]:
    return Store(run).records()


@pytest.fixture(scope="module")
def report(run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    made = SearchPage(run)
    made.read()
    file = tmp_path_factory.mktemp("page") / "report.html"
    write_page(file, made.html())
    return file.as_uri()


@pytest.fixture
def opened(browser: Browser, report: str) -> Iterator[Browser]:
    """The report on a desk, and nothing on the console afterwards."""
    browser.requests.clear()
    browser.messages.clear()
    browser.open(report)
    yield browser
    assert browser.messages == []
    assert browser.requests == [report]


def downloaded(browser: Browser, press: str, ending: str) -> Atoms:
    before = set(browser.downloads.iterdir())
    browser.js(press)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        new = [p for p in set(browser.downloads.iterdir()) - before if p.suffix == ending]
        if new and new[0].stat().st_size:
            atoms = read(new[0])
            assert isinstance(atoms, Atoms)
            return atoms
        time.sleep(0.05)
    raise TimeoutError("nothing was downloaded")


def test_everything_is_drawn(opened):
    assert opened.js("document.title") == "Search for Au6"
    assert opened.js("nugget.plots.length") == 6
    assert opened.js("document.querySelectorAll('.structure-card').length") >= 2
    # Ink on every canvas: more than one colour.
    blank = """[...document.querySelectorAll("canvas.plot, canvas.viewer")].filter((canvas) => {
      if (!canvas.clientWidth) return false;
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return new Set(new Uint32Array(data.buffer)).size < 5;
    }).length"""
    assert opened.js(blank) == 0


def test_hostile_text_is_text(opened, run):
    assert opened.js("window.hacked") is None
    assert opened.js("document.querySelectorAll('script').length") == 2
    assert opened.js("document.querySelectorAll('img').length") == 0
    shown = opened.js("document.body.innerText")
    assert f"it died: {HOSTILE}" in shown
    assert str(run) in shown


@pytest.mark.parametrize("plot", [0, 3])
def test_a_click_on_a_point_shows_its_structure(opened, records, plot):
    before = opened.js("nugget.store.selected")
    x, y, structure = opened.js(POINT.format(plot=plot, point=5))
    assert structure != before
    opened.click(x, y)
    assert opened.js("nugget.store.selected") == structure
    assert opened.js(f"{INSPECTOR}.structure") == structure
    title = opened.js("document.querySelector('.inspector h2').textContent")
    k = int(title.removeprefix("evaluation ")) - 1
    shown = np.reshape(opened.js(f"[...{INSPECTOR}.frame.positions]"), (-1, 3))
    assert np.abs(shown - records[k].atoms.positions).max() < 1e-4


def test_a_structure_is_turned_by_the_mouse(opened):
    x, y = opened.js(MIDDLE.format(node=f"{INSPECTOR}.canvas"))
    picture = opened.js(f"{INSPECTOR}.canvas.toDataURL()")
    before = np.array(opened.js(f"{INSPECTOR}.rotation"))
    opened.drag(x, y, x + 60, y + 25)
    after = np.array(opened.js(f"{INSPECTOR}.rotation"))
    assert np.abs(after - before).max() > 0.2
    assert np.allclose(after @ after.T, np.eye(3), atol=1e-9)
    assert np.linalg.det(after) == pytest.approx(1)
    opened.frames()
    assert opened.js(f"{INSPECTOR}.canvas.toDataURL()") != picture


def test_downloads_are_read_by_ase(opened, records):
    x, y, _ = opened.js(POINT.format(plot=0, point=4))
    opened.click(x, y)
    title = opened.js("document.querySelector('.inspector h2').textContent")
    atoms = records[int(title.removeprefix("evaluation ")) - 1].atoms
    button = "document.querySelectorAll('.inspector .downloads button')[{}].click()"
    xyz = downloaded(opened, button.format(0), ".xyz")
    assert np.abs(xyz.positions - atoms.positions).max() < 1e-4
    assert xyz.get_potential_energy() == pytest.approx(atoms.get_potential_energy(), abs=1e-5)
    assert (xyz.numbers == atoms.numbers).all()
    assert not xyz.pbc.any()
    cif = downloaded(opened, button.format(1), ".cif")
    assert np.allclose(cif.get_all_distances(), atoms.get_all_distances(), atol=1e-3)


def test_keyboard(opened):
    """Everything can be reached with Tab; arrows go from point to point and turn structures."""
    seen = set()
    for _ in range(150):
        opened.key("Tab", TAB)
        seen.add(opened.js("document.activeElement.className || document.activeElement.tagName"))
        if opened.js("document.activeElement === nugget.plots[0].canvas"):
            break
    assert {"theme", "viewer", "link"} <= seen
    assert opened.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    opened.key("ArrowRight", RIGHT)
    first = opened.js("nugget.store.selected")
    assert first == opened.js("nugget.plots[0].table.structures[nugget.plots[0].points[0].row]")
    opened.key("ArrowRight", RIGHT)
    assert opened.js("nugget.store.selected") > first
    assert "evaluation 2" in opened.js("document.querySelector('[aria-live]').textContent")
    opened.js("nugget.viewers[0].canvas.focus()")
    before = opened.js("nugget.viewers[0].rotation")
    opened.key("ArrowLeft", LEFT)
    assert opened.js("nugget.viewers[0].rotation") != before


def test_colours_of_atoms(opened):
    picture = opened.js("nugget.viewers[1].canvas.toDataURL()")
    buttons = "[...document.querySelectorAll('.of-gallery .switch button')]"
    names = opened.js(f"{buttons}.map((b) => b.textContent)")
    assert names == ["element", "coordination", "force (eV/Å)", "energy (eV)", "σ (eV)"]
    for k in (1, 2, 3):
        opened.js(f"{buttons}[{k}].click()")
        opened.frames()
        now = opened.js("nugget.viewers[1].canvas.toDataURL()")
        assert now != picture
        picture = now


def test_zoom_and_legend(opened):
    opened.js(POINT.format(plot=0, point=0))  # scrolls there
    left, top = opened.js("[nugget.plots[0].box.left, nugget.plots[0].box.top]")
    box = opened.js(
        "(({ left, top }) => [left, top])(nugget.plots[0].canvas.getBoundingClientRect())"
    )
    opened.drag(box[0] + left + 20, box[1] + top + 10, box[0] + left + 220, box[1] + top + 120)
    view = opened.js("nugget.plots[0].view")
    whole = opened.js("nugget.plots[0].auto")
    assert whole["x"][0] < view["x"][0] < view["x"][1] < whole["x"][1]
    opened.js("nugget.plots[0].canvas.focus()")
    opened.key("0", 48, "0")
    assert opened.js("nugget.plots[0].view") is None
    shown = opened.js("nugget.plots[0].shown().length")
    opened.js("nugget.plots[0].legend.querySelector('button').click()")
    assert opened.js("nugget.plots[0].shown().length") < shown


def test_all_evaluations_as_a_table(opened):
    """It is made when it is opened, can be sorted, and a click on a row shows its structure."""
    table = "document.querySelector('.of-rows table')"
    assert opened.js(f"{table} === null")
    opened.js("document.querySelector('.of-rows summary').click()")
    opened.wait(f"{table} !== null")
    assert opened.js(f"{table}.querySelectorAll('tbody tr').length") == 12
    opened.js(f"{table}.querySelectorAll('th button')[1].click()")
    column = f"[...{table}.querySelectorAll('tbody tr')].map((r) => r.cells[1].textContent)"
    shown = [float(text.replace("−", "-")) for text in opened.js(column) if text]
    assert shown == sorted(shown)
    opened.js(f"{table}.querySelector('tbody button').click()")
    number = opened.js(f"{table}.querySelector('tbody button').textContent")
    title = opened.js("document.querySelector('.inspector h2').textContent")
    assert title == f"evaluation {number}"


def test_dark(browser, report):
    browser.open(report, dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert browser.js(ground) == "rgb(20, 22, 26)"
    browser.js("document.querySelector('.theme').click()")
    assert browser.js(ground) == "rgb(246, 245, 242)"


def test_phone(browser, report):
    browser.messages.clear()
    browser.open(report, width=PHONE, height=844)
    assert browser.js("document.documentElement.scrollWidth") == PHONE
    closed = "getComputedStyle(document.querySelector('.inspector')).display"
    assert browser.js(closed) == "none"
    x, y, structure = browser.js(POINT.format(plot=0, point=5))
    for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        browser.send("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    browser.frames()
    assert browser.js("nugget.store.selected") == structure
    assert browser.js(closed) == "block"
    browser.js("document.querySelector('.inspector .close').click()")
    assert browser.js(closed) == "none"
    assert browser.messages == []


def test_crystals_and_films(browser, tmp_path):
    """A cell is closed by the atoms on its far faces, and downloads as the crystal it is."""
    structures = Structures()
    salt = bulk("NaCl", "rocksalt", a=5.64, cubic=True)
    film = [structures.add(salt, "rock salt")]
    stretched = salt.copy()
    stretched.set_cell(salt.cell * 1.1, scale_atoms=True)
    film.append(structures.add(stretched, "stretched"))
    file = tmp_path / "salt.html"
    parts = [sections.film(film, title="A film"), sections.gallery([sections.item(0, "salt")])]
    write_page(file, page("salt", parts, structures=structures))
    browser.messages.clear()
    browser.open(file.as_uri())
    assert browser.js("nugget.viewers[1].atoms.length") == 27
    # Six neighbours each: 54 bonds inside of a cube of 27.
    assert browser.js("nugget.viewers[1].bonds.length") == 54
    assert browser.js("nugget.viewers[1].edges.length") == 12
    browser.js("document.querySelector('input[type=range]').stepUp()")
    browser.js("document.querySelector('input[type=range]').dispatchEvent(new Event('input'))")
    assert browser.js("nugget.store.selected") == 1
    browser.js("nugget.select(0)")
    button = "document.querySelectorAll('.inspector .downloads button')[{}].click()"
    for k, ending in enumerate((".xyz", ".cif")):
        atoms = downloaded(browser, button.format(k), ending)
        assert atoms.pbc.all()
        assert atoms.get_volume() == pytest.approx(salt.get_volume(), rel=1e-5)
        assert np.allclose(sorted(atoms.get_all_distances(mic=True).ravel()),
                           sorted(salt.get_all_distances(mic=True).ravel()), atol=1e-3)  # fmt: skip
    assert browser.messages == []
