"""Kernel rows and their vector-Jacobian product, in tiles that stay in registers.

k_ij = θ₀ exp(x_i·z_j − |x_i|²/2 − |z_j|²/2) is computed as 2^t, with log₂θ₀ and every log₂e taken
into t beforehand. A tile is four rows by twelve columns: twelve vectors of sums, three of z and one
of x fill the sixteen registers of AVX. A GEMM followed by exponentials takes 1.1 (1000 features)
to 1.8 (18 features) times as long, because k goes to memory in between and short sums are mostly
packing.
"""

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit
from nugget._compiled.simd import Vec4, at_least, broadcast, load, scale_by_low_bits, store, totals
from nugget.gp.kernels import _reference

LOG2E = 1.4426950408889634
WIDTH = 12  # columns of a tile, forward
_PANEL = 200  # columns that are taken together, backward
_BIG = 6755399441055744.0  # 1.5·2⁵²: adding it leaves the nearest integer in the low bits
_LOWEST = -1021.0  # 2^t with a smaller t is no longer a normal number
# 2^r = 1 + Σ c_n rⁿ for |r| <= 1/2 to 3e-16 (least squares at Chebyshev's points).
_C1, _C2, _C3 = 0.69314718055995, 0.24022650695910136, 0.05550410866444768
_C4, _C5, _C6 = 0.00961812910759275, 0.0013333558230170627, 0.00015403530458701895
_C7, _C8 = 1.5252657257186041e-05, 1.3215434544689183e-06
_C9, _C10 = 1.020869083593037e-07, 7.073902135694472e-09


@njit(fastmath=FAST, inline="always")
def exp2(t: Vec4) -> Vec4:
    """2^t; 2^-1021 below that; NaN for NaN."""
    t = at_least(t, broadcast(_LOWEST))
    shifted = t + _BIG
    r = t - (shifted - _BIG)
    # Estrin's scheme: short chains keep both units for products busy.
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r * _C1) + r2 * (_C2 + r * _C3)
    middle = (_C4 + r * _C5) + r2 * (_C6 + r * _C7)
    high = (_C8 + r * _C9) + r2 * _C10
    return scale_by_low_bits(low + r4 * (middle + r4 * high), shifted)


@njit(fastmath=FAST, inline="always")
def _finish(
    k: Floats, k_sum: Floats, s: int, rows: int,
    i: int, i1: int, i2: int, i3: int, j: int, p: Vec4, q: Vec4, u: Vec4, v: Vec4,
) -> None:  # fmt: skip
    """Exponentials of four rows by four columns, into k and (the first `rows` of them) k_sum."""
    p, q, u, v = exp2(p), exp2(q), exp2(u), exp2(v)
    store(k, i, j, p)
    store(k, i1, j, q)
    store(k, i2, j, u)
    store(k, i3, j, v)
    total = load(k_sum, s, j) + p
    if rows > 1:
        total += q
    if rows > 2:
        total += u
    if rows > 3:
        total += v
    store(k_sum, s, j, total)


@njit(fastmath=FAST)
def kernel_tiles(
    x: Floats,
    base: Floats,
    zt: Floats,
    half: Floats,
    offsets: Ints,
    k: Floats,
    k_sum: Floats,
) -> None:
    """k_ij = 2^(x_i·z_j + base_i − half_j) and k_sum_s = Σ_{i∈s} k_i, for WIDTH columns or more."""
    f, m = zt.shape
    h = half.reshape((1, m))
    for s in range(len(offsets) - 1):
        end = offsets[s + 1]
        for first in range(0, m, WIDTH):
            # The last tile reaches back into the one before it: same columns, same numbers.
            j = min(first, m - WIDTH)
            h0, h1, h2 = load(h, 0, j), load(h, 0, j + 4), load(h, 0, j + 8)
            k_sum[s, j : j + WIDTH] = 0.0
            for i in range(offsets[s], end, 4):
                # Rows that are missing at the end are copies of the last.
                i1, i2, i3 = min(i + 1, end - 1), min(i + 2, end - 1), min(i + 3, end - 1)
                x0, x1, x2, x3 = base[i], base[i1], base[i2], base[i3]
                p0, p1, p2 = x0 - h0, x0 - h1, x0 - h2
                q0, q1, q2 = x1 - h0, x1 - h1, x1 - h2
                u0, u1, u2 = x2 - h0, x2 - h1, x2 - h2
                v0, v1, v2 = x3 - h0, x3 - h1, x3 - h2
                for a in range(f):
                    z0, z1, z2 = load(zt, a, j), load(zt, a, j + 4), load(zt, a, j + 8)
                    x0 = x[i, a]
                    p0 += x0 * z0
                    p1 += x0 * z1
                    p2 += x0 * z2
                    x1 = x[i1, a]
                    q0 += x1 * z0
                    q1 += x1 * z1
                    q2 += x1 * z2
                    x2 = x[i2, a]
                    u0 += x2 * z0
                    u1 += x2 * z1
                    u2 += x2 * z2
                    x3 = x[i3, a]
                    v0 += x3 * z0
                    v1 += x3 * z1
                    v2 += x3 * z2
                rows = end - i
                _finish(k, k_sum, s, rows, i, i1, i2, i3, j, p0, q0, u0, v0)
                _finish(k, k_sum, s, rows, i, i1, i2, i3, j + 4, p1, q1, u1, v1)
                _finish(k, k_sum, s, rows, i, i1, i2, i3, j + 8, p2, q2, u2, v2)


@njit(reference=_reference.kernel_rows_vjp, fastmath=FAST)
def kernel_rows_vjp(
    k: Floats,
    weights: Floats,
    offsets: Ints,
    zt: Floats,
    xs: Floats,
    scale: float,
    out: Floats,
    to: int,
) -> None:
    """out[r, to + i] = scale Σ_j w_j k_ij (z_j − x_i) with w = weights[r, s(i)].

    In panels of columns and groups of four rows: k is weighted once, and three features of z serve
    all cotangents r while they are in the cache. A GEMM takes 1.0 to 1.5 times as long for up to
    126 features; from 252 on it is quicker in large batches with one cotangent (0.8 to 0.9), not
    otherwise.
    """
    (f, m), whole, n_cotangents = zt.shape, zt.shape[1] // 4 * 4, len(weights)
    groups = 0
    for s in range(len(offsets) - 1):
        groups = max(groups, (offsets[s + 1] - offsets[s] + 3) // 4)
    wk = np.empty((4 * n_cotangents, _PANEL))
    sums, g = np.empty((n_cotangents, groups, 4)), np.empty((n_cotangents, groups, f, 4))
    for s in range(len(offsets) - 1):
        begin, end = offsets[s], offsets[s + 1]
        sums[:] = 0.0
        g[:] = 0.0
        for j in range(0, whole, _PANEL):
            n = min(_PANEL, whole - j)
            for i in range(begin, end, 4):
                at = (i - begin) // 4
                for r in range(n_cotangents):
                    _weigh(k, i, end, j, n, weights[r], s, wk, 4 * r, sums[r], zt, g[r, at], at)
                _products(wk, zt, j, n, g, at)
        for i in range(begin, end):
            at, q = (i - begin) // 4, (i - begin) % 4
            for r in range(n_cotangents):
                for j in range(whole, m):
                    v = weights[r, s, j] * k[i, j]
                    sums[r, at, q] += v
                    for a in range(f):
                        g[r, at, a, q] += v * zt[a, j]
                for a in range(f):
                    out[r, to + i, a] = scale * (g[r, at, a, q] - sums[r, at, q] * xs[i, a])


@njit(fastmath=FAST, inline="always")
def _weigh(
    k: Floats, i: int, end: int, j: int, n: int, weights: Floats,
    s: int, wk: Floats, to: int, sums: Floats,
    zt: Floats, g: Floats, at: int,
) -> None:  # fmt: skip
    """wk[to …] = w_j k_ij for four rows from i and n columns from j on; sums[at] += their sums.

    Storing wk is the limit here, so the first feature's products g[0] += … cost nothing.
    """
    # Rows that are missing at the end are copies of the last.
    i1, i2, i3 = min(i + 1, end - 1), min(i + 2, end - 1), min(i + 3, end - 1)
    zero = broadcast(0.0)
    t0, t1, t2, t3 = zero, zero, zero, zero
    p0, q0, u0, v0 = zero, zero, zero, zero
    for c in range(0, n, 4):
        weight, z0 = load(weights, s, j + c), load(zt, 0, j + c)
        w = weight * load(k, i, j + c)
        store(wk, to, c, w)
        t0 += w
        p0 += w * z0
        w = weight * load(k, i1, j + c)
        store(wk, to + 1, c, w)
        t1 += w
        q0 += w * z0
        w = weight * load(k, i2, j + c)
        store(wk, to + 2, c, w)
        t2 += w
        u0 += w * z0
        w = weight * load(k, i3, j + c)
        store(wk, to + 3, c, w)
        t3 += w
        v0 += w * z0
    store(sums, at, 0, load(sums, at, 0) + totals(t0, t1, t2, t3))
    store(g, 0, 0, load(g, 0, 0) + totals(p0, q0, u0, v0))


@njit(fastmath=FAST, inline="always")
def _products(
    wk: Floats, zt: Floats, j: int, n: int, g: Floats,
    at: int,
) -> None:  # fmt: skip
    """g[r, at, a, q] += Σ_c wk[4r + q, c] z[a, j + c] for a > 0: twelve sums in registers."""
    f, zero = len(zt), broadcast(0.0)
    last, rest = f - 1, (f - 1) % 3
    for a in range(1, f - rest, 3):
        for r in range(len(g)):
            to, row = g[r, at], 4 * r
            p0, p1, p2 = zero, zero, zero
            q0, q1, q2 = zero, zero, zero
            u0, u1, u2 = zero, zero, zero
            v0, v1, v2 = zero, zero, zero
            for c in range(0, n, 4):
                z0, z1, z2 = load(zt, a, j + c), load(zt, a + 1, j + c), load(zt, a + 2, j + c)
                w = load(wk, row, c)
                p0 += w * z0
                p1 += w * z1
                p2 += w * z2
                w = load(wk, row + 1, c)
                q0 += w * z0
                q1 += w * z1
                q2 += w * z2
                w = load(wk, row + 2, c)
                u0 += w * z0
                u1 += w * z1
                u2 += w * z2
                w = load(wk, row + 3, c)
                v0 += w * z0
                v1 += w * z1
                v2 += w * z2
            store(to, a, 0, load(to, a, 0) + totals(p0, q0, u0, v0))
            store(to, a + 1, 0, load(to, a + 1, 0) + totals(p1, q1, u1, v1))
            store(to, a + 2, 0, load(to, a + 2, 0) + totals(p2, q2, u2, v2))
    if rest == 0:
        return
    for r in range(len(g)):  # two features that are left, or one, which is then done twice
        to, row, a = g[r, at], 4 * r, f - rest
        p0, q0, u0, v0 = zero, zero, zero, zero
        p1, q1, u1, v1 = zero, zero, zero, zero
        for c in range(0, n, 4):
            z0, z1 = load(zt, a, j + c), load(zt, last, j + c)
            w = load(wk, row, c)
            p0 += w * z0
            p1 += w * z1
            w = load(wk, row + 1, c)
            q0 += w * z0
            q1 += w * z1
            w = load(wk, row + 2, c)
            u0 += w * z0
            u1 += w * z1
            w = load(wk, row + 3, c)
            v0 += w * z0
            v1 += w * z1
        store(to, last, 0, load(to, last, 0) + totals(p1, q1, u1, v1))
        if rest == 2:
            store(to, a, 0, load(to, a, 0) + totals(p0, q0, u0, v0))
