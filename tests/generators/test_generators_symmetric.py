"""Point groups and the structures made of their orbits."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from hypothesis import given, settings
from hypothesis import strategies as st

from nugget.errors import NuggetError
from nugget.generators import Failure
from nugget.generators.point_groups import NAMES, operations, orbits, plan_orbits, sample_points
from nugget.generators.symmetric import Symmetric
from nugget.systems import PlacedAtoms

ORDERS = {"Cs": 2, "Ci": 2, "S4": 4, "S6": 6, "T": 12, "Td": 24, "Th": 24, "O": 24, "Oh": 48,
          "I": 60, "Ih": 120}  # fmt: skip
for _n in range(2, 7):
    ORDERS |= {f"C{_n}": _n, f"C{_n}v": 2 * _n, f"C{_n}h": 2 * _n}
    ORDERS |= {f"D{_n}": 2 * _n, f"D{_n}h": 4 * _n, f"D{_n}d": 4 * _n}


@pytest.mark.parametrize("name", NAMES)
def test_groups_are_groups(name):
    ops = operations(name)
    assert len(ops) == ORDERS[name]
    assert np.array_equal(ops[0], np.eye(3))
    np.testing.assert_allclose(ops @ ops.transpose(0, 2, 1), np.tile(np.eye(3), (len(ops), 1, 1)),
                               atol=1e-12)  # fmt: skip
    products = np.einsum("aij,bjk->abik", ops, ops).reshape(-1, 9)
    d = np.abs(products[:, None] - ops.reshape(1, -1, 9)[:, :]).max(axis=2).min(axis=1)
    assert d.max() < 1e-9
    # Schoenflies letters: C and D and the plain polyhedral ones without suffix turn only.
    assert (np.linalg.det(ops) > 0).all() == (name in {"T", "O", "I"} or (name[-1].isdigit()
                                              and name[0] in "CD"))  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_orbits_are_closed_and_have_the_right_size(name):
    ops = operations(name)
    rng = np.random.default_rng(0)
    kinds = orbits(name)
    assert max(o.size for o in kinds) == len(ops)
    for orbit in kinds:
        assert len(ops) % orbit.size == 0
        point = sample_points(rng, orbit, 1, 3.0)[0]
        images = orbit.copies @ point
        everything = ops @ point
        d = np.linalg.norm(everything[:, None] - images[None], axis=2)
        assert d.min(axis=1).max() < 1e-9  # closed
        apart = np.linalg.norm(images[:, None] - images[None], axis=2) + 9 * np.eye(len(images))
        assert apart.min() > 1e-6  # no double counting
        assert np.array_equal(orbit.copies[0], np.eye(3))


def test_known_orbit_sizes():
    assert sorted(o.size for o in orbits("Td")) == [1, 4, 6, 12, 24]
    assert sorted(o.size for o in orbits("Oh")) == [1, 6, 8, 12, 24, 24, 48]
    assert sorted(o.size for o in orbits("Ih")) == [1, 12, 20, 30, 60, 120]
    assert sorted((o.rank, o.size) for o in orbits("C5v")) == [(1, 1), (2, 5), (3, 10)]


def operations_found(atoms: Atoms, group: str, tol: float = 1e-6) -> bool:
    """Whether the cluster has the group in SOME orientation.

    The generator turns its structures at random, so the turn is found first: from three atoms
    that are not in a plane with the centre, all ways of mapping them on other atoms are tried.
    """
    x = atoms.positions - atoms.positions.mean(axis=0)
    z = atoms.numbers
    r = np.linalg.norm(x, axis=1)
    far = np.argsort(-r, kind="stable")
    base = None
    for i, j, k in ((a, b, c) for a in far for b in far for c in far):
        if abs(np.linalg.det(x[[i, j, k]])) > 0.3 * r[i] * r[j] * r[k] > 1e-3:
            base = [i, j, k]
            break
    assert base is not None
    inverse = np.linalg.inv(x[base])
    like = [[m for m in range(len(x)) if z[m] == z[b] and abs(r[m] - r[b]) < tol] for b in base]
    count = 0
    for i in like[0]:
        for j in like[1]:
            if abs(x[i] @ x[j] - x[base[0]] @ x[base[1]]) > 1e-5:
                continue
            for k in like[2]:
                op = inverse @ x[[i, j, k]]
                if np.abs(op @ op.T - np.eye(3)).max() > 1e-5:
                    continue
                d = np.linalg.norm((x @ op)[:, None] - x[None], axis=2)
                d[z[:, None] != z[None, :]] = np.inf
                count += bool((d.min(axis=1) < 1e-5).all())
    return count >= len(operations(group)) and count % len(operations(group)) == 0


# In Oh, O, I, Ih an orbit of the right size always exists for 13 atoms; flat ones lie in a plane.
@pytest.mark.parametrize("formula", ["Au20", "Cu6Au7", "Au13"])
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_structures_have_the_symmetry_they_claim(formula, seed):
    problem = PlacedAtoms.cluster(formula)
    atoms = Symmetric()(np.random.default_rng(seed), problem)
    assert isinstance(atoms, Atoms)
    assert np.array_equal(atoms.numbers, problem.numbers)
    assert problem.fault(atoms) is None
    x = atoms.positions - atoms.positions.mean(axis=0)
    flat = np.linalg.svd(x)[1][2] < 0.3 * np.linalg.svd(x)[1][0] / 2
    if not flat:
        assert operations_found(atoms, atoms.info["symmetry"])


def test_noise_breaks_the_symmetry():
    problem = PlacedAtoms.cluster("Au20")
    atoms = Symmetric(groups=("Td",), noise=0.1)(np.random.default_rng(0), problem)
    assert isinstance(atoms, Atoms)
    assert not operations_found(atoms, "Td")


def test_the_gold_tetrahedron_comes_out():
    """Au20 in Td as 4 + 4 + 12 is among the ways to make up the composition."""
    problem = PlacedAtoms.cluster("Au20")
    rng = np.random.default_rng(0)
    plans = [plan_orbits(rng, problem.numbers, orbits("Td")) for _ in range(100)]
    sizes = [sorted(o.size for _, o in plan) for plan in plans if plan is not None]
    assert [4, 4, 12] in sizes
    assert all(sum(s) == 20 for s in sizes)
    made = [Symmetric(groups=("Td",))(rng, problem) for _ in range(40)]
    assert sum(isinstance(a, Atoms) for a in made) >= 30


def test_impossible_composition_is_a_reason():
    result = Symmetric(groups=("Ih",))(np.random.default_rng(0), PlacedAtoms.cluster("Au14"))
    assert isinstance(result, Failure)
    assert "composition" in result.reason
    assert isinstance(
        Symmetric()(np.random.default_rng(0), PlacedAtoms.bulk("Au4", [4, 4, 4])), Failure
    )
    with pytest.raises(NuggetError, match="D99"):
        Symmetric(groups=("D99",))


def test_composition_is_split_per_element():
    rng = np.random.default_rng(1)
    numbers = np.array([29] * 6 + [79] * 7)
    plan = plan_orbits(rng, numbers, orbits("Oh"))
    assert plan is not None
    assert sorted((z, o.size) for z, o in plan) == [(29, 6), (79, 1), (79, 6)]
