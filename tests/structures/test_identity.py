"""Identity: the same however turned, moved and renumbered; different when bonds differ."""

import numpy as np
import pytest
from ase import Atoms
from ase.build import add_adsorbate, bulk, fcc111, molecule
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.data import covalent_radii
from ase.neighborlist import neighbor_list
from ase.optimize import BFGS
from example_structures import SYSTEMS
from hypothesis import given, settings
from hypothesis import strategies as st

from nugget.errors import NuggetError
from nugget.structures.identity import (
    BondGraph,
    DistanceFingerprint,
    degree_sequence,
    graph_key,
    is_connected,
    same_graph,
)
from nugget.structures.labels import stored_energy
from nugget.structures.memory import KnownStructures


def tetrahedron(edge=4, bond=2.85):
    """A tetrahedron cut from fcc, `edge` atoms along each edge: 20 atoms for 4."""
    step = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]]) * bond / np.sqrt(2)
    spots = [(i, j, k) for i in range(edge) for j in range(edge - i) for k in range(edge - i - j)]
    return Atoms(f"Au{len(spots)}", np.array(spots) @ step)


def disguised(atoms, seed):
    """Turned, moved, mirrored half of the time, renumbered."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    other = atoms.copy()
    if other.pbc.any():
        # A crystal is turned together with its cell, and moved through its boundaries.
        other.set_cell(other.cell.array @ turn, scale_atoms=False)
        other.positions = atoms.positions @ turn + rng.normal(size=3)
        other.wrap()
    else:
        other.positions = atoms.positions @ turn + rng.normal(size=3) * 10
    return other[rng.permutation(len(other))]


def random_cluster(seed, n=12, symbols=("Au",)):
    rng = np.random.default_rng(seed)
    return Atoms(list(rng.choice(symbols, n)), rng.uniform(0, 3.0 * n ** (1 / 3), (n, 3)))


TETRAHEDRON = [3] * 4 + [6] * 12 + [9] * 4


@pytest.mark.parametrize("bond", [2.7, 2.8, 2.9])
def test_tetrahedron_degrees(bond):
    atoms = tetrahedron(bond=bond)
    assert len(atoms) == 20
    assert degree_sequence(atoms) == TETRAHEDRON
    assert is_connected(atoms)


def test_tetrahedron_stays_one_when_relaxed():
    atoms = tetrahedron()
    atoms.calc = EMT()
    BFGS(atoms, logfile=None).run(fmax=0.02)
    assert degree_sequence(atoms) == TETRAHEDRON
    assert same_graph(atoms, tetrahedron())
    # Distances of the GFN1-xTB minimum: bonds from 2.70 to 3.28 Å along the faces' inner triangle.
    assert 3.28 < 1.3 * 2.72 < 4.07


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_disguise_is_seen_through(seed):
    for atoms in (random_cluster(seed), random_cluster(seed, 9, ("Cu", "Au", "O")), tetrahedron()):
        other = disguised(atoms, seed)
        a, b = BondGraph.of(atoms), BondGraph.of(other)
        assert a.key == b.key
        assert a.same(b)
        np.testing.assert_allclose(a.spectrum, b.spectrum, atol=1e-9)
        assert degree_sequence(atoms) == degree_sequence(other)
        assert DistanceFingerprint.of(atoms).difference(DistanceFingerprint.of(other)) < 1e-9


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_disguise_of_crystals_is_seen_through(seed):
    crystal = bulk("NiAl", "cesiumchloride", a=2.9) * (2, 1, 2)
    crystal.rattle(0.05, seed=seed)
    slab = fcc111("Cu", (2, 2, 2), vacuum=6.0)
    add_adsorbate(slab, "O", 1.2, "fcc")
    for atoms in (crystal, slab):
        other = disguised(atoms, seed)
        assert graph_key(atoms) == graph_key(other)
        assert same_graph(atoms, other)
        assert DistanceFingerprint.of(atoms).difference(DistanceFingerprint.of(other)) < 1e-9


def brute_force_same(a, b):
    """Isomorphism by trying all renumberings; small graphs only."""
    from itertools import permutations

    if sorted(a.numbers) != sorted(b.numbers):
        return False
    for p in permutations(range(len(a.numbers))):
        order = np.array(p)
        if np.array_equal(a.numbers[order], b.numbers) and np.array_equal(
            a.adjacency[np.ix_(order, order)], b.adjacency
        ):
            return True
    return False


def test_same_graph_equals_brute_force():
    rng = np.random.default_rng(0)
    numbers = np.array([29, 29, 29, 79, 79])
    found = {True: 0, False: 0}
    for _ in range(150):
        upper = np.triu(rng.integers(0, 3, (5, 5)))
        first = BondGraph(numbers, upper + upper.T)
        # Renumbered, and in two of three cases with one bond moved.
        order = rng.permutation(5)
        changed = first.adjacency[np.ix_(order, order)]
        if rng.random() < 2 / 3:
            i, j, k = rng.permutation(5)[:3]
            changed[i, j] = changed[j, i] = first.adjacency[i, k]
        second = BondGraph(numbers[order], changed)
        expected = brute_force_same(first, second)
        assert first.same(second) is expected
        assert (first.key == second.key) is expected
        found[expected] += 1
    assert min(found.values()) > 20


def grid_graph(neighbours):
    """Vertices of a 4×4 torus; `neighbours` are the allowed differences."""
    spots = [(i, j) for i in range(4) for j in range(4)]
    adjacency = [
        [int(((a[0] - b[0]) % 4, (a[1] - b[1]) % 4) in neighbours) for b in spots] for a in spots
    ]
    return BondGraph(np.full(16, 79), np.array(adjacency))


def test_exact_check_goes_beyond_spectrum_and_colours():
    """The rook's graph and Shrikhande's have one spectrum and one colour, but are not the same."""
    rook = grid_graph({(0, k) for k in (1, 2, 3)} | {(k, 0) for k in (1, 2, 3)})
    shrikhande = grid_graph({(0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3)})
    assert rook.key == shrikhande.key
    assert not rook.same(shrikhande)
    order = np.random.default_rng(0).permutation(16)
    assert rook.same(BondGraph(rook.numbers, rook.adjacency[np.ix_(order, order)]))


def test_regular_graphs_are_told_apart():
    """A ring of six and two rings of three: the same degrees and colours, another spectrum."""

    def ring(n, shift=0.0):
        angle = 2 * np.pi * np.arange(n) / n
        radius = 2.8 / (2 * np.sin(np.pi / n))
        return np.c_[radius * np.cos(angle) + shift, radius * np.sin(angle), np.zeros(n)]

    six = Atoms("Au6", ring(6))
    two = Atoms("Au6", np.vstack([ring(3), ring(3, 12.0)]))
    assert degree_sequence(six) == degree_sequence(two) == [2] * 6
    assert graph_key(six) != graph_key(two)
    assert not same_graph(six, two)
    assert is_connected(six)
    assert not is_connected(two)


def test_species_matter():
    a, b = Atoms("CuAu2", tetrahedron(2).positions[:3]), Atoms("AuCuAu", [[0, 0, 0]] * 3)
    b.positions = [[-2.7, 0, 0], [0, 0, 0], [2.7, 0, 0]]
    c = Atoms("CuAuAu", b.positions)
    assert graph_key(b) != graph_key(c)
    assert graph_key(a) != graph_key(Atoms("Au3", a.positions))


def test_periodic_images_are_counted():
    assert degree_sequence(bulk("Au")) == [12]
    assert degree_sequence(bulk("Au", cubic=True)) == [12] * 4
    assert degree_sequence(fcc111("Au", (2, 2, 3), vacuum=6.0)) == [9] * 8 + [12] * 4
    chain = Atoms("Au", cell=[2.7, 0, 0], pbc=[True, False, False])
    assert degree_sequence(chain) == [2]
    assert is_connected(chain)
    assert graph_key(chain) != graph_key(Atoms("Au"))


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_bonds_and_distances_are_those_of_ase(name):
    for atoms in SYSTEMS[name]:
        radii = covalent_radii[atoms.numbers]
        i, j, d = neighbor_list("ijd", atoms, 1.3 * 2 * radii.max())
        bonded = d < 1.3 * (radii[i] + radii[j])
        expected = np.zeros((len(atoms), len(atoms)), dtype=int)
        np.add.at(expected, (i[bonded], j[bonded]), 1)
        np.testing.assert_array_equal(BondGraph.of(atoms).adjacency, expected)
        found = np.concatenate(list(DistanceFingerprint.of(atoms, 6.0).blocks.values()))
        np.testing.assert_allclose(np.sort(found), np.sort(neighbor_list("d", atoms, 6.0)))


def test_lone_atoms_and_collisions():
    lone = Atoms("Au")
    assert is_connected(lone)
    assert degree_sequence(lone) == [0]
    assert not is_connected(Atoms("Au2", [[0, 0, 0], [9, 0, 0]]))


def test_refusals():
    with pytest.raises(NuggetError, match="without atoms"):
        graph_key(Atoms())
    with pytest.raises(NuggetError, match="atom 1: the position is not finite"):
        graph_key(Atoms("Au2", [[0, 0, 0], [np.nan, 0, 0]]))
    with pytest.raises(NuggetError, match="element X"):
        graph_key(Atoms("X"))


def test_distance_fingerprint():
    a = tetrahedron()
    longer = a.copy()
    longer.positions[0] += [0.1, 0, 0]
    assert 0 < DistanceFingerprint.of(a).difference(DistanceFingerprint.of(longer)) <= 0.1 + 1e-12
    assert DistanceFingerprint.of(a).difference(DistanceFingerprint.of(a[:19])) == np.inf
    # Conformers: same bonds, other angles.
    trans, gauche = molecule("H2O2"), molecule("H2O2")
    gauche.set_dihedral(2, 0, 1, 3, 180)
    assert same_graph(trans, gauche)
    assert DistanceFingerprint.of(trans).difference(DistanceFingerprint.of(gauche)) > 0.1


def test_periodic_fingerprint_is_continuous_at_the_cutoff():
    chain = Atoms("Au", cell=[2.999, 9, 9], pbc=True)
    longer = Atoms("Au", cell=[3.001, 9, 9], pbc=True)
    a, b = DistanceFingerprint.of(chain), DistanceFingerprint.of(longer)
    assert len(a.blocks[79, 79]) == 4
    assert len(b.blocks[79, 79]) == 2
    assert a.difference(b) == pytest.approx(0.002, abs=1e-9)
    with pytest.raises(NuggetError, match="finite cutoff"):
        DistanceFingerprint.of(chain, np.inf)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.001, 0.5))
def test_probe_never_exceeds_the_difference(seed, width):
    for a in (random_cluster(seed, 8, ("Cu", "Au")), bulk("NiAl", "cesiumchloride", a=2.9)):
        b = a.copy()
        b.rattle(width, seed=seed)
        f, g = DistanceFingerprint.of(a), DistanceFingerprint.of(b)
        apart = np.abs(f.probe(len(a)) - g.probe(len(b))).max()
        assert apart <= f.difference(g) + 1e-12


def with_energy(atoms, energy):
    atoms = atoms.copy()
    atoms.calc = SinglePointCalculator(atoms, energy=energy)
    return atoms


def test_stored_energy():
    assert stored_energy(with_energy(tetrahedron(), -10.0)) == -10.0
    with pytest.raises(NuggetError, match="carries no energy"):
        stored_energy(tetrahedron())


def test_known_structures():
    known = KnownStructures()
    assert known.add(tetrahedron(), energy=-10.0) == 0
    assert known.add(random_cluster(1, 20)) == 1
    assert len(known) == 2
    assert known.find(disguised(tetrahedron(), 5)) == 0
    assert known.find(disguised(random_cluster(1, 20), 5)) == 1
    assert known.find(random_cluster(2, 20)) is None
    assert random_cluster(1, 20) in known
    # The same graph but a breath of 6 %: too far in distance.
    assert known.find(tetrahedron(bond=2.7)) is None
    # The same place but another energy.
    assert known.find(tetrahedron(), energy=-9.98) == 0
    assert known.find(tetrahedron(), energy=-9.0) is None


def test_marginal_bond_does_not_fool_the_memory():
    short = Atoms("Au3", [[0, 0, 0], [2.8, 0, 0], [2.8 + 1.3 * 2.72 - 0.001, 0, 0]])
    long = Atoms("Au3", [[0, 0, 0], [2.8, 0, 0], [2.8 + 1.3 * 2.72 + 0.001, 0, 0]])
    assert graph_key(short) != graph_key(long)
    known = KnownStructures()
    known.add(short)
    assert long in known


def test_one_structure_per_graph():
    known = KnownStructures(distance_tol=None)
    known.add(tetrahedron())
    assert tetrahedron(bond=2.7) in known
    assert tetrahedron(3) not in known


def test_a_wrong_prediction_makes_no_new_structure():
    known, same, near = KnownStructures(), tetrahedron(), tetrahedron(bond=2.87)
    known.add(same, -10.0)
    assert known.find(same, -9.0) is None  # both energies are true: another structure
    assert known.find(near, -9.0, predicted=True) == 0  # a model that misfits
    assert known.find(near, -11.0, predicted=True) is None  # promises something lower
    assert known.find(disguised(same, 1), -11.0, predicted=True) == 0  # but it is the same


def test_memory_grows_and_agrees_with_pairwise_comparison():
    known = KnownStructures(distance_tol=0.4, identical_tol=0.2)
    kept = []
    for seed in range(60):
        base = random_cluster(seed % 25, 6)
        base.rattle(0.05 * (seed // 25), seed=seed)
        expected = not any(
            DistanceFingerprint.of(base).difference(DistanceFingerprint.of(old))
            <= (0.4 if same_graph(base, old) else 0.2)
            for old in kept
        )
        assert (base not in known) is expected
        if expected:
            known.add(base)
            kept.append(base)
    assert 25 <= len(known) < 60


def test_memory_refuses_negative_tolerance():
    with pytest.raises(NuggetError, match="energy_tol is -1"):
        KnownStructures(energy_tol=-1)
