"""The functions of four pairs at a time: radial functions and solid harmonics, with derivatives."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit
from nugget._compiled.simd import Vec4, broadcast, load, store

# Closer than this, two atoms are one by mistake (Å).
TOO_CLOSE = 0.1


@njit(fastmath=FAST, inline="always")
def next_four(
    p: int, end: int, positions: Floats, i: Ints, j: Ints, shift: Floats, cutoff: float,
    d: Floats, pair: Ints,
) -> tuple[int, int, int]:  # fmt: skip
    """The next up to four pairs within the cutoff, from pair p on: pair (4,) and d (4, 4).

    d holds the lines x, y, z and r. Returns where to go on, how many pairs there are (0 at the end;
    lanes that are left repeat the first), and the first pair skipped as too close (−1 if none).
    """
    count, close = 0, -1
    while p < end and count < 4:
        a, b = i[p], j[p]
        x = positions[b, 0] + shift[p, 0] - positions[a, 0]
        y = positions[b, 1] + shift[p, 1] - positions[a, 1]
        z = positions[b, 2] + shift[p, 2] - positions[a, 2]
        r = np.sqrt(x * x + y * y + z * z)
        if r < TOO_CLOSE:
            close = p if close < 0 else close
        elif r < cutoff:
            d[0, count], d[1, count], d[2, count], d[3, count] = x, y, z, r
            pair[count] = p
            count += 1
        p += 1
    for lane in range(count, 4):
        for line in range(4):
            d[line, lane] = d[line, 0]
        pair[lane] = pair[0]
    return p, count, close


@njit(fastmath=FAST, inline="always")
def interval(r: float, inverse_step: float, last: int) -> tuple[int, float]:
    """The interval of `radial.table` that holds r, and where in it: u in [0, 1]."""
    k = min(int(r * inverse_step), last)
    return k, r * inverse_step - k


@njit(fastmath=FAST, inline="always")
def radial_value(c: Floats, q: int, u: float) -> Vec4:
    """h_nl for four n from one interval (6, q) of `radial.table`, at u in [0, 1] within it."""
    high = load(c, 2, q) + u * (load(c, 3, q) + u * (load(c, 4, q) + u * load(c, 5, q)))
    return load(c, 0, q) + u * (load(c, 1, q) + u * high)


@njit(fastmath=FAST, inline="always")
def radial_slope(c: Floats, q: int, u: float) -> Vec4:
    """∂h_nl/∂u for four n."""
    high = 3.0 * load(c, 3, q) + u * (4.0 * load(c, 4, q) + (5.0 * u) * load(c, 5, q))
    return load(c, 1, q) + u * (2.0 * load(c, 2, q) + u * high)


@njit(fastmath=FAST, inline="always")
def harmonics(d: Floats, l_max: int, norm: Floats, q: Floats, xy: Floats, solid: Floats) -> None:
    """Real solid harmonics r^l Y_lm up to l_max of four pairs: solid[lm].

    q[l·(l_max + 1) + m] holds r^(l−m) P_l^m / sin^m (a polynomial in z and r²), and
    xy[2m] + i xy[2m + 1] is (x + iy)^m; their products, times norm, are the harmonics.
    """
    x, y, z, w = load(d, 0, 0), load(d, 1, 0), load(d, 2, 0), l_max + 1
    r2 = x * x + y * y + z * z
    store(xy, 0, 0, broadcast(1.0))
    store(xy, 1, 0, broadcast(0.0))
    store(q, 0, 0, broadcast(1.0))
    for m in range(1, l_max + 1):
        cos, sin = load(xy, 2 * m - 2, 0), load(xy, 2 * m - 1, 0)
        store(xy, 2 * m, 0, x * cos - y * sin)
        store(xy, 2 * m + 1, 0, y * cos + x * sin)
        store(q, m * w + m, 0, (2.0 * m - 1.0) * load(q, (m - 1) * w + m - 1, 0))
    for m in range(l_max):
        store(q, (m + 1) * w + m, 0, (2.0 * m + 1.0) * z * load(q, m * w + m, 0))
        for degree in range(m + 2, l_max + 1):
            up = ((2.0 * degree - 1.0) / (degree - m)) * z * load(q, (degree - 1) * w + m, 0)
            down = ((degree + m - 1.0) / (degree - m)) * r2 * load(q, (degree - 2) * w + m, 0)
            store(q, degree * w + m, 0, up - down)
    for degree in range(l_max + 1):
        middle = degree * degree + degree
        store(solid, middle, 0, norm[middle] * load(q, degree * w, 0))
        for m in range(1, degree + 1):
            p = norm[middle + m] * load(q, degree * w + m, 0)
            store(solid, middle + m, 0, p * load(xy, 2 * m, 0))
            store(solid, middle - m, 0, p * load(xy, 2 * m + 1, 0))


@njit(fastmath=FAST, inline="always")
def harmonics_gradient(
    d: Floats, l_max: int, norm: Floats, q: Floats, xy: Floats, gradient: Floats
) -> None:
    """∇S_lm of four pairs, gradient[3·lm + axis], from what `harmonics` left in q and xy.

    ∂q_lm/∂x = −x q_(l−1)(m+1), likewise for y, and ∂q_lm/∂z = (l+m) q_(l−1)m.
    """
    x, y, w, zero = load(d, 0, 0), load(d, 1, 0), l_max + 1, broadcast(0.0)
    for degree in range(l_max + 1):
        middle = degree * degree + degree
        for m in range(degree + 1):
            n = norm[middle + m]
            below = (degree - 1) * w + m
            across = (-n) * load(q, below + 1, 0) if m + 1 <= degree - 1 else zero
            along = (n * (degree + m)) * load(q, below, 0) if m <= degree - 1 else zero
            ring = (n * m) * load(q, degree * w + m, 0)
            down = 2 * max(m - 1, 0)
            cos, sin = load(xy, 2 * m, 0), load(xy, 2 * m + 1, 0)
            dcos, dsin = load(xy, down, 0), load(xy, down + 1, 0)
            to = 3 * (middle + m)
            store(gradient, to, 0, across * x * cos + ring * dcos)
            store(gradient, to + 1, 0, across * y * cos - ring * dsin)
            store(gradient, to + 2, 0, along * cos)
            if m > 0:
                to = 3 * (middle - m)
                store(gradient, to, 0, across * x * sin + ring * dsin)
                store(gradient, to + 1, 0, across * y * sin + ring * dcos)
                store(gradient, to + 2, 0, along * sin)
