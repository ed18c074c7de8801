"""Sums over pairs for the priors, with derivatives by positions and strain."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit

REPULSION, WELL = 0, 1
# Where each kind ends, in bond lengths.
REACH = (1.0, 2.2)


@njit(fastmath=FAST, inline="always")
def _pair(kind: int, r: float, bond: float, height: float, stiffness: float) -> tuple[float, float]:
    """φ(r) and φ'(r)."""
    if kind == REPULSION:
        u = bond / r - 1.0
        return height * u * u * u, -3.0 * height * u * u * bond / (r * r)
    e = np.exp(-stiffness * (r / bond - 1.0))
    well = height * e * (e - 2.0)
    slope = -2.0 * stiffness / bond * height * e * (e - 1.0)
    end = REACH[1] * bond
    share = r / end
    left = 1.0 - share * share
    return well * left * left, slope * left * left - 4.0 * well * left * share / end


def pair_sum_reference(
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


@njit(reference=pair_sum_reference, fastmath=FAST)
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
    """Add φ of all pairs to `energies` (half to each atom), and its derivatives."""
    d = np.empty(3)
    for p in range(len(i)):
        a, b = i[p], j[p]
        r2 = 0.0
        for axis in range(3):
            d[axis] = positions[b, axis] + shift[p, axis] - positions[a, axis]
            r2 += d[axis] * d[axis]
        bond = radii[a] + radii[b]
        end = REACH[kind] * bond
        if r2 >= end * end:
            continue
        r = np.sqrt(r2)
        if r < 1e-6:
            # Atoms on top of each other still need a direction to part in.
            d[0], d[1], d[2] = 1e-6, 0.0, 0.0
            r = 1e-6
        value, slope = _pair(kind, r, bond, height, stiffness)
        energies[a] += 0.5 * value
        energies[b] += 0.5 * value
        for axis in range(3):
            g = slope * d[axis] / r
            gradient[b, axis] += g
            gradient[a, axis] -= g
            for other in range(3):
                strain[owner[a], axis, other] += g * d[other]
