"""The parts of a page as plain data."""

from __future__ import annotations

import json
from base64 import b64decode
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from ase.build import bulk, molecule

from nugget.report.page import Data, Structures, column, page, sections
from nugget.report.page.document import SCRIPTS, plain, to_json

HOSTILE = "</script><script>alert(1)</script><!-- & \u2028 \udcff"


class Scripts(HTMLParser):
    """What a browser would take for scripts, and the tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.tags: list[str] = []
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._inside = tag == "script"

    def handle_endtag(self, tag):
        self._inside = False

    def handle_data(self, data):
        if self._inside:
            self.scripts.append(data)


def test_structures_are_kept_to_a_ten_thousandth_of_an_angstrom():
    structures = Structures()
    water = molecule("H2O")
    water.positions += 0.123456
    crystal = bulk("NaCl", "rocksalt", a=5.64)
    assert structures.add(water, "water", {"force": [1.0, 2.0, 3.0]}, -1.5) == 0
    assert structures.add(crystal) == 1
    spec = structures.spec()
    first, second = spec["frames"]
    r = np.frombuffer(b64decode(first["r"]), "<i4").reshape(-1, 3) * 1e-4
    assert np.abs(r - water.positions).max() < 0.51e-4
    assert list(np.frombuffer(b64decode(first["z"]), "u1")) == [8, 1, 1]
    assert list(np.frombuffer(b64decode(first["values"]["force"]), "<f4")) == [1, 2, 3]
    assert (first["energy"], first["label"]) == (-1.5, "water")
    assert "cell" not in first
    assert "pbc" not in first
    assert np.allclose(np.reshape(second["cell"], (3, 3)), crystal.cell.array)
    assert second["pbc"] == [1, 1, 1]
    assert {one["symbol"] for one in spec["elements"].values()} == {"H", "O", "Na", "Cl"}


def test_broken_numbers_are_left_out():
    structures = Structures()
    atoms = molecule("H2O")
    atoms.positions[0] = np.nan
    atoms.positions[1] = np.inf
    structures.add(atoms, values={"x": [np.nan, 1, 2]})
    assert plain({"a": np.array([1.0, np.nan]), "b": (np.int64(2), None, float("-inf"))}) == {
        "a": [1.0, None],
        "b": [2, None, None],
    }
    json.loads(to_json(structures.spec()))


def test_columns_are_rounded_and_finite():
    data = Data(
        "d", {"x": column([1, 2, 3]), "y": column([0.123456, 1.0, np.nan], digits=2)}, [0, 1, 2]
    )
    spec = data.spec()
    assert spec["columns"]["x"]["values"] == [1, 2, 3]
    assert spec["columns"]["y"]["values"] == [0.1235, 1.0, None]
    assert spec["structures"] == [0, 1, 2]


def test_no_text_leaves_its_place():
    structures = Structures()
    structures.add(molecule("H2O"), HOSTILE)
    data = Data(HOSTILE, {HOSTILE: column([HOSTILE], HOSTILE, HOSTILE)}, [0])
    parts = [
        sections.text(HOSTILE, title=HOSTILE),
        sections.figures([(HOSTILE,) * 3]),
        sections.table([HOSTILE], [[HOSTILE]], links=["javascript:alert(1)"]),
        sections.code(HOSTILE, filename=HOSTILE),
        sections.gallery([sections.item(0, HOSTILE, [(HOSTILE, HOSTILE)])]),
    ]
    html = page(HOSTILE, parts, structures=structures, data=[data], subtitle=HOSTILE)
    html.encode()  # can be written
    found = Scripts(html)
    assert found.tags.count("script") == 2
    assert "alert(1)" not in found.scripts[1]
    spec = json.loads(found.scripts[0])
    assert spec["sections"][0]["paragraphs"] == [HOSTILE.replace("\udcff", "?")]


def test_a_page_asks_nobody():
    html = page("t", [])
    assert "connect-src 'none'" in html
    assert "unsafe" not in html
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert "https://" not in html
    assert "connect-src 'self'" in page("t", [], live={"address": "news"})


def test_every_script_is_put_into_pages_and_stays_small():
    folder = resources.files("nugget.report.page") / "assets"
    scripts = {file.name: file.read_text() for file in folder.iterdir() if ".js" in file.name}
    assert set(scripts) == {f"{name}.js" for name in SCRIPTS}
    assert all(len(text.splitlines()) <= 300 for text in scripts.values())
    assert all("innerHTML" not in text for text in scripts.values())


@pytest.mark.parametrize("kind", ["min", "rms"])
def test_layers_are_plain(kind):
    layers = [
        sections.points("x", "y", error="s"),
        sections.line("x", "y", "so far", kind, steps=True),
        sections.curve("c", [0, 1], [0, 1], [0, 0], [1, 1]),
        sections.level(1.0), sections.zone(-1, 1, "band"), sections.diagonal(),
    ]  # fmt: skip
    part = sections.plot("d", layers, title="t", y=sections.axis("E", relative=True))
    assert json.loads(to_json(sections.side_by_side(part))) == {"kind": "row", "sections": [part]}
