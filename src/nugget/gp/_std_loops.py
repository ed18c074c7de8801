"""Standard deviations and their weights on the kernel sums (Numba, one thread)."""

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit


def std_and_weights_reference(
    k_sum: Floats,
    sizes: Ints,
    alpha: Floats,
    coefficients: Floats,
    wt: Floats,
    rho: Floats,
    prior_variance: Floats,
) -> tuple[Floats, Floats, Floats]:
    """`std_and_weights` in NumPy."""
    delta = k_sum @ wt.T + np.multiply.outer(sizes, rho)
    square, sign = np.sum(delta**2, axis=1), 1.0
    if len(prior_variance):
        square, sign = np.maximum(prior_variance - square, 0.0), -1.0
    std = np.sqrt(square)
    unit = np.divide(delta, std[:, None], where=std[:, None] != 0.0, out=np.zeros_like(delta))
    b = sign * unit @ wt
    on_mean, on_std = coefficients.T[:, :, None, None]
    return k_sum @ alpha, std, on_mean * alpha + on_std * b


@njit(reference=std_and_weights_reference, fastmath=FAST | {"reassoc"})
def std_and_weights(
    k_sum: Floats,
    sizes: Ints,
    alpha: Floats,
    coefficients: Floats,
    wt: Floats,
    rho: Floats,
    prior_variance: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Means k_sum·α (B,), stds (B,) and weights (R, B, m), with δ = k_sum·W + Nρ; wt is Wᵀ.

    A committee has std = |δ| and b = ∂std/∂k_sum = Wδ/std. If `prior_variance` (B,) is not empty,
    observations have made it smaller: std² = prior_variance − |δ|² and b = −Wδ/std, the projected
    process. Weights r are coefficients[r, 0]·α + coefficients[r, 1]·b: (1, 0) for the mean, (0, 1)
    for the std, (1, −κ) for the lower confidence bound. b is 0 where the std is 0.

    Four columns of W at a time: while they are in the first cache, they give their δ of every
    structure and add Wδ to its b, which is divided by std in the end. So W, which is large for an
    exact committee, is read once, and no structure's numbers depend on the others'.
    """
    (n, m), q = k_sum.shape, len(wt)
    mean, std, square = np.empty(n), np.empty(n), np.zeros(n)
    weights, b = np.empty((len(coefficients), n, m)), np.zeros((n, m))
    wanted = False  # b is needed for gradients of the std only
    for r in range(len(coefficients)):
        wanted = wanted or coefficients[r, 1] != 0.0
    for first in range(0, q, 4):
        # Columns that are missing at the end are copies of the last, with a δ of 0.
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
    sign = -1.0 if len(prior_variance) else 1.0
    for s in range(n):
        mean[s] = _dot(k_sum[s], alpha)
        if len(prior_variance):
            # Below 0 is not possible in exact arithmetic: round-off, which says "known".
            square[s] = max(prior_variance[s] - square[s], 0.0)
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
