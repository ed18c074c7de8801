"""Lists of neighbours that stay valid while cells change shape a little."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.structures.batch import Batch, offsets_of
from nugget.structures.neighbours import Pairs, find_pairs


@dataclass(frozen=True, eq=False)
class _List:
    """Pairs of one crystal within cutoff + skin, and where it was then."""

    positions: Floats
    cell: Floats
    i: Ints
    j: Ints
    shift: Floats


class CellLists:
    """Pairs of crystals that are relaxed with their cells; each crystal keeps its own list.

    A cell h became hA since its list was made, and its atoms moved by u besides. A pair that is not
    in the list was farther apart than cutoff + skin, and now is farther apart than
    s_min(A)(cutoff + skin) − 2 max|u|. While that is at least the cutoff, the list is complete.
    """

    def __init__(self, cutoff: float, skin: float = 0.8) -> None:
        self.cutoff, self.skin = cutoff, skin
        self.rebuilds = 0
        self._lists: dict[int, _List] = {}

    def pairs(self, batch: Batch, names: Ints) -> Pairs:
        """Pairs of the batch, whose crystals are called `names`; some reach beyond the cutoff."""
        i, j, shift = [], [], []
        for s, name in enumerate(names.tolist()):
            rows = slice(batch.offsets[s], batch.offsets[s + 1])
            known = self._lists.get(name)
            bend = None if known is None else np.linalg.solve(known.cell, batch.cells[s])
            if known is None or bend is None or not self._holds(known, batch.positions[rows], bend):
                known = self._lists[name] = self._make(batch, s)
                bend = np.eye(3)
            i.append(known.i + batch.offsets[s])
            j.append(known.j + batch.offsets[s])
            shift.append(known.shift @ bend)
        counts = np.array([len(part) for part in i])
        return Pairs(
            np.concatenate(i),
            np.concatenate(j),
            np.concatenate(shift),
            offsets_of(counts),
            self.cutoff,
        )

    def _holds(self, known: _List, positions: Floats, bend: Floats) -> bool:
        moved = positions - known.positions @ bend
        farthest = float(np.sqrt(np.sum(moved**2, axis=1).max()))
        least = float(np.linalg.svd(bend, compute_uv=False)[-1])
        return least * (self.cutoff + self.skin) - 2 * farthest >= self.cutoff

    def _make(self, batch: Batch, s: int) -> _List:
        self.rebuilds += 1
        one = batch.select(np.array([s]))
        pairs = find_pairs(one, self.cutoff + self.skin)
        return _List(one.positions, one.cells[0], pairs.i, pairs.j, pairs.shift)
