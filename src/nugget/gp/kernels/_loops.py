"""The kernel's forward loops, and small ones (Numba, one thread)."""

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit
from nugget._compiled.simd import broadcast, load, store, total
from nugget.gp.kernels import _reference
from nugget.gp.kernels._exponential import exp_negative
from nugget.gp.kernels._tiles import by_group, kernel_tiles, rows_vjp, scale_rows, sum_rows


@njit(reference=_reference.scaled, fastmath=FAST)
def scaled(
    x: Floats,
    centre: Floats,
    scale: float,
    out: Floats,
    half: Floats,
) -> None:
    """out = (x − centre)·scale and half = |out|²/2, row by row."""
    for i in range(x.shape[0]):
        total = 0.0
        for a in range(x.shape[1]):
            value = (x[i, a] - centre[a]) * scale
            out[i, a] = value
            total += value * value
        half[i] = 0.5 * total


@njit(reference=_reference.kernel_rows, fastmath=FAST)
def kernel_rows(
    x: Floats,
    offsets: Ints,
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
    """Rows of one group in its coordinates (n, f), k (n, m) and k_sum_s = Σ_{i∈s} k_i (B, m).

    The last ten arguments are the group's `Pack`.
    """
    n, m = len(x), counts[0]
    order, starts = by_group(np.full(n, labels[0]), 0, n, labels)
    xs, exponents, base = scale_rows(x, order, starts, centre, scale, amplitude)
    wide = kernel_tiles(exponents, base, starts, forward, half, panels)
    last = len(offsets) - 1
    k_sum, _ = sum_rows(wide, order, starts, offsets, 0, last, panels, counts, place)
    k = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            k[i, j] = wide[i, j]
    return xs, k, k_sum


@njit(reference=_reference.kernel_rows_vjp, fastmath=FAST)
def kernel_rows_vjp(
    k: Floats,
    xs: Floats,
    offsets: Ints,
    weights: Floats,
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
) -> Floats:
    """scale Σ_j w_j k_ij (z_j − x_i) with w = weights[r, s(i)]: (R, n, f), from `kernel_rows`."""
    n = len(xs)
    owner = np.empty(n, dtype=np.int64)
    for s in range(len(offsets) - 1):
        for i in range(offsets[s], offsets[s + 1]):
            owner[i] = s
    out = np.empty((len(weights), n, xs.shape[1]))
    rows_vjp(
        k, xs, weights, owner, np.arange(n), np.array([0, n]), panels, counts, place, backward,
        scale, out,
    )  # fmt: skip
    return out


@njit(reference=_reference.group_rows, fastmath=FAST)
def group_rows(
    x: Floats,
    group: Ints,
    offsets: Ints,
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
) -> tuple[Floats, Floats, Floats, Ints, Ints, Ints]:
    """k_sum (B, m) of rows of all groups, and what `group_rows_vjp` needs: k, x̃, and the sorting.

    The last ten arguments are a `Pack`.
    """
    order, starts = by_group(group, 0, len(x), labels)
    xs, exponents, base = scale_rows(x, order, starts, centre, scale, amplitude)
    k = kernel_tiles(exponents, base, starts, forward, half, panels)
    last = len(offsets) - 1
    k_sum, owner = sum_rows(k, order, starts, offsets, 0, last, panels, counts, place)
    return k_sum, k, xs, owner, order, starts


@njit(reference=_reference.group_rows_vjp, fastmath=FAST)
def group_rows_vjp(
    weights: Floats,
    k: Floats,
    xs: Floats,
    owner: Ints,
    order: Ints,
    starts: Ints,
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
) -> Floats:
    """Gradients (R, n, f) of Σ_s weights[r, s]·k_sum_s by the rows, from `group_rows`."""
    out = np.empty((len(weights), len(order), xs.shape[1]))
    rows_vjp(k, xs, weights, owner, order, starts, panels, counts, place, backward, scale, out)
    return out


@njit
def all_equal(values: Ints, wanted: int) -> bool:
    """True when every value is the wanted one (also when there is none)."""
    for value in values:  # noqa: SIM110
        if value != wanted:
            return False
    return True


@njit
def ascends(offsets: Ints, last: int) -> bool:
    """True when the offsets run from 0 to `last` without a step down."""
    if offsets.size < 1 or offsets[0] != 0 or offsets[-1] != last:
        return False
    for s in range(len(offsets) - 1):  # noqa: SIM110
        if offsets[s + 1] < offsets[s]:
            return False
    return True


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


@njit(reference=_reference.self_sums, fastmath=FAST)
def self_sums(
    x: Floats,
    group: Ints,
    offsets: Ints,
    scale: float,
    amplitude: float,
    out: Floats,
) -> None:
    """out[s] = Σ_{i,j∈s} k(x_i, x_j)."""
    for s in range(offsets.shape[0] - 1):
        total = 0.0
        for i in range(offsets[s], offsets[s + 1]):
            for j in range(offsets[s], i):
                if group[i] == group[j]:
                    total += _pair(x, i, j, scale, amplitude)
        out[s] = 2.0 * total + amplitude * (offsets[s + 1] - offsets[s])


@njit(reference=_reference.self_sums_vjp, fastmath=FAST)
def self_sums_vjp(
    x: Floats,
    group: Ints,
    offsets: Ints,
    scale: float,
    amplitude: float,
    weights: Floats,
    out: Floats,
) -> None:
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
