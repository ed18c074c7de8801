"""Loops over atoms and pairs of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.numerics.jit import njit

SPACIOUS = 1e-3  # Å, Å² or Å³: cells that span more are beyond doubt
HEAVIEST = 118  # the largest atomic number: compiled loops look elements up in tables


@njit
def is_sound(positions: Floats, numbers: Ints, offsets: Ints, cells: Floats, pbc: Bools) -> bool:
    """Nothing to look at more closely: elements at finite places, cells that span a volume."""
    for s in range(len(offsets) - 1):
        if offsets[s] == offsets[s + 1]:
            return False
        if (pbc[s, 0] or pbc[s, 1] or pbc[s, 2]) and not _volume(cells[s], pbc[s]) > SPACIOUS:
            return False
    total = 0.0
    for i in range(len(positions)):
        if numbers[i] < 0 or numbers[i] > HEAVIEST:
            return False
        for axis in range(3):
            total += positions[i, axis] * positions[i, axis]
    return np.isfinite(total)


@njit
def _volume(cell: Floats, pbc: Bools) -> float:
    """Length, area or volume that the periodic edges span, by Gram and Schmidt; −1 if infinite."""
    volume, edge = 1.0, np.zeros((3, 3))
    for k in range(3):
        if pbc[k]:
            square = 0.0
            for axis in range(3):
                edge[k, axis] = cell[k, axis]
            for other in range(k):
                along = 0.0
                for axis in range(3):
                    along += edge[k, axis] * edge[other, axis]
                for axis in range(3):
                    edge[k, axis] -= along * edge[other, axis]
            for axis in range(3):
                square += edge[k, axis] * edge[k, axis]
            length = np.sqrt(square)
            if length > 0.0:
                for axis in range(3):
                    edge[k, axis] /= length
            volume *= length
    return volume if np.isfinite(volume) else -1.0


@njit
def structure_sums(values: Floats, offsets: Ints) -> Floats:
    """Sums of the atoms' values (N,) over each structure (B,), one after the other."""
    out = np.zeros(len(offsets) - 1)
    for s in range(len(out)):
        for atom in range(offsets[s], offsets[s + 1]):
            out[s] += values[atom]
    return out


# Pairs of small structures by a loop over all atoms, with images where the cell repeats.
#
# Pairs come in an order that depends on the structure alone: by i, then j ≥ i, then the cell of j.
# A list that reaches further has the same pairs in the same order, with others in between.


# Below this many atoms a double loop finds the pairs of a structure sooner than a cell list.
SMALL = 400


@njit
def shifts_of(images: Ints, cell: Floats) -> Floats:
    """Translations (P, 3) of images (P, 3), with the bits that the finder gives them."""
    out = np.empty((len(images), 3))
    for p in range(len(images)):
        a, b, c = images[p]
        for axis in range(3):
            out[p, axis] = a * cell[0, axis] + b * cell[1, axis] + c * cell[2, axis]
    return out


@njit
def lattice_shifts(images: Ints, offsets: Ints, cells: Floats) -> Floats:
    """`shifts_of` for the pairs of many structures: pairs of s are offsets[s]:offsets[s + 1]."""
    out = np.empty((len(images), 3))
    for s in range(len(cells)):
        h = cells[s]
        for p in range(offsets[s], offsets[s + 1]):
            a, b, c = images[p]
            for axis in range(3):
                out[p, axis] = a * h[0, axis] + b * h[1, axis] + c * h[2, axis]
    return out


@njit
def farthest_move(old: Floats, new: Floats) -> float:
    """Square of the largest distance between a row of old and the same row of new."""
    most = 0.0
    for i in range(len(old)):
        x, y, z = new[i, 0] - old[i, 0], new[i, 1] - old[i, 1], new[i, 2] - old[i, 2]
        square = x * x + y * y + z * z
        if not square <= most:  # NaN has moved as well
            most = square
    return most


@njit
def lists_hold(
    old: Floats, old_inverse: Floats, new: Floats, cells: Floats, offsets: Ints, cutoff: float,
    reach: float,
) -> Bools:  # fmt: skip
    """Whether the list of each crystal, made for `reach`, still has all pairs up to the cutoff.

    A cell h became hA, and its atoms moved by u besides: a pair that is not in the list is now
    farther apart than s_min(A)·reach − 2 max|u|, where s_min(A) ≥ 1 − |A − 1|.
    """
    holds = np.zeros(len(cells), dtype=np.bool_)
    bend = np.empty((3, 3))
    for s in range(len(cells)):
        change = 0.0
        for a in range(3):
            for b in range(3):
                bend[a, b] = 0.0
                for c in range(3):
                    bend[a, b] += old_inverse[s, a, c] * cells[s, c, b]
                d = bend[a, b] - (1.0 if a == b else 0.0)
                change += d * d
        most = 0.0
        for i in range(offsets[s], offsets[s + 1]):
            square = 0.0
            for b in range(3):
                d = new[i, b]
                for a in range(3):
                    d -= old[i, a] * bend[a, b]
                square += d * d
            if not square <= most:
                most = square
        holds[s] = (1.0 - np.sqrt(change)) * reach - 2.0 * np.sqrt(most) >= cutoff
    return holds


@njit
def _cross(a: Floats, b: Floats, out: Floats) -> float:
    """out = a × b; returns its length."""
    out[0] = a[1] * b[2] - a[2] * b[1]
    out[1] = a[2] * b[0] - a[0] * b[2]
    out[2] = a[0] * b[1] - a[1] * b[0]
    return np.sqrt(out[0] * out[0] + out[1] * out[1] + out[2] * out[2])


@njit
def _dual(cell: Floats, pbc: Bools) -> Floats:
    """Rows b_k with b_k·h_l = δ_kl for periodic directions; rows of zeros for the others."""
    h, out, length = np.zeros((3, 3)), np.zeros((3, 3)), 1.0
    for k in range(3):
        for axis in range(3):
            h[k, axis] = cell[k, axis] if pbc[k] else 0.0
    for k in range(3):  # directions that do not repeat stand upright on those that do
        if not pbc[k]:
            u, v = h[(k + 1) % 3], h[(k + 2) % 3]
            length = _cross(u, v, h[k])
            if length == 0.0:  # only one direction is known: any other will do
                known = u if np.abs(u).max() > 0.0 else v
                other = np.zeros(3)
                other[np.argmin(np.abs(known))] = 1.0
                length = _cross(known, other, h[k])
            for axis in range(3):
                h[k, axis] /= length
    for k in range(3):
        _cross(h[(k + 1) % 3], h[(k + 2) % 3], out[k])
        volume = out[k, 0] * h[k, 0] + out[k, 1] * h[k, 1] + out[k, 2] * h[k, 2]
        for axis in range(3):
            out[k, axis] = out[k, axis] / volume if pbc[k] else 0.0
    return out


@njit
def _grown(old: Any, size: int) -> Any:
    new = np.zeros((size, old.shape[1]), dtype=old.dtype)
    for p in range(len(old)):
        for axis in range(old.shape[1]):
            new[p, axis] = old[p, axis]
    return new


@njit
def _near(x: Floats, i: int, end: int, square: float, ends: Ints, count: int) -> int:
    """Adds the pairs (i, j > i) of a cluster; returns how many pairs there are then."""
    at_x, at_y, at_z = x[i, 0], x[i, 1], x[i, 2]
    for j in range(i + 1, end):
        dx, dy, dz = x[j, 0] - at_x, x[j, 1] - at_y, x[j, 2] - at_z
        if dx * dx + dy * dy + dz * dz < square:
            ends[count, 0], ends[count, 1] = i, j
            count += 1
    return count


@njit
def _near_images(
    x: Floats, i: int, end: int, h: Floats, dual: Floats, across: Floats, square: float,
    ends: Ints, shift: Floats, count: int,
) -> int:  # fmt: skip
    """Adds the pairs (i, j ≥ i) of a crystal, with all images; returns how many there are then."""
    at_x, at_y, at_z = x[i, 0], x[i, 1], x[i, 2]
    ax, ay, az = h[0, 0], h[0, 1], h[0, 2]
    bx, by, bz = h[1, 0], h[1, 1], h[1, 2]
    cx, cy, cz = h[2, 0], h[2, 1], h[2, 2]
    for j in range(i, end):
        to_x, to_y, to_z = x[j, 0], x[j, 1], x[j, 2]
        dx, dy, dz = to_x - at_x, to_y - at_y, to_z - at_z
        # Along a direction that does not repeat, dual and across are 0: the only image is 0.
        u = dual[0, 0] * dx + dual[0, 1] * dy + dual[0, 2] * dz
        v = dual[1, 0] * dx + dual[1, 1] * dy + dual[1, 2] * dz
        w = dual[2, 0] * dx + dual[2, 1] * dy + dual[2, 2] * dz
        a, last_a = np.ceil(-u - across[0]), np.floor(across[0] - u)
        first_b, last_b = np.ceil(-v - across[1]), np.floor(across[1] - v)
        first_c, last_c = np.ceil(-w - across[2]), np.floor(across[2] - w)
        a = 0.0 if i == j else a
        while a <= last_a:
            b = 0.0 if i == j and a == 0.0 else first_b
            while b <= last_b:
                c = 1.0 if i == j and a == 0.0 and b == 0.0 else first_c
                while c <= last_c:
                    tx, ty = a * ax + b * bx + c * cx, a * ay + b * by + c * cy
                    tz = a * az + b * bz + c * cz
                    dx, dy, dz = to_x + tx - at_x, to_y + ty - at_y, to_z + tz - at_z
                    if dx * dx + dy * dy + dz * dz < square:
                        ends[count, 0], ends[count, 1] = i, j
                        shift[count, 0], shift[count, 1], shift[count, 2] = tx, ty, tz
                        count += 1
                    c += 1.0
                b += 1.0
            a += 1.0
    return count


@njit
def small_pairs(
    positions: Floats, offsets: Ints, cells: Floats, pbc: Bools, cutoff: float
) -> tuple[Ints, Ints, Floats, Ints, np.bool_]:
    """Pairs of the small structures (i, j, shift, offsets), and whether all structures are such."""
    room, every = np.int64(16), True
    for s in range(len(pbc)):
        n = offsets[s + 1] - offsets[s]
        every = every and n <= SMALL
        room += n * (n - 1) // 2 if n <= SMALL else 0
    ends, shift, count = np.empty((room, 2), dtype=np.int64), np.zeros((room, 3)), np.int64(0)
    pair_offsets = np.zeros(len(offsets), dtype=np.int64)
    across = np.empty(3)
    for s in range(len(offsets) - 1):
        begin, end = offsets[s], offsets[s + 1]
        if end - begin > SMALL:
            pair_offsets[s + 1] = count
            continue
        periodic = pbc[s, 0] or pbc[s, 1] or pbc[s, 2]
        images, dual = 1.0, cells[s]
        if periodic:
            dual = _dual(cells[s], pbc[s])
            for k in range(3):
                length = np.sqrt(np.sum(dual[k] * dual[k]))
                across[k] = cutoff * length + 1e-9
                images *= 2.0 * np.floor(across[k]) + 2.0 if pbc[s, k] else 1.0
        for i in range(begin, end):
            need = count + np.int64((end - i) * images)
            if need > len(ends):
                ends, shift = _grown(ends, 2 * need), _grown(shift, 2 * need)
            if periodic:
                count = _near_images(
                    positions, i, end, cells[s], dual, across, cutoff * cutoff, ends, shift, count
                )
            else:
                count = _near(positions, i, end, cutoff * cutoff, ends, count)
        pair_offsets[s + 1] = count
    first, second = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for p in range(count):
        first[p], second[p] = ends[p]
    return first, second, shift[:count], pair_offsets, np.bool_(every)
