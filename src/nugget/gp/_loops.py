"""The kernel's loops, forward and back (Numba, one thread)."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nugget.gp._exponential import FASTMATH, LOWEST, exp_near, exp_negative, exponentials_and_sums


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


# With more features than this, GEMM is quicker than the loops for few.
FEW = 40
# Elements of zt in a panel that stays in the cache, of k from GEMM to sum.
_PANEL, _AT_A_TIME = 18432, 2**15


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
    if f <= FEW:
        _forward_few(xs, half, zt, hz, amplitude, offsets, k, kappa)
        return xs, k, kappa
    # A few structures at a time: k is still in the cache when its exponentials are taken.
    rows = max(_AT_A_TIME // max(m, 1), 1)
    s = 0
    while s < last:
        end = s + 1
        while end < last and offsets[end + 1] - offsets[s] <= rows:
            end += 1
        a, b = offsets[s], offsets[end]
        if b > a:
            np.dot(xs[a:b], zt, k[a:b])
        exponentials_and_sums(k, half, hz, amplitude, offsets[s : end + 1], kappa[s:end])
        s = end
    return xs, k, kappa


@njit(cache=True, fastmath=FASTMATH)
def _forward_few(
    xs: NDArray[np.float64],
    half: NDArray[np.float64],
    zt: NDArray[np.float64],
    hz: NDArray[np.float64],
    amplitude: float,
    offsets: NDArray[np.int64],
    k: NDArray[np.float64],
    kappa: NDArray[np.float64],
) -> None:
    """k and κ for few features: two rows and six features at a time, all in registers.

    A GEMM with so short a sum is mostly packing; here the exponentials follow while the two rows
    are in the cache, which takes three quarters of the time of GEMM, then exponentials.
    """
    f, m = zt.shape
    spare = np.empty(m)
    farthest = np.sqrt(np.max(hz)) if m else 0.0
    width = max(_PANEL // f, 64)
    for j0 in range(0, m, width):
        j1 = min(j0 + width, m)
        h = hz[j0:j1]
        for s in range(len(offsets) - 1):
            total = kappa[s, j0:j1]
            for i in range(offsets[s], offsets[s + 1], 2):
                # An odd row at the end goes along with a copy of itself that is not counted.
                odd = i + 1 == offsets[s + 1]
                p, q = xs[i], xs[i if odd else i + 1]
                u, v = k[i, j0:j1], (spare if odd else k[i + 1])[j0:j1]
                hu, hv = half[i], half[i if odd else i + 1]
                for j in range(len(h)):
                    u[j] = -hu - h[j]
                    v[j] = -hv - h[j]
                for a in range(0, f - f % 6, 6):
                    _add_six(u, v, p[a : a + 6], q[a : a + 6], zt, a, j0, j1)
                for a in range(f - f % 6, f):
                    z, pa, qa = zt[a, j0:j1], p[a], q[a]
                    for j in range(len(z)):
                        u[j] += pa * z[j]
                        v[j] += qa * z[j]
                count = 0.0 if odd else 1.0
                # −|x−z|²/2 >= −(|x|+|z|)²/2: almost always near enough to leave out a comparison.
                if (np.sqrt(max(hu, hv)) + farthest) ** 2 < -LOWEST:
                    for j in range(len(h)):
                        ku = amplitude * exp_near(u[j])
                        kv = amplitude * exp_near(v[j])
                        u[j] = ku
                        v[j] = kv
                        total[j] += ku + count * kv
                else:
                    for j in range(len(h)):
                        ku = amplitude * exp_negative(u[j])
                        kv = amplitude * exp_negative(v[j])
                        u[j] = ku
                        v[j] = kv
                        total[j] += ku + count * kv


@njit(cache=True, fastmath=FASTMATH, inline="always")
def _add_six(
    u: NDArray[np.float64],
    v: NDArray[np.float64],
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    zt: NDArray[np.float64],
    a: int,
    j0: int,
    j1: int,
) -> None:
    """u += p·z and v += q·z for the six rows z = zt[a : a + 6, j0:j1]."""
    p0, p1, p2, p3, p4, p5 = p[0], p[1], p[2], p[3], p[4], p[5]
    q0, q1, q2, q3, q4, q5 = q[0], q[1], q[2], q[3], q[4], q[5]
    # One by one: only then does the compiler know that they have no gaps.
    z0, z1, z2 = zt[a, j0:j1], zt[a + 1, j0:j1], zt[a + 2, j0:j1]
    z3, z4, z5 = zt[a + 3, j0:j1], zt[a + 4, j0:j1], zt[a + 5, j0:j1]
    for j in range(len(z0)):
        x = z0[j]
        s = u[j] + p0 * x
        t = v[j] + q0 * x
        x = z1[j]
        s += p1 * x
        t += q1 * x
        x = z2[j]
        s += p2 * x
        t += q2 * x
        x = z3[j]
        s += p3 * x
        t += q3 * x
        x = z4[j]
        s += p4 * x
        t += q4 * x
        x = z5[j]
        s += p5 * x
        t += q5 * x
        u[j] = s
        v[j] = t


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
