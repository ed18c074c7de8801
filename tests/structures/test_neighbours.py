"""Pairs of neighbours: those of ASE's list, alone or in a batch, and while atoms move."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.neighborlist import neighbor_list
from example_structures import SYSTEMS, gold_cluster

from nugget.structures.batch import as_batch
from nugget.structures.neighbours import Verlet, _vesin_pairs, find_pairs

MIXED = [atoms for images in SYSTEMS.values() for atoms in images]


def directed(atoms: Atoms, cutoff: float) -> set[tuple[int, int, float]]:
    """Our half list made whole, as comparable (i, j, distance)."""
    batch = as_batch(atoms)
    pairs = find_pairs(batch, cutoff)
    lengths = pairs.distances(batch).round(6)
    both = list(zip(pairs.i, pairs.j, lengths, strict=True))
    return sorted(both + [(j, i, r) for i, j, r in both])


@pytest.mark.parametrize("cutoff", [2.0, 6.0])
@pytest.mark.parametrize("atoms", [*MIXED, bulk("Cu", cubic=True), gold_cluster(500, 3)])
def test_pairs_are_those_of_ase(atoms: Atoms, cutoff: float) -> None:
    i, j, r = neighbor_list("ijd", atoms, cutoff)
    expected = sorted(zip(i, j, r.round(6), strict=True))
    assert directed(atoms, cutoff) == expected


@pytest.mark.parametrize("n", [1, 20, 450])
def test_an_infinite_cutoff_gives_every_pair_of_a_cluster(n: int) -> None:
    batch = as_batch(gold_cluster(n, 0))
    pairs = find_pairs(batch, np.inf)
    order = np.lexsort((pairs.j, pairs.i))
    i, j = np.triu_indices(n, 1)
    np.testing.assert_array_equal(pairs.i[order], i)
    np.testing.assert_array_equal(pairs.j[order], j)
    expected = np.linalg.norm(batch.positions[i] - batch.positions[j], axis=1)
    np.testing.assert_allclose(pairs.distances(batch)[order], expected)


def test_pairs_of_a_mixed_batch_are_those_of_its_members() -> None:
    batch = as_batch(MIXED)
    pairs = find_pairs(batch, 6.0)
    for s, atoms in enumerate(MIXED):
        alone = find_pairs(as_batch(atoms), 6.0)
        rows = slice(pairs.offsets[s], pairs.offsets[s + 1])
        np.testing.assert_array_equal(pairs.i[rows] - batch.offsets[s], alone.i)
        np.testing.assert_array_equal(pairs.j[rows] - batch.offsets[s], alone.j)
        np.testing.assert_array_equal(pairs.shift[rows], alone.shift)


def test_select_takes_structures_with_their_pairs() -> None:
    batch = as_batch(MIXED)
    pairs = find_pairs(batch, 5.0)
    chosen = np.array([4, 0, 2])
    part = batch.select(chosen)
    expected = find_pairs(as_batch([MIXED[s] for s in chosen]), 5.0)
    got = pairs.select(batch, chosen)
    np.testing.assert_array_equal(part.positions, as_batch([MIXED[s] for s in chosen]).positions)
    for name in ("i", "j", "shift", "offsets"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))


def test_verlet_rebuilds_only_when_an_atom_has_moved_half_a_skin() -> None:
    batch = as_batch([gold_cluster(13, 1), SYSTEMS["NaCl"][0]])
    verlet = Verlet(cutoff=5.0, skin=0.6)
    first = verlet.pairs(batch)
    near = batch.with_positions(batch.positions + 0.29 / np.sqrt(3))
    assert verlet.pairs(near) is first
    far = batch.positions.copy()
    far[3, 0] += 0.31
    assert verlet.pairs(batch.with_positions(far)) is not first
    assert verlet.rebuilds == 2


def test_verlet_never_misses_a_pair_on_a_random_walk() -> None:
    rng = np.random.default_rng(0)
    batch = as_batch(SYSTEMS["slab"] + [gold_cluster(13, 1)])
    verlet = Verlet(cutoff=4.0, skin=0.5)
    for _ in range(30):
        batch = batch.with_positions(batch.positions + rng.normal(0, 0.05, batch.positions.shape))
        kept = verlet.pairs(batch)
        exact = find_pairs(batch, 4.0)
        assert (kept.distances(batch) < 4.0).sum() == len(exact.i)
    assert 1 < verlet.rebuilds < 30


def test_verlet_follows_structures_that_leave() -> None:
    batch = as_batch([gold_cluster(8, s) for s in range(4)])
    verlet = Verlet(cutoff=5.0)
    verlet.pairs(batch)
    stay = np.array([1, 3])
    verlet.select(stay)
    pairs = verlet.pairs(batch.select(stay))
    assert verlet.rebuilds == 1
    np.testing.assert_array_equal(pairs.i, find_pairs(batch.select(stay), 5.5).i)


@pytest.mark.parametrize("n", [3, 5])  # by the loop over all pairs, and by vesin (500 atoms)
def test_lists_that_reach_further_have_the_same_pairs_in_the_same_order(n: int) -> None:
    crystal = bulk("Cu", cubic=True).repeat(n)
    crystal.rattle(0.3, seed=1)
    crystal.positions[:7] += 2.5 * crystal.cell.array[1]  # atoms may have left their cell
    batch = as_batch(crystal)
    near, far = find_pairs(batch, 4.0), find_pairs(batch, 4.7)
    kept = far.distances(batch) < 4.0
    for name in ("i", "j", "shift"):
        np.testing.assert_array_equal(getattr(far, name)[kept], getattr(near, name))
    assert np.all(near.i <= near.j)


def test_both_finders_give_the_same_list() -> None:
    atoms = bulk("Cu", cubic=True).repeat((1, 2, 2))
    atoms.rattle(0.2, seed=2)
    atoms.set_cell(atoms.cell.array + 0.3, scale_atoms=True)
    for pbc in ([True] * 3, [True, False, True], False):
        atoms.pbc = pbc
        batch = as_batch(atoms)
        loop, vesin = find_pairs(batch, 5.0), _vesin_pairs(batch, 0, 5.0)
        np.testing.assert_array_equal(loop.i, vesin[0])
        np.testing.assert_array_equal(loop.j, vesin[1])
        np.testing.assert_allclose(loop.shift, vesin[2], atol=1e-12)
