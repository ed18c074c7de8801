"""Compiled loops of the RBF kernel (Numba, one thread).

Sections: the fast exponential; kernel rows and their vector-Jacobian product in register tiles;
entry points on prepared inducing points (`Pack`); self sums; and the whole of forward pass,
uncertainty and backward pass in one call.

The exponential exp(s) for s <= 0 has no branch, so that LLVM can vectorise it: s = n ln 2 + r with
|r| <= ln 2 / 2. Adding 1.5·2⁵² leaves n in the low bits of the mantissa; exp(r) is a minimax
polynomial of degree 11 (error 3e-18); adding the bits of n to its exponent multiplies by 2ⁿ. The
fast-math flags exclude "reassoc", which would undo the range reduction; NaN stays NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nugget.gp.loops import std_and_weights
from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.jit import FAST, njit, part_end
from nugget.numerics.simd import broadcast, load, store, total
from nugget.numerics.tiles import ROWS, WIDTH, exponential_tile, product_tile

# --- The fast exponential -------------------------------------------------------------------------

_BIG = 6755399441055744.0  # 1.5·2⁵²
LOG2E = 1.4426950408889634
_LN2_HI = 6.93147180369123816490e-01  # low 33 bits zero: n·_LN2_HI is exact
_LN2_LO = 1.90821492927058770002e-10
_LOWEST = -708.0  # exp(-708) = 3.3e-308 is about the last normal number: the least result
_C2, _C3, _C4 = 0.5000000000000019, 0.1666666666666668, 0.04166666666648795
_C5, _C6, _C7 = 0.008333333333319589, 0.0013888888952352863, 0.00019841269890076403
_C8, _C9 = 2.4801485441561313e-05, 2.755724088722987e-06
_C10, _C11 = 2.763265472252779e-07, 2.5110049204818658e-08


@njit(inline="always", fastmath=FAST)
def exp_negative(s: float) -> float:
    """exp(s) for s <= 0 (or round-off above it); 3e-308 below -708; NaN for NaN."""
    c = _LOWEST if s < _LOWEST else s
    shifted = c * LOG2E + _BIG
    n = shifted - _BIG
    r = c - n * _LN2_HI
    r = r - n * _LN2_LO
    # Estrin's scheme: a chain of 5 operations instead of Horner's 11 keeps both FMA units busy.
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r) + r2 * (_C2 + r * _C3)
    middle = (_C4 + r * _C5) + r2 * (_C6 + r * _C7)
    high = (_C8 + r * _C9) + r2 * (_C10 + r * _C11)
    power = np.float64(low + r4 * (middle + r4 * high)).view(np.int64)
    return np.int64(power + (np.float64(shifted).view(np.int64) << 52)).view(np.float64)


@njit(fastmath=FAST)
def exponentials(k: Floats, hx: Floats, hz: Floats, amplitude: float) -> None:
    """In place: k_ij holds x_i·z_j and becomes θ₀ exp(x_i·z_j − |x_i|²/2 − |z_j|²/2)."""
    for i in range(k.shape[0]):
        row, h = k[i], hx[i]
        for j in range(k.shape[1]):
            row[j] = amplitude * exp_negative(row[j] - h - hz[j])


@njit(fastmath=FAST)
def exponentials_symmetric(k: Floats, half: Floats, amplitude: float) -> None:
    """`exponentials` for a square k of equal points: one triangle, mirrored in small tiles."""
    m, tile = k.shape[0], 64
    for i0 in range(0, m, tile):
        i1 = min(i0 + tile, m)
        for j0 in range(i0, m, tile):
            j1 = min(j0 + tile, m)
            for i in range(i0, i1):
                for j in range(j0, j1):
                    k[i, j] = amplitude * exp_negative(k[i, j] - half[i] - half[j])
            for j in range(j0, j1):
                for i in range(i0, min(i1, j)):
                    k[j, i] = k[i, j]
        for i in range(i0, i1):
            k[i, i] = amplitude


# --- Kernel rows and their vector-Jacobian product, in tiles that stay in registers ---------------
#
# k_ij = θ₀ exp(x_i·z_j − |x_i|²/2 − |z_j|²/2) is computed as 2^t, where t includes log₂θ₀ and the
# factors log₂e, while t is still in registers. Inducing points are packed for it (`Pack`): the
# columns of a group are contiguous, and so are its features in the backward pass. Rows are sorted
# by group, so that each row is multiplied with the inducing points of its own group only.


class Pack(NamedTuple):
    """Inducing points of all groups in the layout of the tiles; a group's columns are padded."""

    labels: Ints  # (G,) groups
    centre: Floats  # (G, f)
    scale: float
    amplitude: float
    forward: Floats  # (panels, f, WIDTH): columns of z̃
    half: Floats  # (panels·WIDTH,) log₂e·|z̃|²/2
    panels: Ints  # (G + 1,) first panel of each group
    counts: Ints  # (G,) inducing points of a group
    place: Ints  # (m,) padded column of each inducing point
    backward: Floats  # (feature panels, columns, WIDTH): rows of z̃, then a column of ones


@njit(forceinline=True)
def by_group(group: Ints, begin: int, end: int, labels: Ints) -> tuple[Ints, Ints]:
    """Rows begin to end − 1 sorted by group, and the first row of each group (G + 1,).

    Rows of groups without inducing points come last.
    """
    starts = np.zeros(len(labels) + 1, dtype=np.int64)
    index = np.empty(end - begin, dtype=np.int64)
    for i in range(begin, end):
        index[i - begin] = len(labels)
        for g in range(len(labels)):
            if labels[g] == group[i]:
                index[i - begin] = g
                starts[g + 1] += 1
    for g in range(len(labels)):
        starts[g + 1] += starts[g]
    free = starts.copy()
    order = np.empty(end - begin, dtype=np.int64)
    for i in range(begin, end):
        g = index[i - begin]
        order[free[g]] = i
        free[g] += 1
    return order, starts


@njit(fastmath=FAST, forceinline=True)
def scale_rows(
    x: Floats, order: Ints, starts: Ints, centre: Floats, scale: float, amplitude: float
) -> tuple[Floats, Floats, Floats]:
    """Sorted rows in their group's coordinates x̃ (n, f), log₂e·x̃, and log₂θ₀ − log₂e·|x̃|²/2."""
    n, f = starts[-1], x.shape[1]
    xs, exponents, base = np.empty((n, f)), np.empty((n, f)), np.empty(n)
    highest = np.log2(amplitude)
    for g in range(len(starts) - 1):
        for q in range(starts[g], starts[g + 1]):
            row, total = x[order[q]], 0.0
            for a in range(f):
                value = (row[a] - centre[g, a]) * scale
                xs[q, a] = value
                exponents[q, a] = LOG2E * value
                total += value * value
            base[q] = highest - LOG2E * (0.5 * total)
    return xs, exponents, base


@njit(fastmath=FAST, forceinline=True)
def kernel_tiles(
    exponents: Floats, base: Floats, starts: Ints, forward: Floats, half: Floats, panels: Ints
) -> Floats:
    """k (n, columns of the largest group, padded): each row against its own group's points."""
    n, most = starts[-1], np.int64(0)
    for g in range(len(starts) - 1):
        most = max(most, panels[g + 1] - panels[g])
    k = np.empty((n, most * WIDTH))
    for g in range(len(starts) - 1):
        for panel in range(panels[g], panels[g + 1]):
            i, j = starts[g], (panel - panels[g]) * WIDTH
            while i < starts[g + 1]:
                rows = tile_rows(starts[g + 1] - i)
                exponential_tile(exponents, i, rows, forward, panel, base, half, k, j)
                i += rows
    return k


@njit(forceinline=True)
def tile_rows(left: int) -> int:
    """Rows of the next tile, at most ROWS, such that all tiles are of about equal height."""
    tiles = (left + ROWS - 1) // ROWS
    return (left + tiles - 1) // tiles


@njit(fastmath=FAST, forceinline=True)
def sum_rows(
    k: Floats, order: Ints, starts: Ints, offsets: Ints, first: int, end: int, panels: Ints,
    counts: Ints, place: Ints,
) -> tuple[Floats, Ints]:  # fmt: skip
    """k_sum_s = Σ_{i∈s} k_i (end − first, m), and the structure of each sorted row."""
    begin = offsets[first]
    of_row = np.empty(offsets[end] - begin, dtype=np.int64)
    for s in range(first, end):
        for i in range(offsets[s], offsets[s + 1]):
            of_row[i - begin] = s - first
    sums = np.zeros((end - first, panels[-1] * WIDTH))
    owner = np.empty(starts[-1], dtype=np.int64)
    for g in range(len(counts)):
        for q in range(starts[g], starts[g + 1]):
            owner[q] = of_row[order[q] - begin]
            target, row = sums[owner[q], panels[g] * WIDTH :], k[q]
            for j in range(counts[g]):
                target[j] += row[j]
    k_sum = np.empty((end - first, len(place)))
    for s in range(end - first):
        for j in range(len(place)):
            k_sum[s, j] = sums[s, place[j]]
    return k_sum, owner


@njit(fastmath=FAST, forceinline=True)
def rows_vjp(
    k: Floats, xs: Floats, weights: Floats, owner: Ints, order: Ints, starts: Ints, panels: Ints,
    counts: Ints, place: Ints, backward: Floats, scale: float, out: Floats,
) -> None:  # fmt: skip
    """out[r, i] = scale Σ_j w_j k_ij (z_j − x_i) with w = weights[r, s(i)], for the sorted rows."""
    n, f, n_rhs = len(xs), xs.shape[1], len(weights)
    spread = np.zeros((weights.shape[1], panels[-1] * WIDTH))
    weighted, found = np.empty(k.shape), np.empty((n, len(backward) * WIDTH))
    for r in range(n_rhs):
        for s in range(weights.shape[1]):
            for j in range(len(place)):
                spread[s, place[j]] = weights[r, s, j]
        for g in range(len(counts)):
            at = panels[g] * WIDTH
            for q in range(starts[g], starts[g + 1]):
                source, row, target = spread[owner[q], at:], k[q], weighted[q]
                for j in range(counts[g]):
                    target[j] = source[j] * row[j]
            for panel in range(len(backward)):
                i = starts[g]
                while i < starts[g + 1]:
                    rows = tile_rows(starts[g + 1] - i)
                    product_tile(
                        weighted, i, rows, counts[g], backward, panel, at, found, panel * WIDTH
                    )
                    i += rows
        for q in range(n):
            target, source, total = out[r, order[q]], found[q], found[q, f]
            for a in range(f):
                target[a] = scale * (source[a] - total * xs[q, a])
        for q in range(n, len(order)):
            out[r, order[q]] = 0.0


# --- Entry points on prepared inducing points -----------------------------------------------------


@njit(fastmath=FAST)
def scaled(x: Floats, centre: Floats, scale: float, out: Floats, half: Floats) -> None:
    """out = (x − centre)·scale and half = |out|²/2, row by row."""
    for i in range(x.shape[0]):
        total = 0.0
        for a in range(x.shape[1]):
            value = (x[i, a] - centre[a]) * scale
            out[i, a] = value
            total += value * value
        half[i] = 0.5 * total


@njit(fastmath=FAST, forceinline=True)
def group_rows(
    x: Floats, group: Ints, offsets: Ints, pack: Pack
) -> tuple[Floats, Floats, Floats, Ints, Ints, Ints]:
    """k_sum (B, m) of rows of all groups, and the input of `group_rows_vjp`: k, x̃, the sorting."""
    order, starts = by_group(group, 0, len(x), pack.labels)
    xs, exponents, base = scale_rows(x, order, starts, pack.centre, pack.scale, pack.amplitude)
    k = kernel_tiles(exponents, base, starts, pack.forward, pack.half, pack.panels)
    last = len(offsets) - 1
    k_sum, owner = sum_rows(
        k, order, starts, offsets, 0, last, pack.panels, pack.counts, pack.place
    )
    return k_sum, k, xs, owner, order, starts


@njit(fastmath=FAST)
def group_rows_vjp(
    weights: Floats, k: Floats, xs: Floats, owner: Ints, order: Ints, starts: Ints, pack: Pack
) -> Floats:
    """Gradients (R, n, f) of Σ_s weights[r, s]·k_sum_s by the rows, from `group_rows`."""
    out = np.empty((len(weights), len(order), xs.shape[1]))
    rows_vjp(
        k, xs, weights, owner, order, starts, pack.panels, pack.counts, pack.place, pack.backward,
        pack.scale, out,
    )  # fmt: skip
    return out


@njit(fastmath=FAST)
def kernel_rows(x: Floats, offsets: Ints, pack: Pack) -> tuple[Floats, Floats, Floats]:
    """Rows of one group in its coordinates (n, f), k (n, m) and k_sum_s = Σ_{i∈s} k_i (B, m)."""
    n, m = len(x), pack.counts[0]
    k_sum, wide, xs, _, _, _ = group_rows(x, np.full(n, pack.labels[0]), offsets, pack)
    k = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            k[i, j] = wide[i, j]
    return xs, k, k_sum


@njit(fastmath=FAST)
def kernel_rows_vjp(k: Floats, xs: Floats, offsets: Ints, weights: Floats, pack: Pack) -> Floats:
    """scale Σ_j w_j k_ij (z_j − x_i) with w = weights[r, s(i)]: (R, n, f), from `kernel_rows`."""
    n = len(xs)
    owner = np.empty(n, dtype=np.int64)
    for s in range(len(offsets) - 1):
        for i in range(offsets[s], offsets[s + 1]):
            owner[i] = s
    out = np.empty((len(weights), n, xs.shape[1]))
    rows_vjp(
        k, xs, weights, owner, np.arange(n), np.array([0, n]), pack.panels, pack.counts, pack.place,
        pack.backward, pack.scale, out,
    )  # fmt: skip
    return out


# --- Self sums ------------------------------------------------------------------------------------


@njit(fastmath=FAST, inline="always")
def _pair(x: Floats, i: int, j: int, scale: float, amplitude: float) -> float:
    f = x.shape[1]
    sums, square = broadcast(0.0), 0.0
    for a in range(0, f - f % 4, 4):
        d = load(x, i, a) - load(x, j, a)
        sums += d * d
    for a in range(f - f % 4, f):
        rest = x[i, a] - x[j, a]
        square += rest * rest
    return amplitude * exp_negative(-0.5 * scale * scale * (total(sums) + square))


@njit(fastmath=FAST)
def self_sums(
    x: Floats, group: Ints, offsets: Ints, scale: float, amplitude: float, out: Floats
) -> None:
    """out[s] = Σ_{i,j∈s} k(x_i, x_j)."""
    for s in range(offsets.shape[0] - 1):
        total = 0.0
        for i in range(offsets[s], offsets[s + 1]):
            for j in range(offsets[s], i):
                if group[i] == group[j]:
                    total += _pair(x, i, j, scale, amplitude)
        out[s] = 2.0 * total + amplitude * (offsets[s + 1] - offsets[s])


@njit(fastmath=FAST)
def self_sums_vjp(
    x: Floats, group: Ints, offsets: Ints, scale: float, amplitude: float, weights: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """out += Σ_s weights_s ∂out[s]/∂x of `self_sums`."""
    f = x.shape[1]
    for s in range(offsets.shape[0] - 1):
        for i in range(offsets[s], offsets[s + 1]):
            for j in range(offsets[s], i):
                if group[i] == group[j]:
                    factor = 2.0 * weights[s] * scale * scale * _pair(x, i, j, scale, amplitude)
                    for a in range(0, f - f % 4, 4):
                        v = factor * (load(x, j, a) - load(x, i, a))
                        store(out, i, a, load(out, i, a) + v)
                        store(out, j, a, load(out, j, a) - v)
                    for a in range(f - f % 4, f):
                        d = factor * (x[j, a] - x[i, a])
                        out[i, a] += d
                        out[j, a] -= d


# --- Forward pass, uncertainty and backward pass in one call --------------------------------------


# Elements of k that are computed together. If W has more than _MANY columns, more structures share
# each pass over W.
_AT_A_TIME, _WITH_LARGE_W, _MANY = 2**15, 2**17, 40


@njit
def fused_value_and_grad(
    x: Floats,
    group: Ints,
    offsets: Ints,
    sizes: Ints,
    alpha: Floats,
    coefficients: Floats,
    wt: Floats,
    rho: Floats,
    variance: Floats,
    sign: float,
    labels: Ints,
    centre: Floats,
    scale: float,
    amplitude: float,
    forward: Floats,
    half: Floats,
    panels: Ints,
    counts: Ints,
    place: Ints,
    backward: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Means, stds and gradients (R, n, f): kernel rows, `std_and_weights`, and backward pass.

    Works on one structure at a time, or on several small ones, so that k is still in the cache in
    the backward pass. The last ten arguments are a `Pack`.
    """
    n = len(offsets) - 1
    mean, std = np.empty(n), np.empty(n)
    gradients = np.empty((len(coefficients), x.shape[0], x.shape[1]))
    elements = _AT_A_TIME if len(wt) <= _MANY else _WITH_LARGE_W
    rows = elements * max(len(labels), 1) // (len(half) + 1)
    s = np.int64(0)  # a literal would make Numba compile the calls below twice
    while s < n:
        end = part_end(offsets, s, rows)
        order, starts = by_group(group, offsets[s], offsets[end], labels)
        xs, exponents, base = scale_rows(x, order, starts, centre, scale, amplitude)
        k = kernel_tiles(exponents, base, starts, forward, half, panels)
        k_sum, owner = sum_rows(k, order, starts, offsets, s, end, panels, counts, place)
        some_mean, some_std, weights = std_and_weights(
            k_sum, sizes[s:end], alpha, coefficients, wt, rho, variance[s:end], sign
        )
        for t in range(s, end):
            mean[t], std[t] = some_mean[t - s], some_std[t - s]
        rows_vjp(
            k, xs, weights, owner, order, starts, panels, counts, place, backward, scale, gradients
        )
        s = end
    return mean, std, gradients
