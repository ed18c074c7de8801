"""High energies are compressed, and rejected structures get labels."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.morse import MorsePotential
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.search import Search, make_config
from nugget.search.record import Record, energy_of
from nugget.search.search_settings import RULES, read_config, stored_config
from nugget.search.training_labels import NOISE_SHARE, TrainingSet, failures_before, teaches
from nugget.structures.labels import ENERGY_NOISE
from nugget.systems.goal import LowestEnergy

HERE = Path(__file__).parent


def labelled(shortest: float, move: float = 0.0) -> Atoms:
    """Four Morse atoms in a row, with results; `move` displaces the second one."""
    atoms = Atoms("Au4", [(0, 0, 0), (shortest + move, 0, 0), (6.0, 0.3, 0), (9.0, 0, 0.2)])
    atoms.calc = MorsePotential(epsilon=1.0, rho0=14.0, r0=2.8, rcut1=8.0, rcut2=9.0)
    results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


ORDINARY = (2.55, 2.8, 2.9, 3.4)


def training_set(plain: bool = False) -> TrainingSet:
    return TrainingSet(LowestEnergy(), plain, [labelled(shortest) for shortest in ORDINARY])


def test_ordinary_energies_are_learned_as_they_are() -> None:
    atoms = labelled(2.75)
    assert training_set().add(atoms) is atoms
    assert training_set(plain=True).add(steep := labelled(1.6)) is steep


def test_other_compositions_are_not_compared() -> None:
    known = training_set()
    other = Atoms("Cu4", labelled(2.8).positions)
    other.calc = SinglePointCalculator(other, energy=1000.0)
    assert known.add(other) is other
    steep = known.add(labelled(1.8))
    assert energy_of(steep) < energy_of(labelled(1.8))


def test_high_energies_are_compressed_in_order() -> None:
    pairs = [(labelled(d), training_set().add(labelled(d))) for d in (2.0, 1.9, 1.8, 1.7)]
    true, learned = (np.array([energy_of(p[k]) for p in pairs]) for k in (0, 1))
    assert true[-1] > 1000.0
    assert learned[-1] < 0.1 * true[-1]
    assert np.all(np.diff(true) > 0)
    assert np.all(np.diff(learned) > 0)


def test_forces_are_the_gradient_of_the_compressed_energy() -> None:
    h = 1e-5
    known = training_set()
    high, low = (known._compressed(labelled(2.4, move)) for move in (h, -h))
    slope = (energy_of(high) - energy_of(low)) / (2 * h)
    middle = known._compressed(labelled(2.4))
    assert abs(slope) > 1.0
    assert middle.calc.results["forces"][1, 0] == pytest.approx(-slope, rel=1e-6)


def rejected(iteration: int, failure: str = "implausible", predicted: float = -1e4) -> Record:
    atoms = labelled(2.0)
    atoms.calc = None
    return Record(iteration, atoms, "rattle", failure, predicted=predicted, std=0.1)


def test_a_rejected_structure_is_labelled_with_the_median() -> None:
    known = training_set()
    energies = [energy_of(labelled(d)) for d in ORDINARY]
    atoms = known.reject(rejected(4))
    assert atoms is not None
    assert energy_of(atoms) == pytest.approx(np.median(energies))
    noise = NOISE_SHARE * (np.median(energies) - min(energies)) / 4
    assert atoms.info[ENERGY_NOISE] == pytest.approx(noise)
    assert "forces" not in atoms.calc.results
    repeated = known.reject(rejected(8), failures=4)
    assert repeated is not None
    assert repeated.info[ENERGY_NOISE] == pytest.approx(noise / 4)
    high = known.reject(rejected(9, predicted=77.0))
    assert high is not None
    assert energy_of(high) == 77.0
    assert len(known) == 4
    assert len(known.images()) == 7
    assert training_set(plain=True).reject(rejected(4)) is None


def test_only_failures_of_the_structure_teach() -> None:
    assert teaches(rejected(3), 0)
    assert teaches(rejected(3, "unconverged"), 0)
    assert not teaches(rejected(3, "exception"), 0)
    assert teaches(rejected(3, "exception"), 1)
    assert not teaches(rejected(3, "died"), 5)
    good = Record(0, labelled(2.8), "rattle")
    assert not teaches(good, 3)
    assert failures_before([good]) == 0
    assert failures_before([good, rejected(1), rejected(2), rejected(3)]) == 2
    assert failures_before([rejected(0), rejected(1)]) == 1


SETTINGS = {
    "system": {"formula": "Au6"},
    "engine": {"name": "picky_engine:picky", "verify": False, "retries": 0, "max_failures": 100},
    "model": {"cutoff": 5.0},
    "search": {
        "budget": 14, "candidates": 6, "relax_steps": 30, "initial": 3, "polish": 0, "walkers": 0,
        "seed": 1,
    },
}  # fmt: skip


@pytest.fixture
def picky(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(HERE), *sys.path]))


def run(directory: Path, rules: int) -> Search:
    search = {**SETTINGS["search"], "rules": rules}  # type: ignore[dict-item]
    made = Search.create(make_config({**SETTINGS, "search": search}), directory)
    made.run()
    return made


def test_a_search_avoids_what_was_rejected(tmp_path: Path, picky: None) -> None:
    search = run(tmp_path / "run", RULES)
    records = search.store.records()
    assert any(not record.ok for record in records)
    assert Search.replay(tmp_path / "run", trust=True).same
    # The model expects a higher energy of a rejected structure once it has learned from it.
    failed = next(r for r in records if not r.ok and r.predicted is not None)
    learner = search.learner()
    for record in records[: failed.iteration + 1]:
        learner.learn(record)
    assert learner.predict([failed.atoms])[0][0] > failed.predicted


def test_earlier_searches_keep_their_rules(tmp_path: Path, picky: None) -> None:
    old, new = run(tmp_path / "old", 0), run(tmp_path / "new", RULES)
    a, b = ([r.ok for r in one.store.records()] for one in (old, new))
    assert a.count(False) > b.count(False)
    settings = tmp_path / "old" / "config.toml"
    lines = settings.read_text().splitlines(keepends=True)
    settings.write_text("".join(line for line in lines if not line.startswith("rules")))
    assert read_config(settings).search.rules == RULES  # as the input of a new search
    assert read_config(settings, stored=True).search.rules == 0
    assert stored_config({"system": {"formula": "Au6"}}, "here").search.rules == 0
    assert Search.replay(tmp_path / "old", trust=True).same
