"""Compiled loops: standard deviations with their weights on the kernel sums, and quick checks."""

from __future__ import annotations

import numpy as np

from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.jit import FAST, njit


@njit(fastmath=FAST | {"reassoc"})
def std_and_weights(
    k_sum: Floats,
    sizes: Ints,
    alpha: Floats,
    coefficients: Floats,
    wt: Floats,
    rho: Floats,
    variance: Floats,
    sign: float,
) -> tuple[Floats, Floats, Floats]:
    """Means k_sum·α (B,), stds (B,) and weights (R, B, m), with δ = k_sum·W + Nρ; wt is Wᵀ.

    Without a `variance` (B,), std = |δ| and b = ∂std/∂k_sum = Wδ/std, and `sign` is 1. With one,
    std² = variance + sign·|δ|² and b = sign·Wδ/std: `sign` is −1 for the prior variance of the
    projected process, and 1 for a variance that is added to that of an ensemble. Weights r are
    coefficients[r, 0]·α + coefficients[r, 1]·b: (1, 0) for the mean, (0, 1) for the std,
    (1, −κ) for the lower confidence bound. b is 0 where the std is 0.

    Four columns of W at a time: while they are in the first-level cache, their δ of every structure
    is computed and Wδ is added to its b, which is divided by std in the end. So W, which is large
    for an exact ensemble, is read once, and no structure affects the results of the others.
    """
    (n, m), q = k_sum.shape, len(wt)
    mean, std, square = np.empty(n), np.empty(n), np.zeros(n)
    weights, b = np.empty((len(coefficients), n, m)), np.zeros((n, m))
    wanted = False  # b is needed for gradients of the std only
    for r in range(len(coefficients)):
        wanted = wanted or coefficients[r, 1] != 0.0
    for first in range(0, q, 4):
        # At the end, missing columns repeat the last one with δ = 0.
        c1, c2, c3 = min(first + 1, q - 1), min(first + 2, q - 1), min(first + 3, q - 1)
        w0, w1, w2, w3 = wt[first], wt[c1], wt[c2], wt[c3]
        for s in range(n):
            d0, d1, d2, d3 = _dots(k_sum[s], w0, w1, w2, w3)
            d0 += sizes[s] * rho[first]
            d1 = d1 + sizes[s] * rho[c1] if first + 1 < q else 0.0
            d2 = d2 + sizes[s] * rho[c2] if first + 2 < q else 0.0
            d3 = d3 + sizes[s] * rho[c3] if first + 3 < q else 0.0
            square[s] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
            if wanted:
                _combine(b[s], w0, w1, w2, w3, d0, d1, d2, d3)
    for s in range(n):
        mean[s] = _dot(k_sum[s], alpha)
        if len(variance):
            # Negative values are round-off; exact arithmetic has none.
            square[s] = max(variance[s] + sign * square[s], 0.0)
        std[s] = np.sqrt(square[s])
        slope = 0.0 if square[s] == 0.0 else sign / std[s]
        for r in range(len(coefficients)):
            on_mean, on_std = coefficients[r, 0], slope * coefficients[r, 1]
            target, source = weights[r, s], b[s]
            for j in range(m):
                target[j] = on_mean * alpha[j] + on_std * source[j]
    return mean, std, weights


@njit(fastmath=FAST | {"reassoc"}, inline="always")
def _dot(x: Floats, y: Floats) -> float:
    total = 0.0
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@njit(fastmath=FAST | {"reassoc"}, forceinline=True)
def _dots(
    x: Floats, w0: Floats, w1: Floats, w2: Floats, w3: Floats
) -> tuple[float, float, float, float]:
    """Products of x with four columns."""
    t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
    for j in range(len(x)):
        t0 += x[j] * w0[j]
        t1 += x[j] * w1[j]
        t2 += x[j] * w2[j]
        t3 += x[j] * w3[j]
    return t0, t1, t2, t3


@njit(fastmath=FAST, forceinline=True)
def _combine(
    b: Floats, w0: Floats, w1: Floats, w2: Floats, w3: Floats, d0: float, d1: float, d2: float,
    d3: float,
) -> None:  # fmt: skip
    """b += Σ_c d_c w_c of four columns."""
    for j in range(len(b)):
        b[j] += (d0 * w0[j] + d1 * w1[j]) + (d2 * w2[j] + d3 * w3[j])


@njit
def all_equal(values: Ints, wanted: int) -> bool:
    """True when every value is the wanted one (also when there is none)."""
    for value in values:  # noqa: SIM110
        if value != wanted:
            return False
    return True


@njit
def ascends(offsets: Ints, last: int) -> bool:
    """True when the offsets run from 0 to `last` without a step down."""
    if offsets.size < 1 or offsets[0] != 0 or offsets[-1] != last:
        return False
    for s in range(len(offsets) - 1):  # noqa: SIM110
        if offsets[s + 1] < offsets[s]:
            return False
    return True
