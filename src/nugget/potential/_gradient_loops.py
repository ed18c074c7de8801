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
    """out[b] += line and out[a] −= line for the pair (a, b), line = (J·z̃ − J·x̃)·g·scale."""
    n_columns = len(columns)
    whole = n_columns == out.shape[2]
    line = np.empty(n_columns)
    for p in range(len(centre)):
        a, b = centre[p], neighbour[p]
        kernel = slopes[local[p]]
        for axis in range(3):
            source = product[p, axis]
            offset = own[p, axis]
            for q in range(n_columns):
                line[q] = (source[q] - offset) * kernel[q] * scale
            if whole:
                to_b = out[b, axis]
                to_a = out[a, axis]
                for q in range(n_columns):
                    to_b[q] += line[q]
                    to_a[q] -= line[q]
            else:
                for q in range(n_columns):
                    out[b, axis, columns[q]] += line[q]
                    out[a, axis, columns[q]] -= line[q]
            if len(sheared) > 0:
                for other in range(3):
                    d = vector[p, other]
                    for q in range(n_columns):
                        sheared[owner[a], axis, other, columns[q]] += line[q] * d
