"""Backward from coefficients to positions, four pairs at a time; `_loops` has the layout."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit
from nugget._compiled.simd import Vec4, broadcast, load, store, store_columns, transpose
from nugget.descriptors._basis import (
    harmonics,
    harmonics_gradient,
    interval,
    next_four,
    radial_slope,
    radial_value,
)


@njit(fastmath=FAST, forceinline=True)
def coefficients_vjp(
    bar: Floats,
    positions: Floats,
    species: Ints,
    offsets: Ints,
    pair_offsets: Ints,
    first: int,
    end: int,
    i: Ints,
    j: Ints,
    shift: Floats,
    table: Floats,
    norm: Floats,
    cutoff: float,
    degrees: tuple[int, ...],
    radials: tuple[int, ...],
    by_position: Floats,
    strain: Floats,
) -> None:
    """∂/∂positions (R, atoms, 3) and ∂/∂strain (R, structures, 3, 3) of Σ bar·c.

    For structures from first to end, whose atoms bar holds; strain has to be 0 before.
    With C̄ the cotangents of both ends of a pair added up, g = ∂/∂d is
    Σ_lm (Σ_n C̄_nlm h'_nl) S_lm d/r + Σ_lm (Σ_n C̄_nlm h_nl) ∇S_lm. By strain it is Σ g dᵀ over
    pairs; with d = x_b + shift − x_a that is the sum over atoms of (∂/∂x) xᵀ, and g shiftᵀ of pairs
    that have a shift. Vectors hold one number of each of four pairs: sums over n stay in a lane.
    """
    n_rhs, n_atoms, n_species = bar.shape[:3]
    l_max, width = len(degrees) - 1, (len(radials) + 3) // 4 * 4
    n_lm = (l_max + 1) ** 2
    begin, inverse_step = offsets[first], len(table) / cutoff
    by_row = bar.reshape((n_rhs, n_atoms * n_species, n_lm * width))
    # The fourth number is always 0; lanes without a pair of their own add to the last row.
    by_atom = np.zeros((n_rhs, n_atoms + 1, 4))
    q, xy = np.empty((n_lm, 4)), np.empty((2 * l_max + 2, 4))
    solid, gradient = np.empty((n_lm, 4)), np.empty((3 * n_lm, 4))
    h, slope = np.empty(((l_max + 1) * width, 4)), np.empty(((l_max + 1) * width, 4))
    d, g, pair = np.empty((4, 4)), np.empty((4, 4)), np.empty(4, dtype=np.int64)
    ends, rows = np.empty((2, 4), dtype=np.int64), np.empty((2, 4), dtype=np.int64)
    p, s, zero = pair_offsets[first], first, broadcast(0.0)
    while True:
        p, count, _ = next_four(p, pair_offsets[end], positions, i, j, shift, cutoff, d, pair)
        if count == 0:
            break
        while pair_offsets[s + 1] <= pair[0]:
            s += 1
        harmonics(d, l_max, norm, q, xy, solid)
        harmonics_gradient(d, l_max, norm, q, xy, gradient)
        _radials(d, table, inverse_step, h, slope)
        shifted = False
        for lane in range(4):
            for axis in range(3):
                shifted = shifted or shift[pair[lane], axis] != 0.0
            a, b = i[pair[lane]], j[pair[lane]]
            rows[0, lane] = (a - begin) * n_species + species[b]
            rows[1, lane] = (b - begin) * n_species + species[a]
            ends[0, lane] = a - begin if lane < count else n_atoms
            ends[1, lane] = b - begin if lane < count else n_atoms
            d[3, lane] = inverse_step / d[3, lane]  # ∂u/∂d is d times this
        x, y, z, over_r = load(d, 0, 0), load(d, 1, 0), load(d, 2, 0), load(d, 3, 0)
        for rhs in range(n_rhs):
            along, by_x, by_y, by_z = _contract(
                by_row[rhs], rows, h, slope, solid, gradient, l_max, len(radials)
            )
            along = along * over_r
            store_columns(g, 0, by_x + along * x, by_y + along * y, by_z + along * z, zero)
            for lane in range(4):
                a, b, by_d = ends[0, lane], ends[1, lane], load(g, lane, 0)
                store(by_atom[rhs], b, 0, load(by_atom[rhs], b, 0) + by_d)
                store(by_atom[rhs], a, 0, load(by_atom[rhs], a, 0) - by_d)
            for lane in range(count if shifted else 0):
                home = s
                while pair_offsets[home + 1] <= pair[lane]:
                    home += 1
                _add_outer(strain[rhs, home], g[lane], shift[pair[lane]])
    for rhs in range(n_rhs):
        for s in range(first, end):
            for atom in range(offsets[s], offsets[s + 1]):
                found = by_atom[rhs, atom - begin]
                _add_outer(strain[rhs, s], found, positions[atom])
                for axis in range(3):
                    by_position[rhs, atom, axis] = found[axis]


@njit(fastmath=FAST, inline="always")
def _radials(d: Floats, table: Floats, inverse_step: float, h: Floats, slope: Floats) -> None:
    """h_nl and ∂h_nl/∂u of four pairs, at l·n + n', with u = r·inverse_step."""
    last = len(table) - 1
    k0, u0 = interval(d[3, 0], inverse_step, last)
    k1, u1 = interval(d[3, 1], inverse_step, last)
    k2, u2 = interval(d[3, 2], inverse_step, last)
    k3, u3 = interval(d[3, 3], inverse_step, last)
    t0, t1, t2, t3 = table[k0], table[k1], table[k2], table[k3]
    for n in range(0, len(h), 4):
        a, b = radial_value(t0, n, u0), radial_value(t1, n, u1)
        store_columns(h, n, a, b, radial_value(t2, n, u2), radial_value(t3, n, u3))
        a, b = radial_slope(t0, n, u0), radial_slope(t1, n, u1)
        store_columns(slope, n, a, b, radial_slope(t2, n, u2), radial_slope(t3, n, u3))


@njit(fastmath=FAST, inline="always")
def _contract(
    bar: Floats, rows: Ints, h: Floats, slope: Floats, solid: Floats, gradient: Floats,
    l_max: int, n_max: int,
) -> tuple[Vec4, Vec4, Vec4, Vec4]:  # fmt: skip
    """Σ_lm (Σ_n C̄ h') S_lm and Σ_lm (Σ_n C̄ h) ∇S_lm of four pairs, C̄ = bar[rows₀] ± bar[rows₁]."""
    width = (n_max + 3) // 4 * 4
    a0, a1, a2, a3 = rows[0, 0], rows[0, 1], rows[0, 2], rows[0, 3]
    b0, b1, b2, b3 = rows[1, 0], rows[1, 1], rows[1, 2], rows[1, 3]
    zero = broadcast(0.0)
    along, by_x, by_y, by_z = zero, zero, zero, zero
    for degree in range(l_max + 1):
        sign = 1.0 if degree % 2 == 0 else -1.0
        # Sums of their own for each l: shorter chains of products that wait for each other.
        slide, turn_x, turn_y, turn_z = zero, zero, zero, zero
        for lm in range(degree * degree, (degree + 1) * (degree + 1)):
            with_h, with_slope = zero, zero
            for n in range(0, width, 4):
                at, to = lm * width + n, degree * width + n
                c0, c1, c2, c3 = transpose(
                    load(bar, a0, at) + sign * load(bar, b0, at),
                    load(bar, a1, at) + sign * load(bar, b1, at),
                    load(bar, a2, at) + sign * load(bar, b2, at),
                    load(bar, a3, at) + sign * load(bar, b3, at),
                )
                with_h += c0 * load(h, to, 0)
                with_slope += c0 * load(slope, to, 0)
                if n + 1 < n_max:
                    with_h += c1 * load(h, to + 1, 0)
                    with_slope += c1 * load(slope, to + 1, 0)
                if n + 2 < n_max:
                    with_h += c2 * load(h, to + 2, 0)
                    with_slope += c2 * load(slope, to + 2, 0)
                if n + 3 < n_max:
                    with_h += c3 * load(h, to + 3, 0)
                    with_slope += c3 * load(slope, to + 3, 0)
            slide += with_slope * load(solid, lm, 0)
            if degree > 0:
                turn_x += with_h * load(gradient, 3 * lm, 0)
                turn_y += with_h * load(gradient, 3 * lm + 1, 0)
                turn_z += with_h * load(gradient, 3 * lm + 2, 0)
        along += slide
        by_x += turn_x
        by_y += turn_y
        by_z += turn_z
    return along, by_x, by_y, by_z


@njit(fastmath=FAST, inline="always")
def _add_outer(out: Floats, u: Floats, v: Floats) -> None:
    for a in range(3):
        for b in range(3):
            out[a, b] += u[a] * v[b]
