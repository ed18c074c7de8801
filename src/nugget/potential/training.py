"""The training set of a potential, and the rows of the linear system it makes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from nugget.descriptors.soap import Environments
from nugget.gp.kernels.rbf import RBF, Inducing
from nugget.gp.points import Points
from nugget.gp.regression import FORCE, STRESS, Labels
from nugget.potential.priors import Prior
from nugget.structures.batch import Batch, as_batch
from nugget.structures.labels import VOIGT, gradient_rows, read_labels

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Stress is a derivative per volume: σ_F per Å² of cell surface, for a cell of about this many Å².
_STRESS_AREA = 25.0


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

    def fingerprint(self) -> str:
        """A hash of structures and labels, for provenance."""
        digest = hashlib.sha256()
        b = self.batch
        for array in (b.positions, b.numbers, b.offsets, b.cells, b.pbc, self.energy, self.forces):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def label_rows(
    training: Training,
    env: Environments,
    inducing: Inducing,
    prior: Prior,
    noise: float,
    force_noise: float,
    progress: Callable[[int, int], None] | None = None,
) -> Labels:
    """Rows of A, labels minus prior, and their noise, structure by structure.

    Energy, forces, stress of the first structure, then of the second: appending structures appends
    rows, which is what lets a regression grow.
    """
    batch = training.batch
    before = prior.evaluate(batch, env.pairs)
    points = Points(env.values, batch.offsets, env.species)
    y = training.energy - np.add.reduceat(before.energies, batch.offsets[:-1])
    energies = Labels.energies(_kappa(inducing, points), y, noise, batch.sizes.astype(float))
    has_forces, has_stress = training.has_forces, training.has_stress
    if not (has_forces.any() or has_stress.any()):
        return energies
    slope = np.zeros_like(batch.positions) if before.gradient is None else before.gradient
    strained = np.zeros((len(batch), 3, 3)) if before.strain is None else before.strain
    parts = []
    for s in range(len(batch)):
        parts.append(_one(energies, s))
        if has_forces[s] or has_stress[s]:
            rows = inducing.forward(points.select([s]))
            one = env.select(np.array([s]))
            grad, strain = gradient_rows(one, rows, strain=bool(has_stress[s]))
        if has_forces[s]:
            atoms = slice(batch.offsets[s], batch.offsets[s + 1])
            labels = (training.forces[atoms] + slope[atoms]).ravel()
            parts.append(_plain(-grad.reshape(-1, len(inducing)), labels, force_noise, FORCE))
        if has_stress[s] and strain is not None:
            volume = abs(np.linalg.det(batch.cells[s]))
            voigt = np.stack([0.5 * (strain[0, a, b] + strain[0, b, a]) for a, b in VOIGT])
            known = np.array([0.5 * (strained[s, a, b] + strained[s, b, a]) for a, b in VOIGT])
            labels = training.stress[s] - known / volume
            parts.append(_plain(voigt / volume, labels, force_noise / _STRESS_AREA, STRESS))
        if progress is not None:
            progress(s + 1, len(batch))
    return Labels.concatenate(parts)


def _one(labels: Labels, row: int) -> Labels:
    r = slice(row, row + 1)
    return Labels(labels.rows[r], labels.y[r], labels.noise[r], labels.count[r], labels.kind[r])


def _plain(rows: Floats, y: Floats, noise: float, kind: int) -> Labels:
    p = len(y)
    return Labels(rows, y, np.full(p, noise), np.zeros(p), np.full(p, kind))


def _kappa(inducing: Inducing, points: Points) -> Floats:
    """κ of all structures, in pieces that fit the cache."""
    step = max(2**22 // (len(inducing) * max(int(points.sizes.max()), 1)), 1)
    starts = range(0, len(points), step)
    pieces = [
        inducing.forward(points.select(np.arange(a, min(a + step, len(points))))).kappa
        for a in starts
    ]
    return np.concatenate(pieces)


def prior_force_variance(env: Environments, kernel: RBF) -> Floats:
    """Variance of each force component before any data, (N, 3).

    Σ_ii' v_i·∂²k/∂x∂x'·v_i' with v_i = ∂x_i/∂r and ∂²k/∂x∂x' = k/l² (1 − ddᵀ/l²), d = x_i − x_i'.
    """
    jacobian = env.jacobian()
    batch = env.batch
    out = np.zeros((len(batch.positions), 3))
    l2 = kernel.length_scale**2
    for s in range(len(batch)):
        a, b = int(batch.offsets[s]), int(batch.offsets[s + 1])
        mine = np.flatnonzero(env.owner[jacobian.centre] == s)
        tangent = np.zeros((b - a, 3, b - a, env.values.shape[1]))  # atom moved, axis, centre, f
        moved, centre = jacobian.neighbour[mine] - a, jacobian.centre[mine] - a
        for p, row in enumerate(mine):
            tangent[moved[p], :, centre[p]] += jacobian.values[row]
            tangent[centre[p], :, centre[p]] -= jacobian.values[row]
        x = env.values[a:b]
        k = kernel.matrix(x, env.species[a:b], x, env.species[a:b]) / l2
        for atom in range(b - a):
            for axis in range(3):
                v = tangent[atom, axis]
                along = v @ x.T  # v_i·x_i'
                d = np.diagonal(along)[:, None] - along  # v_i·(x_i − x_i')
                out[a + atom, axis] = np.sum(k * (v @ v.T + d * d.T / l2))
    return out
