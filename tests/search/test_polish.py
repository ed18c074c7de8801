"""The end of a search: its lowest structures become minima of the engine."""

from __future__ import annotations

from pathlib import Path

import ase.db
import numpy as np
import pytest
from ase.calculators.emt import EMT
from ase.io import read
from ase.optimize import BFGS
from flights import settings

from nugget.search import Search, make_config


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
