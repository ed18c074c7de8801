"""The training set of a potential: structures and labels as flat arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Bools, Floats
from nugget.structures.batch import Batch, as_batch
from nugget.structures.labels import read_labels


@dataclass(frozen=True, eq=False)
class Training:
    """Structures and labels as flat arrays; NaN where a structure has no such label."""

    batch: Batch
    energy: Floats  # (B,)
    forces: Floats  # (N, 3)
    stress: Floats  # (B, 6)
    use_forces: bool | None
    use_stress: bool

    @classmethod
    def read(cls, images: Sequence[Atoms], use_forces: bool | None, use_stress: bool) -> Training:
        """Structures with stored results; what is missing or not finite is an error."""
        batch = as_batch(images)
        known = read_labels(images, use_forces, use_stress)
        nothing = [np.full((n, 3), np.nan) for n in batch.sizes]
        forces = [n if k.forces is None else k.forces for k, n in zip(known, nothing, strict=True)]
        stress = [np.full(6, np.nan) if k.stress is None else k.stress for k in known]
        energy = np.array([k.energy for k in known])
        return cls(batch, energy, np.concatenate(forces), np.array(stress), use_forces, use_stress)

    def part(self, start: int, stop: int) -> Training:
        """Structures start … stop − 1."""
        atoms = slice(self.batch.offsets[start], self.batch.offsets[stop])
        return Training(
            self.batch.part(start, stop),
            self.energy[start:stop],
            self.forces[atoms],
            self.stress[start:stop],
            self.use_forces,
            self.use_stress,
        )

    def append(self, more: Training) -> Training:
        """All structures of both."""
        a, b = self.batch, more.batch
        batch = Batch(
            positions=np.concatenate([a.positions, b.positions]),
            numbers=np.concatenate([a.numbers, b.numbers]),
            offsets=np.concatenate([a.offsets, a.offsets[-1] + b.offsets[1:]]),
            cells=np.concatenate([a.cells, b.cells]),
            pbc=np.concatenate([a.pbc, b.pbc]),
        )
        return Training(
            batch,
            np.concatenate([self.energy, more.energy]),
            np.concatenate([self.forces, more.forces]),
            np.concatenate([self.stress, more.stress]),
            self.use_forces,
            self.use_stress,
        )

    @property
    def has_forces(self) -> Bools:
        """Structures that carry forces, (B,)."""
        return ~np.isnan(self.forces[self.batch.offsets[:-1], 0])

    @property
    def has_stress(self) -> Bools:
        """Structures that carry a stress, (B,)."""
        return ~np.isnan(self.stress[:, 0])

    def contains(self, images: Sequence[Atoms]) -> Bools:
        """Which structures are among the training ones, to the digits that files keep, (B,)."""
        known = set(_keys(self.batch))
        return np.array([key in known for key in _keys(as_batch(images))], dtype=bool)

    def fingerprint(self) -> str:
        """A hash of structures and labels, for provenance."""
        digest = hashlib.sha256()
        b = self.batch
        for array in (b.positions, b.numbers, b.offsets, b.cells, b.pbc, self.energy, self.forces):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def _keys(batch: Batch) -> Iterator[tuple[bytes, ...]]:
    """What makes a structure this one: elements, positions and cell to 1e-5 Å."""
    x, cells = (np.round(a, 5) + 0.0 for a in (batch.positions, batch.cells))  # no negative zeros
    for s in range(len(batch)):
        rows = slice(batch.offsets[s], batch.offsets[s + 1])
        periodic = batch.pbc[s]
        yield tuple(
            a.tobytes() for a in (batch.numbers[rows], x[rows], periodic, cells[s][periodic])
        )
