"""Structures in notebooks: a frame with a page of its own."""

from __future__ import annotations

import re
from html import unescape

import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.calculators.singlepoint import SinglePointCalculator
from page_spec import per_atom, spec_of

from nugget.errors import NuggetError
from nugget.report import view

HOSTILE = '"></iframe><script>alert(1)</script>'


def water():
    atoms = molecule("H2O")
    forces = np.arange(9.0).reshape(3, 3)
    atoms.calc = SinglePointCalculator(atoms, energy=-14.2, forces=forces)
    atoms.arrays["energies_uncertainty"] = np.array([0.1, 0.2, 0.3])
    atoms.info["energy_uncertainty"] = 0.25
    return atoms


def test_one_structure():
    shown = view(water(), {HOSTILE: [1, 2, 3]})
    assert repr(shown) == "<View: H2O>"
    html = shown._repr_html_()
    assert html.count("<iframe") == html.count("</iframe>") == 1
    assert "<script" not in html  # it is inside an attribute, escaped
    inner = unescape(re.search(r'srcdoc="([^"]*)"', html)[1])
    assert inner == shown.html
    assert "allow-same-origin" not in html
    spec = spec_of(inner)
    assert spec["bare"]
    frame = spec["structures"]["frames"][0]
    assert frame["label"] == "H2O −14.2000 ± 0.2500 eV"
    lengths = np.linalg.norm(water().get_forces(), axis=1)
    assert np.allclose(per_atom(spec, 0, "force"), lengths)
    assert np.allclose(per_atom(spec, 0, "energy σ"), [0.1, 0.2, 0.3])
    assert np.allclose(per_atom(spec, 0, HOSTILE), [1, 2, 3])


def test_several_structures():
    shown = view([molecule("H2O"), molecule("CH4")], height=300)
    assert repr(shown) == "<View: 2 structures, H2O>"
    assert "height:300px" in shown._repr_html_()
    assert spec_of(shown.html)["sections"][0]["structures"] == [0, 1]


def test_bad_input():
    with pytest.raises(NuggetError, match="nothing to view"):
        view([])
    with pytest.raises(NuggetError, match="too many"):
        view([Atoms("H")] * 501)
    with pytest.raises(NuggetError, match="one number per atom, 3"):
        view(water(), {"x": [1.0]})
    with pytest.raises(NuggetError, match="one at a time"):
        view([water(), water()], {"x": [1, 2, 3]})
