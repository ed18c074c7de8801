"""The end of a search: its lowest structures become minima of the engine."""

from __future__ import annotations

from pathlib import Path

import ase.db
import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read
from ase.optimize import BFGS
from flights import settings

from nugget.relax.relaxation import RelaxationEnd, Relaxed
from nugget.search import Search, make_config
from nugget.search.polish import below_relaxed_hull, distinct_minima, make_phases
from nugget.search.record import Record
from nugget.systems.goal import AboveHull, Goal, Hull


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("polish") / "run"
    Search.create(make_config(settings(in_flight=1, budget=8, polish=2)), directory).run()
    return directory


def test_the_best_structure_is_a_minimum_of_the_engine(run: Path) -> None:
    best = read(run / "best.extxyz")
    evaluated = min(record.energy for record in Search.resume(run).store.records())
    assert best.get_potential_energy() <= evaluated + 1e-3
    assert np.linalg.norm(best.get_forces(), axis=1).max() <= 0.05
    before = best.get_potential_energy()
    best.calc = EMT()
    assert best.get_potential_energy() == pytest.approx(before, abs=1e-9)
    BFGS(best, logfile=None).run(fmax=0.001, steps=300)
    assert before - best.get_potential_energy() < 0.01


def test_minima_are_distinct_and_in_order(run: Path) -> None:
    minima = read(run / "minima.extxyz", ":")
    energies = [atoms.get_potential_energy() for atoms in minima]
    assert 1 <= len(minima) <= 2
    assert energies == sorted(energies)
    assert energies[0] == read(run / "best.extxyz").get_potential_energy()
    for atoms in minima:
        assert atoms.info["converged"]
        assert atoms.info["met"] >= 1
        assert atoms.info["point_group"]


def test_polishing_counts_apart_and_is_not_repeated(run: Path) -> None:
    search = Search.resume(run)
    assert len(search.store.records()) == 8  # the budget
    rows = len(ase.db.connect(run / "search.db"))
    assert rows > 8
    again = search.run()
    assert again.evaluations == 8
    assert len(ase.db.connect(run / "search.db")) == rows
    assert Search.replay(run).same


def test_none_is_none(tmp_path: Path) -> None:
    result = Search.create(make_config(settings(budget=4, polish=0)), tmp_path / "run").run()
    assert result.minima == ()
    assert not (tmp_path / "run" / "minima.extxyz").exists()


def test_a_hull_is_decided_by_relaxed_phases() -> None:
    """A low phase that was not relaxed is relaxed first; it is no vertex before."""
    cell = {"cell": [3, 3, 3], "pbc": True}
    goal: Goal = AboveHull(hull=Hull((29, 79)))
    energies = {"Cu": -3.0, "Au": -2.0, "CuAu": -6.0, "Cu3Au": -14.0}
    records = []
    for k, (formula, energy) in enumerate(energies.items()):
        atoms = Atoms(formula, **cell)
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=np.zeros((len(atoms), 3)))
        records.append(Record(k, atoms, "start"))
        goal = goal.informed(atoms, energy)
    done = [Relaxed(r.atoms, r.energy, 0.0, 1, RelaxationEnd.CONVERGED) for r in records]
    assert below_relaxed_hull(goal, records, records[:1], done[:1]) == [records[1]]  # an element
    assert below_relaxed_hull(goal, records, records[:2], done[:2]) == [records[3], records[2]]
    assert below_relaxed_hull(goal, records, records, done) == []
    minima = distinct_minima(records, records[:3], done[:3], goal)
    phases = {one.formula: one for one in make_phases(goal, records, minima)}
    assert not phases["Cu3Au"].stable
    assert not phases["Cu3Au"].relaxed
    assert phases["CuAu"].stable
