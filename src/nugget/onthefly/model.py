"""A potential that learns one labelled structure after another, with error bars kept honest.

The model is a function of the labelled structures, in their order, and of nothing else: it is
fitted anew, with levels of σ from what is left out, whenever the data have grown by a third, and
updated in between. So a run that was killed rebuilds it bit for bit from the structures alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.errors import NuggetError
from nugget.gp.inducing import PivotedCholesky
from nugget.potential.potential import Potential
from nugget.potential.presets import RECIPES, Recipe
from nugget.potential.training import Training
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs

# Structures of the first fit: fewer say nothing about σ.
FIRST = 6
# Noise levels in units of the error that is allowed: forces, and energies per atom (in Å).
_FORCE_NOISE, _NOISE = 0.1, 0.005
# Crystals need some 300 points, molecules as many as there may be.
_TOLERANCE, _POINTS = 1e-10, 1500
# Frames of one run resemble each other: length scales are so many times the preset's.
_SMOOTH = 2.0
# Width of SOAP's Gaussians over the shortest distance, and at most so many Å: with 1 Å bonds to
# hydrogen are blurred, and forces of water twice as wrong (docs/on_the_fly.md).
_WIDTH, _WIDEST = 0.5, 1.0


class OnlineModel:
    """Learns structures in their order; `potential` is None until there are enough of them."""

    def __init__(
        self,
        potential: Potential | None = None,
        max_force_error: float = 0.1,
        preset: str = "balanced",
        use_stress: bool = False,
        growth: float = 1.3,
    ) -> None:
        if not max_force_error > 0:
            raise NuggetError(f"max_force_error is {max_force_error}; give eV/Å above 0.")
        if preset not in RECIPES:
            raise NuggetError(f"There is no preset {preset!r}; choose from {', '.join(RECIPES)}.")
        self.max_force_error, self.preset, self.use_stress = max_force_error, preset, use_stress
        self.growth = growth  # fitted anew when the data have grown so many times
        self.potential = None if potential is None else potential.copy()
        self.given = 0 if potential is None else len(potential.fitted.training.batch)
        self.images: list[Atoms] = []

    def learn(self, atoms: Atoms) -> None:
        """Take in one structure with results."""
        self.images.append(atoms)
        self._advance(len(self.images))

    def restore(self, images: Sequence[Atoms]) -> None:
        """Become what learning these structures one by one makes of a model that knows none."""
        self.images = list(images)
        fits = [n for n in range(1, len(images) + 1) if self._fits_at(n)]
        for n in range(fits[-1] if fits else 1, len(images) + 1):
            self._advance(n)

    def _fits_at(self, n: int) -> bool:
        """Whether the model is fitted anew when it has learned n structures."""
        total, size = self.given + n, self.given or FIRST
        while size < total:
            size = max(size + 1, int(self.growth * size))
        return size == total

    def _advance(self, n: int) -> None:
        """The model after structure n, from the one after structure n - 1."""
        if self._fits_at(n):
            self.potential = self._fitted(self.images[:n])
        elif self.potential is not None:
            self.potential.update([self.images[n - 1]])

    def _fitted(self, images: Sequence[Atoms]) -> Potential:
        old = self.potential
        if self.given and old is not None:  # the user's own settings, on all structures
            everything = [*training_images(old.fitted.training, self.given), *images]
            return old.copy().fit(everything, old.fitted.training.use_forces, calibrate="loo")
        species = sorted({symbol for atoms in images for symbol in atoms.symbols})
        recipe = adapted(RECIPES[self.preset], self.images[:FIRST])
        potential = recipe.potential(species, images)
        potential.inducing = PivotedCholesky(_TOLERANCE, _POINTS)
        potential.noise = _NOISE * self.max_force_error
        potential.force_noise = _FORCE_NOISE * self.max_force_error
        stress = self.use_stress and all("stress" in atoms.calc.results for atoms in images)
        return potential.fit(images, True, stress, calibrate="loo")


def adapted(recipe: Recipe, images: Sequence[Atoms]) -> Recipe:
    """A recipe for one run: smoother, and with Gaussians narrow enough for the shortest bonds."""
    batch = as_batch(images)
    distances = find_pairs(batch, _WIDEST / _WIDTH).distances(batch)
    sigma = min(_WIDEST, _WIDTH * float(np.min(distances, initial=np.inf)))
    ranges = [replace(one, sigma=sigma, factor=_SMOOTH * one.factor) for one in recipe.ranges]
    return replace(recipe, ranges=tuple(ranges))


def training_images(training: Training, first: int) -> list[Atoms]:
    """The first structures of a training set, with their labels."""
    batch, images = training.batch, []
    for s in range(first):
        rows = slice(batch.offsets[s], batch.offsets[s + 1])
        atoms = Atoms(batch.numbers[rows], batch.positions[rows])
        atoms.cell[:], atoms.pbc = batch.cells[s], batch.pbc[s]
        results: dict[str, Any] = {"energy": float(training.energy[s])}
        if training.has_forces[s]:
            results["forces"] = training.forces[rows]
        if training.has_stress[s]:
            results["stress"] = training.stress[s]
        atoms.calc = SinglePointCalculator(atoms, **results)
        images.append(atoms)
    return images
