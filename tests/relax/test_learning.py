"""Relaxation with an expensive engine: the engine decides, and is asked less often."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import add_adsorbate, fcc100
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from ase.optimize import BFGS
from example_structures import gold_cluster

from nugget.relax.engine_relaxation import (
    LearningRelaxation,
    QuasiNewton,
    _is_chosen_anew,
    relax_with_engine,
)
from nugget.relax.local_surrogate import CorrectedSurrogate, PairFeatures, Point


def evaluated(atoms: Atoms) -> Atoms:
    atoms.calc = EMT()
    atoms.get_forces()
    return atoms


def slab() -> Atoms:
    atoms = fcc100("Al", (2, 2, 2), vacuum=5.0)
    add_adsorbate(atoms, "Au", 1.7, "bridge")
    atoms.set_constraint(FixAtoms(mask=[atom.tag > 1 for atom in atoms]))
    atoms.positions[-1] += [0.2, 0.1, 0.2]
    return atoms


@pytest.mark.parametrize("start", [gold_cluster(13, 3), slab()], ids=["cluster", "slab"])
def test_converged_by_the_engines_forces_in_fewer_evaluations(start: Atoms) -> None:
    [found] = relax_with_engine([start], evaluated, fmax=0.05)
    assert found.converged, found.reason
    fresh = found.atoms.copy()
    fresh.calc = EMT()
    assert np.linalg.norm(fresh.get_forces(), axis=1).max() <= 0.05
    assert fresh.get_potential_energy() == pytest.approx(found.energy, abs=1e-9)
    fixed = [i for c in start.constraints for i in c.index]
    np.testing.assert_array_equal(found.atoms.positions[fixed], start.positions[fixed])
    rival = start.copy()
    rival.calc = EMT()
    optimiser = BFGS(rival, logfile=None)
    optimiser.run(fmax=0.05, steps=300)
    assert found.evaluations < 0.7 * (optimiser.nsteps + 1)


def test_an_engine_that_fails_ends_with_the_best_so_far() -> None:
    calls = []

    def sometimes(atoms: Atoms) -> Atoms | None:
        calls.append(atoms)
        return evaluated(atoms) if len(calls) <= 2 else None

    [found] = relax_with_engine([gold_cluster(8, 1)], sometimes)
    assert not found.converged
    assert "failed" in found.reason
    assert np.isfinite(found.energy)


def test_going_on_from_what_was_observed_proposes_the_same() -> None:
    first, second = (LearningRelaxation(gold_cluster(8, 2)) for _ in range(2))
    seen = []
    for _ in range(3):
        seen.append(evaluated(first.propose()))
        first.observe(seen[-1])
    for atoms in seen:
        second.observe(atoms)
    np.testing.assert_array_equal(first.propose().positions, second.propose().positions)


def test_an_engine_that_goes_astray_is_not_followed():
    """A false SCF solution: far lower, with forces to match. It counts as a failure."""
    truth, wrong = EMT(), [0]

    def evaluate(atoms: Atoms) -> Atoms:
        energy, forces = truth.get_potential_energy(atoms), truth.get_forces(atoms)
        wrong[0] += 1
        if wrong[0] in (2, 5):
            energy, forces = energy - 1e4, 1e4 * (1.0 + forces)
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
        return atoms

    start = gold_cluster(8, 0)
    honest = relax_with_engine([start], evaluated, 0.05, 100)[0]
    done = relax_with_engine([start], evaluate, 0.05, 100)[0]
    assert wrong[0] >= 5
    assert done.converged
    assert done.energy == pytest.approx(honest.energy, abs=0.02)


def test_quasi_newton_steps_reach_the_minimum_of_a_soft_valley() -> None:
    """Curvatures of 0.5 to 60 eV/Å², as those of hydrogen bonds and of covalent bonds."""
    rng = np.random.default_rng(3)
    modes = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    hessian = modes @ np.diag([0.5, 1.0, 5.0, 20.0, 40.0, 60.0]) @ modes.T

    def point(x: np.ndarray) -> Point:
        return Point(x, float(0.5 * x @ hessian @ x), hessian @ x)

    here = point(rng.normal(scale=0.2, size=6))
    descent = QuasiNewton(here)
    for _ in range(60):
        here = point(descent.next())
        descent.learn(here)
    assert np.max(np.abs(here.gradient)) < 1e-3


def emt(start: Atoms, factor: float = 1.0):
    """EMT as mean function, with a factor on its energies."""

    def baseline(positions: np.ndarray) -> tuple[float, np.ndarray]:
        atoms = start.copy()
        atoms.positions = positions
        evaluated(atoms)
        return factor * atoms.get_potential_energy(), -factor * atoms.get_forces()

    return baseline


def test_a_mean_function_saves_evaluations() -> None:
    start = gold_cluster(13, 3)
    alone = LearningRelaxation(start).run(evaluated)
    exact = LearningRelaxation(start, baseline=emt(start)).run(evaluated)
    similar = LearningRelaxation(start, baseline=emt(start, 0.9)).run(evaluated)
    assert exact.converged
    assert similar.converged
    assert exact.evaluations < alone.evaluations
    assert similar.evaluations < alone.evaluations


def test_the_corrected_surrogate_passes_through_the_points_with_their_slopes() -> None:
    start = gold_cluster(6, 1)
    free = np.ones((6, 3), dtype=bool)
    points = []
    for k in range(3):
        atoms = start.copy()
        atoms.rattle(0.05, seed=k)
        evaluated(atoms)
        x, gradient = atoms.positions.ravel(), -atoms.get_forces().ravel()
        points.append(Point(x, atoms.get_potential_energy(), gradient))
    model = CorrectedSurrogate(PairFeatures(start, free), points, emt(start, 0.8))
    for point in points:
        energy, gradient = model(point.x)
        assert energy == pytest.approx(point.energy, abs=0.01)
        np.testing.assert_allclose(gradient, point.gradient, atol=0.03)
    x, step = points[0].x + 0.03, np.zeros(18)
    step[4] = 1e-5
    for kappa in (0.0, 2.0):
        slope = (model(x + step, kappa)[0] - model(x - step, kappa)[0]) / 2e-5
        assert model(x, kappa)[1][4] == pytest.approx(slope, abs=1e-4)


def test_hyperparameters_are_chosen_ever_less_often() -> None:
    chosen = [number for number in range(1, 60) if _is_chosen_anew(number)]
    assert chosen[:6] == [1, 2, 3, 4, 5, 6]
    steps = np.diff(chosen[5:])
    assert np.all(steps >= 2)
    assert np.all(np.diff(steps) >= 0)
    assert steps[-1] > 5
