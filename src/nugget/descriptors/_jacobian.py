"""The descriptor's Jacobian, pair by pair. Only fitting forces needs it; predictions never do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nugget.descriptors._basis import harmonics, harmonics_gradient, radial_and_slope
from nugget.descriptors._loops import TOO_CLOSE
from nugget.jit import FAST, njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit(cache=True, fastmath=FAST)
def jacobian(
    c: Floats,
    positions: Floats,
    species: Ints,
    i: Ints,
    j: Ints,
    shift: Floats,
    table: Floats,
    norm: Floats,
    feature: Ints,
    factor: Floats,
    cutoff: float,
    n_features: int,
) -> tuple[Ints, Ints, Floats, Floats]:
    """∂x_centre/∂d for each directed pair within the cutoff.

    Returns centre (P,), neighbour (P,), d (P, 3) from centre to neighbour, and (P, 3, f). Moving
    the neighbour by u changes the centre's features by u·J; moving the centre by u, by −u·J.
    """
    l_max = len(factor) - 1
    n_nu = c.shape[2]
    n_max = table.shape[2] // (l_max + 1)
    n_lm = (l_max + 1) ** 2
    inverse_step = len(table) / cutoff
    count = 0
    for p in range(len(i)):
        r2 = 0.0
        for axis in range(3):
            r2 += (positions[j[p], axis] + shift[p, axis] - positions[i[p], axis]) ** 2
        if TOO_CLOSE**2 <= r2 < cutoff**2:
            count += 2
    centre = np.empty(count, dtype=np.int64)
    neighbour = np.empty(count, dtype=np.int64)
    vector = np.empty((count, 3))
    out = np.zeros((count, 3, n_features))
    h = np.empty(table.shape[2])
    dh = np.empty(table.shape[2])
    q = np.empty((l_max + 1, l_max + 1))
    xy = np.empty((2, l_max + 1))
    solid = np.empty(n_lm)
    gradient = np.empty((3, n_lm))
    d = np.empty(3)
    dc = np.empty((2 * l_max + 1, n_max))
    product = np.empty((n_max, n_nu))
    row = 0
    for p in range(len(i)):
        a, b = i[p], j[p]
        for axis in range(3):
            d[axis] = positions[b, axis] + shift[p, axis] - positions[a, axis]
        r = np.sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2])
        if r >= cutoff or r < TOO_CLOSE:
            continue
        radial_and_slope(r, table, inverse_step, table.shape[2], h, dh)
        harmonics(d[0], d[1], d[2], l_max, norm, q, xy, solid)
        harmonics_gradient(d[0], d[1], l_max, norm, q, xy, gradient)
        for side in range(2):
            # Seen from b the neighbour a lies at −d; S_lm(−d) = (−1)^l S_lm(d), and the chain rule
            # through −d adds one more sign.
            me, other = (a, b) if side == 0 else (b, a)
            slot = species[other] * n_max
            centre[row] = me
            neighbour[row] = other
            for axis in range(3):
                vector[row, axis] = d[axis] if side == 0 else -d[axis]
            for degree in range(l_max + 1):
                low = degree * degree
                sign = 1.0 if side == 0 else (1.0 if degree % 2 == 1 else -1.0)
                for axis in range(3):
                    for m in range(2 * degree + 1):
                        slope = solid[low + m] * d[axis] / r
                        turn = gradient[axis, low + m]
                        for n in range(n_max):
                            at = degree * n_max + n
                            dc[m, n] = sign * (dh[at] * slope + h[at] * turn)
                    product[:] = 0.0
                    for m in range(2 * degree + 1):
                        line = c[me, low + m]
                        for n in range(n_max):
                            left = dc[m, n] * factor[degree]
                            target = product[n]
                            for v in range(n_nu):
                                target[v] += left * line[v]
                    for n in range(n_max):
                        u = slot + n
                        for v in range(n_nu):
                            f = feature[degree, min(u, v), max(u, v)]
                            out[row, axis, f] += product[n, v]
                        # c² has twice the slope; the loop above met ν = ν' once.
                        out[row, axis, feature[degree, u, u]] += product[n, u]
            row += 1
    return centre, neighbour, vector, out
