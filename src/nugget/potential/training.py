"""The training set of a potential: structures and labels as flat arrays, and their noise levels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget.descriptors.base import Descriptor, Environments
from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.structures.batch import Batch, as_batch
from nugget.structures.labels import read_labels

# Without a level of its own, stress has σ_F per Å² of surface of a cell with this many Å².
_STRESS_AREA = 25.0


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the misfit: energies (eV/atom), forces (eV/Å) and stress (eV/Å³).

    The variance of an energy is σ_n² N for N atoms. Without a `stress` level, stress components
    follow the forces.
    """

    energy: float = 0.01
    force: float = 0.1
    stress: float | None = None

    def __post_init__(self) -> None:
        for name in ("energy", "force", "stress"):
            value = getattr(self, name)
            if value is None and name == "stress":
                continue
            if not (np.isfinite(value) and value > 0):
                argument = {"energy": "noise", "force": "force_noise"}.get(name, "stress noise")
                raise NuggetError(f"Potential {argument} is {value}; it must be a positive number.")
            object.__setattr__(self, name, float(value))

    @property
    def stress_level(self) -> float:
        """The level of stress components."""
        return self.force / _STRESS_AREA if self.stress is None else self.stress

    def scaled(self, energy: float, force: float) -> Noise:
        """Levels multiplied by a factor for energies and one for forces and stress."""
        stress = None if self.stress is None else self.stress * force
        return Noise(self.energy * energy, self.force * force, stress)


@dataclass(frozen=True, eq=False)
class Training:
    """Structures and labels as flat arrays; NaN where a structure has no such label."""

    batch: Batch
    energy: Floats  # (B,)
    forces: Floats  # (N, 3)
    stress: Floats  # (B, 6)
    use_forces: bool | None
    use_stress: bool
    own_noise: Floats | None = None  # (B, 2) energies and forces; NaN: the potential's levels
    weights: Floats | None = None  # (B,) which divide the variances of the noise

    @classmethod
    def read(cls, images: Sequence[Atoms], use_forces: bool | None, use_stress: bool) -> Training:
        """Read stored results; a missing label or one that is not finite is an error."""
        batch = as_batch(images)
        labels = read_labels(images, use_forces, use_stress)
        missing = [np.full((n, 3), np.nan) for n in batch.sizes]
        forces = [
            nan if one.forces is None else one.forces
            for one, nan in zip(labels, missing, strict=True)
        ]
        stress = [np.full(6, np.nan) if one.stress is None else one.stress for one in labels]
        energy = np.array([one.energy for one in labels])
        own = np.array([[one.energy_noise, one.force_noise] for one in labels], dtype=float)
        weights = np.array([one.weight for one in labels])
        return cls(
            batch, energy, np.concatenate(forces), np.array(stress), use_forces, use_stress,
            None if np.isnan(own).all() else own, None if (weights == 1.0).all() else weights,
        )  # fmt: skip

    def noise_levels(self, noise: Noise) -> Floats:
        """Levels of energies (per atom), forces and stress of each structure, (B, 3)."""
        levels = np.tile([noise.energy, noise.force, noise.stress_level], (len(self.batch), 1))
        if self.own_noise is not None:
            energy, force = self.own_noise.T
            own = np.stack([energy, force, force / _STRESS_AREA], axis=1)
            levels = np.where(np.isnan(own), levels, own)
        if self.weights is not None:
            levels /= np.sqrt(self.weights)[:, None]
        return levels

    @property
    def has_fixed_noise(self) -> Bools:
        """Whether energies, forces and stress of a structure have a level of their own, (B, 3)."""
        if self.own_noise is None:
            return np.zeros((len(self.batch), 3), dtype=bool)
        return ~np.isnan(self.own_noise)[:, [0, 1, 1]]

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
            None if self.own_noise is None else self.own_noise[start:stop],
            None if self.weights is None else self.weights[start:stop],
        )

    def append(self, more: Training) -> Training:
        """The structures of both training sets."""
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
            _joined(self.own_noise, more.own_noise, np.full((len(a), 2), np.nan), len(b)),
            _joined(self.weights, more.weights, np.ones(len(a)), len(b)),
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
        """Which structures are in the training set, to the precision of structure files, (B,)."""
        members = set(structure_keys(self.batch))
        return np.array([key in members for key in structure_keys(as_batch(images))], dtype=bool)

    def fingerprint(self) -> str:
        """A hash of structures and labels, for provenance."""
        digest = hashlib.sha256()
        b = self.batch
        for array in (b.positions, b.numbers, b.offsets, b.cells, b.pbc, self.energy, self.forces):
            digest.update(np.ascontiguousarray(array).tobytes())
        for own in (self.own_noise, self.weights):
            if own is not None:
                digest.update(own.tobytes())
        return digest.hexdigest()[:16]


def _joined(
    mine: Floats | None, others: Floats | None, default: Floats, number: int
) -> Floats | None:
    """Values of both training sets; `default` holds the plain values of mine."""
    if mine is None and others is None:
        return None
    plain = np.resize(default, (number, *default.shape[1:]))
    return np.concatenate([default if mine is None else mine, plain if others is None else others])


def structure_keys(batch: Batch) -> Iterator[tuple[bytes, ...]]:
    """Identity of each structure: elements, positions and cell to 1e-5 Å."""
    x, cells = (np.round(a, 5) + 0.0 for a in (batch.positions, batch.cells))  # no negative zeros
    for s in range(len(batch)):
        rows = slice(batch.offsets[s], batch.offsets[s + 1])
        periodic = batch.pbc[s]
        yield tuple(
            a.tobytes() for a in (batch.numbers[rows], x[rows], periodic, cells[s][periodic])
        )


@dataclass(eq=False)
class TrainingData:
    """A training set while a model is fitted to it; its features are computed once.

    The features of one descriptor are kept at a time, because they may be large.
    """

    training: Training
    _descriptor: Descriptor | None = None
    _environments: Environments | None = None

    @classmethod
    def read(
        cls, images: Sequence[Atoms], use_forces: bool | None, use_stress: bool
    ) -> TrainingData:
        """Structures with stored results (see `Training.read`)."""
        return cls(Training.read(images, use_forces, use_stress))

    @property
    def batch(self) -> Batch:
        return self.training.batch

    def environments(self, descriptor: Descriptor) -> Environments:
        """The features of all structures."""
        if self._environments is None or self._descriptor != descriptor:
            self._environments = descriptor.compute(self.training.batch)
            self._descriptor = descriptor
        return self._environments

    def sample(self, descriptor: Descriptor, structures: Ints) -> Environments:
        """The features of some structures; all features are used if they are available."""
        if self._environments is not None and self._descriptor == descriptor:
            return self._environments.select(structures)
        return descriptor.compute(self.training.batch.select(structures))
