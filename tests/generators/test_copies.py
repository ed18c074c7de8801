"""Copies: the result is symmetric, whatever the elements, and atoms that are left over fit in."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.cluster import Octahedron

from nugget.generators import make_generator
from nugget.generators.copies import _divide, _operations
from nugget.structures.symmetry import point_group
from nugget.systems import PlacedAtoms


def parents(problem: PlacedAtoms, rng: np.random.Generator, n: int = 12) -> list[Atoms]:
    make = make_generator("random_cluster")
    return [made for _ in range(n) if isinstance(made := make(rng, problem), Atoms)]


@pytest.mark.parametrize("formula", ["Au20", "Au13", "Cu6Au7", "Na8Cl8", "Mg3O3"])
def test_random_parents_get_symmetric_children(formula: str) -> None:
    rng, problem = np.random.default_rng(3), PlacedAtoms.cluster(formula)
    known, copies = parents(problem, rng), make_generator("copies")
    before = [point_group(atoms) for atoms in known]
    made = [copies(rng, problem, known) for _ in range(40)]
    children = [atoms for atoms in made if isinstance(atoms, Atoms)]
    assert len(children) >= 30
    groups = [point_group(atoms) for atoms in children]
    assert sum(group != "C1" for group in groups) >= 0.8 * len(groups)
    assert len({group for group in groups if group != "C1"}) >= 2
    assert sum(group != "C1" for group in before) <= 0.2 * len(before)
    assert all(
        atoms.get_chemical_formula() == known[0].get_chemical_formula() for atoms in children
    )


@pytest.mark.parametrize("fold", [1, 2, 3, 4, 5])
def test_a_symmetric_parent_is_kept(fold: int) -> None:
    """An octahedron divided along its own plane or fourfold axis: the images fall on its atoms."""
    atoms = Octahedron("Au", 3)
    x = atoms.positions - atoms.positions.mean(axis=0)
    axis = np.array([0.0, 0.0, 1.0]) if fold in (1, 2, 4) else np.array([1.0, 1.0, 1.0]) / 3**0.5
    images = _operations(axis, fold)
    part, rest, outward = _divide(x, atoms.numbers, axis, fold, 0.1)
    assert sorted(np.concatenate([*part, rest])) == list(range(len(x)))
    assert len({len(some) for some in part}) == 1
    assert outward @ axis == pytest.approx(1.0 if fold == 1 else 0.0)
    if fold == 5:  # not an axis of the octahedron
        return
    for image in images:
        apart = np.linalg.norm((x @ image.T)[:, None] - x, axis=2).min(axis=1)
        assert apart.max() < 1e-9


def test_it_needs_a_free_cluster() -> None:
    copies = make_generator("copies")
    assert not copies.suits(PlacedAtoms.cluster("Au3"))
    assert not copies.suits(PlacedAtoms.bulk("Au8", [8.0, 8.0, 8.0]))
