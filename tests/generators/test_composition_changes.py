"""Generators that change the composition: insert, remove and exchange."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111
from hypothesis import given, settings
from hypothesis import strategies as st

from nugget.generators import Failure, make_generator
from nugget.generators.base import composition_difference
from nugget.systems.placed_atoms import PlacedAtoms
from nugget.testing import check_generator

SLAB = fcc111("Cu", (2, 2, 2), vacuum=6.0)


def system(formula: str, slab: bool = False) -> PlacedAtoms:
    if slab:
        return PlacedAtoms.on_template(formula, SLAB, 4.0)
    return PlacedAtoms.cluster(formula, 8.0)


def structure(of: PlacedAtoms, seed: int = 0) -> Atoms:
    made = make_generator(of.start_generator)(np.random.default_rng(seed), of)
    assert isinstance(made, Atoms)
    return made


@pytest.mark.parametrize("name", ["insert", "remove", "exchange"])
def test_contract(name: str) -> None:
    check_generator(make_generator(name))


@pytest.mark.parametrize("slab", [False, True])
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_insert_keeps_all_atoms(slab: bool, seed: int) -> None:
    parent = structure(system("Pt2O2", slab))
    target = system("Pt3O3", slab)
    made = make_generator("insert")(np.random.default_rng(seed), target, [parent])
    assert isinstance(made, Atoms)
    assert np.array_equal(made.numbers, target.numbers)
    assert target.fault(made) is None
    # A cluster is moved to the centre; distances stay.
    for z in (78, 8):
        mine = made.positions[made.numbers == z]
        before = parent.positions[parent.numbers == z]
        gaps = np.linalg.norm(mine[:, None] - mine, axis=-1)
        kept = np.linalg.norm(before[0] - before[1])
        assert np.isclose(gaps, kept, atol=1e-9).any()


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_remove_takes_placed_atoms_only(seed: int) -> None:
    parent = structure(system("Cu3O2", slab=True))
    target = system("Cu2O1", slab=True)
    made = make_generator("remove")(np.random.default_rng(seed), target, [parent])
    if isinstance(made, Failure):  # an atom may have lost its only neighbour
        return
    assert np.array_equal(made.positions[:8], SLAB.positions)
    placed = {tuple(row) for row in made.positions[8:].round(9)}
    assert placed <= {tuple(row) for row in parent.positions[8:].round(9)}


def test_exchange_keeps_positions() -> None:
    parent = structure(system("Pt4Au4"))
    target = system("Pt2Au6")
    made = make_generator("exchange")(np.random.default_rng(3), target, [parent])
    assert isinstance(made, Atoms)
    assert composition_difference(target, parent) == ({79: 2}, {78: 2})
    assert np.allclose(np.sort(made.positions, axis=0), np.sort(parent.positions, axis=0))
    gold = {tuple(p.round(6)) for p in parent.positions[parent.numbers == 79]}
    assert gold <= {tuple(p.round(6)) for p in made.positions[made.numbers == 79]}


@pytest.mark.parametrize(
    ("name", "parent", "target"),
    [("insert", "Pt4", "Pt4"), ("insert", "Pt4", "Pt9"), ("insert", "Pt4O", "Pt5"),
     ("remove", "Pt4", "Pt5"), ("remove", "Pt4O", "Pt3Au"), ("exchange", "Pt4", "Pt5"),
     ("exchange", "Pt8", "Pt3Au5")],
)  # fmt: skip
def test_unsuitable_parents(name: str, parent: str, target: str) -> None:
    made = make_generator(name)(
        np.random.default_rng(0), system(target), [structure(system(parent))]
    )
    assert isinstance(made, Failure)
    assert "composition" in made.reason


def test_suitable_parents_are_found_among_others() -> None:
    """Ordinary generators take the parents of the composition, the others their neighbours."""
    parents = [structure(system(one)) for one in ("Pt3", "Pt4", "Pt5", "Pt4O")]
    rng, target = np.random.default_rng(0), system("Pt4")
    for name in ("rattle", "insert", "remove"):
        assert isinstance(make_generator(name)(rng, target, parents), Atoms), name
    assert isinstance(make_generator("cut_and_splice")(rng, target, parents), Failure)
