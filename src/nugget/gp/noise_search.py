"""Noise levels that make errors small on labels that are left out, from one fitted regression.

Scaling the noise of energies by a and that of forces (and stresses) by b changes the whitened
normal matrix to I + G_E/a² + G_F/b² with G = BᵀB of each kind: a Cholesky factor per trial instead
of a QR of all labels. (It squares the condition number, which is harmless here: B is whitened, and
only errors are compared.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, lapack, solve_triangular

from nugget._compiled.arrays import Floats, Ints
from nugget.gp.labels import ENERGY
from nugget.gp.left_out import blocks_of, structure_of
from nugget.gp.regression import SparseRegression

# Trial factors are whole powers of this; steps beyond the last are not taken.
STEP, LAST = 10.0**0.25, 8


@dataclass(frozen=True)
class NoiseTrial:
    """Mean absolute errors on structures that are left out, for scaled noise levels."""

    energy: float  # factor on the noise of energies
    force: float  # factor on the noise of forces and stresses
    energy_mae: float  # eV/atom
    force_mae: float  # eV/Å; NaN without forces

    @property
    def score(self) -> float:
        """log MAE of energies, plus log MAE of forces where there are any: free of units."""
        force = 0.0 if np.isnan(self.force_mae) else np.log(max(self.force_mae, 1e-12))
        return float(np.log(max(self.energy_mae, 1e-12)) + force)


class NoiseSearch:
    """Trials for one regression; `structures` limits which of them are left out in turn."""

    def __init__(self, regression: SparseRegression, structures: Ints | None = None) -> None:
        reg = regression
        self.energy = reg.kind == ENERGY
        self.b, self.y = reg.whitened, reg.y / reg.noise
        self.noise, self.count = reg.noise, reg.count
        parts = (self.energy, ~self.energy)
        self.grams = [self.b[rows].T @ self.b[rows] for rows in parts]
        self.right = [self.b[rows].T @ self.y[rows] for rows in parts]
        blocks = blocks_of(structure_of(reg))
        self.blocks = blocks if structures is None else [blocks[s] for s in structures]

    def trial(self, energy: float, force: float) -> NoiseTrial:
        """Errors on left-out structures with these factors on the noise levels."""
        normal = np.eye(self.b.shape[1])
        right = np.zeros(self.b.shape[1])
        for factor, gram, part in zip((energy, force), self.grams, self.right, strict=True):
            normal += gram / factor**2
            right += part / factor**2
        lower, _ = lapack.dpotrf(normal, lower=1, clean=1)
        beta = cho_solve((lower, True), right)
        scale = np.where(self.energy, energy, force)
        errors: list[Floats] = [
            self._left_out(rows, scale[rows], lower, beta) for rows in self.blocks
        ]
        per_atom = [
            e[self.energy[rows]] / self.count[rows][self.energy[rows]]
            for e, rows in zip(errors, self.blocks, strict=True)
        ]
        forces = [e[~self.energy[rows]] for e, rows in zip(errors, self.blocks, strict=True)]
        return NoiseTrial(energy, force, _mae(per_atom), _mae(forces))

    def _left_out(self, rows: Ints, scale: Floats, lower: Floats, beta: Floats) -> Floats:
        b = self.b[rows] / scale[:, None]
        q = solve_triangular(lower, b.T, lower=True)
        rest = self.y[rows] / scale - b @ beta
        hat = np.eye(len(rows)) - q.T @ q
        found: Floats = np.linalg.solve(hat, rest) * scale * self.noise[rows]
        return found

    def best(self) -> NoiseTrial:
        """The best trial on a logarithmic grid, found by walking to better neighbours.

        First in steps of a factor √10, then of its root.
        """
        tried: dict[tuple[int, int], NoiseTrial] = {}

        def at(place: tuple[int, int]) -> NoiseTrial:
            if place not in tried:
                tried[place] = self.trial(STEP ** place[0], STEP ** place[1])
            return tried[place]

        steps = [(1, 0), (-1, 0)]
        if not self.energy.all():
            steps += [(0, 1), (0, -1), (-1, -1), (1, 1)]
        here = (0, 0)
        for size in (2, 1):
            while True:
                around = [(here[0] + size * i, here[1] + size * j) for i, j in steps]
                around = [place for place in around if max(map(abs, place)) <= LAST]
                better = min([here, *around], key=lambda place: at(place).score)
                if better == here:
                    break
                here = better
        return at(here)


def _mae(parts: Sequence[Floats]) -> float:
    everything = np.concatenate(parts)
    return float(np.mean(np.abs(everything))) if everything.size else float("nan")
