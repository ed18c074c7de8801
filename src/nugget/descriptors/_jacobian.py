"""The descriptor's Jacobian, pair by pair. Only fitting forces needs it; predictions never do."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit
from nugget._compiled.simd import store
from nugget.descriptors import _reference
from nugget.descriptors._basis import (
    harmonics,
    harmonics_gradient,
    interval,
    next_four,
    radial_slope,
    radial_value,
)


@njit(reference=_reference.jacobian, fastmath=FAST)
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
    n_max: int,
    n_features: int,
) -> tuple[Ints, Ints, Floats, Floats]:
    """∂x_centre/∂d for each directed pair within the cutoff.

    Returns centre (P,), neighbour (P,), d (P, 3) from centre to neighbour, and (P, 3, f). Moving
    the neighbour by u changes the centre's features by u·J; moving the centre by u, by −u·J.
    """
    l_max = len(factor) - 1
    n_species, width = c.shape[1], (n_max + 3) // 4 * 4
    n_nu = n_species * n_max
    has_total = feature[0, 0, 0] < 0  # then features are products with the last channel only
    n_lm = (l_max + 1) ** 2
    inverse_step = len(table) / cutoff
    # Room for all pairs. Counting those within the cutoff beforehand would have to round as
    # `next_four` does: with one pair too many or too few, rows without meaning would be left.
    room = 2 * len(i)
    centre, neighbour = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    vector, out = np.empty((room, 3)), np.zeros((room, 3, n_features))
    h = np.empty((l_max + 1, width))
    dh = np.empty((l_max + 1, width))
    q, xy = np.empty((n_lm, 4)), np.empty((2 * l_max + 2, 4))
    solid, gradient = np.empty((n_lm, 4)), np.empty((3 * n_lm, 4))
    d, pair = np.empty((4, 4)), np.empty(4, dtype=np.int64)
    dc = np.empty((2 * l_max + 1, n_max))
    product = np.empty((n_max, n_nu))
    p, row = 0, 0
    while True:
        p, count, _ = next_four(p, len(i), positions, i, j, shift, cutoff, d, pair)
        if count == 0:
            return centre[:row], neighbour[:row], vector[:row], out[:row]
        harmonics(d, l_max, norm, q, xy, solid)
        harmonics_gradient(d, l_max, norm, q, xy, gradient)
        for lane in range(count):
            a, b = i[pair[lane]], j[pair[lane]]
            k, u = interval(d[3, lane], inverse_step, len(table) - 1)
            for degree in range(l_max + 1):
                for n in range(0, width, 4):
                    store(h, degree, n, radial_value(table[k], degree * width + n, u))
                    slope = inverse_step * radial_slope(table[k], degree * width + n, u)
                    store(dh, degree, n, slope)
            for side in range(2):
                # Seen from b the neighbour a lies at −d; S_lm(−d) = (−1)^l S_lm(d), and the chain
                # rule through −d adds one more sign.
                me, other = (a, b) if side == 0 else (b, a)
                slot = species[other] * n_max
                centre[row] = me
                neighbour[row] = other
                for axis in range(3):
                    vector[row, axis] = d[axis, lane] if side == 0 else -d[axis, lane]
                for degree in range(l_max + 1):
                    low = degree * degree
                    sign = 1.0 if side == 0 else (1.0 if degree % 2 == 1 else -1.0)
                    for axis in range(3):
                        for m in range(2 * degree + 1):
                            along = solid[low + m, lane] * d[axis, lane] / d[3, lane]
                            turn = gradient[3 * (low + m) + axis, lane]
                            for n in range(n_max):
                                dc[m, n] = sign * (dh[degree, n] * along + h[degree, n] * turn)
                        product[:] = 0.0
                        for m in range(2 * degree + 1):
                            for kind in range(n_species):
                                line = c[me, kind, (low + m) * width : (low + m + 1) * width]
                                for n in range(n_max):
                                    left = dc[m, n] * factor[degree]
                                    target = product[n, kind * n_max : (kind + 1) * n_max]
                                    for v in range(n_max):
                                        target[v] += left * line[v]
                        # A neighbour is in its own channel and, if there is one, in the total.
                        for at in range(slot, n_nu, n_nu - n_max - slot if has_total else n_nu):
                            for n in range(n_max):
                                own = at + n
                                for v in range(n_nu):
                                    f = feature[degree, min(own, v), max(own, v)]
                                    if f >= 0:
                                        out[row, axis, f] += product[n, v]
                                # c² has twice the slope; the loop above met ν = ν' once.
                                f = feature[degree, own, own]
                                if f >= 0:
                                    out[row, axis, f] += product[n, own]
                row += 1
