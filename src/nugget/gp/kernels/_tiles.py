"""Kernel rows and their vector-Jacobian product, in tiles that stay in registers.

k_ij = θ₀ exp(x_i·z_j − |x_i|²/2 − |z_j|²/2) is computed as 2^t, with log₂θ₀ and every log₂e taken
into t beforehand, while t is still in registers. Inducing points are packed for it (`Pack`): a
group's own columns are neighbours, and so are its features on the way back. Rows are sorted by
group, so that atoms of one species meet the inducing points of that species and no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import FAST, njit
from nugget._compiled.simd import aligned
from nugget._compiled.tiles import ROWS, WIDTH, exponential_tile, packed, product_tile

if TYPE_CHECKING:
    from nugget.gp.kernels.rbf import RBFBlock

LOG2E = 1.4426950408889634


class Pack(NamedTuple):
    """Inducing points of all groups as the tiles read them; a group's columns are padded."""

    labels: Ints  # (G,) groups
    centre: Floats  # (G, f)
    scale: float
    amplitude: float
    forward: Floats  # (panels, f, WIDTH): columns of z̃
    half: Floats  # (panels·WIDTH,) log₂e·|z̃|²/2
    panels: Ints  # (G + 1,) where the panels of a group begin
    counts: Ints  # (G,) inducing points of a group
    place: Ints  # (m,) padded column of each inducing point
    backward: Floats  # (feature panels, columns, WIDTH): rows of z̃, then a column of ones

    @classmethod
    def of(cls, blocks: dict[int, RBFBlock]) -> Pack:
        """The blocks of a kernel, one per group; a single one has its own columns only."""
        parts = list(blocks.values())
        columns = [part.columns for part in parts]
        if len(parts) == 1:
            columns = [np.arange(len(columns[0]))]
        f, m = parts[0].zt.shape[0], sum(len(own) for own in columns)
        forward = [packed(part.zt) for part in parts]
        panels = np.concatenate([[0], np.cumsum([len(part) for part in forward])])
        half = np.zeros(panels[-1] * WIDTH)
        rows = np.zeros((panels[-1] * WIDTH, f + 1))
        place = np.empty(m, dtype=np.int64)
        for start, part, own in zip(panels[:-1] * WIDTH, parts, columns, strict=True):
            mine = slice(start, start + len(own))
            half[mine] = LOG2E * part.half
            rows[mine, :f], rows[mine, f] = part.zt.T, 1.0
            place[own] = np.arange(mine.start, mine.stop)
        return cls(
            labels=np.array(list(blocks), dtype=np.int64),
            centre=np.array([part.centre for part in parts]),
            scale=parts[0].scale,
            amplitude=parts[0].amplitude,
            forward=aligned(np.concatenate(forward)),
            half=half,
            panels=panels.astype(np.int64),
            counts=np.array([len(own) for own in columns], dtype=np.int64),
            place=place,
            backward=packed(rows),
        )


@njit(forceinline=True)
def by_group(group: Ints, begin: int, end: int, labels: Ints) -> tuple[Ints, Ints]:
    """Rows from begin to end sorted by group, and where each group's rows begin (G + 1,).

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
    """Rows of the next tile: all tiles about as high as each other, none higher than ROWS."""
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
