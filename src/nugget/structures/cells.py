"""Cells of crystals: short vectors, thickness, and the closest atoms."""

from __future__ import annotations

import numpy as np
from ase import Atoms
from ase.geometry import minkowski_reduce

from nugget._compiled.arrays import Floats

_NEAR = np.array(list(np.ndindex(3, 3, 3)), dtype=float) - 1.0  # images around a reduced cell


def thickness(cell: Floats) -> Floats:
    """Distances between opposite faces, (3,), Å."""
    return np.asarray(1.0 / np.linalg.norm(np.linalg.inv(cell), axis=0))


def reduced(atoms: Atoms) -> Atoms:
    """The same crystal with the shortest cell vectors, right-handed, and all atoms inside."""
    out = atoms.copy()
    cell = minkowski_reduce(atoms.cell.array)[0]
    if np.linalg.det(cell) < 0:
        cell = -cell
    out.set_cell(cell)
    out.wrap(eps=1e-9)
    return out


def distances(points: Floats, others: Floats, cell: Floats) -> Floats:
    """Shortest distances (n, m) between fractional points of a reduced cell, images included."""
    apart = points[:, None] - others
    apart -= np.rint(apart)
    images = (apart[:, :, None] + _NEAR) @ cell
    return np.asarray(np.sqrt(np.sum(images**2, axis=-1).min(axis=-1)))


def closest_ratio(points: Floats, radii: Floats, cell: Floats) -> float:
    """The shortest distance in a reduced cell, in units of the sum of the two covalent radii."""
    apart = distances(points, points, cell)
    np.fill_diagonal(apart, np.linalg.norm(cell, axis=1).min())  # to an atom's own images
    return float(np.min(apart / (radii[:, None] + radii)))


def volume_per_atom(atoms: Atoms) -> float:
    """Å³."""
    return float(atoms.get_volume()) / len(atoms)
