"""Gradient rows from products of the descriptor's Jacobian with the inducing points."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit


def scatter_reference(
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


@njit(reference=scatter_reference, fastmath=FAST)
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
    """out[b] += line and out[a] −= line for the pair (a, b), line = (J·z̃ − J·x̃)·g·scale.

    Sums are kept without gaps between a block's columns, and spread to all columns in the end.
    """
    n_columns = len(columns)
    line = np.empty(n_columns)
    rows = np.zeros((len(out), 3, n_columns))
    by_strain = np.zeros((len(sheared), 3, 3, n_columns))
    for p in range(len(centre)):
        a, b = centre[p], neighbour[p]
        kernel = slopes[local[p]]
        for axis in range(3):
            source, offset = product[p, axis], own[p, axis]
            to_b, to_a = rows[b, axis], rows[a, axis]
            for q in range(n_columns):
                line[q] = (source[q] - offset) * kernel[q] * scale
            for q in range(n_columns):
                to_b[q] += line[q]
            for q in range(n_columns):
                to_a[q] -= line[q]
            if len(sheared) > 0:
                for other in range(3):
                    target, d = by_strain[owner[a], axis, other], vector[p, other]
                    for q in range(n_columns):
                        target[q] += line[q] * d
    for atom in range(len(out)):
        for axis in range(3):
            for q in range(n_columns):
                out[atom, axis, columns[q]] += rows[atom, axis, q]
    for s in range(len(sheared)):
        for axis in range(3):
            for other in range(3):
                for q in range(n_columns):
                    sheared[s, axis, other, columns[q]] += by_strain[s, axis, other, q]
