"""Compiled loops of the training domain: densities, coordination, distances and gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.jit import FAST, njit

# Densities of all neighbours: decays of 3, 6 and 12 per bond length, as q, q² and q⁴.
CHANNELS = 3

DECAY = 3.0

# Added to a density before the logarithm: all neighbours, and those of one element.
EPSILON, SPECIES_EPSILON = 0.1, 1.0

# Distance of an atom whose element is not in the training set, e-folds of density.
UNKNOWN = 3.0

# Distance at which the near term saturates, e-folds of density.
NEAR_RANGE = 0.3

# A neighbour counts fully up to this share of the range of coordination, or up to this share of a
# shorter cutoff.
FULL, FULL_AT_MOST = 2.0 / 3.0, 0.95

# Missing neighbours below which σ_out grows with their square, and number at which it saturates.
FEW_MISSING, MANY_MISSING = 0.2, 4.0

# References that are compared together, those of the nearest first density first; most atoms are
# inside after a few of these blocks.
_BLOCK = 16

# References farther than the nearest one by this many temperatures do not count.
_RANGE = 30.0

# Temperature of the soft minimum over references, in units of margin², and the smallest one.
SOFTNESS, SOFTEST = 0.05, 1e-6


class References(NamedTuple):
    """Reference environments, ordered by element and then by the first density."""

    starts: Ints  # (S + 1,) first reference of each element
    points: Floats  # (c, R) logarithms of densities
    margin: float
    near: float  # eV
    least: Floats  # (S,) coordination below which neighbours are missing
    missing: Floats  # (S,) σ_out of one missing neighbour, eV
    scale: float  # s


@njit(inline="always")
def _counts(r: float, reach: float, cutoff: float) -> tuple[float, float]:
    """How much a neighbour at distance r counts, and the derivative by r."""
    start, end = min(FULL * reach, FULL_AT_MOST * cutoff), min(reach, cutoff)
    if r <= start:
        return 1.0, 0.0
    if r >= end:
        return 0.0, 0.0
    x = (r - start) / (end - start)
    step = x * x * x * (10.0 - 15.0 * x + 6.0 * x * x)
    return 1.0 - step, -30.0 * x * x * (1.0 - x) * (1.0 - x) / (end - start)


@njit(fastmath=FAST)
def densities(
    positions: Floats, index: Ints, radii: Floats, i: Ints, j: Ints, shift: Floats, cutoff: float,
    bond: float, rho: Floats, number: Floats,
) -> None:  # fmt: skip
    """Add exp(−b(r/r₀ − 1))·(1 − r²/r_c²)² of all pairs to the densities (N, c) of both atoms.

    Neighbours within `bond` times r₀, and within the cutoff, are counted in `number` (N,).

    `index` numbers the elements of the training set (−1 for others). If there are several, the
    channels after the first three hold one density for each element of the neighbours.
    """
    by_element = rho.shape[1] > CHANNELS
    square = cutoff * cutoff
    for p in range(len(i)):
        a, b = i[p], j[p]
        r2 = 0.0
        for axis in range(3):
            d = positions[b, axis] + shift[p, axis] - positions[a, axis]
            r2 += d * d
        if r2 >= square:
            continue
        left = 1.0 - r2 / square
        fade = left * left
        r, r0 = np.sqrt(r2), radii[a] + radii[b]
        count = _counts(r, bond * r0, cutoff)[0]
        number[a] += count
        number[b] += count
        q = np.exp(-DECAY * (r / r0 - 1.0))
        w0, w1, w2 = q * fade, q * q * fade, (q * q) * (q * q) * fade
        rho[a, 0] += w0
        rho[a, 1] += w1
        rho[a, 2] += w2
        rho[b, 0] += w0
        rho[b, 1] += w1
        rho[b, 2] += w2
        if by_element:
            if index[b] >= 0:
                rho[a, CHANNELS + index[b]] += w0
            if index[a] >= 0:
                rho[b, CHANNELS + index[a]] += w0


@njit(inline="always")
def _epsilon(channel: int) -> float:
    return EPSILON if channel < CHANNELS else SPECIES_EPSILON


@njit(fastmath=FAST)
def logarithms(rho: Floats) -> Floats:
    """t = log(ε + ρ) (N, c)."""
    t = np.empty(rho.shape)
    for a in range(len(rho)):
        for k in range(rho.shape[1]):
            t[a, k] = np.log(_epsilon(k) + rho[a, k])
    return t


@njit(fastmath=FAST)
def shares_of_std(
    rho: Floats, number: Floats, index: Ints, weight: Floats, references: References
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
    """Share of each atom in σ_out (N,), its derivatives by ρ (N, c) and coordination (N,), D (N,),
    n(D) (N,) and u (N,).

    The share is w·[D₊² + s·D₋²/(1 + D₋)] + a·n(D) + b·u. D² is the mean of squared distances to the
    references, weighted by exp(−d²/τ), minus margin²; D₊ and D₋ are its parts towards higher and
    lower density. u is a function of the number of missing neighbours.
    """
    n, c = rho.shape
    starts, points, margin = references.starts, references.points, references.margin
    share, slope, distance, near = np.zeros(n), np.zeros((n, c)), np.zeros(n), np.zeros(n)
    by_number, gone = np.zeros(n), np.zeros(n)
    t, by_square, by_up = np.empty(c), np.empty(c), np.empty(c)
    squares = np.empty(points.shape[1])
    inside = margin * margin
    tau = max(SOFTNESS * inside, SOFTEST)
    for a in range(n):
        s = index[a]
        if s < 0 or starts[s] == starts[s + 1]:
            distance[a] = UNKNOWN
            near[a] = NEAR_RANGE
            share[a] = weight[a] * UNKNOWN * UNKNOWN + references.near * NEAR_RANGE
            continue
        few = references.least[s] - number[a]
        if few > 0.0:
            gone[a] = few * few / ((few + FEW_MISSING) * (1.0 + few / MANY_MISSING))
            share[a] = references.missing[s] * gone[a]
            rate = 2.0 / few - 1.0 / (few + FEW_MISSING) - 1.0 / (few + MANY_MISSING)
            by_number[a] = -references.missing[s] * gone[a] * rate
        first, last = starts[s], starts[s + 1]
        for k in range(c):
            t[k] = np.log(_epsilon(k) + rho[a, k])
        # The weighted mean exceeds the minimum by at most τ·log(number of references).
        limit = inside - tau * np.log(last - first)
        best = np.inf
        row = points[0]
        left = first + np.searchsorted(row[first:last], t[0])
        right = left
        while left > first or right < last:
            below = t[0] - row[left - 1] if left > first else np.inf
            above = row[right] - t[0] if right < last else np.inf
            gap = min(below, above)
            if gap * gap > best + _RANGE * tau:
                break  # all others are farther, too
            if below < above:
                start, end = max(left - _BLOCK, first), left
                left = start
            else:
                start, end = right, min(right + _BLOCK, last)
                right = end
            squares[start:end] = 0.0
            for k in range(c):  # one density after the other, so that LLVM can vectorise
                for m in range(start, end):
                    d = t[k] - points[k, m]
                    squares[m] += d * d
            for m in range(start, end):
                if squares[m] < best:
                    best = squares[m]
            if best <= limit:
                break
        if best <= limit:
            continue
        total = mean = up = 0.0
        for m in range(left, right):
            if squares[m] - best < _RANGE * tau:
                w = np.exp((best - squares[m]) / tau)
                total += w
                mean += w * squares[m]
                for k in range(c):
                    d = max(t[k] - points[k, m], 0.0)
                    up += w * d * d
        mean /= total
        up /= total
        if mean <= inside:
            continue
        by_square[:] = 0.0
        by_up[:] = 0.0
        for m in range(left, right):
            if squares[m] - best < _RANGE * tau:
                w = 2.0 * np.exp((best - squares[m]) / tau) / total
                own = 0.0
                for k in range(c):
                    d = max(t[k] - points[k, m], 0.0)
                    own += d * d
                on_square, on_up = 1.0 - (squares[m] - mean) / tau, (own - up) / tau
                for k in range(c):
                    d = t[k] - points[k, m]
                    by_square[k] += w * on_square * d
                    by_up[k] += w * (max(d, 0.0) - on_up * d)
        down, part, more = max(mean - up, 0.0), 1.0 - inside / mean, inside / (mean * mean)
        root = np.sqrt(down * part)
        dist = np.sqrt(mean - inside)
        distance[a] = dist
        near[a] = dist * dist / ((margin + dist) * (1.0 + dist / NEAR_RANGE))
        share[a] += (
            weight[a] * (up * part + references.scale * root * root / (1.0 + root))
            + references.near * near[a]
        )
        rate = (2.0 / dist - 1.0 / (margin + dist) - 1.0 / (NEAR_RANGE + dist)) / (2.0 * dist)
        h = references.scale * (1.0 + 0.5 * root) / ((1.0 + root) * (1.0 + root))
        on_up = weight[a] * part * (1.0 - h)
        on_square = weight[a] * (up * more + h * (part + down * more))
        on_square += references.near * near[a] * rate
        for k in range(c):
            by_log = on_up * by_up[k] + on_square * by_square[k]
            slope[a, k] = by_log / (_epsilon(k) + rho[a, k])
    return share, slope, by_number, distance, near, gone


@njit(fastmath=FAST)
def pull_back(
    positions: Floats, index: Ints, owner: Ints, radii: Floats, i: Ints, j: Ints, shift: Floats,
    cutoff: float, bond: float, slope: Floats, by_number: Floats, gradient: Floats, strain: Floats,
) -> None:  # fmt: skip
    """Add the derivatives of Σ slope·ρ + by_number·coordination by positions and strain."""
    by_element = slope.shape[1] > CHANNELS
    square = cutoff * cutoff
    d = np.empty(3)
    for p in range(len(i)):
        a, b = i[p], j[p]
        s0, s1 = slope[a, 0] + slope[b, 0], slope[a, 1] + slope[b, 1]
        s2 = slope[a, 2] + slope[b, 2]
        if by_element:
            if index[b] >= 0:
                s0 += slope[a, CHANNELS + index[b]]
            if index[a] >= 0:
                s0 += slope[b, CHANNELS + index[a]]
        on_number = by_number[a] + by_number[b]
        if s0 == 0.0 and s1 == 0.0 and s2 == 0.0 and on_number == 0.0:
            continue
        r2 = 0.0
        for axis in range(3):
            d[axis] = positions[b, axis] + shift[p, axis] - positions[a, axis]
            r2 += d[axis] * d[axis]
        if r2 >= square or r2 < 1e-12:  # coincident atoms have no direction
            continue
        r, left = np.sqrt(r2), 1.0 - r2 / square
        fade, less, rate = left * left, -4.0 * left * r / square, DECAY / (radii[a] + radii[b])
        q = np.exp(-rate * r + DECAY)
        q2 = q * q
        by_r = s0 * q * (less - rate * fade) + s1 * q2 * (less - 2.0 * rate * fade)
        by_r += s2 * q2 * q2 * (less - 4.0 * rate * fade)
        by_r += on_number * _counts(r, bond * (radii[a] + radii[b]), cutoff)[1]
        for axis in range(3):
            g = by_r * d[axis] / r
            gradient[b, axis] += g
            gradient[a, axis] -= g
            for other in range(3):
                strain[owner[a], axis, other] += g * d[other]
