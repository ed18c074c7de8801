"""SOAP's inner loops, forward and adjoint, over pairs that are listed once.

Layout: coefficients c[atom, species, lm·n + n'] with lm = l² + l + m, where n is n_max rounded up
to a multiple of four: radial functions go four at a time, and what is too much is zero. A pair adds
h_nl(r) S_lm(d) to its first atom and, since S_lm(−d) = (−1)^l S_lm(d), the same numbers with that
sign to its second: one evaluation for both. The sizes of the basis come as the lengths of two
tuples: those are known to the compiler, which then unrolls the short loops.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nugget.descriptors._basis import (
    harmonics,
    harmonics_gradient,
    padded,
    radial_slope,
    radial_value,
)
from nugget.descriptors._power import power_spectrum, power_spectrum_adjoint
from nugget.jit import FAST, njit
from nugget.simd import broadcast, load, store, total, totals, vector

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Closer than this, two atoms are one by mistake (Å).
TOO_CLOSE = 0.1


@njit(cache=True, fastmath=FAST)
def forward(
    positions: Floats,
    numbers: Ints,
    known: Ints,
    i: Ints,
    j: Ints,
    shift: Floats,
    table: Floats,
    centre: Floats,
    norm: Floats,
    cutoff: float,
    degrees: tuple[int, ...],
    radials: tuple[int, ...],
    n_species: int,
    factor: Floats,
) -> tuple[Ints, int, Floats, int, Floats]:
    """The whole way from pairs to features in one call: for a small cluster calls cost time."""
    species, missing = lookup(known, numbers)
    if missing >= 0:
        return species, missing, np.empty((0, 0, 0)), -1, np.empty((0, 0))
    c, close = coefficients(
        positions, species, i, j, shift, table, centre, norm, cutoff, degrees, radials, n_species
    )
    return species, missing, c, close, power_spectrum(c, factor, radials)


@njit(cache=True, fastmath=FAST)
def backward(
    grad: Floats,
    c: Floats,
    factor: Floats,
    positions: Floats,
    species: Ints,
    offsets: Ints,
    pair_offsets: Ints,
    i: Ints,
    j: Ints,
    shift: Floats,
    table: Floats,
    norm: Floats,
    cutoff: float,
    degrees: tuple[int, ...],
    radials: tuple[int, ...],
) -> tuple[Floats, Floats]:
    """The whole way back: ∂/∂positions (R, atoms, 3) and ∂/∂strain (R, structures, 3, 3)."""
    return coefficients_adjoint(
        power_spectrum_adjoint(c, grad, factor, radials),
        positions, species, offsets, pair_offsets, i, j, shift, table, norm, cutoff,
        degrees, radials,
    )  # fmt: skip


@njit(cache=True)
def lookup(known: Ints, numbers: Ints) -> tuple[Ints, int]:
    """Entry of each atomic number, and the first atom without one (−1 if there is none)."""
    index = np.empty(len(numbers), dtype=np.int64)
    missing = -1
    for atom in range(len(numbers)):
        index[atom] = known[numbers[atom]]
        if index[atom] < 0 and missing < 0:
            missing = atom
    return index, missing


@njit(cache=True, fastmath=FAST)
def coincident(positions: Floats, pair_offsets: Ints, i: Ints, j: Ints, shift: Floats) -> Ints:
    """Structures in which two atoms are closer than TOO_CLOSE."""
    found = np.zeros(len(pair_offsets) - 1, dtype=np.bool_)
    for s in range(len(found)):
        for p in range(pair_offsets[s], pair_offsets[s + 1]):
            square = 0.0
            for axis in range(3):
                square += (positions[j[p], axis] + shift[p, axis] - positions[i[p], axis]) ** 2
            if square < TOO_CLOSE * TOO_CLOSE:
                found[s] = True
    return np.flatnonzero(found)


@njit(cache=True, fastmath=FAST)
def coefficients(
    positions: Floats,
    species: Ints,
    i: Ints,
    j: Ints,
    shift: Floats,
    table: Floats,
    centre: Floats,
    norm: Floats,
    cutoff: float,
    degrees: tuple[int, ...],
    radials: tuple[int, ...],
    n_species: int,
) -> tuple[Floats, int]:
    """c[atom, species, lm·n + n'], and the first pair that is too close (−1 if there is none)."""
    l_max, n_max, width = len(degrees) - 1, len(radials), padded(len(radials))
    n_lm = (l_max + 1) ** 2
    inverse_step = len(table) / cutoff
    c = np.zeros((len(positions), n_species, n_lm * width))
    for atom in range(len(positions)):
        for n in range(n_max):
            c[atom, species[atom], n] = centre[n] * norm[0]
    q = np.empty((l_max + 1, l_max + 1))
    xy = np.empty((2, l_max + 1))
    solid = np.empty(n_lm)
    close = -1
    for p in range(len(i)):
        a, b = i[p], j[p]
        x = positions[b, 0] + shift[p, 0] - positions[a, 0]
        y = positions[b, 1] + shift[p, 1] - positions[a, 1]
        z = positions[b, 2] + shift[p, 2] - positions[a, 2]
        r = np.sqrt(x * x + y * y + z * z)
        if r >= cutoff:
            continue
        if r < TOO_CLOSE:
            if close < 0:
                close = p
            continue
        k = min(int(r * inverse_step), len(table) - 1)
        u, row = r * inverse_step - k, table[k]
        harmonics(x, y, z, l_max, norm, q, xy, solid)
        at_a, at_b, of_a, of_b = c[a], c[b], species[a], species[b]
        sign = 1.0
        for degree in range(l_max + 1):
            for n in range(0, width, 4):
                h = radial_value(row, degree * width + n, u)
                for lm in range(degree * degree, (degree + 1) * (degree + 1)):
                    s, to = solid[lm], lm * width + n
                    store(at_a, of_b, to, load(at_a, of_b, to) + s * h)
                    store(at_b, of_a, to, load(at_b, of_a, to) + (sign * s) * h)
            sign = -sign
    return c, close


@njit(cache=True, fastmath=FAST, inline="always")
def _add_outer(out: Floats, u: Floats, v: Floats) -> None:
    for a in range(3):
        for b in range(3):
            out[a, b] += u[a] * v[b]


@njit(cache=True, fastmath=FAST | {"reassoc"})
def coefficients_adjoint(
    bar: Floats,
    positions: Floats,
    species: Ints,
    offsets: Ints,
    pair_offsets: Ints,
    i: Ints,
    j: Ints,
    shift: Floats,
    table: Floats,
    norm: Floats,
    cutoff: float,
    degrees: tuple[int, ...],
    radials: tuple[int, ...],
) -> tuple[Floats, Floats]:
    """∂/∂positions (R, atoms, 3) and ∂/∂strain (R, structures, 3, 3) of Σ bar·c.

    With C̄ the sum of what both ends of a pair ask for, g = ∂/∂d is
    (Σ C̄_nlm h'_nl S_lm) d/r + Σ_nl h_nl (Σ_m C̄_nlm ∇S_lm). By strain it is Σ g dᵀ over pairs; with
    d = x_b + shift − x_a that is the sum over atoms of (∂/∂x) xᵀ, and g shiftᵀ of pairs that have
    a shift.
    """
    n_rhs, n_structures = len(bar), len(pair_offsets) - 1
    l_max, width = len(degrees) - 1, padded(len(radials))
    n_lm = (l_max + 1) ** 2
    inverse_step = len(table) / cutoff
    by_atom = np.zeros((n_rhs, len(positions), 4))  # the fourth is always 0
    strain = np.zeros((n_rhs, n_structures, 3, 3))
    q = np.empty((l_max + 1, l_max + 1))
    xy = np.empty((2, l_max + 1))
    solid = np.empty(n_lm)
    gradient = np.empty((3, n_lm))
    g = np.empty((1, 4))
    for s in range(n_structures):
        for p in range(pair_offsets[s], pair_offsets[s + 1]):
            a, b = i[p], j[p]
            x = positions[b, 0] + shift[p, 0] - positions[a, 0]
            y = positions[b, 1] + shift[p, 1] - positions[a, 1]
            z = positions[b, 2] + shift[p, 2] - positions[a, 2]
            r = np.sqrt(x * x + y * y + z * z)
            if r >= cutoff or r < TOO_CLOSE:
                continue
            k = min(int(r * inverse_step), len(table) - 1)
            u, row = r * inverse_step - k, table[k]
            harmonics(x, y, z, l_max, norm, q, xy, solid)
            harmonics_gradient(x, y, l_max, norm, q, xy, gradient)
            shifted = shift[p, 0] != 0.0 or shift[p, 1] != 0.0 or shift[p, 2] != 0.0
            for rhs in range(n_rhs):
                at_a, at_b, of_a, of_b = bar[rhs, a], bar[rhs, b], species[a], species[b]
                by_r = broadcast(0.0)
                by_x = broadcast(0.0)
                by_y = broadcast(0.0)
                by_z = broadcast(0.0)
                sign = 1.0
                for degree in range(l_max + 1):
                    for n in range(0, width, 4):
                        along = broadcast(0.0)
                        turn_x = broadcast(0.0)
                        turn_y = broadcast(0.0)
                        turn_z = broadcast(0.0)
                        for lm in range(degree * degree, (degree + 1) * (degree + 1)):
                            at = lm * width + n
                            both = load(at_a, of_b, at) + sign * load(at_b, of_a, at)
                            along += solid[lm] * both
                            turn_x += gradient[0, lm] * both
                            turn_y += gradient[1, lm] * both
                            turn_z += gradient[2, lm] * both
                        h = radial_value(row, degree * width + n, u)
                        by_r += along * radial_slope(row, degree * width + n, u)
                        by_x += turn_x * h
                        by_y += turn_y * h
                        by_z += turn_z * h
                    sign = -sign
                radial = inverse_step * total(by_r) / r
                by_d = totals(by_x, by_y, by_z, broadcast(0.0)) + radial * vector(x, y, z, 0.0)
                store(by_atom[rhs], b, 0, load(by_atom[rhs], b, 0) + by_d)
                store(by_atom[rhs], a, 0, load(by_atom[rhs], a, 0) - by_d)
                if shifted:
                    store(g, 0, 0, by_d)
                    _add_outer(strain[rhs, s], g[0], shift[p])
    for rhs in range(n_rhs):
        for s in range(n_structures):
            for atom in range(offsets[s], offsets[s + 1]):
                _add_outer(strain[rhs, s], by_atom[rhs, atom], positions[atom])
    return by_atom[:, :, :3].copy(), strain
