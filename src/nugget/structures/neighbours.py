"""Pairs of neighbours: the only place where they are searched for.

A double loop serves small clusters, vesin's cell list all others. Two loops elsewhere measure
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
from nugget.structures._loops import SMALL_CLUSTER, direct_pairs
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

    The cutoff may be infinite when no structure is periodic.
    """
    i, j, shift, offsets, direct = direct_pairs(
        batch.positions, batch.offsets, batch.pbc, cutoff * cutoff
    )
    if direct:
        return Pairs(i, j, shift, offsets, cutoff)
    parts = []
    for s in range(len(batch)):
        if batch.sizes[s] <= SMALL_CLUSTER and not batch.pbc[s].any():
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
    finder = NeighborList(cutoff=cutoff, full_list=False, sorted=True, n_threads=1)
    i, j, images = finder.compute(batch.positions[start:stop], cell, pbc, "ijS")
    shift = images.astype(np.float64) @ cell
    return i.astype(np.int64) + start, j.astype(np.int64) + start, shift


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
        same = (
            np.array_equal(old.offsets, batch.offsets)
            and np.array_equal(old.pbc, batch.pbc)
            and np.array_equal(old.cells, batch.cells)
        )
        if not same:
            return False
        moved = batch.positions - old.positions
        return float(np.einsum("ij,ij->i", moved, moved).max()) < (0.5 * self.skin) ** 2
