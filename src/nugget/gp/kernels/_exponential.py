"""The fast exponential, and kernel elements by it (Numba, one thread).

exp(s) for s <= 0 without a branch, so that LLVM can vectorise it: s = n ln 2 + r, |r| <= ln 2 / 2,
n found by adding 1.5·2⁵² (the integer then sits in the low bits of the mantissa), exp(r) by a
degree-11 minimax polynomial (error 3e-18), times 2ⁿ by adding those bits to its exponent. The only
fast-math flags are those that cannot undo the range reduction, as "reassoc" would; NaN stays NaN.
"""

import numpy as np

from nugget._compiled.arrays import Floats
from nugget._compiled.jit import FAST, njit
from nugget.gp.kernels import _reference

_BIG = 6755399441055744.0  # 1.5·2⁵²
_LOG2E = 1.4426950408889634
_LN2_HI = 6.93147180369123816490e-01  # low 33 bits zero: n·_LN2_HI is exact
_LN2_LO = 1.90821492927058770002e-10
_LOWEST = -708.0  # exp(-708) = 3.3e-308 is about the last normal number: the least result
_C2, _C3, _C4 = 0.5000000000000019, 0.1666666666666668, 0.04166666666648795
_C5, _C6, _C7 = 0.008333333333319589, 0.0013888888952352863, 0.00019841269890076403
_C8, _C9 = 2.4801485441561313e-05, 2.755724088722987e-06
_C10, _C11 = 2.763265472252779e-07, 2.5110049204818658e-08


@njit(inline="always", fastmath=FAST)
def exp_negative(s: float) -> float:
    """exp(s) for s <= 0 (or round-off above it); 3e-308 below -708; NaN for NaN."""
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
    power = np.float64(low + r4 * (middle + r4 * high)).view(np.int64)
    return np.int64(power + (np.float64(shifted).view(np.int64) << 52)).view(np.float64)


@njit(reference=_reference.exponentials, fastmath=FAST)
def exponentials(k: Floats, hx: Floats, hz: Floats, amplitude: float) -> None:
    """In place: k_ij holds x_i·z_j and becomes θ₀ exp(x_i·z_j − |x_i|²/2 − |z_j|²/2)."""
    for i in range(k.shape[0]):
        row, h = k[i], hx[i]
        for j in range(k.shape[1]):
            row[j] = amplitude * exp_negative(row[j] - h - hz[j])


@njit(reference=_reference.exponentials_symmetric, fastmath=FAST)
def exponentials_symmetric(k: Floats, half: Floats, amplitude: float) -> None:
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
