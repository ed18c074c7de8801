"""The committee's σ and its weights (Numba, one thread)."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nugget.gp._exponential import FASTMATH


@njit(cache=True, fastmath=FASTMATH | {"reassoc"})
def committee_roads(
    kappa: NDArray[np.float64],
    sizes: NDArray[np.float64] | NDArray[np.int64],
    alpha: NDArray[np.float64],
    mixes: NDArray[np.float64],
    wt: NDArray[np.float64],
    rho: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """κα (B,), σ = |δ| (B,) with δ = κW + Nρ, and weights (R, B, m); wt is Wᵀ.

    With b = Wδ/σ the weights of road r are mixes[r, 0]·α + mixes[r, 1]·b: (1, 0) is the mean's,
    (0, 1) that of σ, (1, −κ) that of the lower confidence bound. b is 0 where σ is 0.
    """
    (n, m), q = kappa.shape, len(wt)
    mean, sigma = np.empty(n), np.empty(n)
    weights = np.empty((len(mixes), n, m))
    delta, b = np.empty((n, q)), np.empty((n, m))
    many = n > 3  # then GEMM pays
    if many:
        np.dot(kappa, wt.T, delta)
    for s in range(n):
        row, d = kappa[s], delta[s]
        mean[s] = _dot(row, alpha)
        square = 0.0
        for c in range(q):
            d[c] = (d[c] if many else _dot(row, wt[c])) + sizes[s] * rho[c]
            square += d[c] * d[c]
        sigma[s] = np.sqrt(square)
        if square > 0.0:
            d /= sigma[s]
    if many:
        np.dot(delta, wt, b)
    for s in range(n):
        if not many:
            _combine(delta[s], wt, b[s])
        for r in range(len(mixes)):
            on_mean, on_sigma = mixes[r]
            target, source = weights[r, s], b[s]
            for j in range(m):
                target[j] = on_mean * alpha[j] + on_sigma * source[j]
    return mean, sigma, weights


@njit(cache=True, fastmath=FASTMATH | {"reassoc"}, inline="always")
def _dot(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    total = 0.0
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@njit(cache=True, fastmath=FASTMATH | {"reassoc"})
def _combine(d: NDArray[np.float64], wt: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """out = Σ_c d_c wt_c, from the last: those rows of a large wt are still in the cache."""
    out[:] = 0.0
    c = len(d)
    while c >= 4:
        c -= 4
        d0, d1, d2, d3 = d[c], d[c + 1], d[c + 2], d[c + 3]
        w0, w1, w2, w3 = wt[c], wt[c + 1], wt[c + 2], wt[c + 3]
        for j in range(len(out)):
            out[j] += (d0 * w0[j] + d1 * w1[j]) + (d2 * w2[j] + d3 * w3[j])
    while c > 0:
        c -= 1
        d0, w0 = d[c], wt[c]
        for j in range(len(out)):
            out[j] += d0 * w0[j]
