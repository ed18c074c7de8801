"""Molecules as units: they are named, placed, moved and kept whole."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111

from nugget.errors import NuggetError
from nugget.generators import Failure, make_generator, suits
from nugget.systems import PlacedAtoms

WATER = PlacedAtoms.cluster("H2O*4")


def made(
    problem: PlacedAtoms, name: str, n: int, parents: list[Atoms] | None = None
) -> list[Atoms]:
    generator = make_generator(name)
    found = [generator(np.random.default_rng([7, k]), problem, parents or []) for k in range(n)]
    return [atoms for atoms in found if isinstance(atoms, Atoms)]


def shapes(problem: PlacedAtoms, atoms: Atoms) -> np.ndarray:
    """All distances inside the molecules, in order."""
    x = atoms.positions[problem.n_fixed :]
    return np.concatenate(
        [np.linalg.norm(x[u.atoms][:, None] - x[u.atoms], axis=2).ravel() for u in problem.units]
    )


def test_a_composition_names_molecules_and_atoms() -> None:
    problem = PlacedAtoms.cluster("CO*2,Au3")
    assert [unit.name for unit in problem.units] == ["CO", "CO", "Au", "Au", "Au"]
    assert sorted(problem.symbols) == ["Au"] * 3 + ["C"] * 2 + ["O"] * 2
    joined = np.concatenate([unit.atoms for unit in problem.units])
    assert np.array_equal(joined, np.arange(7))
    assert not PlacedAtoms.cluster("H8O4").units


@pytest.mark.parametrize("text", ["H2O*0", "H2O*", "H2O*x", "Qq*2", "H2O*-1", "*3", "H2O*4,,"])
def test_what_is_no_composition_is_refused(text: str) -> None:
    with pytest.raises(NuggetError):
        PlacedAtoms.cluster(text)


@pytest.mark.parametrize("name", ["random_molecules", "molecule_move", "molecule_splice"])
def test_molecules_stay_rigid_in_generators(name: str) -> None:
    parents = made(WATER, "random_molecules", 4)
    found = made(WATER, name, 10, parents)
    assert len(found) >= 8
    reference = np.concatenate(
        [np.linalg.norm(u.shape[:, None] - u.shape, axis=2).ravel() for u in WATER.units]
    )
    for atoms in found:
        assert WATER.fault(atoms) is None
        assert np.allclose(shapes(WATER, atoms), reference, atol=1e-9)


def test_moves_move_and_leave_other_molecules() -> None:
    [parent] = made(WATER, "random_molecules", 1)
    for child in made(WATER, "molecule_move", 10, [parent]):
        shift = child.positions - parent.positions
        assert np.abs(shift - shift.mean(axis=0)).max() > 0.01


def test_splices_mix_two_parents() -> None:
    parents = made(WATER, "random_molecules", 2)
    child = made(WATER, "molecule_splice", 5, parents)[0]
    for parent in parents:
        assert np.abs(child.get_all_distances() - parent.get_all_distances()).max() > 0.01


def test_faults_of_molecules() -> None:
    [atoms] = made(WATER, "random_molecules", 1)
    x = atoms.positions
    assert WATER.fault(WATER.assemble(x)) is None
    broken = x.copy()
    broken[1] += 0.8 * (broken[1] - broken[0])
    assert WATER.fault(WATER.assemble(broken)) in (
        "a molecule is broken",
        "two atoms are too close",
    )
    split = x.copy()
    split[:3] += 20.0
    assert WATER.fault(WATER.assemble(split)) == "the structure is not connected"
    close = x.copy()
    close[3:6] = close[:3] + 0.3
    assert WATER.fault(WATER.assemble(close)) == "two atoms are too close"


def test_carbon_monoxide_on_a_slab() -> None:
    slab = fcc111("Pt", (3, 3, 2), vacuum=8.0)
    problem = PlacedAtoms.on_template("CO*2", slab)
    found = made(problem, "random_molecules", 6)
    assert len(found) >= 5
    for atoms in found:
        assert np.array_equal(atoms.positions[: len(slab)], slab.positions)
        assert problem.fault(atoms) is None
        assert (atoms.positions[len(slab) :, 2] > slab.positions[:, 2].max()).all()
        lone = atoms.positions.copy()
        lone[len(slab) :, 2] += 4.5
        assert problem.fault(problem.assemble(lone)) is not None


def test_generators_of_atoms_and_of_molecules_are_told_apart() -> None:
    gold = PlacedAtoms.cluster("Au5")
    for name in ("rattle", "random_cluster", "symmetric", "melt"):
        assert suits(make_generator(name), gold)
        assert not suits(make_generator(name), WATER)
    for name in ("random_molecules", "molecule_move", "molecule_splice"):
        assert suits(make_generator(name), WATER)
        assert not suits(make_generator(name), gold)
    single = make_generator("molecule_splice")(
        np.random.default_rng(0), PlacedAtoms.cluster("H2O*1")
    )
    assert isinstance(single, Failure)
