"""Standard deviations and their weights on the kernel sums (Numba, one thread)."""

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit
from nugget._compiled.simd import broadcast, load, store


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
    """
    (n, m), q = k_sum.shape, len(wt)
    mean, std = np.empty(n), np.empty(n)
    weights = np.empty((len(coefficients), n, m))
    delta, b = np.empty((n, q)), np.zeros((n, m))
    many = n > 3  # then GEMM pays
    wanted = False  # b is needed for gradients of the std only
    for r in range(len(coefficients)):
        wanted = wanted or (q > 0 and coefficients[r, 1] != 0.0)
    if many:
        np.dot(k_sum, wt.T, delta)
    for s in range(n):
        row, d = k_sum[s], delta[s]
        mean[s] = _dot(row, alpha)
        square = 0.0
        for c in range(q):
            d[c] = (d[c] if many else _dot(row, wt[c])) + sizes[s] * rho[c]
            square += d[c] * d[c]
        if len(prior_variance):
            square = prior_variance[s] - square
            if square < 0.0:  # not in exact arithmetic: round-off, which says "known"
                square = 0.0
        std[s] = np.sqrt(square)
        d *= 0.0 if square == 0.0 else (-1.0 if len(prior_variance) else 1.0) / std[s]
    if wanted and many:
        np.dot(delta, wt, b)
    for s in range(n):
        if wanted and not many:
            _combine(delta, wt, s, b)
        for r in range(len(coefficients)):
            on_mean, on_std = coefficients[r]
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


@njit(fastmath=FAST)
def _combine(delta: Floats, wt: Floats, s: int, out: Floats) -> None:
    """out[s] += Σ_c delta[s, c] wt[c], from the last: those rows may still be in the cache."""
    m, c = wt.shape[1], len(wt)
    whole = m - m % 4
    while c >= 5:
        c -= 5
        d0, d1, d2 = broadcast(delta[s, c]), broadcast(delta[s, c + 1]), broadcast(delta[s, c + 2])
        d3, d4 = broadcast(delta[s, c + 3]), broadcast(delta[s, c + 4])
        for j in range(0, whole, 4):
            low = load(out, s, j) + d0 * load(wt, c, j)
            low += d1 * load(wt, c + 1, j)
            high = d2 * load(wt, c + 2, j)
            high += d3 * load(wt, c + 3, j)
            high += d4 * load(wt, c + 4, j)
            store(out, s, j, low + high)
    while c > 0:
        c -= 1
        d0 = broadcast(delta[s, c])
        for j in range(0, whole, 4):
            store(out, s, j, load(out, s, j) + d0 * load(wt, c, j))
    for j in range(whole, m):
        for c in range(len(wt)):
            out[s, j] += delta[s, c] * wt[c, j]
