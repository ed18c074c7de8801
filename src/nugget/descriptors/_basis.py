"""The functions of one pair: radial functions and solid harmonics, with their derivatives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nugget.jit import FAST, njit
from nugget.simd import Vec4, load

Floats = NDArray[np.float64]


@njit(cache=True, inline="always")
def padded(n_max: int) -> int:
    """Room for n_max radial functions: a multiple of four, so that they go four at a time."""
    return (n_max + 3) // 4 * 4


@njit(cache=True, fastmath=FAST, inline="always")
def radial_value(c: Floats, q: int, u: float) -> Vec4:
    """h_nl for four n from one interval (6, q) of `radial.table`, at u in [0, 1] within it."""
    high = load(c, 2, q) + u * (load(c, 3, q) + u * (load(c, 4, q) + u * load(c, 5, q)))
    return load(c, 0, q) + u * (load(c, 1, q) + u * high)


@njit(cache=True, fastmath=FAST, inline="always")
def radial_slope(c: Floats, q: int, u: float) -> Vec4:
    """∂h_nl/∂u for four n."""
    high = 3.0 * load(c, 3, q) + u * (4.0 * load(c, 4, q) + (5.0 * u) * load(c, 5, q))
    return load(c, 1, q) + u * (2.0 * load(c, 2, q) + u * high)


@njit(cache=True, fastmath=FAST, inline="always")
def harmonics(
    x: float, y: float, z: float, l_max: int, norm: Floats, q: Floats, xy: Floats, solid: Floats
) -> None:
    """Real solid harmonics r^l Y_lm up to l_max.

    q[l, m] holds r^(l−m) P_l^m / sin^m (a polynomial in z and r²), xy[0, m] + i xy[1, m] is
    (x + iy)^m; their products, times norm, are the harmonics.
    """
    r2 = x * x + y * y + z * z
    xy[0, 0] = 1.0
    xy[1, 0] = 0.0
    q[0, 0] = 1.0
    for m in range(1, l_max + 1):
        xy[0, m] = x * xy[0, m - 1] - y * xy[1, m - 1]
        xy[1, m] = y * xy[0, m - 1] + x * xy[1, m - 1]
        q[m, m] = (2 * m - 1) * q[m - 1, m - 1]
    for m in range(l_max):
        q[m + 1, m] = (2 * m + 1) * z * q[m, m]
        for degree in range(m + 2, l_max + 1):
            q[degree, m] = (
                (2 * degree - 1) * z * q[degree - 1, m] - (degree + m - 1) * r2 * q[degree - 2, m]
            ) / (degree - m)
    for degree in range(l_max + 1):
        middle = degree * degree + degree
        solid[middle] = norm[middle] * q[degree, 0]
        for m in range(1, degree + 1):
            p = norm[middle + m] * q[degree, m]
            solid[middle + m] = p * xy[0, m]
            solid[middle - m] = p * xy[1, m]


@njit(cache=True, fastmath=FAST, inline="always")
def harmonics_gradient(
    x: float, y: float, l_max: int, norm: Floats, q: Floats, xy: Floats, gradient: Floats
) -> None:
    """∇S_lm, (3, lm), from what `harmonics` left in q and xy.

    ∂q_lm/∂x = −x q_(l−1)(m+1), likewise for y, and ∂q_lm/∂z = (l+m) q_(l−1)m.
    """
    for degree in range(l_max + 1):
        middle = degree * degree + degree
        for m in range(degree + 1):
            n = norm[middle + m]
            across = -n * q[degree - 1, m + 1] if m + 1 <= degree - 1 else 0.0
            along = n * (degree + m) * q[degree - 1, m] if m <= degree - 1 else 0.0
            ring = n * m * q[degree, m]
            down = max(m - 1, 0)
            cos, sin, dcos, dsin = xy[0, m], xy[1, m], xy[0, down], xy[1, down]
            gradient[0, middle + m] = across * x * cos + ring * dcos
            gradient[1, middle + m] = across * y * cos - ring * dsin
            gradient[2, middle + m] = along * cos
            if m > 0:
                gradient[0, middle - m] = across * x * sin + ring * dsin
                gradient[1, middle - m] = across * y * sin + ring * dcos
                gradient[2, middle - m] = along * sin
