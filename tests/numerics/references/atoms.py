"""The loops over atoms and pairs in NumPy: neighbours, mean functions, design rows."""

from __future__ import annotations

from itertools import product as cartesian

import numpy as np

from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.potential.mean_functions.pair_terms import REACH, REPULSION
from nugget.structures.neighbour_loops import HEAVIEST, SMALL, SPACIOUS


def is_sound(positions: Floats, numbers: Ints, offsets: Ints, cells: Floats, pbc: Bools) -> bool:
    """`is_sound` in NumPy."""
    elements = ((numbers >= 0) & (numbers <= HEAVIEST)).all()
    finite = np.isfinite(positions).all()
    edges = [cell[along] for cell, along in zip(cells, pbc, strict=True)]
    spacious = all(np.isfinite(e).all() for e in edges)
    spacious = spacious and all(np.linalg.det(e @ e.T) > SPACIOUS**2 for e in edges)
    return bool(np.diff(offsets).all() and spacious and finite and elements)


def small_pairs(
    positions: Floats, offsets: Ints, cells: Floats, pbc: Bools, cutoff: float
) -> tuple[Ints, Ints, Floats, Ints, bool]:
    """`small_pairs` in NumPy: all images that may be near, then those that are."""
    found: list[tuple[int, int, Floats]] = []
    counts, small = [0], np.diff(offsets) <= SMALL
    for s in range(len(pbc)):
        x, start, edges = positions[offsets[s] : offsets[s + 1]], offsets[s], cells[s][pbc[s]]
        reach = np.zeros(3, dtype=int)
        if pbc[s].any() and len(x):
            dual = np.linalg.pinv(edges)  # columns: |d·b| bounds the cells that d reaches across
            spread = np.linalg.norm(np.ptp(x, axis=0)) + cutoff
            reach[pbc[s]] = np.ceil(spread * np.linalg.norm(dual, axis=0))
        images = list(cartesian(*(range(-n, n + 1) for n in reach)))
        shifts = np.array([shift_of(cells[s], image) for image in images])
        for i in range(len(x) if small[s] else 0):
            for j in range(i, len(x)):
                d = np.sqrt(np.sum((x[j] + shifts - x[i]) ** 2, axis=1))
                near = [k for k in np.flatnonzero(d < cutoff) if i < j or images[k] > (0, 0, 0)]
                found += [(start + i, start + j, shifts[k]) for k in near]
        counts.append(len(found))
    first = np.array([pair[0] for pair in found], dtype=np.int64)
    second = np.array([pair[1] for pair in found], dtype=np.int64)
    shift = np.array([pair[2] for pair in found]).reshape(-1, 3)
    return first, second, shift, np.array(counts), bool(small.all())


def shift_of(cell: Floats, image: tuple[int, ...]) -> Floats:
    """The translation of an image, its terms added one after the other."""
    return image[0] * cell[0] + image[1] * cell[1] + image[2] * cell[2]


def pair_sum(
    positions: Floats,
    radii: Floats,
    owner: Ints,
    i: Ints,
    j: Ints,
    shift: Floats,
    kind: int,
    height: float,
    stiffness: float,
    energies: Floats,
    gradient: Floats,
    strain: Floats,
) -> None:
    """`pair_sum` in NumPy."""
    d = positions[j] + shift - positions[i]
    bond = radii[i] + radii[j]
    near = np.sum(d**2, axis=1) < (REACH[kind] * bond) ** 2
    i, j, d, bond = i[near], j[near], d[near], bond[near]
    r = np.sqrt(np.sum(d**2, axis=1))
    d[r < 1e-6], r[r < 1e-6] = (1e-6, 0.0, 0.0), 1e-6
    if kind == REPULSION:
        u = bond / r - 1.0
        value, slope = height * u**3, -3.0 * height * u**2 * bond / r**2
    else:
        e, end = np.exp(-stiffness * (r / bond - 1.0)), REACH[1] * bond
        well, left = height * e * (e - 2.0), 1.0 - (r / end) ** 2
        value = well * left**2
        slope = -2.0 * stiffness / bond * height * e * (e - 1.0) * left**2
        slope -= 4.0 * well * left * r / end**2
    g = (slope / r)[:, None] * d
    for ends, sign in ((i, -1.0), (j, 1.0)):
        np.add.at(energies, ends, 0.5 * value)
        np.add.at(gradient, ends, sign * g)
    np.add.at(strain, owner[i], g[:, :, None] * d[:, None, :])


def scatter(
    product: Floats,
    own: Floats,
    slopes: Floats,
    scale: float,
    local: Ints,
    centre: Ints,
    neighbour: Ints,
    vector: Floats,
    owner: Ints,
    columns: Ints,
    out: Floats,
    sheared: Floats,
) -> None:
    """`scatter` in NumPy."""
    line = (product - own[:, :, None]) * slopes[local][:, None, :] * scale  # (P, 3, columns)
    rows = np.zeros((len(out), 3, len(columns)))
    np.add.at(rows, neighbour, line)
    np.subtract.at(rows, centre, line)
    out[:, :, columns] += rows
    if len(sheared):
        by_strain = np.zeros((len(sheared), 3, 3, len(columns)))
        np.add.at(by_strain, owner[centre], line[:, :, None, :] * vector[:, None, :, None])
        sheared[:, :, :, columns] += by_strain
