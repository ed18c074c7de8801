"""The fast exponential and the loops around it (Numba, one thread).

exp(s) for s <= 0 without a branch, so that LLVM can vectorise it: s = n ln 2 + r, |r| <= ln 2 / 2,
n found by adding 1.5·2⁵² (the integer then sits in the low bits of the mantissa), exp(r) by a
degree-11 minimax polynomial (error 3e-18), 2ⁿ by shifting those bits into the exponent. The only
fast-math flags are those that cannot undo the range reduction; NaN stays NaN.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

# "reassoc" would cancel the big constant and break the range reduction.
FASTMATH = {"contract", "nsz", "arcp"}

_BIG = 6755399441055744.0  # 1.5·2⁵²
_LOG2E = 1.4426950408889634
_LN2_HI = 6.93147180369123816490e-01  # low 33 bits zero: n·_LN2_HI is exact
_LN2_LO = 1.90821492927058770002e-10
_LOWEST = -708.0  # exp(-708) = 3.3e-308 is the last normal number; below it the result is 0
_C2, _C3, _C4 = 0.5000000000000019, 0.1666666666666668, 0.04166666666648795
_C5, _C6, _C7 = 0.008333333333319589, 0.0013888888952352863, 0.00019841269890076403
_C8, _C9 = 2.4801485441561313e-05, 2.755724088722987e-06
_C10, _C11 = 2.763265472252779e-07, 2.5110049204818658e-08


@njit(cache=True, inline="always", fastmath=FASTMATH)
def exp_negative(s: float) -> float:
    """exp(s) for s <= 0 (or round-off above it); 0 below -708; NaN for NaN."""
    c = _LOWEST if s < _LOWEST else s
    shifted = c * _LOG2E + _BIG
    n = shifted - _BIG
    r = c - n * _LN2_HI
    r = r - n * _LN2_LO
    # Estrin's scheme: a chain of 5 operations instead of Horner's 11 keeps both FMA units busy.
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r) + r2 * (_C2 + r * _C3)
    middle = (_C4 + r * _C5) + r2 * (_C6 + r * _C7)
    high = (_C8 + r * _C9) + r2 * (_C10 + r * _C11)
    bits = (np.float64(shifted).view(np.int64) + 1023) << 52
    two_n = np.int64(bits).view(np.float64)
    return 0.0 if s < _LOWEST else (low + r4 * (middle + r4 * high)) * two_n


@njit(cache=True, fastmath=FASTMATH)
def exponentials(
    k: NDArray[np.float64], hx: NDArray[np.float64], hz: NDArray[np.float64], amplitude: float
) -> None:
    """In place: k_ij holds x_i·z_j and becomes θ₀ exp(x_i·z_j − |x_i|²/2 − |z_j|²/2)."""
    for i in range(k.shape[0]):
        row, h = k[i], hx[i]
        for j in range(k.shape[1]):
            row[j] = amplitude * exp_negative(row[j] - h - hz[j])


@njit(cache=True, fastmath=FASTMATH)
def exponentials_symmetric(
    k: NDArray[np.float64], half: NDArray[np.float64], amplitude: float
) -> None:
    """`exponentials` for a square k of equal points: one triangle, mirrored in small tiles."""
    m, tile = k.shape[0], 64
    for i0 in range(0, m, tile):
        i1 = min(i0 + tile, m)
        for j0 in range(i0, m, tile):
            j1 = min(j0 + tile, m)
            for i in range(i0, i1):
                for j in range(j0, j1):
                    k[i, j] = amplitude * exp_negative(k[i, j] - half[i] - half[j])
            for j in range(j0, j1):
                for i in range(i0, min(i1, j)):
                    k[j, i] = k[i, j]
        for i in range(i0, i1):
            k[i, i] = amplitude


@njit(cache=True, fastmath=FASTMATH)
def exponentials_and_sums(
    k: NDArray[np.float64],
    hx: NDArray[np.float64],
    hz: NDArray[np.float64],
    amplitude: float,
    offsets: NDArray[np.int64],
    kappa: NDArray[np.float64],
) -> None:
    """`exponentials`, and κ_s = Σ_{i∈s} k_i in the same pass (`kappa` is overwritten)."""
    for s in range(offsets.shape[0] - 1):
        total = kappa[s]
        total[:] = 0.0
        for i in range(offsets[s], offsets[s + 1]):
            row, h = k[i], hx[i]
            for j in range(k.shape[1]):
                value = amplitude * exp_negative(row[j] - h - hz[j])
                row[j] = value
                total[j] += value


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
    out: NDArray[np.float64],
) -> None:
    """out[r, i] = scale Σ_j w_j k_ij (z_j − x_i) with w = weights[r, s(i)], for few features.

    Four rows and three features at a time (twelve sums, all in registers) in panels that stay in
    the cache: quicker than a GEMM whose inner matrix is only f wide, and k is weighted on the way.
    """
    m, f = k.shape[1], zt.shape[0]
    width = 512
    wk = np.empty((4, width))
    totals = np.empty(4)
    out[:] = 0.0
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
