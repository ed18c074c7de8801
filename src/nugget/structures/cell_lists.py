"""Lists of neighbours that stay valid while cells change shape a little."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.structures._pair_loops import lattice_shifts, lists_hold
from nugget.structures.batch import Batch, offsets_of
from nugget.structures.neighbours import Pairs, find_pairs


@dataclass(frozen=True, eq=False)
class _List:
    """Pairs of one crystal within cutoff + skin, and where it was then."""

    positions: Floats
    inverse: Floats  # of the cell
    i: Ints
    j: Ints
    images: Ints  # (P, 3) cells of j


@dataclass(frozen=True, eq=False)
class _Joined:
    """The lists of all crystals of a batch, one after the other."""

    names: Ints
    positions: Floats
    inverse: Floats
    i: Ints
    j: Ints
    images: Ints
    offsets: Ints


class CellLists:
    """Pairs of crystals that are relaxed with their cells; each crystal keeps its own list.

    A list is made anew when a pair that is not in it may have come within the cutoff (see
    `lists_hold`). What is listed has the order and the bits of a fresh list, so results do not
    depend on when that was.
    """

    def __init__(self, cutoff: float, skin: float = 0.8) -> None:
        self.cutoff, self.skin = cutoff, skin
        self.rebuilds = 0
        self._lists: dict[int, _List] = {}
        self._joined: _Joined | None = None

    def pairs(self, batch: Batch, names: Ints) -> Pairs:
        """Pairs of the batch, whose crystals are called `names`; some reach beyond the cutoff."""
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
        """New lists for these structures of the batch, and those of all joined."""
        if stale:
            self.rebuilds += len(stale)
            some = batch.select(np.array(stale))
            found = find_pairs(some, self.cutoff + self.skin)
            inverses = np.linalg.inv(some.cells)
            for k, s in enumerate(stale):
                rows, start = slice(found.offsets[k], found.offsets[k + 1]), some.offsets[k]
                images = np.rint(found.shift[rows] @ inverses[k]).astype(np.int64)
                self._lists[int(names[s])] = _List(
                    some.positions[start : some.offsets[k + 1]], inverses[k],
                    found.i[rows] - start, found.j[rows] - start, images,
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
