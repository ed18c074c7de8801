"""From coefficients to the power spectrum, and back; their layout is described in `_loops`."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit
from nugget._compiled.simd import Vec4, broadcast, load, store, store_columns, transpose, vector


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
    """The last channel becomes the sum of all others."""
    last = c.shape[1] - 1
    for atom in range(len(c)):
        for q in range(c.shape[2]):
            total = 0.0
            for a in range(last):
                total += c[atom, a, q]
            c[atom, last, q] = total


@njit(fastmath=FAST, forceinline=True)
def add_total_vjp(bar: Floats) -> None:
    """What comes back to the total goes to each channel."""
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
        # Atoms that are missing at the end are copies of the last.
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

    What belongs to no block stays 0.
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
