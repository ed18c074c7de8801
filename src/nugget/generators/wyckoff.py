"""Space groups: operations in a primitive cell, and the special positions (sites) of atoms.

The operations are those of spglib. A site is an affine set of points x = P r + c that is invariant
under some operations. Sites are obtained by solving (R − 1)x = −(t + n) for random sets of
operations, without tables of Wyckoff positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from nugget.numerics.arrays import Floats, Ints
from nugget.structures.symmetry import operations

GROUPS = range(2, 231)
_DRAWS = 400  # random sets of operations that are solved for sites
_TOL = 1e-5


@dataclass(frozen=True, eq=False)
class Site:
    """Points P r + c, and the size of their orbit in the primitive cell."""

    projector: Floats  # (3, 3)
    constant: Floats  # (3,)
    multiplicity: int
    freedom: int  # dimensions; a point without freedom can be occupied once


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
        """A cell with the symmetry of the group: the metric G is averaged so that RᵀGR = G."""
        metric = cell @ cell.T
        average = np.mean(self.rotations.transpose(0, 2, 1) @ metric @ self.rotations, axis=0)
        return np.asarray(np.linalg.cholesky(0.5 * (average + average.T)))


def images(rotations: Floats, translations: Floats, x: Floats) -> Floats:
    """Distinct images of a point, fractional coordinates in [0, 1)."""
    every = (rotations @ x + translations) % 1.0
    apart = every[:, None] - every
    apart -= np.rint(apart)
    same = np.abs(apart).max(axis=-1) < _TOL
    return every[~np.tril(same, -1).any(axis=1)]


@cache
def space_group(number: int) -> SpaceGroup:
    """The space group of this number; its sites are reproducible."""
    rotations, translations = _primitive(*operations(number))
    general = Site(np.eye(3), np.zeros(3), len(rotations), 3)
    special = _special_sites(np.random.default_rng(number), rotations, translations)
    return SpaceGroup(number, rotations, translations, (general, *special))


def _special_sites(rng: np.random.Generator, rotations: Floats, translations: Floats) -> list[Site]:
    """Points that are invariant under one to three operations, near random points."""
    order = len(rotations)
    if order == 1:
        return []
    chosen = rng.integers(1, order, size=(_DRAWS, 3))
    used = np.arange(3) < rng.integers(1, 4, size=_DRAWS)[:, None]  # the others are the identity
    near = rng.random((_DRAWS, 3))
    chosen = np.where(used, chosen, 0)
    a = (rotations[chosen] - np.eye(3)).reshape(_DRAWS, 9, 3)
    t = translations[chosen].reshape(_DRAWS, 9)
    b = -(t + np.rint(-t - np.einsum("dij,dj->di", a, near)))
    inverse = np.linalg.pinv(a)
    constant = np.einsum("dij,dj->di", inverse, b)
    projector = np.eye(3) - inverse @ a
    # No point is invariant under a screw or a glide.
    exact = np.abs(np.einsum("dij,dj->di", a, constant) - b).max(axis=1) < _TOL
    generic = constant + np.einsum("dij,dj->di", projector, rng.random((_DRAWS, 3)))
    every = np.einsum("kij,dj->dki", rotations, generic) + translations
    back = every - generic[:, None]
    stabilisers = np.sum(np.abs(back - np.rint(back)).max(axis=-1) < _TOL, axis=1)
    freedom = np.rint(np.trace(projector, axis1=1, axis2=2)).astype(int)
    sites: dict[tuple[object, ...], Site] = {}
    for k in np.flatnonzero(exact & (stabilisers > 1)):
        site = Site(projector[k], constant[k] % 1.0, order // int(stabilisers[k]), int(freedom[k]))
        if site.freedom:
            where = (*np.round(projector[k], 3).ravel(), *np.round(site.constant, 3))
        else:  # all points of an orbit are one site
            where = min(map(tuple, ((every[k] + 1e-6) % 1.0).round(4).tolist()))
        sites.setdefault((site.multiplicity, site.freedom, *where), site)
    return list(sites.values())


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
