"""The phase diagram on the page, in the terminal and as a figure."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from page_spec import spec_of, titled

from nugget.errors import NuggetError
from nugget.report.directories import make_pages
from nugget.report.page import Structures
from nugget.report.phase_diagram_figure import diagram_figure
from nugget.report.phase_diagram_sections import (
    boundary_rows,
    diagram_parts,
    omega_lines,
    phase_rows,
    read_diagram,
    suggestion_rows,
)
from nugget.report.search_page import command
from nugget.report.search_verdict import read_search_verdict
from nugget.search.phase_diagram import DIAGRAM, make_diagram, write_diagram
from nugget.search.record import End, Record
from nugget.search.search import Search
from nugget.search.search_settings import make_config
from nugget.search.store import Store

SHAPES = {
    "Cu2": [[0, 0, 0], [2.3, 0, 0]],
    "Cu3": [[0, 0, 0], [2.4, 0, 0], [1.2, 2.1, 0]],
    "Cu4": [[0, 0, 0], [2.4, 0, 0], [1.2, 2.1, 0], [1.2, 0.7, 2.0]],
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three evaluations, without a model and without final relaxations."""
    config = make_config({
        "system": {"vary": "Cu:2-4", "chemical_potential": "Cu=-3.4:-1.0",
                   "reference_energies": {"Cu(atom)": 3.51}},
        "engine": {"name": "emt"}, "search": {"budget": 3},
    })  # fmt: skip
    store = Store.create(tmp_path / "run", config)
    learner = Search(store).learner()
    for k, (formula, positions) in enumerate(SHAPES.items()):
        atoms = Atoms(formula, positions, calculator=EMT())
        results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **results)
        record = Record(k, atoms, "random_cluster")
        store.append(record)
        learner.learn(record)
    write_diagram(store.directory, make_diagram(learner, []))
    store.keep_end(End("finished", "", 3, 3))
    return store.directory


def test_page(run: Path) -> None:
    spec = spec_of(make_pages(run, "report").html)
    assert titled(spec, "Phases of the diagram")["rows"][0][0] == "Cu2"
    assert titled(spec, "Phase diagram")
    assert titled(spec, "Boundaries")
    assert "The stable phases" in json.dumps(read_search_verdict(run).to_dict())


def test_rows(run: Path) -> None:
    diagram = read_diagram(run / DIAGRAM)
    names = [row[0] for row in phase_rows(diagram["phases"])]
    assert names == ["Cu2", "Cu3", "Cu4"]
    [first, *_] = boundary_rows(diagram["boundaries"])
    assert first[0] == " | ".join(diagram["boundaries"][0]["phases"])
    assert first[2] == "–"  # without a model there are no draws
    line = {"phases": ["Pd", "Au"], "atoms": {"Pd": -1, "Au": 1}, "energy": 0.1234,
            "position": None, "low": 0.1, "high": 0.2}  # fmt: skip
    assert boundary_rows([line]) == [["Pd | Au", "-1 Δμ(Pd) +1 Δμ(Au) = 0.123", "0.100 to 0.200"]]
    one = {"formula": "Cu3", "action": "relax", "start": 4, "predicted": -1.0, "std": 0.1,
           "gain": 0.012}  # fmt: skip
    assert suggestion_rows([one]) == [["Cu3", "relax evaluation 5", "−1.000 ± 0.100", "12.0"]]


def test_lines_cross_at_the_boundary(run: Path) -> None:
    diagram = read_diagram(run / DIAGRAM)
    delta, lines = omega_lines(diagram)
    drawn = {name: line for name, _, line in lines}
    for one in diagram["boundaries"]:
        a, b = (np.interp(one["position"], delta, drawn[name]) for name in one["phases"])
        assert a == pytest.approx(b, abs=1e-6)


def test_figures(run: Path) -> None:
    diagram = read_diagram(run / DIAGRAM)
    figure = diagram_figure(diagram, "copper")
    assert len(figure.axes) == 1
    conditions = {"gas": "O2", "temperatures": [300.0, 600.0], "pressures": [1e-3, 1.0],
                  "stable": [[diagram["stable"][0]] * 2, [diagram["stable"][-1]] * 2]}  # fmt: skip
    both = diagram_figure({**diagram, "conditions": conditions})
    assert both.axes[1].get_ylabel() == "log₁₀ p(O2)/bar"
    phases = [{**p, "counts": {"Cu": p["counts"]["Cu"], "Au": k % 2}}
              for k, p in enumerate(diagram["phases"])]  # fmt: skip
    two = {**diagram, "phases": phases, "elements": ["Cu", "Au"],
           "chemical_potential": {"Cu": [-3.0, 0.0], "Au": [-3.0, 0.0]},
           "reservoirs": {"Cu": "Cu(atom)", "Au": "Au(atom)"},
           "reference_energies": {"Cu": 3.5, "Au": 3.8}}  # fmt: skip
    assert "Au" in diagram_figure(two).axes[0].get_ylabel()
    with pytest.raises(NuggetError, match="one or two"):
        diagram_figure({**diagram, "elements": ["Cu", "Au", "O"]})


def test_damaged_file(run: Path) -> None:
    (run / DIAGRAM).write_text("{}")
    with pytest.raises(NuggetError, match="damaged"):
        diagram_parts(run, Structures())
    assert diagram_parts(run, Structures(), live=True) == ([], [])


def test_command_that_repeats_the_search(run: Path) -> None:
    line = shlex.join(command(Search.resume(run).config, run))
    assert line.startswith("nugget search --vary Cu:2-4 --chemical-potential Cu=-3.4:-1.0 ")
    assert "search.generators" not in line
