"""Soft springs between close atoms."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget.potential.mean_functions.base import FixedPrior, PriorValues
from nugget.structures.neighbours import find_pairs


@dataclass(frozen=True)
class Springs(FixedPrior):
    """φ(r) = strength · (1 − r/reach)³ for r < reach."""

    name: ClassVar[str] = "springs"
    strength: float = 5.0
    reach: float = 2.6

    def evaluate(self, batch, pairs=None):
        pairs = find_pairs(batch, self.reach) if pairs is None else pairs
        d = batch.positions[pairs.j] + pairs.shift - batch.positions[pairs.i]
        r = np.maximum(np.linalg.norm(d, axis=1), 1e-9)
        left = np.maximum(1.0 - r / self.reach, 0.0)
        energies, gradient = np.zeros(len(batch.positions)), np.zeros_like(batch.positions)
        strain = np.zeros((len(batch), 3, 3))
        for end in (pairs.i, pairs.j):
            np.add.at(energies, end, 0.5 * self.strength * left**3)
        pull = (-3.0 * self.strength * left**2 / self.reach / r)[:, None] * d
        np.add.at(gradient, pairs.j, pull)
        np.subtract.at(gradient, pairs.i, pull)
        np.add.at(strain, batch.owner[pairs.i], pull[:, :, None] * d[:, None, :])
        return PriorValues(energies, gradient, strain)
