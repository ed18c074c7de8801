"""SOAP's compiled loops: from neighbour pairs to features, and from gradients back to positions.

Sections, from the inside out:

1. functions of four pairs at a time: distances, radial functions h_nl, solid harmonics S_lm;
2. the power spectrum of density coefficients, and its vector-Jacobian product;
3. coefficients from pairs, and their vector-Jacobian product to positions and strain;
4. the entry points `forward`, `backward`, `coincident` and `jacobian`.

Layout. Coefficients are c[atom, channel, lm·width + n] with lm = l² + l + m, where `width` is n_max
rounded up to a multiple of four and zero-padded, because radial functions are handled four at a
time. Every pair is listed once. It adds h_nl(r) S_lm(d) to its first atom and, because
S_lm(−d) = (−1)^l S_lm(d), the same numbers with that sign to its second. The sizes of the basis are
passed as the lengths of the tuples `degrees` (l) and `radials` (n): Numba knows them at compile
time and unrolls the short loops.
"""

from __future__ import annotations

import numpy as np

from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.jit import FAST, njit, part_end
from nugget.numerics.simd import Vec4, broadcast, load, store, store_columns, transpose, vector

# Two atoms closer than this (Å) count as coincident.
TOO_CLOSE = 0.1

# --- 1. Four pairs at a time ----------------------------------------------------------------------


@njit(fastmath=FAST, inline="always")
def next_four(
    p: int, end: int, positions: Floats, i: Ints, j: Ints, shift: Floats, cutoff: float,
    d: Floats, pair: Ints,
) -> tuple[int, int, int]:  # fmt: skip
    """The next up to four pairs within the cutoff, from pair p on: pair (4,) and d (4, 4).

    d has the rows x, y, z and r. Returns the pair to continue with, the number of pairs (0 at the
    end; unused lanes repeat the first), and the first pair skipped as too close (−1 if none).
    """
    count, close = 0, -1
    while p < end and count < 4:
        a, b = i[p], j[p]
        x = positions[b, 0] + shift[p, 0] - positions[a, 0]
        y = positions[b, 1] + shift[p, 1] - positions[a, 1]
        z = positions[b, 2] + shift[p, 2] - positions[a, 2]
        r = np.sqrt(x * x + y * y + z * z)
        if r < TOO_CLOSE:
            close = p if close < 0 else close
        elif r < cutoff:
            d[0, count], d[1, count], d[2, count], d[3, count] = x, y, z, r
            pair[count] = p
            count += 1
        p += 1
    for lane in range(count, 4):
        for line in range(4):
            d[line, lane] = d[line, 0]
        pair[lane] = pair[0]
    return p, count, close


@njit(fastmath=FAST, inline="always")
def interval(r: float, inverse_step: float, last: int) -> tuple[int, float]:
    """The interval of `radial.table` that contains r, and the position u ∈ [0, 1] in it."""
    k = min(int(r * inverse_step), last)
    return k, r * inverse_step - k


@njit(fastmath=FAST, inline="always")
def radial_value(c: Floats, q: int, u: float) -> Vec4:
    """h_nl for four n from one interval (6, q) of `radial.table`, at u in [0, 1] within it."""
    high = load(c, 2, q) + u * (load(c, 3, q) + u * (load(c, 4, q) + u * load(c, 5, q)))
    return load(c, 0, q) + u * (load(c, 1, q) + u * high)


@njit(fastmath=FAST, inline="always")
def radial_slope(c: Floats, q: int, u: float) -> Vec4:
    """∂h_nl/∂u for four n."""
    high = 3.0 * load(c, 3, q) + u * (4.0 * load(c, 4, q) + (5.0 * u) * load(c, 5, q))
    return load(c, 1, q) + u * (2.0 * load(c, 2, q) + u * high)


@njit(fastmath=FAST, inline="always")
def harmonics(d: Floats, l_max: int, norm: Floats, q: Floats, xy: Floats, solid: Floats) -> None:
    """Real solid harmonics r^l Y_lm up to l_max of four pairs: solid[lm].

    q[l·(l_max + 1) + m] holds r^(l−m) P_l^m / sin^m (a polynomial in z and r²), and
    xy[2m] + i xy[2m + 1] is (x + iy)^m; their products, times norm, are the harmonics.
    """
    x, y, z, w = load(d, 0, 0), load(d, 1, 0), load(d, 2, 0), l_max + 1
    r2 = x * x + y * y + z * z
    store(xy, 0, 0, broadcast(1.0))
    store(xy, 1, 0, broadcast(0.0))
    store(q, 0, 0, broadcast(1.0))
    for m in range(1, l_max + 1):
        cos, sin = load(xy, 2 * m - 2, 0), load(xy, 2 * m - 1, 0)
        store(xy, 2 * m, 0, x * cos - y * sin)
        store(xy, 2 * m + 1, 0, y * cos + x * sin)
        store(q, m * w + m, 0, (2.0 * m - 1.0) * load(q, (m - 1) * w + m - 1, 0))
    for m in range(l_max):
        store(q, (m + 1) * w + m, 0, (2.0 * m + 1.0) * z * load(q, m * w + m, 0))
        for degree in range(m + 2, l_max + 1):
            up = ((2.0 * degree - 1.0) / (degree - m)) * z * load(q, (degree - 1) * w + m, 0)
            down = ((degree + m - 1.0) / (degree - m)) * r2 * load(q, (degree - 2) * w + m, 0)
            store(q, degree * w + m, 0, up - down)
    for degree in range(l_max + 1):
        middle = degree * degree + degree
        store(solid, middle, 0, norm[middle] * load(q, degree * w, 0))
        for m in range(1, degree + 1):
            p = norm[middle + m] * load(q, degree * w + m, 0)
            store(solid, middle + m, 0, p * load(xy, 2 * m, 0))
            store(solid, middle - m, 0, p * load(xy, 2 * m + 1, 0))


@njit(fastmath=FAST, inline="always")
def harmonics_gradient(
    d: Floats, l_max: int, norm: Floats, q: Floats, xy: Floats, gradient: Floats
) -> None:
    """∇S_lm of four pairs, gradient[3·lm + axis], from the q and xy that `harmonics` computed.

    ∂q_lm/∂x = −x q_(l−1)(m+1), likewise for y, and ∂q_lm/∂z = (l+m) q_(l−1)m.
    """
    x, y, w, zero = load(d, 0, 0), load(d, 1, 0), l_max + 1, broadcast(0.0)
    for degree in range(l_max + 1):
        middle = degree * degree + degree
        for m in range(degree + 1):
            n = norm[middle + m]
            below = (degree - 1) * w + m
            across = (-n) * load(q, below + 1, 0) if m + 1 <= degree - 1 else zero
            along = (n * (degree + m)) * load(q, below, 0) if m <= degree - 1 else zero
            ring = (n * m) * load(q, degree * w + m, 0)
            down = 2 * max(m - 1, 0)
            cos, sin = load(xy, 2 * m, 0), load(xy, 2 * m + 1, 0)
            dcos, dsin = load(xy, down, 0), load(xy, down + 1, 0)
            to = 3 * (middle + m)
            store(gradient, to, 0, across * x * cos + ring * dcos)
            store(gradient, to + 1, 0, across * y * cos - ring * dsin)
            store(gradient, to + 2, 0, along * cos)
            if m > 0:
                to = 3 * (middle - m)
                store(gradient, to, 0, across * x * sin + ring * dsin)
                store(gradient, to + 1, 0, across * y * sin + ring * dcos)
                store(gradient, to + 2, 0, along * sin)


# --- 2. Power spectrum ----------------------------------------------------------------------------


@njit(fastmath=FAST, forceinline=True)
def power_spectrum(c: Floats, factor: Floats, radials: tuple[int, ...], blocks: Ints) -> Floats:
    """x = factor_l Σ_m c_lmν c_lmν' in DScribe's order: block of two channels, l, n, n'.

    Within a channel only n ≤ n' is kept.
    """
    n_atoms, n_max, width = len(c), len(radials), (len(radials) + 3) // 4 * 4
    count = 0
    for block in range(len(blocks)):
        alike = blocks[block, 0] == blocks[block, 1]
        count += n_max * (n_max + 1) // 2 if alike else n_max * n_max
    x = np.empty((n_atoms, len(factor) * count))
    line = np.empty((1, width))
    for atom in range(n_atoms):
        row, at, f = x[atom], c[atom], 0
        for block in range(len(blocks)):
            a, b = blocks[block, 0], blocks[block, 1]
            for degree in range(len(factor)):
                low, high = degree * degree * width, (degree + 1) * (degree + 1) * width
                for n in range(n_max):
                    first = n if a == b else 0
                    for k in range(first // 4 * 4, width, 4):
                        sums = broadcast(0.0)
                        for lm in range(low, high, width):
                            sums += at[a, lm + n] * load(at, b, lm + k)
                        store(line, 0, k, factor[degree] * sums)
                    for k in range(first, n_max):
                        row[f] = line[0, k]
                        f += 1
    return x


@njit(fastmath=FAST, forceinline=True)
def add_total(c: Floats) -> None:
    """Set the last channel, the total density, to the sum of all others."""
    last = c.shape[1] - 1
    for atom in range(len(c)):
        for q in range(c.shape[2]):
            total = 0.0
            for a in range(last):
                total += c[atom, a, q]
            c[atom, last, q] = total


@njit(fastmath=FAST, forceinline=True)
def add_total_vjp(bar: Floats) -> None:
    """Backward pass of `add_total`: add the total's gradient to each channel."""
    last = bar.shape[2] - 1
    for r in range(len(bar)):
        for atom in range(bar.shape[1]):
            for a in range(last):
                for q in range(bar.shape[3]):
                    bar[r, atom, a, q] += bar[r, atom, last, q]


@njit(fastmath=FAST, forceinline=True)
def power_spectrum_vjp(
    c: Floats, grad: Floats, factor: Floats, radials: tuple[int, ...], blocks: Ints, begin: int,
    end: int,
) -> Floats:  # fmt: skip
    """∂/∂c of Σ grad·x for atoms from begin to end, (R, end − begin, …), for R gradients.

    Vectors hold one number of each of four atoms: ct has their c, and g[l, ν', a, n] the gradient
    by c_lmν c_lmν' with ν = (a, n), as a whole matrix.
    """
    n_species, n_max, width = c.shape[1], len(radials), (len(radials) + 3) // 4 * 4
    n_lm, last = len(factor) ** 2, end - 1
    bar = np.empty((len(grad), end - begin, n_species, n_lm * width))
    ct = np.empty((n_species * n_lm * width, 4))
    g = np.zeros((len(factor) * n_species * n_max * n_species * width, 4))
    for i in range(begin, end, 4):
        # At the end, lanes without an atom repeat the last one.
        i1, i2, i3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
        c0, c1, c2, c3 = c[i], c[i1], c[i2], c[i3]
        for a in range(n_species):
            for q in range(0, n_lm * width, 4):
                line, to = load(c0, a, q), a * n_lm * width + q
                store_columns(ct, to, line, load(c1, a, q), load(c2, a, q), load(c3, a, q))
        for r in range(len(grad)):
            g0, g1, g2, g3 = grad[r, i], grad[r, i1], grad[r, i2], grad[r, i3]
            _as_matrices(g0, g1, g2, g3, factor, n_species, n_max, blocks, g)
            o0, o1 = bar[r, i - begin], bar[r, i1 - begin]
            o2, o3 = bar[r, i2 - begin], bar[r, i3 - begin]
            for degree in range(len(factor)):
                for lm in range(degree * degree, (degree + 1) * (degree + 1)):
                    for a in range(n_species):
                        for n in range(0, width, 4):
                            p0, p1, p2, p3 = _products(
                                ct, g, degree, lm, n_lm, a, n, n_species, n_max
                            )
                            store(o0, a, lm * width + n, p0)
                            store(o1, a, lm * width + n, p1)
                            store(o2, a, lm * width + n, p2)
                            store(o3, a, lm * width + n, p3)
    return bar


@njit(fastmath=FAST, inline="always")
def _as_matrices(
    g0: Floats, g1: Floats, g2: Floats, g3: Floats, factor: Floats, n_species: int, n_max: int,
    blocks: Ints, out: Floats,
) -> None:  # fmt: skip
    """Gradients of four atoms by all c_ν c_ν', ν = (a, n): out[l, ν', a, n] as one long axis.

    Products that belong to no block stay 0.
    """
    width, n_nu, f = (n_max + 3) // 4 * 4, n_species * n_max, 0
    for block in range(len(blocks)):
        a, b = blocks[block, 0], blocks[block, 1]
        for degree in range(len(factor)):
            for n in range(n_max):
                for k in range(n if a == b else 0, n_max):
                    v = factor[degree] * vector(g0[f], g1[f], g2[f], g3[f])
                    if a == b and n == k:  # c_n² has twice the slope
                        v = 2.0 * v
                    first, second = degree * n_nu + a * n_max + n, degree * n_nu + b * n_max + k
                    store(out, (first * n_species + b) * width + k, 0, v)
                    store(out, (second * n_species + a) * width + n, 0, v)
                    f += 1


@njit(fastmath=FAST, inline="always")
def _products(
    ct: Floats, g: Floats, degree: int, lm: int, n_lm: int, a: int, n: int, n_species: int,
    n_max: int,
) -> tuple[Vec4, Vec4, Vec4, Vec4]:  # fmt: skip
    """Σ_ν' g[l, ν', a, n …] c_lmν' for four n; one vector for each of the four atoms."""
    width, n_nu, zero = (n_max + 3) // 4 * 4, n_species * n_max, broadcast(0.0)
    p0, p1, p2, p3 = zero, zero, zero, zero
    for b in range(n_species):
        for k in range(n_max):
            c, nu = load(ct, (b * n_lm + lm) * width + k, 0), degree * n_nu + b * n_max + k
            at = (nu * n_species + a) * width + n
            p0 += c * load(g, at, 0)
            p1 += c * load(g, at + 1, 0)
            p2 += c * load(g, at + 2, 0)
            p3 += c * load(g, at + 3, 0)
    return transpose(p0, p1, p2, p3)


# --- 3. Coefficients ------------------------------------------------------------------------------


@njit(fastmath=FAST, forceinline=True)
def coefficients(
    positions: Floats, species: Ints, i: Ints, j: Ints, shift: Floats, table: Floats, centre:
    Floats, norm: Floats, cutoff: float, degrees: tuple[int, ...], radials: tuple[int, ...],
    n_species: int,
) -> tuple[Floats, int]:  # fmt: skip
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


@njit(fastmath=FAST, forceinline=True)
def coefficients_vjp(
    bar: Floats, positions: Floats, species: Ints, offsets: Ints, pair_offsets: Ints, first: int,
    end: int, i: Ints, j: Ints, shift: Floats, table: Floats, norm: Floats, cutoff: float, degrees:
    tuple[int, ...], radials: tuple[int, ...], by_position: Floats, strain: Floats,
) -> None:  # fmt: skip
    """∂/∂positions (R, atoms, 3) and ∂/∂strain (R, structures, 3, 3) of Σ bar·c.

    For structures first to end − 1, whose atoms `bar` covers; `strain` must be zero on entry.
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
    # The fourth number is always 0; unused lanes add to the extra last row.
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
        # Separate sums for each l shorten the chains of dependent operations.
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


# --- 4. Entry points ------------------------------------------------------------------------------


_AT_A_TIME = 2**15  # elements of ∂/∂c that are computed together, so that they stay in the cache


@njit(fastmath=FAST)
def forward(
    positions: Floats, numbers: Ints, channel_of: Ints, i: Ints, j: Ints, shift: Floats, table:
    Floats, centre: Floats, norm: Floats, cutoff: float, degrees: tuple[int, ...], radials:
    tuple[int, ...], n_channels: int, factor: Floats, blocks: Ints,
) -> tuple[Ints, int, Floats, int, Floats]:  # fmt: skip
    """Channels, the first atom of another element, c, the first pair too close, and features.

    `channel_of` is the channel of every element; each feature belongs to one of `blocks`, pairs of
    channels. If the channels of the first block differ, the last channel is the total density. All
    of it is one call, because calls dominate the cost for small clusters.
    """
    species, missing = lookup(channel_of, numbers)
    if missing >= 0:
        return species, missing, np.empty((0, 0, 0)), -1, np.empty((0, 0))
    c, close = coefficients(
        positions, species, i, j, shift, table, centre, norm, cutoff, degrees, radials, n_channels
    )
    if blocks[0, 0] != blocks[0, 1]:
        add_total(c)
    return species, missing, c, close, power_spectrum(c, factor, radials, blocks)


@njit(fastmath=FAST)
def backward(
    grad: Floats, c: Floats, factor: Floats, positions: Floats, species: Ints, offsets: Ints,
    pair_offsets: Ints, i: Ints, j: Ints, shift: Floats, table: Floats, norm: Floats, cutoff: float,
    degrees: tuple[int, ...], radials: tuple[int, ...], blocks: Ints,
) -> tuple[Floats, Floats]:  # fmt: skip
    """∂/∂positions (R, atoms, 3) and ∂/∂strain (R, structures, 3, 3) from gradients by features.

    Works on a few structures at a time, so that ∂/∂c, which is as large as c, stays in the cache.
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
def lookup(channel_of: Ints, numbers: Ints) -> tuple[Ints, int]:
    """Channel of each atom, and the first atom that has none (−1 if all have one)."""
    index = np.empty(len(numbers), dtype=np.int64)
    missing = -1
    for atom in range(len(numbers)):
        index[atom] = channel_of[numbers[atom]]
        if index[atom] < 0 and missing < 0:
            missing = atom
    return index, missing


@njit(fastmath=FAST)
def coincident(positions: Floats, pair_offsets: Ints, i: Ints, j: Ints, shift: Floats) -> Ints:
    """Structures in which two atoms are closer than TOO_CLOSE."""
    has_close = np.zeros(len(pair_offsets) - 1, dtype=np.bool_)
    for s in range(len(has_close)):
        for p in range(pair_offsets[s], pair_offsets[s + 1]):
            square = 0.0
            for axis in range(3):
                d = positions[j[p], axis] + shift[p, axis] - positions[i[p], axis]
                square += d * d
            if square < TOO_CLOSE * TOO_CLOSE:
                has_close[s] = True
    return np.flatnonzero(has_close)


@njit(fastmath=FAST)
def jacobian(
    c: Floats, positions: Floats, species: Ints, i: Ints, j: Ints, shift: Floats, table: Floats,
    norm: Floats, feature: Ints, factor: Floats, cutoff: float, n_max: int, n_features: int,
) -> tuple[Ints, Ints, Floats, Floats]:  # fmt: skip
    """∂x_centre/∂d for each directed pair within the cutoff; needed only to fit forces.

    Returns centre (P,), neighbour (P,), d (P, 3) from centre to neighbour, and (P, 3, f). Moving
    the neighbour by u changes the centre's features by u·J; moving the centre by u, by −u·J.
    """
    l_max = len(factor) - 1
    n_species, width = c.shape[1], (n_max + 3) // 4 * 4
    n_nu = n_species * n_max
    has_total = feature[0, 0, 0] < 0  # then features are products with the last channel only
    n_lm = (l_max + 1) ** 2
    inverse_step = len(table) / cutoff
    # Allocated for all pairs, because counting those within the cutoff beforehand would have to
    # round exactly as `next_four` does.
    room = 2 * len(i)
    centre, neighbour = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    vector, out = np.empty((room, 3)), np.zeros((room, 3, n_features))
    h = np.empty((l_max + 1, width))
    dh = np.empty((l_max + 1, width))
    q, xy = np.empty((n_lm, 4)), np.empty((2 * l_max + 2, 4))
    solid, gradient = np.empty((n_lm, 4)), np.empty((3 * n_lm, 4))
    d, pair = np.empty((4, 4)), np.empty(4, dtype=np.int64)
    dc = np.empty((2 * l_max + 1, n_max))
    product = np.empty((n_max, n_nu))
    p, row = 0, 0
    while True:
        p, count, _ = next_four(p, len(i), positions, i, j, shift, cutoff, d, pair)
        if count == 0:
            return centre[:row], neighbour[:row], vector[:row], out[:row]
        harmonics(d, l_max, norm, q, xy, solid)
        harmonics_gradient(d, l_max, norm, q, xy, gradient)
        for lane in range(count):
            a, b = i[pair[lane]], j[pair[lane]]
            k, u = interval(d[3, lane], inverse_step, len(table) - 1)
            for degree in range(l_max + 1):
                for n in range(0, width, 4):
                    store(h, degree, n, radial_value(table[k], degree * width + n, u))
                    slope = inverse_step * radial_slope(table[k], degree * width + n, u)
                    store(dh, degree, n, slope)
            for side in range(2):
                # Seen from b the neighbour a lies at −d; S_lm(−d) = (−1)^l S_lm(d), and the chain
                # rule through −d adds one more sign.
                me, other = (a, b) if side == 0 else (b, a)
                slot = species[other] * n_max
                centre[row] = me
                neighbour[row] = other
                for axis in range(3):
                    vector[row, axis] = d[axis, lane] if side == 0 else -d[axis, lane]
                for degree in range(l_max + 1):
                    low = degree * degree
                    sign = 1.0 if side == 0 else (1.0 if degree % 2 == 1 else -1.0)
                    for axis in range(3):
                        for m in range(2 * degree + 1):
                            along = solid[low + m, lane] * d[axis, lane] / d[3, lane]
                            turn = gradient[3 * (low + m) + axis, lane]
                            for n in range(n_max):
                                dc[m, n] = sign * (dh[degree, n] * along + h[degree, n] * turn)
                        product[:] = 0.0
                        for m in range(2 * degree + 1):
                            for kind in range(n_species):
                                line = c[me, kind, (low + m) * width : (low + m + 1) * width]
                                for n in range(n_max):
                                    left = dc[m, n] * factor[degree]
                                    target = product[n, kind * n_max : (kind + 1) * n_max]
                                    for v in range(n_max):
                                        target[v] += left * line[v]
                        # A neighbour is in its own channel and, if there is one, in the total.
                        for at in range(slot, n_nu, n_nu - n_max - slot if has_total else n_nu):
                            for n in range(n_max):
                                own = at + n
                                for v in range(n_nu):
                                    f = feature[degree, min(own, v), max(own, v)]
                                    if f >= 0:
                                        out[row, axis, f] += product[n, v]
                                # c² has twice the slope; the loop above added it once.
                                f = feature[degree, own, own]
                                if f >= 0:
                                    out[row, axis, f] += product[n, own]
                row += 1
