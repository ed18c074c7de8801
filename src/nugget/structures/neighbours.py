"""Neighbour pairs: the search for them, and lists that stay valid while atoms or cells move.

All neighbour searches of the package are here. `find_pairs` uses a double loop for small structures
and vesin's cell list for all others. `Verlet` keeps the pairs of structures whose atoms move,
`CellLists` those of crystals whose cells change as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from ase.geometry import complete_cell
from vesin import NeighborList

from nugget.numerics.arrays import Floats, Ints
from nugget.structures.batch import Batch, offsets_of
from nugget.structures.neighbour_loops import (
    SMALL,
    farthest_move,
    lattice_shifts,
    lists_hold,
    shifts_of,
    small_pairs,
)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Neighbour pairs ordered by structure, each once: atom j moved by `shift` is near atom i."""

    i: Ints  # (P,) atom rows of the batch
    j: Ints  # (P,)
    shift: Floats  # (P, 3) lattice translation of j, Å
    offsets: Ints  # (B + 1,) pairs of structure s
    reach: float = 0.0  # Å; the list holds all pairs up to this distance (0: unknown)

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
    """All pairs closer than `cutoff`, each once; an atom may pair with its own images.

    The order is by structure, i, j ≥ i and cell of j, so that results depend neither on how far a
    list reaches nor on when it was built. The cutoff may be infinite if no structure is periodic.
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
    first_nonzero = images[np.arange(len(images)), np.argmax(images != 0, axis=1)]
    reversed_ = (i > j) | ((i == j) & (first_nonzero < 0))
    i, j = np.where(reversed_, j, i), np.where(reversed_, i, j)
    images[reversed_] *= -1
    order = np.lexsort((images[:, 2], images[:, 1], images[:, 0], j, i))
    return i[order] + start, j[order] + start, shifts_of(images[order], cell)


class Verlet:
    """A neighbour list that is rebuilt only after an atom has moved by more than half the skin.

    For relaxation and dynamics, where atoms move in small steps. A change of cells, periodicity or
    the number of atoms also rebuilds it.
    """

    def __init__(self, cutoff: float, skin: float = 0.5) -> None:
        self.cutoff = cutoff
        self.skin = skin
        self.rebuilds = 0
        self._batch: Batch | None = None
        self._pairs: Pairs | None = None

    def pairs(self, batch: Batch) -> Pairs:
        """Pairs of `batch`, from the old list if it is still valid."""
        if not self._valid(batch):
            pairs = find_pairs(batch, self.cutoff + self.skin)
            self._pairs = replace(pairs, reach=self.cutoff)  # guaranteed until the next rebuild
            self._batch = replace(batch, positions=batch.positions.copy())
            self.rebuilds += 1
        return cast(Pairs, self._pairs)

    def select(self, structures: Ints) -> None:
        """Drop all structures of the last batch but these."""
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


@dataclass(frozen=True, eq=False)
class _List:
    """Pairs of one crystal within cutoff + skin, and the geometry that they were built for."""

    positions: Floats
    inverse: Floats  # of the cell
    i: Ints
    j: Ints
    images: Ints  # (P, 3) cells of j


@dataclass(frozen=True, eq=False)
class _Joined:
    """The lists of all crystals of a batch, concatenated."""

    names: Ints
    positions: Floats
    inverse: Floats
    i: Ints
    j: Ints
    images: Ints
    offsets: Ints


class CellLists:
    """Neighbour lists of crystals that are relaxed with their cells, one list per crystal.

    A list is rebuilt when a pair outside it may have come within the cutoff (see `lists_hold`). Its
    pairs have the order and the bits of a fresh list, so results do not depend on rebuilds.
    """

    def __init__(self, cutoff: float, skin: float = 0.8) -> None:
        self.cutoff, self.skin = cutoff, skin
        self.rebuilds = 0
        self._lists: dict[int, _List] = {}
        self._joined: _Joined | None = None

    def pairs(self, batch: Batch, names: Ints) -> Pairs:
        """Pairs of a batch of crystals numbered `names`, some of them longer than the cutoff."""
        joined = self._joined
        if joined is None or not np.array_equal(joined.names, names):
            new = [s for s, name in enumerate(names.tolist()) if name not in self._lists]
            joined = self._renew(batch, names, new)
        holds = lists_hold(
            joined.positions, joined.inverse, batch.positions, batch.cells, batch.offsets,
            self.cutoff, self.cutoff + self.skin,
        )  # fmt: skip
        if not holds.all():
            joined = self._renew(batch, names, np.flatnonzero(~holds).tolist())
        shift = lattice_shifts(joined.images, joined.offsets, batch.cells)
        return Pairs(joined.i, joined.j, shift, joined.offsets, self.cutoff)

    def _renew(self, batch: Batch, names: Ints, stale: list[int]) -> _Joined:
        """Build lists for the stale structures, then concatenate the lists of all."""
        if stale:
            self.rebuilds += len(stale)
            some = batch.select(np.array(stale))
            pairs = find_pairs(some, self.cutoff + self.skin)
            inverses = np.linalg.inv(some.cells)
            for k, s in enumerate(stale):
                rows, start = slice(pairs.offsets[k], pairs.offsets[k + 1]), some.offsets[k]
                images = np.rint(pairs.shift[rows] @ inverses[k]).astype(np.int64)
                self._lists[int(names[s])] = _List(
                    some.positions[start : some.offsets[k + 1]], inverses[k],
                    pairs.i[rows] - start, pairs.j[rows] - start, images,
                )  # fmt: skip
        lists = [self._lists[name] for name in names.tolist()]
        starts = batch.offsets[:-1]
        self._joined = _Joined(
            names.copy(),
            np.concatenate([one.positions for one in lists]),
            np.array([one.inverse for one in lists]),
            np.concatenate([one.i + start for one, start in zip(lists, starts, strict=True)]),
            np.concatenate([one.j + start for one, start in zip(lists, starts, strict=True)]),
            np.concatenate([one.images for one in lists]),
            offsets_of([len(one.i) for one in lists]),
        )
        return self._joined
