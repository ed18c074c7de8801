"""A calculator that learns, under ASE's own algorithms, against the engine itself."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms
from ase.md.langevin import Langevin
from ase.mep import DimerControl, MinModeAtoms, MinModeTranslate
from ase.optimize import BFGS, FIRE
from ase.phonons import Phonons

import nugget
from nugget.onthefly.learning_calculator import (
    LearningCalculator,
    RecheckSchedule,
    exact_force_std,
    force_std,
    labeller,
    novelty,
)
from nugget.onthefly.online_model import FIRST, OnlineModel, adapted
from nugget.potential.evaluate import MEAN, value_and_grad
from nugget.presets import RECIPES
from nugget.structures.batch import as_batch
from nugget.structures.geometry import free_mask


def cluster() -> Atoms:
    """An octahedron of copper with a cap."""
    places = 1.8 * np.array(
        [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1.0], [0.95, 0.95, 0.95]]
    )
    return Atoms("Cu7", places)


def displaced(seed: int, size: float = 0.1) -> Atoms:
    atoms = cluster()
    atoms.rattle(size, rng=np.random.default_rng(seed))
    return atoms


def counted() -> tuple[EMT, list[int]]:
    engine, calls = EMT(), [0]
    inner = engine.calculate

    def calculate(*args, **kwargs):
        calls[0] += 1
        inner(*args, **kwargs)

    engine.calculate = calculate
    return engine, calls


def learned(count: int = 10) -> OnlineModel:
    model, label = OnlineModel(None), labeller(EMT())
    for seed in range(count):
        model.learn(label(displaced(seed)))
    return model


def test_it_is_a_public_name():
    assert nugget.LearningCalculator is LearningCalculator


@pytest.mark.parametrize("optimiser", [BFGS, FIRE])
def test_optimisers_reach_the_engines_minimum(optimiser):
    engine, calls = counted()
    mine, theirs = displaced(1, 0.15), displaced(1, 0.15)
    mine.calc, theirs.calc = LearningCalculator(None, engine, max_force_error=0.05), EMT()
    assert optimiser(mine, logfile=None).run(fmax=0.05, steps=200)
    run = optimiser(theirs, logfile=None)
    run.run(fmax=0.05, steps=200)
    assert calls[0] == len(mine.calc.calls) < run.nsteps + 1
    mine.calc = EMT()
    assert mine.get_potential_energy() == pytest.approx(theirs.get_potential_energy(), abs=0.02)
    assert np.abs(mine.get_forces()).max() < 0.15


def test_langevin_keeps_the_forces_within_what_is_allowed():
    engine, calls = counted()
    atoms, rng = displaced(2, 0.05), np.random.default_rng(2)
    atoms.calc = LearningCalculator(learned().potential, engine, pause=5)
    atoms.set_momenta(rng.normal(size=(7, 3)) * np.sqrt(63.5 * units.kB * 300))
    run = Langevin(atoms, 2 * units.fs, temperature_K=300, friction=0.02, fixcm=False, rng=rng)
    errors = []
    for step in range(120):
        run.step()
        if step % 4 == 0:
            errors.append(EMT().get_property("forces", atoms.copy()) - atoms.get_forces())
    assert 0 < calls[0] < 60
    assert np.mean(np.abs(errors) < 0.1) > 0.95


def test_the_dimer_climbs_to_a_saddle():
    engine, calls = counted()
    atoms = displaced(3, 0.02)
    atoms.set_constraint(FixAtoms([0, 1]))
    atoms.calc = LearningCalculator(learned(7).potential, engine, max_force_error=0.03)
    push = np.zeros((7, 3))
    push[6] = (0.4, -0.4, 0.0)
    control = DimerControl(
        initial_eigenmode_method="displacement", displacement_method="vector",
        logfile=None, mask=[i > 1 for i in range(7)],
    )  # fmt: skip
    dimer = MinModeAtoms(atoms, control, random_seed=1)
    dimer.displace(displacement_vector=push)
    assert MinModeTranslate(dimer, logfile=None).run(fmax=0.1, steps=60)
    assert 0 < calls[0] < 60
    assert np.abs(EMT().get_property("forces", atoms.copy())[2:]).max() < 0.25


def test_a_called_structure_has_the_engines_results_and_no_error_bars():
    atoms = displaced(5, 0.3)
    atoms.calc = LearningCalculator(learned().potential, EMT(), max_force_error=1e-4)
    truth = EMT().get_property("forces", atoms.copy())
    assert np.array_equal(atoms.get_forces(), truth)
    assert atoms.calc.calls[0].reason == "uncertain"
    assert not atoms.calc.results["forces_uncertainty"].any()
    before = len(atoms.calc.calls)
    atoms.calc.forget()
    assert np.array_equal(atoms.get_forces(), truth)
    assert len(atoms.calc.calls) == before  # known to the last bit: not called again


def test_a_failed_engine_leaves_the_prediction():
    atoms = displaced(6, 0.3)
    atoms.calc = LearningCalculator(learned().potential, lambda atoms: None, max_force_error=1e-4)
    expected = learned().potential.predict([displaced(6, 0.3)]).forces
    assert np.allclose(atoms.get_forces(), expected[0])
    assert atoms.calc.calls[0].failed


def test_sigma_grows_by_what_calls_find():
    calculator = LearningCalculator(learned().potential, EMT())
    assert calculator.factor == 1.0
    calculator.scores = [2.0, 2.0, 2.0, 2.0, 2.0]
    assert calculator.factor == pytest.approx(np.sqrt(21 / 6))  # one vote for what was there
    calculator.scores = [0.1] * 5
    assert calculator.factor == 1.0  # it never shrinks what leaving out has found


def test_the_estimate_of_sigma_agrees_with_the_exact_one():
    state, batch = learned().potential.fitted, as_batch(displaced(50, 0.12))
    found = value_and_grad(state, batch, MEAN, keep_rows=True)
    exact, estimate = exact_force_std(found), force_std(found, np.inf)
    assert np.sqrt(np.mean((estimate / exact - 1) ** 2)) < 0.3
    assert np.array_equal(force_std(found, 1e-9), exact)


def test_sigma_is_looked_at_again_when_an_atom_has_moved():
    schedule, here = RecheckSchedule(), as_batch(displaced(4))
    assert not schedule.may_skip(here, 10)
    schedule.checked(here, 10, 0.06, 0.1)  # an atom may move by 0.04 Å
    for shift, rests in ((0.0, True), (0.03, True), (0.05, False)):
        moved = displaced(4)
        moved.positions[3, 1] += shift
        assert schedule.may_skip(as_batch(moved), 10) is rests
    assert not schedule.may_skip(here, 11)  # another model
    schedule.checked(here, 10, 0.2, 0.1)
    assert not schedule.may_skip(here, 10)


def test_sigma_is_known_for_every_structure_that_is_asked_for():
    atoms = displaced(11, 0.05)
    atoms.calc = LearningCalculator(learned().potential, EMT(), max_force_error=10.0)
    atoms.get_forces()
    atoms.positions[2] += 0.01
    forces = atoms.get_forces().copy()
    assert "forces_uncertainty" not in atoms.calc.results
    std = atoms.calc.get_property("forces_uncertainty", atoms)
    expected = exact_force_std(
        value_and_grad(atoms.calc.potential.fitted, as_batch(atoms), MEAN, keep_rows=True)
    )
    assert np.allclose(std, expected)
    assert np.array_equal(atoms.get_forces(), forces)
    assert not atoms.calc.calls


def test_gaussians_are_as_narrow_as_bonds_are_short():
    from ase.build import molecule

    widths = [
        adapted(RECIPES["balanced"], [atoms]).ranges[0].sigma
        for atoms in (cluster(), molecule("H2O"))
    ]
    assert widths[0] == 1.0
    assert widths[1] == pytest.approx(0.5 * molecule("H2O").get_distance(0, 1))


def test_what_is_unknown_counts_as_uncertain():
    potential = learned().potential
    known, strange, stranger = displaced(0), cluster(), cluster()
    strange.positions[6] += 1.2
    stranger.positions *= 0.8
    found = [
        value_and_grad(potential.fitted, as_batch(a), MEAN, keep_rows=True)
        for a in (known, strange, stranger)
    ]
    assert novelty(found[0]).max() < 1e-6
    assert novelty(found[2]).max() > 0.1
    std = [exact_force_std(one).max() for one in found]
    assert std[0] < 0.1
    assert min(std[1:]) > 0.2


def test_a_restored_model_is_the_same_to_the_last_bit():
    model = learned(FIRST + 3)
    again = OnlineModel(None)
    again.restore(model.images)
    for name, value in model.potential.fitted.regression.state().items():
        assert np.array_equal(again.potential.fitted.regression.state()[name], value), name
    assert again.potential.fitted.uncertainty.settings == (
        model.potential.fitted.uncertainty.settings
    )


def test_fixed_components_do_not_matter():
    atoms = cluster()
    atoms.set_constraint(FixAtoms([2]))
    assert not free_mask(atoms)[2].any()
    assert free_mask(atoms).sum() == 18


def test_the_stress_is_learned_too():
    atoms = bulk("Cu", cubic=True)
    atoms.calc = LearningCalculator(None, EMT())
    for seed in range(8):
        atoms.rattle(0.05, rng=np.random.default_rng(seed))
        atoms.get_forces()
    atoms.calc.frozen = True
    atoms.rattle(0.01, rng=np.random.default_rng(9))
    truth = EMT().get_property("stress", atoms.copy())
    assert np.allclose(atoms.get_stress(), truth, atol=0.02)


def frequencies(calculator, folder) -> np.ndarray:
    """Of copper at three points of the zone, eV, by ASE's finite displacements."""
    phonons = Phonons(bulk("Cu"), calculator, supercell=(2, 2, 2), delta=0.05, name=str(folder))
    phonons.run()
    phonons.read(acoustic=True)
    points = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.5], [0.25, 0.25, 0.0]]
    return np.asarray(phonons.band_structure(points))


def test_phonons_are_those_of_the_engine(tmp_path):
    engine, calls = counted()
    calculator = LearningCalculator(None, engine, max_force_error=0.02)
    atoms = bulk("Cu") * (2, 2, 2)
    atoms.calc = calculator
    for seed in range(6):
        moved = bulk("Cu") * (2, 2, 2)
        moved.rattle(0.06, rng=np.random.default_rng(seed))
        atoms.positions = moved.positions
        atoms.get_forces()
    learned_from = calls[0]
    mine = frequencies(calculator, tmp_path / "mine")
    theirs = frequencies(EMT(), tmp_path / "theirs")
    assert np.allclose(mine, theirs, rtol=0.05, atol=5e-4)
    assert calls[0] - learned_from < 4  # of seven structures
