"""The kernel's loops, forward and back (Numba, one thread)."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nugget.gp._exponential import FASTMATH, exp_negative
from nugget.gp._tiles import LOG2E, WIDTH, kernel_tiles


@njit(cache=True, fastmath=FASTMATH)
def scaled(
    x: NDArray[np.float64],
    centre: NDArray[np.float64],
    scale: float,
    out: NDArray[np.float64],
    half: NDArray[np.float64],
) -> None:
    """out = (x − centre)·scale and half = |out|²/2, row by row."""
    for i in range(x.shape[0]):
        total = 0.0
        for a in range(x.shape[1]):
            value = (x[i, a] - centre[a]) * scale
            out[i, a] = value
            total += value * value
        half[i] = 0.5 * total


@njit(cache=True, fastmath=FASTMATH)
def forward_rows(
    x: NDArray[np.float64],
    centre: NDArray[np.float64],
    scale: float,
    zt: NDArray[np.float64],
    hz: NDArray[np.float64],
    amplitude: float,
    offsets: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Rows in the block's coordinates (n, f), k (n, m) and κ_s = Σ_{i∈s} k_i (B, m)."""
    (n, f), m, last = x.shape, zt.shape[1], len(offsets) - 1
    xs, half = np.empty((n, f)), np.empty(n)
    k, kappa = np.empty((n, m)), np.zeros((last, m))
    scaled(x, centre, scale, xs, half)
    if m >= WIDTH:
        base = np.log2(amplitude) - LOG2E * half
        kernel_tiles(LOG2E * xs, base, zt, LOG2E * hz, offsets, k, kappa)
        return xs, k, kappa
    for s in range(last):
        for i in range(offsets[s], offsets[s + 1]):
            for j in range(m):
                t = -half[i] - hz[j]
                for a in range(f):
                    t += xs[i, a] * zt[a, j]
                k[i, j] = amplitude * exp_negative(t)
                kappa[s, j] += k[i, j]
    return xs, k, kappa


@njit(cache=True, fastmath=FASTMATH)
def weighted(
    k: NDArray[np.float64],
    weights: NDArray[np.float64],
    offsets: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    """out[r, i, j] = k[i, j]·weights[r, s(i), j]."""
    for r in range(weights.shape[0]):
        for s in range(offsets.shape[0] - 1):
            w = weights[r, s]
            for i in range(offsets[s], offsets[s + 1]):
                row, target = k[i], out[r, i]
                for j in range(k.shape[1]):
                    target[j] = row[j] * w[j]


# With more features than this, GEMM is as quick on the way back.
FEW = 100


# Sums may be reordered here (no exponential inside), so that dot products vectorise.
@njit(cache=True, fastmath=FASTMATH | {"reassoc"}, inline="always")
def _add_pulled(
    out: NDArray[np.float64], x: NDArray[np.float64], a: int, scale: float, total: float,
    p0: float, p1: float, p2: float,
) -> None:  # fmt: skip
    out[a] += scale * (p0 - total * x[a])
    out[a + 1] += scale * (p1 - total * x[a + 1])
    out[a + 2] += scale * (p2 - total * x[a + 2])


@njit(cache=True, fastmath=FASTMATH | {"reassoc"})
def pullback_rows(
    k: NDArray[np.float64],
    weights: NDArray[np.float64],
    offsets: NDArray[np.int64],
    zt: NDArray[np.float64],
    xs: NDArray[np.float64],
    scale: float,
) -> NDArray[np.float64]:
    """out[r, i] = scale Σ_j w_j k_ij (z_j − x_i) with w = weights[r, s(i)], for few features.

    Four rows and three features at a time (twelve sums, all in registers) in panels that stay in
    the cache: quicker than a GEMM whose inner matrix is only f wide, and k is weighted on the way.
    """
    m, f = k.shape[1], zt.shape[0]
    width = 512
    wk = np.empty((4, width))
    totals = np.empty(4)
    out = np.zeros((len(weights), len(k), f))
    for j0 in range(0, m, width):
        j1 = min(j0 + width, m)
        n = j1 - j0
        for s in range(offsets.shape[0] - 1):
            for i in range(offsets[s], offsets[s + 1], 4):
                # Missing rows at the end are copies of the last; their sums are not used.
                rows = min(4, offsets[s + 1] - i)
                for r in range(weights.shape[0]):
                    w = weights[r, s, j0:j1]
                    for q in range(4):
                        row, target = k[i + min(q, rows - 1), j0:j1], wk[q]
                        total = 0.0
                        for j in range(n):
                            v = row[j] * w[j]
                            target[j] = v
                            total += v
                        totals[q] = total
                    v0, v1, v2, v3 = wk[0], wk[1], wk[2], wk[3]
                    for a in range(0, f - f % 3, 3):
                        z0, z1, z2 = zt[a, j0:j1], zt[a + 1, j0:j1], zt[a + 2, j0:j1]
                        p00 = p01 = p02 = p10 = p11 = p12 = 0.0
                        p20 = p21 = p22 = p30 = p31 = p32 = 0.0
                        for j in range(n):
                            x, y, z = z0[j], z1[j], z2[j]
                            v = v0[j]
                            p00 += v * x
                            p01 += v * y
                            p02 += v * z
                            v = v1[j]
                            p10 += v * x
                            p11 += v * y
                            p12 += v * z
                            v = v2[j]
                            p20 += v * x
                            p21 += v * y
                            p22 += v * z
                            v = v3[j]
                            p30 += v * x
                            p31 += v * y
                            p32 += v * z
                        _add_pulled(out[r, i], xs[i], a, scale, totals[0], p00, p01, p02)
                        if rows > 1:
                            _add_pulled(
                                out[r, i + 1], xs[i + 1], a, scale, totals[1], p10, p11, p12
                            )
                        if rows > 2:
                            _add_pulled(
                                out[r, i + 2], xs[i + 2], a, scale, totals[2], p20, p21, p22
                            )
                        if rows > 3:
                            _add_pulled(
                                out[r, i + 3], xs[i + 3], a, scale, totals[3], p30, p31, p32
                            )
                    for a in range(f - f % 3, f):
                        z0 = zt[a, j0:j1]
                        for q in range(rows):
                            v0 = wk[q]
                            p00 = 0.0
                            for j in range(n):
                                p00 += v0[j] * z0[j]
                            out[r, i + q, a] += scale * (p00 - totals[q] * xs[i + q, a])
    return out


@njit(cache=True)
def all_equal(values: NDArray[np.int64], wanted: int) -> bool:
    """True when every value is the wanted one (also when there is none)."""
    return bool(np.all(values == wanted))


@njit(cache=True)
def ascends(offsets: NDArray[np.int64], last: int) -> bool:
    """True when the offsets run from 0 to `last` without a step down."""
    if offsets.size < 1 or offsets[0] != 0 or offsets[-1] != last:
        return False
    return bool(np.all(offsets[1:] >= offsets[:-1]))


@njit(cache=True, fastmath=FASTMATH, inline="always")
def _pair(x: NDArray[np.float64], i: int, j: int, scale: float, amplitude: float) -> float:
    total = 0.0
    for a in range(x.shape[1]):
        d = (x[i, a] - x[j, a]) * scale
        total += d * d
    return amplitude * exp_negative(-0.5 * total)


@njit(cache=True, fastmath=FASTMATH)
def self_sums(
    x: NDArray[np.float64],
    group: NDArray[np.int64],
    offsets: NDArray[np.int64],
    scale: float,
    amplitude: float,
    out: NDArray[np.float64],
) -> None:
    """out[s] = Σ_{i,j∈s} k(x_i, x_j)."""
    for s in range(offsets.shape[0] - 1):
        total = 0.0
        for i in range(offsets[s], offsets[s + 1]):
            for j in range(offsets[s], i):
                if group[i] == group[j]:
                    total += _pair(x, i, j, scale, amplitude)
        out[s] = 2.0 * total + amplitude * (offsets[s + 1] - offsets[s])


@njit(cache=True, fastmath=FASTMATH)
def self_sums_pullback(
    x: NDArray[np.float64],
    group: NDArray[np.int64],
    offsets: NDArray[np.int64],
    scale: float,
    amplitude: float,
    weights: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """out += Σ_s weights_s ∂out[s]/∂x of `self_sums`."""
    for s in range(offsets.shape[0] - 1):
        for i in range(offsets[s], offsets[s + 1]):
            for j in range(offsets[s], i):
                if group[i] == group[j]:
                    factor = 2.0 * weights[s] * scale * scale * _pair(x, i, j, scale, amplitude)
                    for a in range(x.shape[1]):
                        d = factor * (x[j, a] - x[i, a])
                        out[i, a] += d
                        out[j, a] -= d
