"""Many structures as one set of flat arrays, the input of everything that computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.structures.neighbour_loops import HEAVIEST, is_sound


@dataclass(frozen=True, eq=False)
class Batch:
    """B structures of any sizes, species and cells; atoms of s are rows offsets[s]:offsets[s+1]."""

    positions: Floats  # (N, 3)
    numbers: Ints  # (N,) atomic numbers
    offsets: Ints  # (B + 1,)
    cells: Floats  # (B, 3, 3)
    pbc: Bools  # (B, 3)
    first: int = 0  # number of the first structure, for messages about a part of a larger batch

    def __len__(self) -> int:
        return len(self.offsets) - 1

    # Cached by hand, because functools.cached_property of Python 3.11 takes a lock.
    @property
    def sizes(self) -> Ints:
        """Atoms in each structure, (B,)."""
        sizes: Ints | None = self.__dict__.get("_sizes")
        if sizes is None:
            sizes = self.offsets[1:] - self.offsets[:-1]
            self.__dict__["_sizes"] = sizes
        return sizes

    @property
    def owner(self) -> Ints:
        """Structure of each atom, (N,)."""
        owner: Ints | None = self.__dict__.get("_owner")
        if owner is None:
            owner = np.repeat(np.arange(len(self)), self.sizes)
            self.__dict__["_owner"] = owner
        return owner

    def split(self, flat: Floats) -> list[Floats]:
        """Per-atom rows as a list of one array per structure."""
        if len(self.offsets) == 2:
            return [flat]
        return [flat[a:b] for a, b in pairwise(self.offsets.tolist())]

    def with_positions(self, positions: Floats) -> Batch:
        """The same atoms at other positions, which the caller guarantees to be finite."""
        moved = object.__new__(Batch)  # ten times as fast as dataclasses.replace
        moved.__dict__.update(self.__dict__, positions=positions)
        return moved

    def select(self, structures: Ints) -> Batch:
        """The structures with these indices, in this order."""
        atoms = self.atoms_of(structures)
        return Batch(
            positions=self.positions[atoms],
            numbers=self.numbers[atoms],
            offsets=offsets_of(self.sizes[structures]),
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

    def slices(self, rows: int) -> list[tuple[int, int]]:
        """An even number of slices (start, stop) of about equal size, each up to `rows` atoms.

        A batch of at most a quarter of `rows` is one slice. The slices depend on the batch alone,
        so that the number of threads does not change results.
        """
        total = int(self.offsets[-1])
        if 4 * total <= rows or len(self) < 2:
            return [(0, len(self))]
        pieces = 2 * -(-total // rows)
        ends = np.searchsorted(self.offsets, np.arange(pieces + 1) * total / pieces)
        ends = np.unique(ends)
        return list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))

    def atoms_of(self, structures: Ints) -> Ints:
        """Rows of the atoms of these structures, in their order."""
        if len(structures) == 0:
            return np.zeros(0, dtype=np.int64)
        return np.concatenate([np.arange(self.offsets[s], self.offsets[s + 1]) for s in structures])


def as_batch(images: Sequence[Atoms] | Atoms | Batch) -> Batch:
    """The images as a batch, after checking positions, elements and cells."""
    if isinstance(images, Batch):
        return images
    if isinstance(images, Atoms):
        images = [images]
    if len(images) == 0:
        raise NuggetError("There are no structures: give at least one Atoms object.")
    # Reads the arrays directly, because ASE's properties dominate the cost for a small cluster.
    if len(images) == 1:
        arrays, cell, pbc = images[0].arrays, images[0].cell.array, images[0].pbc
        positions = np.array(arrays["positions"], np.float64)
        numbers = np.array(arrays["numbers"], np.int64)
        offsets = np.array([0, len(positions)])
        batch = object.__new__(Batch)  # three times as fast as __init__
        batch.__dict__.update(
            positions=positions, numbers=numbers, offsets=offsets, cells=cell.copy()[None],
            pbc=pbc.copy()[None],
        )  # fmt: skip
    else:
        rows = [atoms.arrays["positions"] for atoms in images]
        batch = Batch(
            positions=np.concatenate(rows, dtype=np.float64),
            numbers=np.concatenate([atoms.arrays["numbers"] for atoms in images], dtype=np.int64),
            offsets=offsets_of([len(row) for row in rows]),
            cells=np.concatenate([atoms.cell.array for atoms in images]).reshape(-1, 3, 3),
            pbc=np.concatenate([atoms.pbc for atoms in images]).reshape(-1, 3),
        )
    if not is_sound(batch.positions, batch.numbers, batch.offsets, batch.cells, batch.pbc):
        _check(batch)
    return batch


def offsets_of(sizes: Sequence[int] | Ints) -> Ints:
    """Offsets (B + 1,) of consecutive parts of these sizes."""
    return np.array([0, *accumulate(sizes)], dtype=np.int64)


def _check(batch: Batch) -> None:
    sizes = batch.sizes
    if not sizes.all():
        raise NuggetError(f"Structure {int(np.argmin(sizes))} has no atoms: remove it.")
    odd = (batch.numbers < 0) | (batch.numbers > HEAVIEST)
    if odd.any():
        row = int(np.argmax(odd))
        s = int(np.searchsorted(batch.offsets, row, side="right")) - 1
        raise NuggetError(
            f"Structure {s}, atom {row - batch.offsets[s]}: there is no element with the atomic "
            f"number {batch.numbers[row]}; repair or remove the structure."
        )
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
