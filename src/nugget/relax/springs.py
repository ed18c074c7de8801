"""Springs between pairs of atoms, added to a surface: they keep molecules nearly rigid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget.relax.surfaces import BatchEvaluator, BatchSurface, PlainSurface, concurrent, start


@dataclass(frozen=True, eq=False)
class Springs:
    """E = ½ k Σ (|r_i − r_j| − d_ij)² over pairs (p, 2) with lengths d (p,), equal in all images.

    Atoms of a pair are taken as they stand, without periodic images.
    """

    surface: PlainSurface | BatchSurface
    pairs: Ints
    lengths: Floats
    stiffness: float  # eV/Å²

    @property
    def concurrent(self) -> bool:
        return concurrent(self.surface)

    @property
    def threads(self) -> int | None:
        threads: int | None = getattr(self.surface, "threads", None)
        return threads

    def start(self, images: Sequence[Atoms]) -> BatchEvaluator:
        """For optimisers: all images have the same number of atoms."""
        size = len(images[0])
        inner = start(self.surface, images)

        def evaluate(positions: Floats, active: Ints) -> tuple[Floats, Floats]:
            values, gradients = inner(positions, active)
            x = positions.reshape(-1, size, 3)[active]
            energy, gradient = self.evaluate(x)
            return values + energy, gradients + gradient.reshape(-1, 3)

        return evaluate

    def evaluate(self, x: Floats) -> tuple[Floats, Floats]:
        """Energies (B,) and gradients (B, N, 3) at positions (B, N, 3)."""
        i, j = self.pairs.T
        away = x[:, i] - x[:, j]
        r = np.linalg.norm(away, axis=2)
        stretch = r - self.lengths
        pull = (self.stiffness * stretch / np.maximum(r, 1e-9))[..., None] * away
        ends = np.zeros((x.shape[1], len(i)))  # +1 for the first atom of a pair, −1 for the second
        ends[i, np.arange(len(i))] += 1.0
        ends[j, np.arange(len(i))] -= 1.0
        gradient = np.einsum("np,bpc->bnc", ends, pull)
        return 0.5 * self.stiffness * (stretch**2).sum(axis=1), gradient
