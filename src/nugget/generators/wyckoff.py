"""Space groups: their operations in a primitive cell, and the sites that orbits can start from.

The operations are spglib's. A site is an affine set of points that some operations leave alone:
x = P r + c for any r. Sites are found by solving (R − 1)x = −(t + n) for random sets of operations,
which needs no tables of Wyckoff positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.structures.symmetry import operations

GROUPS = range(2, 231)
_DRAWS = 150  # random sets of operations that are solved for sites
_TOL = 1e-5


@dataclass(frozen=True, eq=False)
class Site:
    """Points P r + c, and how many images an orbit from there has in the primitive cell."""

    projector: Floats  # (3, 3)
    constant: Floats  # (3,)
    multiplicity: int
    freedom: int  # dimensions; a point without freedom can be taken once


@dataclass(frozen=True, eq=False)
class SpaceGroup:
    """Operations x → R x + t in fractional coordinates of a primitive cell, and sites."""

    number: int
    rotations: Floats  # (k, 3, 3)
    translations: Floats  # (k, 3)
    sites: tuple[Site, ...]

    def orbit(self, x: Floats) -> Floats:
        """All images of a point in the cell."""
        return images(self.rotations, self.translations, x)

    def symmetrised(self, cell: Floats) -> Floats:
        """A cell of the group's kind near this one: RᵀGR = G for its metric, by averaging."""
        metric = cell @ cell.T
        average = np.mean(self.rotations.transpose(0, 2, 1) @ metric @ self.rotations, axis=0)
        return np.asarray(np.linalg.cholesky(0.5 * (average + average.T)))


def images(rotations: Floats, translations: Floats, x: Floats) -> Floats:
    """Different images of a point, fractional coordinates in [0, 1)."""
    every = (rotations @ x + translations) % 1.0
    apart = every[:, None] - every
    apart -= np.rint(apart)
    same = np.abs(apart).max(axis=-1) < _TOL
    return every[~np.tril(same, -1).any(axis=1)]


@cache
def space_group(number: int) -> SpaceGroup:
    """The space group of this number, always the same sites."""
    rotations, translations = _primitive(*operations(number))
    rng = np.random.default_rng(number)
    general = Site(np.eye(3), np.zeros(3), len(rotations), 3)
    found: dict[tuple[object, ...], Site] = {}
    for _ in range(_DRAWS if len(rotations) > 1 else 0):
        site = _random_site(rng, rotations, translations)
        if site is None:
            continue
        start = site.constant if site.freedom == 0 else np.zeros(3)
        key: tuple[object, ...] = (site.multiplicity, site.freedom)
        if site.freedom == 0:
            orbit = np.round(images(rotations, translations, start), 4) % 1.0
            key = (*key, *sorted(map(tuple, orbit.tolist())))
        else:
            key = (*key, *np.round(site.projector, 3).ravel(), *np.round(site.constant, 3))
        found.setdefault(key, site)
    return SpaceGroup(number, rotations, translations, (general, *found.values()))


def _random_site(rng: np.random.Generator, rotations: Floats, translations: Floats) -> Site | None:
    """Points that one to three operations leave alone, near a random point."""
    chosen = rng.integers(1, len(rotations), size=int(rng.integers(1, 4)))
    near = rng.random(3)
    a = (rotations[chosen] - np.eye(3)).reshape(-1, 3)
    t = translations[chosen].ravel()
    b = -(t + np.rint(-t - a @ near))
    inverse = np.linalg.pinv(a)
    constant, projector = inverse @ b, np.eye(3) - inverse @ a
    if np.abs(a @ constant - b).max() > _TOL:
        return None  # a screw or a glide leaves no point alone
    generic = constant + projector @ rng.random(3)
    multiplicity = len(images(rotations, translations, generic))
    if multiplicity == len(rotations):
        return None
    return Site(projector, constant % 1.0, multiplicity, round(float(np.trace(projector))))


def _primitive(rotations: Ints, translations: Floats) -> tuple[Floats, Floats]:
    """The operations in a primitive cell, each once; the identity first."""
    identity = (rotations == np.eye(3, dtype=np.int64)).all(axis=(1, 2))
    centring = np.rint(12 * translations[identity]).astype(np.int64)
    basis = integer_basis(np.concatenate([centring, 12 * np.eye(3, dtype=np.int64)])) / 12.0
    to_old = basis.T  # x_old = to_old x_new
    to_new = np.linalg.inv(to_old)
    turned = np.rint(to_new @ rotations @ to_old)
    moved = (translations @ to_new.T + 1e-9) % 1.0 - 1e-9
    seen: dict[bytes, int] = {}
    for k, r in enumerate(turned):
        seen.setdefault((r + 0.0).tobytes(), k)
    rows = sorted(seen.values(), key=lambda k: not identity[k])
    return turned[rows], moved[rows]


def integer_basis(vectors: Ints) -> Ints:
    """Three rows that span the same lattice as these integer vectors, upper triangular."""
    rows = [v.copy() for v in vectors]
    basis = []
    for column in range(3):
        while True:
            live = [r for r in rows if r[column]]
            pivot = min(live, key=lambda r: abs(r[column]))
            others = [r for r in live if r is not pivot]
            if not others:
                break
            for r in others:
                r -= (r[column] // pivot[column]) * pivot
        basis.append(pivot)
        rows = [r for r in rows if r is not pivot and r.any()]
    return np.array(basis)
