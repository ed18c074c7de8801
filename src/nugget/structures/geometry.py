"""Covalent radii and bond lengths, cells of crystals, and the forces on free atoms."""

from __future__ import annotations

import numpy as np
from ase import Atoms
from ase.cell import Cell
from ase.constraints import FixAtoms, FixCartesian
from ase.data import chemical_symbols, covalent_radii
from ase.geometry import minkowski_reduce

from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats, Ints

#: Å, by atomic number.
RADII: Floats = np.asarray(covalent_radii, dtype=np.float64)

#: Bond graphs: atoms closer than this are bonded. 3.54 Å for gold: between the longest bond of the
#: relaxed Au20 tetrahedron (3.28 Å with GFN1-xTB) and its second neighbours (4.07 Å and more).
BONDED = 1.3

#: Connectivity of candidates: atoms up to this far apart belong to one piece. Slightly longer than
#: BONDED, because candidates are not relaxed yet and an atom a little too far out falls back.
CONNECTED = 1.35


def radii_of(numbers: Ints) -> Floats:
    """Covalent radii (Å) of these atoms; an error when one is not an element."""
    if (numbers < 1).any():
        odd = chemical_symbols[int(numbers.min())]
        raise NuggetError(f"element {odd} has no covalent radius; bonds cannot be found.")
    return RADII[numbers]


def bond_length(numbers: Ints) -> float:
    """The shortest sum of two covalent radii (Å), of unlike elements where there are several.

    Like atoms are no neighbours in oxides and in most molecules, so their sums do not count.
    """
    radii = radii_of(np.unique(numbers))
    unlike = radii[:, None] + radii
    if len(radii) > 1:
        np.fill_diagonal(unlike, np.inf)
    return float(unlike.min())


# --- Cells of crystals ---

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


def random_cell(rng: np.random.Generator, volume: float) -> Floats:
    """A cell of this volume: lengths within a factor of about three, angles of 60 to 120°."""
    while True:
        lengths = np.exp(0.35 * rng.normal(size=3))
        angles = rng.uniform(60, 120, size=3)
        a, b, c = np.cos(np.radians(angles))
        if 1 - a * a - b * b - c * c + 2 * a * b * c > 0.1:
            break
    cell = np.asarray(Cell.fromcellpar([*lengths, *angles]).array)
    return scaled_to(cell, volume)


def scaled_to(cell: Floats, volume: float) -> Floats:
    """The cell with another volume."""
    return np.asarray(cell * (volume / abs(np.linalg.det(cell))) ** (1 / 3))


def parts_of(atoms: Atoms) -> tuple[Floats, Floats, Ints]:
    """Cell, fractional coordinates and atomic numbers, as copies."""
    return (
        np.array(atoms.cell.array),
        atoms.get_scaled_positions(wrap=True),
        np.array(atoms.numbers, dtype=np.int64),
    )


def random_multiple(rng: np.random.Generator, times: int) -> Ints:
    """A random integer matrix of this determinant, in Hermite's form, axes in random order."""
    divisors = [d for d in range(1, times + 1) if times % d == 0]
    first = int(rng.choice(divisors))
    second = int(rng.choice([d for d in divisors if (times // first) % d == 0]))
    sizes = [first, second, times // first // second]
    matrix = np.diag(sizes)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        matrix[i, j] = rng.integers(sizes[j])
    order = rng.permutation(3)
    return np.asarray(matrix[np.ix_(order, order)])


def repeated(atoms: Atoms, matrix: Ints) -> Atoms:
    """The crystal in the cell matrix·cell."""
    cell, points, numbers = parts_of(atoms)
    inverse = np.linalg.inv(matrix)
    times = round(abs(float(np.linalg.det(matrix))))
    span = int(np.abs(matrix).sum(axis=0).max())
    shifts = np.array(list(np.ndindex(*[2 * span + 1] * 3))) - span
    inside = (shifts @ inverse + 1e-9) % 1.0
    _, first = np.unique(np.round(inside, 6), axis=0, return_index=True)
    every = (points[:, None] + shifts[np.sort(first)[:times]]).reshape(-1, 3) @ inverse
    return Atoms(
        np.repeat(numbers, times), cell=matrix @ cell, scaled_positions=every % 1.0, pbc=True
    )


def free_mask(atoms: Atoms) -> Bools:
    """(N, 3) False where FixAtoms or FixCartesian fixes a coordinate; other constraints do not."""
    free = np.ones((len(atoms), 3), dtype=bool)
    for constraint in atoms.constraints:
        if isinstance(constraint, FixAtoms):
            free[constraint.index] = False
        elif isinstance(constraint, FixCartesian):
            free[constraint.index] &= ~np.asarray(constraint.mask, dtype=bool)
    return free


def force_lengths(atoms: Atoms) -> Floats | None:
    """Norms of the stored forces in eV/Å, without fixed components; None without forces."""
    results = {} if atoms.calc is None else atoms.calc.results
    if results.get("forces") is None:
        return None
    forces: Floats = np.where(free_mask(atoms), results["forces"], 0.0)
    return np.asarray(np.sqrt(np.sum(forces**2, axis=1)))


def largest_force(atoms: Atoms) -> float:
    """The largest norm of the stored force on an atom in eV/Å; fixed components count as zero."""
    lengths = force_lengths(atoms)
    if lengths is None:
        raise NuggetError("The structure has no forces; evaluate it with an engine first.")
    return float(np.max(lengths, initial=0.0))
