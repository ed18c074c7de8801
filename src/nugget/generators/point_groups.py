"""Point groups as sets of 3×3 matrices, their orbits, and random sums of orbits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from nugget.generators.placement import directions, rotation
from nugget.numerics.arrays import Floats, Ints

X, Y, Z = np.eye(3)
DIAGONAL = np.ones(3) / np.sqrt(3)
INVERSION = -np.eye(3)
FIVEFOLD = np.array([0.0, 1.0, (1 + np.sqrt(5)) / 2]) / np.hypot(1.0, (1 + np.sqrt(5)) / 2)


def mirror(normal: Floats) -> Floats:
    return np.asarray(np.eye(3) - 2 * np.outer(normal, normal))


def turn(axis: Floats, n: int) -> Floats:
    return rotation(axis, 2 * np.pi / n)


def improper(axis: Floats, n: int) -> Floats:
    """Rotoreflection S_n."""
    return np.asarray(mirror(axis) @ turn(axis, n))


def _generators() -> dict[str, list[Floats]]:
    groups = {"Cs": [mirror(Z)], "Ci": [INVERSION], "S4": [improper(Z, 4)], "S6": [improper(Z, 6)]}
    for n in range(2, 7):
        groups |= {
            f"C{n}": [turn(Z, n)],
            f"C{n}v": [turn(Z, n), mirror(X)],
            f"C{n}h": [turn(Z, n), mirror(Z)],
            f"D{n}": [turn(Z, n), turn(X, 2)],
            f"D{n}h": [turn(Z, n), turn(X, 2), mirror(Z)],
            f"D{n}d": [improper(Z, 2 * n), turn(X, 2)],
        }
    tetrahedral = [turn(Z, 2), turn(DIAGONAL, 3)]
    octahedral = [turn(Z, 4), turn(DIAGONAL, 3)]
    icosahedral = [turn(FIVEFOLD, 5), turn(DIAGONAL, 3)]
    return groups | {
        "T": tetrahedral,
        "Td": [*tetrahedral, improper(Z, 4)],
        "Th": [*tetrahedral, INVERSION],
        "O": octahedral,
        "Oh": [*octahedral, INVERSION],
        "I": icosahedral,
        "Ih": [*icosahedral, INVERSION],
    }


_GENERATORS = _generators()
NAMES = tuple(_GENERATORS)


def _distinct(matrices: Floats) -> Floats:
    """Different matrices of a stack, in order of first appearance."""
    keys = np.round(matrices.reshape(len(matrices), -1), 6) + 0.0
    _, first = np.unique(keys, axis=0, return_index=True)
    return matrices[np.sort(first)]


@cache
def operations(name: str) -> Floats:
    """All matrices of a group (order, 3, 3), the identity first."""
    generators = np.array(_GENERATORS[name])
    group = np.eye(3)[None]
    while True:
        products = np.einsum("aij,bjk->abik", generators, group).reshape(-1, 3, 3)
        larger = _distinct(np.concatenate([group, products]))
        if len(larger) == len(group):
            return group
        group = larger


@dataclass(frozen=True)
class Orbit:
    """A kind of position: points of an invariant subspace, and the operations that copy them.

    `basis` (rank, 3) spans the subspace (rank 0: the centre, 1: an axis, 2: a mirror plane, 3: any
    point) and `copies` (size, 3, 3) are the operations that give its distinct images.
    """

    basis: Floats
    copies: Floats

    @property
    def rank(self) -> int:
        return len(self.basis)

    @property
    def size(self) -> int:
        return len(self.copies)


@cache
def orbits(name: str) -> tuple[Orbit, ...]:
    """All kinds of orbits of a group, one per class of equivalent subspaces."""
    ops = operations(name)
    # The mean over the powers of g projects on the subspace that is invariant under g; the mean
    # over the whole group, on the subspace that is invariant under all operations (the centre, or
    # the axis of a C_n).
    projectors = [ops.mean(axis=0)]
    for g in ops:
        power, total, order = g, g.copy(), 1
        while not np.allclose(power, np.eye(3), atol=1e-6):
            power = power @ g
            total += power
            order += 1
        projectors.append(total / order)
    kinds: list[Orbit] = []
    seen: list[Floats] = []
    generic = np.array([0.36, 0.48, 0.8]) + np.array([0.11, -0.07, 0.03])
    for p in _distinct(np.array(projectors)):
        if any(np.abs(q - p).max(axis=(1, 2)).min() < 1e-6 for q in seen):
            continue
        seen.append(np.einsum("aij,jk,alk->ail", ops, p, ops))
        values, vectors = np.linalg.eigh(p)
        basis = np.ascontiguousarray(vectors.T[values > 0.5])
        point = p @ generic
        images = np.round(ops @ point, 6) + 0.0
        _, first = np.unique(images, axis=0, return_index=True)
        kinds.append(Orbit(basis, np.ascontiguousarray(ops[np.sort(first)])))
    return tuple(kinds)


@cache
def reachable(sizes: tuple[int, ...], n: int) -> tuple[bool, ...]:
    """Which numbers up to n are sums of the given sizes."""
    ok = [True] + [False] * n
    for k in range(1, n + 1):
        ok[k] = any(s <= k and ok[k - s] for s in sizes)
    return tuple(ok)


Plan = list[tuple[int, Orbit]]


def plan_orbits(rng: np.random.Generator, numbers: Ints, kinds: tuple[Orbit, ...]) -> Plan | None:
    """Random orbits that together have the composition, as (atomic number, orbit); else None."""
    many = [o for o in kinds if o.rank > 0]
    sizes = tuple(o.size for o in many)
    elements, counts = np.unique(numbers, return_counts=True)
    ok = reachable(sizes, int(counts.max()))
    centres: list[int | None] = [None] if all(ok[n] for n in counts) else []
    if len(many) < len(kinds):
        for s, n in enumerate(counts):
            if all(ok[m - (t == s)] for t, m in enumerate(counts)) and n > 0:
                centres.append(s)
    if not centres:
        return None
    centre = centres[int(rng.integers(len(centres)))]
    plan: Plan = []
    for s, (z, n) in enumerate(zip(elements, counts, strict=True)):
        left = int(n)
        if s == centre:
            plan.append((int(z), next(o for o in kinds if o.rank == 0)))
            left -= 1
        while left:
            fits = [o for o in many if o.size <= left and ok[left - o.size]]
            # The weight is the number of free coordinates: such structures are more numerous.
            tickets = [o for o in fits for _ in range(o.rank)]
            orbit = tickets[int(rng.integers(len(tickets)))]
            plan.append((int(z), orbit))
            left -= orbit.size
    return plan


def sample_points(rng: np.random.Generator, orbit: Orbit, n: int, radius: float) -> Floats:
    """n points of the orbit's subspace, uniform within the radius."""
    if orbit.rank == 0:
        return np.zeros((n, 3))
    if orbit.rank == 3:
        v = directions(rng, n)
    else:
        v = rng.normal(size=(n, orbit.rank))
        v = (v / np.linalg.norm(v, axis=1, keepdims=True)) @ orbit.basis
    return v * (radius * rng.random((n, 1)) ** (1 / orbit.rank))
