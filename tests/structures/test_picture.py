"""Still pictures: every atom and every point is where it belongs, and nothing becomes markup."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, molecule

from nugget.structures.picture import CHART, Line, chart, structure_picture

SVG = "{http://www.w3.org/2000/svg}"


def test_a_structure():
    root = ElementTree.fromstring(structure_picture(molecule("CH3CH2OH")))
    assert len(root.findall(f"{SVG}circle")) == 2 * 9  # a ball and its highlight
    assert len(root.findall(f"{SVG}line")) == 8  # bonds of ethanol
    size = float(root.get("width"))
    for circle in root.findall(f"{SVG}circle"):
        x, y, r = (float(circle.get(name)) for name in ("cx", "cy", "r"))
        assert r <= x <= size - r
        assert r <= y <= size - r


def test_a_crystal_has_its_cell():
    root = ElementTree.fromstring(structure_picture(bulk("NaCl", "rocksalt", a=5.64, cubic=True)))
    thin = [line for line in root.findall(f"{SVG}line") if line.get("stroke-width") == "0.8"]
    assert len(thin) == 12


@pytest.mark.parametrize("atoms", [Atoms(), Atoms("H", [[np.nan, 0, 0]]), Atoms("H1000")])
def test_no_picture(atoms):
    assert structure_picture(atoms) == ""


def test_a_chart():
    text = chart([Line([0, 1, 2], [1.0, np.nan, -3.0], [0.5, 0.5, 0.5], "<b>")], "x", "y", CHART)
    root = ElementTree.fromstring(text)
    [line] = root.findall(f"{SVG}polyline")
    assert len(line.get("points").split()) == 2  # the point that is not finite is omitted
    words = [node.text for node in root.findall(f"{SVG}text")]
    assert "−3.5" in words  # the smallest value, with σ
    assert "1.5" in words
    assert "<b>" in words
    assert "<b>" not in text
    assert chart([Line([], [])], "x", "y", CHART) == ""


def test_heights_follow_values():
    text = chart([Line([0, 1, 2], [0.0, 1.0, 4.0])], "x", "y", CHART)
    points = re.search(r'points="([^"]*)"', text)[1]
    x, y = np.array([p.split(",") for p in points.split()], float).T
    assert np.all(np.diff(x) > 0)
    assert (y[0] - y[1]) / (y[0] - y[2]) == pytest.approx(0.25, abs=0.01)
