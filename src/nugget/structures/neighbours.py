"""Pairs of neighbours: the only place where they are searched for.

A double loop serves small structures, vesin's cell list all others. Two loops elsewhere measure
distances for another purpose: `generators._validity` tests one point against the atoms that are
already placed, and `relax._lbfgs.springs` takes the nearest image of every pair, however far apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from ase.geometry import complete_cell
from vesin import NeighborList

from nugget._compiled.arrays import Floats, Ints
from nugget.structures._pair_loops import SMALL, farthest_move, shifts_of, small_pairs
from nugget.structures.batch import Batch, offsets_of


@dataclass(frozen=True, eq=False)
class Pairs:
    """Neighbours, each pair once: j + shift is near i. Ordered by structure."""

    i: Ints  # (P,) atom rows of the batch
    j: Ints  # (P,)
    shift: Floats  # (P, 3) lattice translation of j, Å
    offsets: Ints  # (B + 1,) pairs of structure s
    reach: float = 0.0  # Å: all pairs up to here are there; 0 where that is not known

    def distances(self, batch: Batch) -> Floats:
        """Length of each pair, Å, (P,)."""
        x = batch.positions
        return np.asarray(np.sqrt(np.sum((x[self.j] - x[self.i] + self.shift) ** 2, axis=1)))

    def part(self, batch: Batch, start: int, stop: int) -> Pairs:
        """The pairs of structures start … stop − 1, for `batch.part(start, stop)`."""
        rows, first = slice(self.offsets[start], self.offsets[stop]), batch.offsets[start]
        return Pairs(
            self.i[rows] - first,
            self.j[rows] - first,
            self.shift[rows],
            self.offsets[start : stop + 1] - self.offsets[start],
            self.reach,
        )

    def select(self, batch: Batch, structures: Ints) -> Pairs:
        """The pairs of these structures, for `batch.select(structures)`."""
        counts = np.diff(self.offsets)[structures]
        rows = np.concatenate(
            [np.arange(self.offsets[s], self.offsets[s + 1]) for s in structures]
            or [np.zeros(0, dtype=np.int64)]
        )
        new_start = offsets_of(batch.sizes[structures])[:-1]
        move = np.repeat(new_start - batch.offsets[structures], counts)
        return Pairs(
            self.i[rows] + move,
            self.j[rows] + move,
            self.shift[rows],
            offsets_of(counts),
            self.reach,
        )


def find_pairs(batch: Batch, cutoff: float) -> Pairs:
    """All pairs closer than `cutoff`, each once; atoms may meet their own images.

    Ordered by structure, i, j ≥ i and cell of j, so that results do not depend on how far a list
    reaches or when it was made. The cutoff may be infinite when no structure is periodic.
    """
    i, j, shift, offsets, small = small_pairs(
        batch.positions, batch.offsets, batch.cells, batch.pbc, float(cutoff)
    )
    if small:
        return Pairs(i, j, shift, offsets, cutoff)
    parts = []
    for s in range(len(batch)):
        if batch.sizes[s] <= SMALL:
            rows = slice(offsets[s], offsets[s + 1])
            parts.append((i[rows], j[rows], shift[rows]))
        else:
            parts.append(_vesin_pairs(batch, s, cutoff))
    return Pairs(
        i=np.concatenate([p[0] for p in parts]),
        j=np.concatenate([p[1] for p in parts]),
        shift=np.concatenate([p[2] for p in parts]),
        offsets=offsets_of(np.array([len(p[0]) for p in parts])),
        reach=cutoff,
    )


def _vesin_pairs(batch: Batch, s: int, cutoff: float) -> tuple[Ints, Ints, Floats]:
    start, stop = batch.offsets[s], batch.offsets[s + 1]
    pbc = batch.pbc[s]
    cell = np.asarray(complete_cell(batch.cells[s])) if pbc.any() else np.zeros((3, 3))
    if not np.isfinite(cutoff):  # every pair of a cluster: vesin needs a number
        cutoff = 1.0 + float(np.linalg.norm(np.ptp(batch.positions[start:stop], axis=0)))
    finder = NeighborList(cutoff=cutoff, full_list=False, sorted=False, n_threads=1)
    i, j, images = finder.compute(batch.positions[start:stop], cell, pbc, "ijS")
    i, j, images = i.astype(np.int64), j.astype(np.int64), images.astype(np.int64)
    first = images[np.arange(len(images)), np.argmax(images != 0, axis=1)]  # that is not 0
    turned = (i > j) | ((i == j) & (first < 0))
    i, j = np.where(turned, j, i), np.where(turned, i, j)
    images[turned] *= -1
    order = np.lexsort((images[:, 2], images[:, 1], images[:, 0], j, i))
    return i[order] + start, j[order] + start, shifts_of(images[order], cell)


class Verlet:
    """Pairs that stay valid while no atom has moved by more than half the skin.

    For structures that move in small steps (relaxation, dynamics): the list is made anew
    only when it must be, or when the structures themselves have changed.
    """

    def __init__(self, cutoff: float, skin: float = 0.5) -> None:
        self.cutoff = cutoff
        self.skin = skin
        self.rebuilds = 0
        self._batch: Batch | None = None
        self._pairs: Pairs | None = None

    def pairs(self, batch: Batch) -> Pairs:
        """Pairs of `batch`, reused where that is safe."""
        if not self._valid(batch):
            found = find_pairs(batch, self.cutoff + self.skin)
            self._pairs = replace(found, reach=self.cutoff)  # while atoms move
            self._batch = replace(batch, positions=batch.positions.copy())
            self.rebuilds += 1
        return cast(Pairs, self._pairs)

    def select(self, structures: Ints) -> None:
        """Keep only these structures of the last batch."""
        if self._batch is None or self._pairs is None:
            return
        self._pairs = self._pairs.select(self._batch, structures)
        self._batch = self._batch.select(structures)

    def _valid(self, batch: Batch) -> bool:
        old = self._batch
        if old is None:
            return False
        same = old.offsets is batch.offsets or np.array_equal(old.offsets, batch.offsets)
        same = same and (old.pbc is batch.pbc or np.array_equal(old.pbc, batch.pbc))
        if not (same and (old.cells is batch.cells or np.array_equal(old.cells, batch.cells))):
            return False
        return bool(farthest_move(old.positions, batch.positions) < (0.5 * self.skin) ** 2)
