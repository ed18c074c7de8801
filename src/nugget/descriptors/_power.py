"""From coefficients to the power spectrum, and back; their layout is described in `_loops`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nugget.descriptors._basis import padded
from nugget.jit import FAST, njit
from nugget.simd import broadcast, load, store

Floats = NDArray[np.float64]


@njit(cache=True, fastmath=FAST)
def power_spectrum(c: Floats, factor: Floats, radials: tuple[int, ...]) -> Floats:
    """x = factor_l Σ_m c_lmν c_lmν' with ν ≤ ν', in DScribe's order: species pair, l, n, n'."""
    n_atoms, n_species, n_max, width = len(c), c.shape[1], len(radials), padded(len(radials))
    n_nu = n_species * n_max
    x = np.empty((n_atoms, len(factor) * n_nu * (n_nu + 1) // 2))
    line = np.empty((1, width))
    for atom in range(n_atoms):
        row, at, f = x[atom], c[atom], 0
        for a in range(n_species):
            for b in range(a, n_species):
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


@njit(cache=True, fastmath=FAST)
def power_spectrum_adjoint(
    c: Floats, grad: Floats, factor: Floats, radials: tuple[int, ...]
) -> Floats:
    """∂/∂c of Σ grad·x, shape (R, *c.shape), for R gradients (R, atoms, features)."""
    n_atoms, n_species, n_max, width = len(c), c.shape[1], len(radials), padded(len(radials))
    bar = np.zeros((len(grad), n_atoms, n_species, c.shape[2]))
    # The gradient of one pair of species and one l, as a matrix and transposed.
    g, gt = np.zeros((n_max, width)), np.zeros((n_max, width))
    for r in range(len(grad)):
        for atom in range(n_atoms):
            row, at, to, f = grad[r, atom], c[atom], bar[r, atom], 0
            for a in range(n_species):
                for b in range(a, n_species):
                    for degree in range(len(factor)):
                        low, high = degree * degree * width, (degree + 1) * (degree + 1) * width
                        for n in range(n_max):
                            for k in range(n if a == b else 0, n_max):
                                g[n, k] = factor[degree] * row[f]
                                f += 1
                        if a == b:
                            # x has c_n c_k once for n < k: both get it; c_n² has twice the slope.
                            for n in range(n_max):
                                g[n, n] *= 2.0
                                for k in range(n):
                                    g[n, k] = g[k, n]
                            _add_products(to, a, at, a, low, high, width, g)
                        else:
                            for n in range(n_max):
                                for k in range(n_max):
                                    gt[k, n] = g[n, k]
                            _add_products(to, a, at, b, low, high, width, gt)
                            _add_products(to, b, at, a, low, high, width, g)
    return bar


@njit(cache=True, fastmath=FAST, inline="always")
def _add_products(
    out: Floats, a: int, at: Floats, b: int, low: int, high: int, width: int, g: Floats
) -> None:
    """out[a, lm + k] += Σ_n at[b, lm + n] g[n, k] for lm from low to high."""
    for lm in range(low, high, width):
        for k in range(0, width, 4):
            sums = load(out, a, lm + k)
            for n in range(len(g)):
                sums += at[b, lm + n] * load(g, n, k)
            store(out, a, lm + k, sums)
