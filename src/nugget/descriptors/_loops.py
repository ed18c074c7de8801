"""SOAP's inner loops, forward and adjoint, over pairs that are listed once.

Layout: coefficients c[atom, lm, ν] with lm = l² + l + m and ν = species·n_max + n, so that the
innermost loop runs over radial functions. A pair adds h_nl(r) S_lm(d) to its first atom and, since
S_lm(−d) = (−1)^l S_lm(d), the same numbers with that sign to its second: one evaluation for
both. The sizes of the basis come as the lengths of two tuples: those are known to the compiler,
which then unrolls the short loops (1.5 times faster at n_max = 3, l_max = 2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nugget.descriptors._basis import (
    harmonics,
    harmonics_gradient,
    radial_and_slope,
    radial_value,
)
from nugget.jit import FAST, njit

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
        positions, species, pair_offsets, i, j, shift, table, norm, cutoff, degrees, radials,
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
    """c[atom, lm, ν], and the first pair that is too close (−1 if there is none)."""
    l_max, n_max = len(degrees) - 1, len(radials)
    n_lm = (l_max + 1) ** 2
    inverse_step = len(table) / cutoff
    c = np.zeros((len(positions), n_lm, n_species * n_max))
    for atom in range(len(positions)):
        for n in range(n_max):
            c[atom, 0, species[atom] * n_max + n] = centre[n] * norm[0]
    h = np.empty(table.shape[2])
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
        radial_value(r, table, inverse_step, (l_max + 1) * n_max, h)
        harmonics(x, y, z, l_max, norm, q, xy, solid)
        slot_a = species[b] * n_max
        slot_b = species[a] * n_max
        sign = 1.0
        for degree in range(l_max + 1):
            radial = h[degree * n_max : (degree + 1) * n_max]
            for lm in range(degree * degree, (degree + 1) * (degree + 1)):
                s = solid[lm]
                at_a = c[a, lm, slot_a : slot_a + n_max]
                for n in range(n_max):
                    at_a[n] += s * radial[n]
                s *= sign
                at_b = c[b, lm, slot_b : slot_b + n_max]
                for n in range(n_max):
                    at_b[n] += s * radial[n]
            sign = -sign
    return c, close


@njit(cache=True, fastmath=FAST)
def power_spectrum(c: Floats, factor: Floats, radials: tuple[int, ...]) -> Floats:
    """x = factor_l Σ_m c_lmν c_lmν' with ν ≤ ν', in DScribe's order: species pair, l, n, n'."""
    n_atoms, n_nu, n_max = len(c), c.shape[2], len(radials)
    x = np.empty((n_atoms, len(factor) * n_nu * (n_nu + 1) // 2))
    for atom in range(n_atoms):
        at, row, f = c[atom], x[atom], 0
        for a in range(0, n_nu, n_max):
            for b in range(a, n_nu, n_max):
                for degree in range(len(factor)):
                    low, high = degree * degree, (degree + 1) * (degree + 1)
                    for n in range(n_max):
                        for k in range(n if a == b else 0, n_max):
                            total = 0.0
                            for lm in range(low, high):
                                total += at[lm, a + n] * at[lm, b + k]
                            row[f] = factor[degree] * total
                            f += 1
    return x


@njit(cache=True, fastmath=FAST)
def power_spectrum_adjoint(
    c: Floats, grad: Floats, factor: Floats, radials: tuple[int, ...]
) -> Floats:
    """∂/∂c of Σ grad·x, shape (R, atoms, lm, ν), for R gradients (R, atoms, features)."""
    n_atoms, n_nu, n_max = len(c), c.shape[2], len(radials)
    bar = np.zeros((len(grad), n_atoms, c.shape[1], n_nu))
    for r in range(len(grad)):
        for atom in range(n_atoms):
            at, out, row, f = c[atom], bar[r, atom], grad[r, atom], 0
            for a in range(0, n_nu, n_max):
                for b in range(a, n_nu, n_max):
                    for degree in range(len(factor)):
                        low, high = degree * degree, (degree + 1) * (degree + 1)
                        for n in range(n_max):
                            for k in range(n if a == b else 0, n_max):
                                g = factor[degree] * row[f]
                                f += 1
                                for lm in range(low, high):
                                    out[lm, a + n] += g * at[lm, b + k]
                                    out[lm, b + k] += g * at[lm, a + n]
    return bar


@njit(cache=True, fastmath=FAST | {"reassoc"})
def coefficients_adjoint(
    bar: Floats,
    positions: Floats,
    species: Ints,
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

    With C̄ the sum of what both ends of a pair ask for, ∂/∂d is
    (Σ C̄_nlm h'_nl S_lm) d/r + Σ_lm (Σ_n C̄_nlm h_nl) ∇S_lm.
    """
    n_rhs, n_structures = len(bar), len(pair_offsets) - 1
    l_max, n_max = len(degrees) - 1, len(radials)
    n_lm = (l_max + 1) ** 2
    inverse_step = len(table) / cutoff
    out = np.zeros((n_rhs, len(positions), 3))
    strain = np.zeros((n_rhs, n_structures, 3, 3))
    h = np.empty(table.shape[2])
    dh = np.empty(table.shape[2])
    q = np.empty((l_max + 1, l_max + 1))
    xy = np.empty((2, l_max + 1))
    solid = np.empty(n_lm)
    gradient = np.empty((3, n_lm))
    for s in range(n_structures):
        for p in range(pair_offsets[s], pair_offsets[s + 1]):
            a, b = i[p], j[p]
            x = positions[b, 0] + shift[p, 0] - positions[a, 0]
            y = positions[b, 1] + shift[p, 1] - positions[a, 1]
            z = positions[b, 2] + shift[p, 2] - positions[a, 2]
            r = np.sqrt(x * x + y * y + z * z)
            if r >= cutoff or r < TOO_CLOSE:
                continue
            radial_and_slope(r, table, inverse_step, (l_max + 1) * n_max, h, dh)
            harmonics(x, y, z, l_max, norm, q, xy, solid)
            harmonics_gradient(x, y, l_max, norm, q, xy, gradient)
            slot_a = species[b] * n_max
            slot_b = species[a] * n_max
            for k in range(n_rhs):
                radial = gx = gy = gz = 0.0
                sign = 1.0
                for degree in range(l_max + 1):
                    value = h[degree * n_max : (degree + 1) * n_max]
                    slope = dh[degree * n_max : (degree + 1) * n_max]
                    for lm in range(degree * degree, (degree + 1) * (degree + 1)):
                        at_a = bar[k, a, lm, slot_a : slot_a + n_max]
                        at_b = bar[k, b, lm, slot_b : slot_b + n_max]
                        v = 0.0
                        dv = 0.0
                        for n in range(n_max):
                            both = at_a[n] + sign * at_b[n]
                            v += both * value[n]
                            dv += both * slope[n]
                        radial += dv * solid[lm]
                        gx += v * gradient[0, lm]
                        gy += v * gradient[1, lm]
                        gz += v * gradient[2, lm]
                    sign = -sign
                radial /= r
                gx += radial * x
                gy += radial * y
                gz += radial * z
                out[k, b, 0] += gx
                out[k, b, 1] += gy
                out[k, b, 2] += gz
                out[k, a, 0] -= gx
                out[k, a, 1] -= gy
                out[k, a, 2] -= gz
                strain[k, s, 0, 0] += gx * x
                strain[k, s, 0, 1] += gx * y
                strain[k, s, 0, 2] += gx * z
                strain[k, s, 1, 0] += gy * x
                strain[k, s, 1, 1] += gy * y
                strain[k, s, 1, 2] += gy * z
                strain[k, s, 2, 0] += gz * x
                strain[k, s, 2, 1] += gz * y
                strain[k, s, 2, 2] += gz * z
    return out, strain
