"""Generators of crystals: valid, repeatable, and with the symmetry that they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk

from nugget.errors import NuggetError
from nugget.generators import Failure, Mixer, make_generator, suits
from nugget.generators.wyckoff import integer_basis, space_group
from nugget.structures.geometry import (
    distances,
    random_cell,
    random_multiple,
    reduced,
    repeated,
    volume_per_atom,
)
from nugget.structures.identity import same_crystal
from nugget.systems import Crystal, PlacedAtoms
from nugget.systems.crystal import CRYSTAL_GENERATORS

PROBLEMS = [Crystal("Si", (2, 8)), Crystal("Cu3Au", (1, 2)), Crystal("MgO", (1, 4), 0.1, 9.0)]


def parents(problem: Crystal, n: int = 4) -> list[Atoms]:
    make = make_generator("random_crystal")
    made = [make(np.random.default_rng([7, k]), problem) for k in range(n)]
    return [atoms for atoms in made if isinstance(atoms, Atoms)]


@pytest.mark.parametrize("name", CRYSTAL_GENERATORS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.formula)
def test_contract(name: str, problem: Crystal) -> None:
    generator = make_generator(name)
    pool = parents(replace(problem, units=(1, 2)) if name == "supercell" else problem)
    if not suits(generator, problem):
        assert isinstance(generator(np.random.default_rng(0), problem, pool), Failure)
        return
    before = [atoms.copy() for atoms in pool]
    made = 0
    for k in range(6):
        first, again = (generator(np.random.default_rng([1, k]), problem, pool) for _ in range(2))
        if isinstance(first, Failure):
            assert isinstance(again, Failure)
            continue
        made += 1
        np.testing.assert_array_equal(first.positions, again.positions)
        np.testing.assert_array_equal(first.cell.array, again.cell.array)
        assert first.info["generator"] == name
        units = problem.units_of(first)
        assert problem.units[0] <= units <= problem.units[1]
        np.testing.assert_array_equal(first.numbers, problem.numbers_of(units))
        assert problem.fault(first) is None
        np.testing.assert_allclose(reduced(first).cell.lengths(), first.cell.lengths())
    assert made
    for atoms, old in zip(pool, before, strict=True):
        assert atoms == old
    if generator.needs:
        assert isinstance(generator(np.random.default_rng(0), problem, []), Failure)


def test_crystals_and_clusters_do_not_mix() -> None:
    cluster, alloy = PlacedAtoms.cluster("Au8"), PROBLEMS[1]
    assert not suits(make_generator("random_crystal"), cluster)
    assert not suits(make_generator("rattle"), alloy)
    with pytest.raises(NuggetError, match="random_crystal"):
        Mixer([make_generator("rattle")]).probabilities(alloy, 5)


def test_orbits_have_the_symmetry_of_their_group() -> None:
    """Every operation takes every atom to one of the same element, and keeps distances."""
    rng = np.random.default_rng(0)
    for number in (2, 15, 62, 88, 136, 148, 166, 194, 205, 216, 227):
        group = space_group(number)
        cell = group.symmetrised(random_cell(rng, 100.0))
        for r in group.rotations:
            np.testing.assert_allclose(r.T @ (cell @ cell.T) @ r, cell @ cell.T, atol=1e-8)
        for site in group.sites:
            orbit = group.orbit(site.constant + site.projector @ rng.random(3))
            assert len(orbit) == site.multiplicity
            for r, t in zip(group.rotations, group.translations, strict=True):
                assert distances(orbit @ r.T + t, orbit, np.eye(3)).min(axis=1).max() < 1e-6


@pytest.mark.parametrize(
    ("number", "sites"),
    # multiplicities of the points without freedom in the International Tables, per primitive cell
    [
        (2, [1] * 8),
        (225, [1, 1, 2, 6]),
        (216, [1, 1, 1, 1]),
        (227, [2, 2, 4, 4]),
        (139, [1, 1, 2, 2, 4]),
    ],
)
def test_special_points_are_those_of_the_tables(number: int, sites: list[int]) -> None:
    points = [site.multiplicity for site in space_group(number).sites if site.freedom == 0]
    assert sorted(points) == sites


def test_integer_basis() -> None:
    centred = np.array(
        [[0, 0, 0], [0, 6, 6], [6, 0, 6], [6, 6, 0], [12, 0, 0], [0, 12, 0], [0, 0, 12]]
    )
    basis = integer_basis(centred)
    assert abs(round(np.linalg.det(basis / 12.0) * 4)) == 1
    assert np.allclose(np.rint(centred @ np.linalg.inv(basis)), centred @ np.linalg.inv(basis))


def test_supercells_are_the_same_crystal() -> None:
    rng, atoms = np.random.default_rng(4), parents(PROBLEMS[2])[0]
    for times in (2, 3, 4, 6):
        matrix = random_multiple(rng, times)
        large = repeated(atoms, matrix)
        assert round(np.linalg.det(matrix)) == times
        assert len(large) == times * len(atoms)
        d_small, d_large = (
            np.sort(reduced(one).get_all_distances(mic=True)[0])[1:3] for one in (atoms, large)
        )
        assert d_large[0] <= d_small[0] + 1e-8


def test_volumes_are_learned() -> None:
    problem = Crystal("Si", (2, 2))
    small, large = (Atoms("Si2", [[0] * 3, [1.5] * 3], cell=[a] * 3, pbc=True) for a in (3.4, 4.5))
    learned = problem.updated([small, large], [-8.0, -9.0])
    lowest = problem.updated([small] * 3 + [large], [-8.0] * 3 + [-2.0])
    assert lowest.volume == pytest.approx(volume_per_atom(small))
    assert volume_per_atom(small) < learned.volume < volume_per_atom(large)
    assert learned.guess == problem.guess
    pressed = Crystal("Si", (2, 2), pressure=0.5)
    assert pressed.objective(large, -9.0) > pressed.objective(small, -8.0)


def test_refusals() -> None:
    with pytest.raises(NuggetError, match="units"):
        Crystal("Si", (3, 2))
    with pytest.raises(NuggetError, match="formula"):
        Crystal("Xx2")


def chain(ratio: float) -> Atoms:
    """Silicon atoms in a row, so many covalent radii apart."""
    step = ratio * 2 * 1.11
    return Atoms("Si", cell=[step, 4.0, 4.0], pbc=True)


class TestLearnedDistances:
    problem = Crystal("Si", (1, 4))

    def ratio(self, *known: tuple[float, float]) -> float:
        images = [chain(ratio) for ratio, _ in known]
        return self.problem.updated(images, [energy for _, energy in known]).min_ratio

    def test_what_was_bad_is_forbidden(self) -> None:
        found = self.ratio((1.0, -4.0), (1.02, -3.9), (1.1, -3.5), (0.8, 9.0), (0.78, 20.0))
        assert found == pytest.approx(1.03 * 0.8)

    def test_not_what_was_good(self) -> None:
        assert self.ratio((1.0, -4.0), (1.02, -3.9), (1.1, -3.5), (0.79, -4.1)) == 0.75
        assert self.ratio((1.0, -4.0), (0.8, 9.0), (0.78, -3.8)) == 0.75

    def test_never_close_to_the_lowest(self) -> None:
        found = self.ratio((1.0, -4.0), (1.02, -3.9), (1.1, -3.5), (0.98, 9.0))
        assert found == pytest.approx(0.9)

    def test_nothing_known(self) -> None:
        assert self.problem.updated([], []) is self.problem
        assert self.ratio((1.0, 0.0)) == 0.75


def test_adopted_crystals_keep_their_atoms() -> None:
    problem = Crystal("SiC", (1, 2))
    given = bulk("SiC", "zincblende", a=4.4) * (1, 2, 1)
    given = given[[1, 0, 3, 2]]
    given.set_cell(given.cell.array @ np.eye(3) + 0.0)
    found = problem.to_frame(given)
    assert found is not None
    made, order = found
    assert made.get_chemical_symbols() == ["Si", "Si", "C", "C"]
    np.testing.assert_array_equal(given.numbers[order], made.numbers)
    assert same_crystal(made, given)
    assert problem.to_frame(given * (1, 1, 2)) is None  # too many units
    assert problem.to_frame(Atoms("Si", cell=[3, 3, 3], pbc=True)) is None
    assert problem.to_frame(Atoms("SiC", cell=[3, 3, 3])) is None
