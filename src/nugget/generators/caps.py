"""Vacant sites on the surface of a close-packed cluster, and atoms on those with the most bonds."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from nugget.generators.base import Rng
from nugget.numerics.arrays import Floats, Ints

#: Distances in units of the bond length: of bonded atoms at the most, of atoms at the least, of two
#: sites that are the same, and of atoms below one site (√2 across a square) at the most.
BONDED, CLOSEST, SAME, ACROSS = 1.25, 0.85, 0.1, 1.5


def coordination(x: Floats, bond: float) -> Ints:
    """The number of atoms within `BONDED` bond lengths of every atom."""
    pairs = cKDTree(x).query_pairs(BONDED * bond, output_type="ndarray")
    return np.bincount(pairs.ravel(), minlength=len(x))


def vacant_sites(x: Floats, bond: float) -> tuple[Floats, Ints]:
    """Sites one bond length from three atoms of the surface, and their numbers of bonds."""
    tree = cKDTree(x)
    outer = coordination(x, bond) < 12
    pairs = tree.query_pairs(ACROSS * bond, output_type="ndarray")
    pairs = pairs[outer[pairs].all(axis=1)]
    near = np.zeros((len(x), len(x)), dtype=bool)
    near[pairs[:, 0], pairs[:, 1]] = near[pairs[:, 1], pairs[:, 0]] = True
    which, third = np.nonzero(near[pairs[:, 0]] & near[pairs[:, 1]])
    first, second = pairs[which].T
    once = third > np.maximum(first, second)
    a, b, c = x[first[once]], x[second[once]], x[third[once]]
    # The points at this distance from a, b and c lie on the normal n of their plane through the
    # circumcentre a + (|u|² v × n + |v|² n × u)/2|n|², with u = b − a, v = c − a and n = u × v.
    u, v = b - a, c - a
    normal = np.cross(u, v)
    flat = (normal**2).sum(axis=1) < 1e-6 * bond**4  # in one line
    u, v, a, normal = u[~flat], v[~flat], a[~flat], normal[~flat]
    square, u2, v2 = ((w**2).sum(axis=1, keepdims=True) for w in (normal, u, v))
    centre = (u2 * np.cross(v, normal) + v2 * np.cross(normal, u)) / (2 * square)
    height2 = bond**2 - (centre**2).sum(axis=1, keepdims=True)
    real = height2[:, 0] > 0
    middle, lift = (a + centre)[real], np.sqrt(height2[real] / square[real]) * normal[real]
    sites = np.concatenate([middle + lift, middle - lift])
    if len(sites):
        sites = sites[tree.query(sites)[0] > CLOSEST * bond]
    if not len(sites):
        return np.empty((0, 3)), np.empty(0, dtype=np.int64)
    keep = np.ones(len(sites), dtype=bool)
    for i, j in sorted(cKDTree(sites).query_pairs(SAME * bond)):
        keep[j] &= not keep[i]
    counts = tree.query_ball_point(sites[keep], BONDED * bond, return_length=True)
    return sites[keep], np.asarray(counts, dtype=np.int64)


def trimmed(rng: Rng, x: Floats, n: int, bond: float) -> Floats:
    """The cluster without the atoms of lowest coordination, one after the other, until n remain."""
    while len(x) > n:
        bonds = coordination(x, bond)
        x = np.delete(x, rng.choice(np.flatnonzero(bonds == bonds.min())), axis=0)
    return x


def filled(rng: Rng, x: Floats, n: int, bond: float, axes: Floats | None = None) -> Floats:
    """The cluster with atoms added on the site with the most bonds, until it has n.

    Of equal sites the nearest to one of the `axes`, which are unit vectors from the origin, is
    filled first; a random one without axes. Fewer atoms are returned if there are no sites.
    """
    while len(x) < n:
        sites, bonds = vacant_sites(x, bond)
        if not len(sites):
            break
        best = np.flatnonzero(bonds == bonds.max())
        if axes is None:
            k = rng.choice(best)
        else:
            along = np.maximum((sites[best] @ axes.T).max(axis=1), 0.0)
            k = best[np.argmin((sites[best] ** 2).sum(axis=1) - along**2)]
        x = np.concatenate([x, sites[[k]]])
    return x


def settled(rng: Rng, x: Floats, bond: float, moves: int) -> Floats:
    """Move an atom of lowest coordination to the best vacant site while it gains bonds."""
    for _ in range(moves):
        bonds = coordination(x, bond)
        loose = rng.choice(np.flatnonzero(bonds == bonds.min()))
        moved = filled(rng, np.delete(x, loose, axis=0), len(x), bond)
        if len(moved) < len(x) or coordination(moved, bond)[-1] <= bonds[loose]:
            break
        x = moved
    return x
