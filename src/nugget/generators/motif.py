"""Motif: clusters with the core of a close-packed crystal, a decahedron, an icosahedron, …"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from ase.cluster import Decahedron, Icosahedron
from scipy.spatial.distance import pdist

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.caps import filled, settled, trimmed
from nugget.generators.placement import directions
from nugget.numerics.arrays import Floats
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms

SHIFT = 0.5  # largest distance of the centre of a cut from the centre of the core, bond lengths
CHANGE = 8  # a core has up to 1/8 of the atoms more or fewer than the cluster
ALIKE = 1.15  # ratio of the largest to the smallest covalent radius, at the most
MOVES = 60  # atoms that move to better sites, at the most

#: Elements whose clusters are not close-packed.
_OPEN = (
    "H",
    "B",
    "C",
    "N",
    "O",
    "F",
    "Si",
    "P",
    "S",
    "Cl",
    "Ge",
    "As",
    "Se",
    "Br",
    "Sb",
    "Te",
    "I",
)

# The lengths of these functions are in units of the bond length.


@cache
def _icosahedron(n: int) -> Floats:
    """The smallest Mackay icosahedron of more than n atoms."""
    shells = next(k for k in range(2, 20) if (10 * k**3 + 11 * k) // 3 - 5 * k * k - 1 > n)
    return _scaled(Icosahedron("Au", shells).positions)


@cache
def _decahedra(n: int) -> tuple[Floats, ...]:
    """Marks decahedra of 0.7 n to 3 n atoms, not much longer than wide."""
    shapes = [(p, q, r) for p in range(2, 9) for q in range(1, 9) for r in range(3)]
    decahedra = (Decahedron("Au", *s).positions for s in shapes if s[1] <= s[0] + s[2] + 1)
    return tuple(_scaled(x) for x in decahedra if 0.7 * n <= len(x) <= 3 * n)


@cache
def _stellated(edge: int) -> tuple[Floats, Floats]:
    """A tetrahedron of fcc with a twin on each face, and unit vectors to its edges.

    The apices of the twins are missing. With four atoms along an edge this is the core of Leary's
    tetrahedron of 98 atoms (Leary and Doye, 1999).
    """
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / np.sqrt(8)
    steps = [
        (i, j, k, edge - 1 - i - j - k)
        for i in range(edge)
        for j in range(edge - i)
        for k in range(edge - i - j)
    ]
    core = np.array(steps) @ corners
    parts = [core]
    for k in range(4):
        normal = -corners[k] / np.linalg.norm(corners[k])  # of the face opposite to corner k
        height = (core - (edge - 1) * corners[(k + 1) % 4]) @ normal
        parts.append(
            (core - 2 * np.outer(height, normal))[(height < -1e-6) & (height > height.min() + 1e-6)]
        )
    pairs = np.array([corners[i] + corners[j] for i in range(4) for j in range(i)])
    return np.concatenate(parts), pairs / np.linalg.norm(pairs, axis=1, keepdims=True)


def _scaled(x: Floats) -> Floats:
    """Centred, with a shortest distance of 1."""
    return np.asarray((x - x.mean(axis=0)) / pdist(x).min())


def _cut(rng: Rng, block: Floats, n: int) -> Floats:
    """About n atoms of a block, those nearest to a point near its centre."""
    size = n + int(rng.integers(-(n // CHANGE), n // CHANGE + 1))
    shift = SHIFT * max(rng.uniform(-1.0, 1.0), 0.0)  # none for every second cluster
    centre = shift * directions(rng, 1)[0]
    return block[np.argsort(((block - centre) ** 2).sum(axis=1), kind="stable")[:size]]


def _close_packed(rng: Rng, n: int) -> Floats:
    """Close-packed layers in fcc order, half of them with a random order instead."""
    half = int(np.ceil((n / 4) ** (1 / 3) * 2)) + 2
    turns = rng.choice([-1, 1], size=2 * half + 1) if rng.random() < 0.5 else np.ones(2 * half + 1)
    i, j = np.meshgrid(np.arange(-2 * half, 2 * half + 1), np.arange(-2 * half, 2 * half + 1))
    layer = np.stack([(i + 0.5 * j).ravel(), (np.sqrt(0.75) * j).ravel()], axis=1)
    shifts = np.cumsum(turns)[:, None] * np.array([0.5, np.sqrt(1 / 12)])
    shifts -= np.round(shifts[half])
    block = np.concatenate(
        [
            np.column_stack([layer + s, np.full(len(layer), np.sqrt(2 / 3) * (k - half))])
            for k, s in enumerate(shifts)
        ]
    )
    # The centre is an atom, an octahedral hole or any point.
    atom = block[np.argmin((block**2).sum(axis=1))]
    hole = np.array([0.5, -np.sqrt(1 / 12), np.sqrt(1 / 6)])
    centre = atom + (0.0 * hole, hole, rng.random(3))[int(rng.integers(3))]
    return _cut(rng, block - centre, n)


def _decahedral(rng: Rng, n: int) -> Floats:
    blocks = _decahedra(n)
    return _cut(rng, blocks[int(rng.integers(len(blocks)))], n)


def _icosahedral(rng: Rng, n: int) -> Floats:
    return _cut(rng, _icosahedron(n + n // CHANGE), n)


def _tetrahedral(rng: Rng, n: int) -> Floats:
    """Twinned tetrahedra whose edges are filled."""
    edges = [e for e in range(3, 9) if 0.4 * n <= len(_stellated(e)[0]) <= n]
    if not edges:
        return _close_packed(rng, n)
    core, axes = _stellated(int(rng.choice(edges)))
    return filled(rng, core, n, 1.0, axes)


_MOTIFS: tuple[Callable[[Rng, int], Floats], ...] = (
    _close_packed, _decahedral, _icosahedral, _tetrahedral,
)  # fmt: skip


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Motif(BaseGenerator):
    """A core of a close-packed motif whose surface has as many bonds as possible.

    The motifs are crystals with and without stacking faults, decahedra, icosahedra and twinned
    tetrahedra. Atoms are removed from the core or added to it, and those of lowest coordination
    move to the best vacant sites. Elements are distributed at random.
    """

    name = "motif"
    few_results = True
    unsuited = "only free clusters of ten or more metal atoms of similar size are close-packed"
    least: int = 10
    tries: int = 5

    def suits(self, system: PlacedAtoms) -> bool:
        similar = bool(system.radii.max() <= ALIKE * system.radii.min())
        packed = set(system.symbols).isdisjoint(_OPEN)
        return system.free and len(system.symbols) >= self.least and similar and packed

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        n = len(system.symbols)
        core = _MOTIFS[int(rng.integers(len(_MOTIFS)))](rng, n)
        x = filled(rng, trimmed(rng, core, n, 1.0), n, 1.0)
        if len(x) < n:
            yield Failure("there was no vacant site")
            return
        x = settled(rng, x, 1.0, MOVES)
        yield Proposal(system.bond * x[rng.permutation(n)])
