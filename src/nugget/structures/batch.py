"""Many structures as flat arrays, and the pairs of neighbours within them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import cast

import numpy as np
from ase import Atoms
from ase.geometry import complete_cell
from numpy.typing import NDArray
from vesin import NeighborList

from nugget._compiled.jit import njit
from nugget.errors import NuggetError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Below this many atoms a double loop finds the pairs of a cluster sooner than a cell list.
_SMALL_CLUSTER = 400


@dataclass(frozen=True, eq=False)
class Batch:
    """B structures of any sizes, species and cells; atoms of s are rows offsets[s]:offsets[s+1]."""

    positions: Floats  # (N, 3)
    numbers: Ints  # (N,) atomic numbers
    offsets: Ints  # (B + 1,)
    cells: Floats  # (B, 3, 3)
    pbc: NDArray[np.bool_]  # (B, 3)
    first: int = 0  # number of the first structure, for messages about a part of a larger batch

    def __len__(self) -> int:
        return len(self.offsets) - 1

    # Both are kept once they are known, by hand: functools.cached_property takes a lock.
    @property
    def sizes(self) -> Ints:
        """Atoms in each structure, (B,)."""
        known: Ints | None = self.__dict__.get("_sizes")
        if known is None:
            known = self.offsets[1:] - self.offsets[:-1]
            self.__dict__["_sizes"] = known
        return known

    @property
    def owner(self) -> Ints:
        """Structure of each atom, (N,)."""
        known: Ints | None = self.__dict__.get("_owner")
        if known is None:
            known = np.repeat(np.arange(len(self)), self.sizes)
            self.__dict__["_owner"] = known
        return known

    def split(self, flat: Floats) -> list[Floats]:
        """Per-atom rows as a list of one array per structure."""
        if len(self.offsets) == 2:
            return [flat]
        return [flat[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]

    def with_positions(self, positions: Floats) -> Batch:
        """The same atoms elsewhere; the caller vouches for finite numbers."""
        moved = object.__new__(Batch)  # a copy of all but one field, at a tenth of replace's cost
        moved.__dict__.update(self.__dict__, positions=positions)
        return moved

    def select(self, structures: Ints) -> Batch:
        """The structures with these indices, in this order."""
        atoms = self.atoms_of(structures)
        return Batch(
            positions=self.positions[atoms],
            numbers=self.numbers[atoms],
            offsets=_offsets(self.sizes[structures]),
            cells=self.cells[structures],
            pbc=self.pbc[structures],
        )

    def part(self, start: int, stop: int) -> Batch:
        """Structures start … stop − 1, as views."""
        first, last = self.offsets[start], self.offsets[stop]
        return Batch(
            positions=self.positions[first:last],
            numbers=self.numbers[first:last],
            offsets=self.offsets[start : stop + 1] - first,
            cells=self.cells[start:stop],
            pbc=self.pbc[start:stop],
            first=self.first + start,
        )

    def atoms_of(self, structures: Ints) -> Ints:
        """Rows of the atoms of these structures, in their order."""
        if len(structures) == 0:
            return np.zeros(0, dtype=np.int64)
        return np.concatenate([np.arange(self.offsets[s], self.offsets[s + 1]) for s in structures])


def as_batch(images: Sequence[Atoms] | Atoms | Batch) -> Batch:
    """Flat arrays of the images, checked: finite positions, cells with a volume where periodic."""
    if isinstance(images, Batch):
        return images
    if isinstance(images, Atoms):
        images = [images]
    if len(images) == 0:
        raise NuggetError("There are no structures: give at least one Atoms object.")
    # Straight to the arrays: ASE's properties cost more than all the rest for a small cluster.
    if len(images) == 1:
        arrays, cell, pbc = images[0].arrays, images[0].cell.array, images[0].pbc
        positions = np.array(arrays["positions"], np.float64)
        numbers = np.array(arrays["numbers"], np.int64)
        offsets = np.array([0, len(positions)])
        batch = Batch(positions, numbers, offsets, cell.copy()[None], pbc.copy()[None])
    else:
        rows = [atoms.arrays["positions"] for atoms in images]
        batch = Batch(
            positions=np.concatenate(rows, dtype=np.float64),
            numbers=np.concatenate([atoms.arrays["numbers"] for atoms in images], dtype=np.int64),
            offsets=_offsets([len(row) for row in rows]),
            cells=np.array([atoms.cell.array for atoms in images]),
            pbc=np.array([atoms.pbc for atoms in images]),
        )
    if not _sound(batch.positions, batch.offsets, batch.pbc):
        _check(batch)
    return batch


def _offsets(sizes: Sequence[int] | Ints) -> Ints:
    return np.array([0, *accumulate(sizes)], dtype=np.int64)


@njit
def _sound(positions: Floats, offsets: Ints, pbc: NDArray[np.bool_]) -> bool:
    """Nothing to look at more closely: no empty, infinite or periodic structure."""
    for s in range(len(offsets) - 1):
        if offsets[s] == offsets[s + 1] or pbc[s, 0] or pbc[s, 1] or pbc[s, 2]:
            return False
    total = 0.0
    for i in range(len(positions)):
        for axis in range(3):
            total += positions[i, axis] * positions[i, axis]
    return np.isfinite(total)


def _check(batch: Batch) -> None:
    sizes = batch.sizes
    if not sizes.all():
        raise NuggetError(f"Structure {int(np.argmin(sizes))} has no atoms: remove it.")
    if not np.isfinite(batch.positions).all():
        row = int(np.flatnonzero(~np.isfinite(batch.positions).all(axis=1))[0])
        s = int(np.searchsorted(batch.offsets, row, side="right")) - 1
        raise NuggetError(
            f"Structure {s}, atom {row - batch.offsets[s]}: the position is not finite "
            f"({batch.positions[row]}); repair or remove the structure."
        )
    for k in np.flatnonzero(batch.pbc.any(axis=1)):
        s = int(k)
        edges = batch.cells[s][batch.pbc[s]]
        gram = edges @ edges.T
        if not np.isfinite(edges).all() or np.linalg.det(gram) <= 1e-12:
            raise NuggetError(
                f"Structure {s} is periodic along {''.join(np.array(list('xyz'))[batch.pbc[s]])}, "
                "but its cell spans no volume there: set the cell, or pbc=False."
            )


@dataclass(frozen=True, eq=False)
class Pairs:
    """Neighbours, each pair once: j + shift is near i. Ordered by structure."""

    i: Ints  # (P,) atom rows of the batch
    j: Ints  # (P,)
    shift: Floats  # (P, 3) lattice translation of j, Å
    offsets: Ints  # (B + 1,) pairs of structure s

    def select(self, batch: Batch, structures: Ints) -> Pairs:
        """The pairs of these structures, for `batch.select(structures)`."""
        counts = np.diff(self.offsets)[structures]
        rows = np.concatenate(
            [np.arange(self.offsets[s], self.offsets[s + 1]) for s in structures]
            or [np.zeros(0, dtype=np.int64)]
        )
        new_start = _offsets(batch.sizes[structures])[:-1]
        move = np.repeat(new_start - batch.offsets[structures], counts)
        return Pairs(self.i[rows] + move, self.j[rows] + move, self.shift[rows], _offsets(counts))


def find_pairs(batch: Batch, cutoff: float) -> Pairs:
    """All pairs closer than `cutoff`, each once; atoms may meet their own images."""
    i, j, shift, offsets, direct = _direct_pairs(
        batch.positions, batch.offsets, batch.pbc, cutoff * cutoff
    )
    if direct:
        return Pairs(i, j, shift, offsets)
    parts = []
    for s in range(len(batch)):
        if batch.sizes[s] <= _SMALL_CLUSTER and not batch.pbc[s].any():
            rows = slice(offsets[s], offsets[s + 1])
            parts.append((i[rows], j[rows], shift[rows]))
        else:
            parts.append(_vesin_pairs(batch, s, cutoff))
    return Pairs(
        i=np.concatenate([p[0] for p in parts]),
        j=np.concatenate([p[1] for p in parts]),
        shift=np.concatenate([p[2] for p in parts]),
        offsets=_offsets(np.array([len(p[0]) for p in parts])),
    )


def _vesin_pairs(batch: Batch, s: int, cutoff: float) -> tuple[Ints, Ints, Floats]:
    start, stop = batch.offsets[s], batch.offsets[s + 1]
    pbc = batch.pbc[s]
    cell = np.asarray(complete_cell(batch.cells[s])) if pbc.any() else np.zeros((3, 3))
    finder = NeighborList(cutoff=cutoff, full_list=False, sorted=True, n_threads=1)
    i, j, images = finder.compute(batch.positions[start:stop], cell, pbc, "ijS")
    shift = images.astype(np.float64) @ cell
    return i.astype(np.int64) + start, j.astype(np.int64) + start, shift


@njit
def _direct_pairs(
    positions: Floats, offsets: Ints, pbc: NDArray[np.bool_], cutoff2: float
) -> tuple[Ints, Ints, Floats, Ints, np.bool_]:
    """Pairs of the small clusters, and whether that is all there is."""
    most = 0
    direct = np.empty(len(pbc), dtype=np.bool_)
    for s in range(len(pbc)):
        n = offsets[s + 1] - offsets[s]
        direct[s] = n <= _SMALL_CLUSTER and not (pbc[s, 0] or pbc[s, 1] or pbc[s, 2])
        if direct[s]:
            most += n * (n - 1) // 2
    first = np.empty(most, dtype=np.int64)
    second = np.empty(most, dtype=np.int64)
    pair_offsets = np.zeros(len(offsets), dtype=np.int64)
    count = 0
    for s in range(len(offsets) - 1):
        if direct[s]:
            for i in range(offsets[s], offsets[s + 1]):
                for j in range(i + 1, offsets[s + 1]):
                    dx = positions[j, 0] - positions[i, 0]
                    dy = positions[j, 1] - positions[i, 1]
                    dz = positions[j, 2] - positions[i, 2]
                    if dx * dx + dy * dy + dz * dz < cutoff2:
                        first[count] = i
                        second[count] = j
                        count += 1
        pair_offsets[s + 1] = count
    shift = np.zeros((count, 3))
    return first[:count], second[:count], shift, pair_offsets, direct.all()


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
            self._pairs = find_pairs(batch, self.cutoff + self.skin)
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
