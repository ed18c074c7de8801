"""SOAP's inner loops, from pairs that are listed once to features, and back.

Layout: coefficients c[atom, species, lm·n + n'] with lm = l² + l + m, where n is n_max rounded up
to a multiple of four: radial functions go four at a time, and what is too much is zero. A pair adds
h_nl(r) S_lm(d) to its first atom and, since S_lm(−d) = (−1)^l S_lm(d), the same numbers with that
sign to its second: one evaluation for both. The sizes of the basis come as the lengths of two
tuples: those are known to the compiler, which then unrolls the short loops.
"""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit, part_end
from nugget._compiled.simd import load, store
from nugget.descriptors import _reference
from nugget.descriptors._adjoint import coefficients_vjp
from nugget.descriptors._basis import (
    TOO_CLOSE,
    harmonics,
    interval,
    next_four,
    radial_value,
)
from nugget.descriptors._power import (
    add_total,
    add_total_vjp,
    power_spectrum,
    power_spectrum_vjp,
)

_AT_A_TIME = 2**15  # gradients by coefficients that are made together


@njit(reference=_reference.forward, fastmath=FAST)
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
    n_channels: int,
    factor: Floats,
    blocks: Ints,
) -> tuple[Ints, int, Floats, int, Floats]:
    """Pairs to features in one call: for a small cluster calls cost time.

    `known` has the channel of every element; a feature belongs to one of `blocks`, pairs of
    channels. A first block of two different channels says that the last channel is the total.
    """
    species, missing = lookup(known, numbers)
    if missing >= 0:
        return species, missing, np.empty((0, 0, 0)), -1, np.empty((0, 0))
    c, close = coefficients(
        positions, species, i, j, shift, table, centre, norm, cutoff, degrees, radials, n_channels
    )
    if blocks[0, 0] != blocks[0, 1]:
        add_total(c)
    return species, missing, c, close, power_spectrum(c, factor, radials, blocks)


@njit(reference=_reference.backward, fastmath=FAST)
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
    blocks: Ints,
) -> tuple[Floats, Floats]:
    """Features to positions: ∂/∂positions (R, atoms, 3) and ∂/∂strain (R, structures, 3, 3).

    Some structures at a time, so that the gradients by c, which are as large as c, stay in the
    cache and never take more memory than that.
    """
    n_rhs, n_structures = len(grad), len(offsets) - 1
    by_position = np.empty((n_rhs, len(positions), 3))
    strain = np.zeros((n_rhs, n_structures, 3, 3))
    rows = _AT_A_TIME // (n_rhs * c.shape[1] * c.shape[2])
    s = np.int64(0)  # a literal would make Numba compile the calls below twice
    while s < n_structures:
        end = part_end(offsets, s, rows)
        bar = power_spectrum_vjp(c, grad, factor, radials, blocks, offsets[s], offsets[end])
        if blocks[0, 0] != blocks[0, 1]:
            add_total_vjp(bar)
        coefficients_vjp(
            bar, positions, species, offsets, pair_offsets, s, end, i, j, shift, table, norm,
            cutoff, degrees, radials, by_position, strain,
        )  # fmt: skip
        s = end
    return by_position, strain


@njit(forceinline=True)
def lookup(known: Ints, numbers: Ints) -> tuple[Ints, int]:
    """Entry of each atomic number, and the first atom without one (−1 if there is none)."""
    index = np.empty(len(numbers), dtype=np.int64)
    missing = -1
    for atom in range(len(numbers)):
        index[atom] = known[numbers[atom]]
        if index[atom] < 0 and missing < 0:
            missing = atom
    return index, missing


@njit(reference=_reference.coincident, fastmath=FAST)
def coincident(positions: Floats, pair_offsets: Ints, i: Ints, j: Ints, shift: Floats) -> Ints:
    """Structures in which two atoms are closer than TOO_CLOSE."""
    found = np.zeros(len(pair_offsets) - 1, dtype=np.bool_)
    for s in range(len(found)):
        for p in range(pair_offsets[s], pair_offsets[s + 1]):
            square = 0.0
            for axis in range(3):
                d = positions[j[p], axis] + shift[p, axis] - positions[i[p], axis]
                square += d * d
            if square < TOO_CLOSE * TOO_CLOSE:
                found[s] = True
    return np.flatnonzero(found)


@njit(fastmath=FAST, forceinline=True)
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
    l_max, n_max, width = len(degrees) - 1, len(radials), (len(radials) + 3) // 4 * 4
    n_lm = (l_max + 1) ** 2
    inverse_step = len(table) / cutoff
    c = np.zeros((len(positions), n_species, n_lm * width))
    for atom in range(len(positions)):
        for n in range(n_max):
            c[atom, species[atom], n] = centre[n] * norm[0]
    q, xy = np.empty((n_lm, 4)), np.empty((2 * l_max + 2, 4))
    solid, d, pair = np.empty((n_lm, 4)), np.empty((4, 4)), np.empty(4, dtype=np.int64)
    p, close = 0, -1
    while True:
        p, count, near = next_four(p, len(i), positions, i, j, shift, cutoff, d, pair)
        if near >= 0 and close < 0:
            close = near
        if count == 0:
            return c, close
        harmonics(d, l_max, norm, q, xy, solid)
        for lane in range(count):
            a, b = i[pair[lane]], j[pair[lane]]
            k, u = interval(d[3, lane], inverse_step, len(table) - 1)
            row, at_a, at_b, of_a, of_b = table[k], c[a], c[b], species[a], species[b]
            sign = 1.0
            for degree in range(l_max + 1):
                for n in range(0, width, 4):
                    h = radial_value(row, degree * width + n, u)
                    for lm in range(degree * degree, (degree + 1) * (degree + 1)):
                        s, to = solid[lm, lane], lm * width + n
                        store(at_a, of_b, to, load(at_a, of_b, to) + s * h)
                        store(at_b, of_a, to, load(at_b, of_a, to) + (sign * s) * h)
                sign = -sign
