"""σ and its weights on ∇κ (Numba, one thread)."""

import numpy as np
from numpy.typing import NDArray

from nugget._compiled.jit import FAST, njit
from nugget._compiled.simd import broadcast, load, store

SIGMA_ROAD = np.array([[0.0, 1.0]])  # mixes for those who want σ and its weights b


def std_reference(
    k_sum: NDArray[np.float64],
    sizes: NDArray[np.float64] | NDArray[np.int64],
    alpha: NDArray[np.float64],
    coefficients: NDArray[np.float64],
    wt: NDArray[np.float64],
    rho: NDArray[np.float64],
    prior_variance: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """`sigma_roads` in NumPy."""
    delta = k_sum @ wt.T + np.multiply.outer(sizes, rho)
    square, sign = np.sum(delta**2, axis=1), 1.0
    if len(prior_variance):
        square, sign = np.maximum(prior_variance - square, 0.0), -1.0
    std = np.sqrt(square)
    unit = np.divide(delta, std[:, None], where=std[:, None] != 0.0, out=np.zeros_like(delta))
    b = sign * unit @ wt
    on_mean, on_std = coefficients.T[:, :, None, None]
    return k_sum @ alpha, std, on_mean * alpha + on_std * b


@njit(reference=std_reference, fastmath=FAST | {"reassoc"})
def sigma_roads(
    kappa: NDArray[np.float64],
    sizes: NDArray[np.float64] | NDArray[np.int64],
    alpha: NDArray[np.float64],
    mixes: NDArray[np.float64],
    wt: NDArray[np.float64],
    rho: NDArray[np.float64],
    own: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """κα (B,), σ (B,) and weights (R, B, m), with δ = κW + Nρ; wt is Wᵀ.

    A committee has σ = |δ| and b = Wδ/σ. If `own` is not empty, it holds prior variances (B,) that
    observations have made smaller: σ² = own − |δ|² and b = −Wδ/σ, the projected process. The
    weights of road r are mixes[r, 0]·α + mixes[r, 1]·b: (1, 0) is the mean's, (0, 1) that of σ,
    (1, −κ) that of the lower confidence bound. b is 0 where σ is 0.
    """
    (n, m), q = kappa.shape, len(wt)
    mean, sigma = np.empty(n), np.empty(n)
    weights = np.empty((len(mixes), n, m))
    delta, b = np.empty((n, q)), np.zeros((n, m))
    many = n > 3  # then GEMM pays
    wanted = False  # without a gradient of σ nobody asks for b
    for r in range(len(mixes)):
        wanted = wanted or (q > 0 and mixes[r, 1] != 0.0)
    if many:
        np.dot(kappa, wt.T, delta)
    for s in range(n):
        row, d = kappa[s], delta[s]
        mean[s] = _dot(row, alpha)
        square = 0.0
        for c in range(q):
            d[c] = (d[c] if many else _dot(row, wt[c])) + sizes[s] * rho[c]
            square += d[c] * d[c]
        if len(own):
            square = own[s] - square
            if square < 0.0:  # not in exact arithmetic: round-off, which says "known"
                square = 0.0
        sigma[s] = np.sqrt(square)
        d *= 0.0 if square == 0.0 else (-1.0 if len(own) else 1.0) / sigma[s]
    if wanted and many:
        np.dot(delta, wt, b)
    for s in range(n):
        if wanted and not many:
            _combine(delta, wt, s, b)
        for r in range(len(mixes)):
            on_mean, on_sigma = mixes[r]
            target, source = weights[r, s], b[s]
            for j in range(m):
                target[j] = on_mean * alpha[j] + on_sigma * source[j]
    return mean, sigma, weights


@njit(fastmath=FAST | {"reassoc"}, inline="always")
def _dot(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    total = 0.0
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@njit(fastmath=FAST)
def _combine(
    delta: NDArray[np.float64], wt: NDArray[np.float64], s: int, out: NDArray[np.float64]
) -> None:
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
