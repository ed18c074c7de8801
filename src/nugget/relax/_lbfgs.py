"""Preconditioned L-BFGS for many structures at once, one compiled loop over the structures.

Every structure has its own state and never reads another's, so its result does not depend on the
other structures of the batch. Vectors hold only the free degrees of freedom.

The two-loop recursion starts from H₀ = γ P⁻¹, γ = sᵀy / yᵀP⁻¹y. P is the Hessian of a network of
springs between neighbours,

    P = Σ_{i<j} w_ij [(1−τ) ûûᵀ + τ 1] ⊗ (e_i − e_j)(e_i − e_j)ᵀ + c 1,
    w_ij = exp(−A (q_ij/q₀ − 1)),   q_ij = r_ij / (R_i + R_j),

with R the covalent radii and q₀ the typical nearest-neighbour ratio of the structure itself, so no
unit of length is assumed. γ sets the overall stiffness. P is a sum of positive terms whatever the
geometry, and is rebuilt when an atom has moved by REBUILD·(bond length). On random clusters this
needs about two thirds of the evaluations of the same method with P = 1 (which needs half of those
of a fixed H₀).
"""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget._compiled.jit import FAST, njit

RUNNING, CONVERGED, STEPS, STALLED, NOT_FINITE, RUNAWAY = range(6)

A, TAU, C_STAB, W_MAX, Q_CUT = 5.0, 0.03, 0.03, 20.0, 1.8
REBUILD = 0.2
FIRST = 1.0 / 70.0  # Å²/eV: scale of the first step, before any curvature is known
E_RISE = 1e-6  # eV: a rise below this is round-off, not a failed step
MAX_REJECT = 8


@njit(fastmath=FAST)
def dot(a: Floats, b: Floats) -> float:
    """a·b in a fixed order with four running sums (independent of BLAS and its threads)."""
    n = a.shape[0]
    s0 = s1 = s2 = s3 = 0.0
    k = n - n % 4
    for i in range(0, k, 4):
        s0 += a[i] * b[i]
        s1 += a[i + 1] * b[i + 1]
        s2 += a[i + 2] * b[i + 2]
        s3 += a[i + 3] * b[i + 3]
    for i in range(k, n):
        s0 += a[i] * b[i]
    return (s0 + s1) + (s2 + s3)


@njit(fastmath=FAST)
def longest(v: Floats, atom: Ints) -> float:
    """Largest per-atom norm of a vector over free degrees of freedom (`atom` is sorted)."""
    best = 0.0
    total = 0.0
    last = -1
    for i in range(v.shape[0]):
        if atom[i] != last:
            best = max(best, total)
            total = 0.0
            last = atom[i]
        total += v[i] * v[i]
    return np.sqrt(max(best, total))


@njit(fastmath=FAST)
def wall(
    x: Floats, begin: int, end: int, moves: Bools, kind: int, centre: Floats,
    shape: Floats, stiffness: float, grad: Floats,
) -> float:  # fmt: skip
    """Energy of the confinement for atoms [begin, end); its gradient is added to `grad`."""
    energy = 0.0
    if kind == 0:
        return energy
    for i in range(begin, end):
        if not moves[i]:
            continue
        dx, dy, dz = x[i, 0] - centre[0], x[i, 1] - centre[1], x[i, 2] - centre[2]
        if kind == 1:
            r = np.sqrt(dx * dx + dy * dy + dz * dz)
            out = r - shape[0, 0]
            if out > 0:
                energy += 0.5 * stiffness * out * out
                f = stiffness * out / r
                grad[i, 0] += f * dx
                grad[i, 1] += f * dy
                grad[i, 2] += f * dz
        else:
            for a in range(3):
                if shape[a, 3] == 0.0:
                    continue
                h = shape[a, 0] * dx + shape[a, 1] * dy + shape[a, 2] * dz
                out = min(h, 0.0) + max(h - shape[a, 3], 0.0)
                if out != 0.0:
                    energy += 0.5 * stiffness * out * out
                    for c in range(3):
                        grad[i, c] += stiffness * out * shape[a, c]
    return energy


@njit(fastmath=FAST)
def cholesky(m: Floats) -> None:
    """Overwrite the upper triangle of the positive definite m with U, m = UᵀU.

    Two pivots at a time: the rows are short (60 for Au20) and this halves the trips over them.
    """
    n = m.shape[0]
    r0, r1 = np.empty(n), np.empty(n)
    for k in range(0, n - 1, 2):
        p = 1.0 / np.sqrt(m[k, k])
        for j in range(k, n):
            r0[j] = m[k, j] * p
            m[k, j] = r0[j]
        f = r0[k + 1]
        for j in range(k + 1, n):
            r1[j] = m[k + 1, j] - f * r0[j]
        p = 1.0 / np.sqrt(r1[k + 1])
        for j in range(k + 1, n):
            r1[j] *= p
            m[k + 1, j] = r1[j]
        for i in range(k + 2, n):
            f, g = r0[i], r1[i]
            for j in range(i, n):
                m[i, j] -= f * r0[j] + g * r1[j]
    if n % 2:
        m[n - 1, n - 1] = np.sqrt(m[n - 1, n - 1])


@njit(fastmath=FAST)
def quantile(values: Floats, k: int) -> float:
    """The k-th smallest value. Sorts in place by insertion: it compiles sooner than np.sort."""
    for i in range(1, len(values)):
        value, j = values[i], i
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value
    return float(values[k])


@njit(fastmath=FAST)
def springs(
    x: Floats, begin: int, radii: Floats, cell: Floats, inverse: Floats, periodic: bool,
    atom: Ints, axis: Ints, out: Floats,
) -> float:  # fmt: skip
    """Write U with P = UᵀU of one structure to `out`; return its typical bond length.

    Periodic neighbours by rounding fractional coordinates: in a very oblique cell a farther image
    may be taken, which makes P a little worse but never indefinite.
    """
    n = x.shape[0]
    f = atom.shape[0]
    at = np.full((n, 3), -1, dtype=np.int64)
    for k in range(f):
        at[atom[k] - begin, axis[k]] = k
    pairs = n * (n - 1) // 2
    q = np.empty(pairs)
    u = np.empty((pairs, 3))
    nearest = np.full(n, np.inf)
    k = 0
    for i in range(n):
        for j in range(i):
            d0, d1, d2 = x[i, 0] - x[j, 0], x[i, 1] - x[j, 1], x[i, 2] - x[j, 2]
            if periodic:
                w0 = np.rint(d0 * inverse[0, 0] + d1 * inverse[1, 0] + d2 * inverse[2, 0])
                w1 = np.rint(d0 * inverse[0, 1] + d1 * inverse[1, 1] + d2 * inverse[2, 1])
                w2 = np.rint(d0 * inverse[0, 2] + d1 * inverse[1, 2] + d2 * inverse[2, 2])
                d0 -= w0 * cell[0, 0] + w1 * cell[1, 0] + w2 * cell[2, 0]
                d1 -= w0 * cell[0, 1] + w1 * cell[1, 1] + w2 * cell[2, 1]
                d2 -= w0 * cell[0, 2] + w1 * cell[1, 2] + w2 * cell[2, 2]
            r = np.sqrt(d0 * d0 + d1 * d1 + d2 * d2) + 1e-12
            q[k] = r / (radii[i] + radii[j])
            u[k, 0], u[k, 1], u[k, 2] = d0 / r, d1 / r, d2 / r
            nearest[i] = min(nearest[i], q[k])
            nearest[j] = min(nearest[j], q[k])
            k += 1
    near = quantile(nearest, (3 * n) // 4) if n > 1 else 1.0
    out[:, :] = 0.0
    for k in range(f):
        out[k, k] = C_STAB
    k = -1
    for i in range(n):
        for j in range(i):
            k += 1
            if q[k] > Q_CUT * near:
                continue
            w = min(np.exp(-A * (q[k] / near - 1.0)), W_MAX)
            for a in range(3):
                ia, ja = at[i, a], at[j, a]
                for b in range(3):
                    ib, jb = at[i, b], at[j, b]
                    value = w * (1.0 - TAU) * u[k, a] * u[k, b]
                    if a == b:
                        value += w * TAU
                    if ia >= 0 and ib >= 0:
                        out[ia, ib] += value
                    if ja >= 0 and jb >= 0:
                        out[ja, jb] += value
                    if ia >= 0 and jb >= 0:
                        out[ia, jb] -= value
                        out[jb, ia] -= value
    cholesky(out)
    bond = 0.0
    for i in range(n):
        bond += radii[i]
    return 2.0 * near * bond / n


@njit(fastmath=FAST)
def forward(u: Floats, b: Floats, z: Floats) -> None:
    """Solve Uᵀz = b."""
    n = b.shape[0]
    for i in range(n):
        z[i] = b[i]
    for i in range(n):
        z[i] /= u[i, i]
        f = z[i]
        for j in range(i + 1, n):
            z[j] -= f * u[i, j]


@njit(fastmath=FAST)
def backward(u: Floats, z: Floats, out: Floats) -> None:
    """Solve U out = z."""
    for i in range(z.shape[0] - 1, -1, -1):
        out[i] = (z[i] - dot(u[i, i + 1 :], out[i + 1 :])) / u[i, i]


@njit(fastmath=FAST)
def direction(
    g: Floats, s: Floats, y: Floats, rho: Floats, count: int, head: int, gamma: float,
    u: Floats, preconditioned: bool, out: Floats,
) -> None:  # fmt: skip
    """Two-loop recursion: out = −H g. Pairs are a ring, the newest at head−1."""
    m = s.shape[0]
    n = g.shape[0]
    alpha = np.empty(m)
    q = g.copy()
    z = np.empty(n)
    for t in range(count):
        i = (head - 1 - t) % m
        alpha[i] = rho[i] * dot(s[i], q)
        for k in range(n):
            q[k] -= alpha[i] * y[i, k]
    if preconditioned:
        forward(u, q, z)
        backward(u, z, out)
    else:
        for k in range(n):
            out[k] = q[k]
    for k in range(n):
        out[k] *= gamma
    for t in range(count - 1, -1, -1):
        i = (head - 1 - t) % m
        beta = alpha[i] - rho[i] * dot(y[i], out)
        for k in range(n):
            out[k] += beta * s[i, k]
    for k in range(n):
        out[k] = -out[k]
