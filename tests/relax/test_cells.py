"""Atoms and cells relaxed together: exact gradients, and the minima of ASE's filter."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.filters import FrechetCellFilter
from ase.optimize import BFGS
from ase.units import GPa

from nugget import SOAP, Potential
from nugget.errors import NuggetError
from nugget.gp.kernels import RBF
from nugget.gp.uncertainty import LabelNoise, ProjectedProcess
from nugget.potential.mean_functions.base import SpeciesEnergies
from nugget.potential.mean_functions.pair_terms import PairWell
from nugget.relax.cell_relaxation import (
    CellCoordinates,
    CellEvaluator,
    cells_on_calculator,
    relax_cells,
)
from nugget.relax.engine_relaxation import CellRelaxation
from nugget.structures.neighbours import CellLists
from nugget.structures.regions import CellLimits


def alloys(n: int, seed: int = 0, repeat: int = 1) -> list[Atoms]:
    """Cells of copper and gold, much smaller than a cutoff, strained and shaken."""
    rng = np.random.default_rng(seed)
    images = []
    for k in range(n):
        atoms = bulk("Cu", "fcc", a=3.75, cubic=True).repeat((repeat, 1, 1))
        atoms.symbols[[0, 1][: 1 + k % 2]] = "Au"
        strain = rng.normal(0, 0.06, (3, 3))
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + strain), scale_atoms=True)
        atoms.rattle(0.1, rng=rng)
        images.append(atoms)
    return images


def labelled(images: list[Atoms]) -> list[Atoms]:
    calculator = EMT()
    for atoms in images:
        atoms.calc = calculator
        results = {
            "energy": atoms.get_potential_energy(),
            "forces": atoms.get_forces(),
            "stress": atoms.get_stress(),
        }
        atoms.calc = SinglePointCalculator(atoms, **results)
    return images


def potential(uncertainty: object) -> Potential:
    made = Potential(
        SOAP(("Au", "Cu"), cutoff=4.5, n_max=3, l_max=2),
        RBF(15.0, 1.0),
        uncertainty=uncertainty,  # type: ignore[arg-type]
        prior=[SpeciesEnergies(), PairWell(complete=True)],
    )
    return made.fit(labelled(alloys(6, seed=5)), use_forces=True, use_stress=True)


@pytest.mark.parametrize(
    "uncertainty", [LabelNoise(label=0.02, prior=0.1), ProjectedProcess()], ids=["committee", "pp"]
)
def test_gradient_of_the_bound_with_pressure_and_walls(uncertainty: object) -> None:
    """By atoms and strain, of E − κσ + pV + walls, far from the reference."""
    images = alloys(3, seed=1)
    coordinates = CellCoordinates.of(images)
    limits = CellLimits((14.0, 14.5), thickness=4.0)  # both walls are felt
    surface = potential(uncertainty).lcb(2.0).on_cells
    evaluate = CellEvaluator(surface, coordinates, pressure=20 * GPa, limits=limits)
    rng = np.random.default_rng(2)
    x = np.concatenate([atoms.positions for atoms in coordinates.start()])
    x += rng.normal(0, 0.1, x.shape)
    every = np.arange(len(images))
    _, gradient = evaluate(x, every)
    push, _ = limits.push(coordinates.decode(x, every).batch)
    assert (push > 0).all()
    step = 1e-5
    strain_rows = np.concatenate([coordinates.offsets[1:] - 2, coordinates.offsets[1:] - 1])
    for row in [*strain_rows, 0, 5, 9]:
        for axis in range(3):
            moved = [x.copy(), x.copy()]
            moved[0][row, axis] += step
            moved[1][row, axis] -= step
            up, down = (evaluate(y, every)[0].sum() for y in moved)
            assert gradient[row, axis] == pytest.approx((up - down) / (2 * step), abs=1e-5)


def test_lists_of_neighbours_give_the_same_surface() -> None:
    """While cells and atoms move far from where the lists were made."""
    images, surface = alloys(4, seed=8), potential(LabelNoise()).lcb(1.0)
    cutoff = surface.state.descriptor.cutoff
    coordinates = CellCoordinates.of(images)
    kept = CellEvaluator(surface.on_cells, coordinates, lists=CellLists(cutoff))
    fresh = CellEvaluator(surface.on_cells, coordinates)
    rng = np.random.default_rng(9)
    x = np.concatenate([atoms.positions for atoms in coordinates.start()])
    for k in range(25):
        active = np.array([0, 1, 3]) if k > 10 else np.arange(4)
        for a, b in zip(kept(x, active), fresh(x, active), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)
        x += rng.normal(0, 0.04, x.shape)
    assert kept.lists is not None
    assert 4 < kept.lists.rebuilds < 60


def test_strain_of_zero_is_the_start() -> None:
    images = alloys(2)
    coordinates = CellCoordinates.of(images)
    x = np.concatenate([atoms.positions for atoms in coordinates.start()])
    here = coordinates.decode(x, np.arange(2)).batch
    np.testing.assert_allclose(here.positions, np.concatenate([a.positions for a in images]))
    np.testing.assert_allclose(here.cells, [a.cell.array for a in images])


def test_the_minima_of_ase() -> None:
    """From the same starts, at a pressure, in a batch."""
    images, pressure = alloys(4, seed=3), 5 * GPa
    ours = relax_cells(images, cells_on_calculator(EMT()), 0.005, 300, pressure=pressure)
    for atoms, found in zip(images, ours, strict=True):
        theirs = atoms.copy()
        theirs.calc = EMT()
        BFGS(FrechetCellFilter(theirs, scalar_pressure=pressure), logfile=None).run(0.005, 300)
        enthalpy = theirs.get_potential_energy() + pressure * theirs.get_volume()
        assert found.converged
        assert found.energy == pytest.approx(enthalpy, abs=2e-4)
        assert found.atoms.get_volume() == pytest.approx(theirs.get_volume(), rel=2e-3)


def test_results_do_not_depend_on_the_batch_or_the_orientation() -> None:
    images = alloys(3, seed=4)
    surface = cells_on_calculator(EMT())
    together = relax_cells(images, surface, 0.01)
    alone = relax_cells(images[1:2], surface, 0.01)[0]
    np.testing.assert_array_equal(together[1].atoms.positions, alone.atoms.positions)
    np.testing.assert_array_equal(together[1].atoms.cell.array, alone.atoms.cell.array)
    turned = images[1].copy()
    turned.rotate(50, (1, 2, 3), rotate_cell=True)
    again = relax_cells([turned], surface, 0.01)[0]
    assert again.energy == pytest.approx(alone.energy, abs=1e-3)


def test_cells_can_stay() -> None:
    images = alloys(2)
    for before, after in zip(
        images, relax_cells(images, cells_on_calculator(EMT()), cell=False), strict=True
    ):
        np.testing.assert_array_equal(before.cell.array, after.atoms.cell.array)
        assert after.converged


def test_walls_hold_the_volume() -> None:
    """At zero pressure a surface without attraction would blow a crystal up for ever."""

    def pushing(batch, pairs):  # type: ignore[no-untyped-def]
        volume = np.abs(np.linalg.det(batch.cells))
        strain = -volume[:, None, None] * np.eye(3) * 0.05
        return -0.05 * volume, np.zeros_like(batch.positions), strain

    found = relax_cells(alloys(2), pushing, 0.01, 300, limits=CellLimits((5.0, 20.0)))
    for one in found:
        assert one.converged
        assert 20.0 < one.atoms.get_volume() / len(one.atoms) < 24.0


class TestCellRelaxation:
    def relaxed(self, run: CellRelaxation, fail_at: int = -1) -> list[Atoms]:
        calculator, seen = EMT(), []
        while not run.done:
            atoms = run.propose()
            if run.evaluations == fail_at:
                run.observe(None)
                continue
            atoms.calc = calculator
            results = {
                "energy": atoms.get_potential_energy(),
                "forces": atoms.get_forces(),
                "stress": atoms.get_stress(),
            }
            atoms.calc = SinglePointCalculator(atoms, **results)
            seen.append(atoms)
            run.observe(atoms)
        return seen

    def test_converges_and_continues_from_what_is_known(self) -> None:
        start = alloys(1, seed=7)[0]
        run = CellRelaxation(start, 0.01)
        seen = self.relaxed(run)
        found = run.result()
        assert found.converged
        assert found.evaluations == len(seen)
        assert np.abs(found.atoms.get_stress()).max() * found.atoms.get_volume() < 0.05
        again = CellRelaxation(start, 0.01)
        for atoms in seen[:5]:
            np.testing.assert_array_equal(again.propose().positions, atoms.positions)
            again.observe(atoms)
        np.testing.assert_array_equal(again.propose().cell.array, seen[5].cell.array)

    def test_a_failure_shortens_the_step(self) -> None:
        run = CellRelaxation(alloys(1, seed=7)[0], 0.01)
        self.relaxed(run, fail_at=3)
        assert run.result().converged

    def test_without_stress_it_says_so(self) -> None:
        atoms = alloys(1)[0]
        run = CellRelaxation(atoms)
        forces = np.zeros((len(atoms), 3))
        atoms.calc = SinglePointCalculator(atoms, energy=1.0, forces=forces)
        run.observe(atoms)
        assert run.done
        assert "no stress" in run.result().reason
        assert not run.result().converged

    def test_refuses_what_has_no_cell(self) -> None:
        with pytest.raises(NuggetError, match="not periodic"):
            CellRelaxation(Atoms("Au2", [[0, 0, 0], [0, 0, 2.5]]))
