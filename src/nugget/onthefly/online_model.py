"""A potential that learns one labelled structure after another and stays calibrated.

The model depends only on the labelled structures and their order. It is refitted, with
leave-one-out calibration, whenever the training set has grown by a third, and updated in between.
A run that was killed therefore rebuilds a bit-identical model from the structures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.errors import NuggetError
from nugget.potential.mean_choice import fit_with_mean, with_mean
from nugget.potential.mean_functions.base import MeanFunction
from nugget.potential.mean_functions.foundation import engine_mean
from nugget.potential.potential import Potential
from nugget.potential.training import Noise, Training, TrainingData
from nugget.presets import RECIPES, Recipe
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs

# Structures of the first fit; fewer do not determine σ.
FIRST = 6

# Noise levels in units of the force error limit: forces, and energies per atom (in Å).
_FORCE_NOISE, _NOISE = 0.1, 0.005

# Crystals need some 300 inducing points, molecules as many as possible.
_TOLERANCE, _POINTS = 1e-10, 1500

# Frames of one run are similar, so that the length scales of the preset are multiplied by this.
_SMOOTH = 2.0

# Width of SOAP's Gaussians over the shortest distance, and the largest width in Å. A width of 1 Å
# blurs bonds to hydrogen and doubles the force errors of water (docs/on_the_fly.md).
_WIDTH, _WIDEST = 0.5, 1.0


class OnlineModel:
    """Learns structures in order; `potential` is None until there are FIRST of them."""

    def __init__(
        self,
        potential: Potential | None = None,
        max_force_error: float = 0.1,
        preset: str = "balanced",
        use_stress: bool = False,
        growth: float = 1.3,
        domain: bool = True,
        mean: str | None = None,
    ) -> None:
        if not max_force_error > 0:
            raise NuggetError(f"max_force_error is {max_force_error}; give eV/Å above 0.")
        if preset not in RECIPES:
            raise NuggetError(f"There is no preset {preset!r}; choose from {', '.join(RECIPES)}.")
        self.max_force_error, self.preset, self.use_stress = max_force_error, preset, use_stress
        self.domain, self.mean = domain, mean  # an engine as mean function
        self.growth = growth  # refitted when the training set has grown by this factor
        self.potential = None if potential is None else potential.copy()
        self.given = 0 if potential is None else len(potential.fitted.training.batch)
        self.images: list[Atoms] = []

    def learn(self, atoms: Atoms) -> None:
        """Add one structure with results."""
        self.images.append(atoms)
        self._advance(len(self.images))

    def restore(self, images: Sequence[Atoms]) -> None:
        """Rebuild the model that results from learning these structures one by one."""
        self.images = list(images)
        fits = [n for n in range(1, len(images) + 1) if self._fits_at(n)]
        for n in range(fits[-1] if fits else 1, len(images) + 1):
            self._advance(n)

    def _fits_at(self, n: int) -> bool:
        """Whether the model is refitted at structure n."""
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
        if self.given and old is not None:  # with the user's settings, on all structures
            everything = [*training_images(old.fitted.training, self.given), *images]
            return old.copy().fit(everything, old.fitted.training.use_forces, calibrate="loo")
        species = sorted({symbol for atoms in images for symbol in atoms.symbols})
        recipe = adapted(RECIPES[self.preset], self.images[:FIRST])
        noise = Noise(_NOISE * self.max_force_error, _FORCE_NOISE * self.max_force_error)
        recipe = replace(recipe, tol=_TOLERANCE, points=_POINTS, noise=noise)
        settings = replace(recipe.settings(species, images), domain=self.domain)
        stress = self.use_stress and all("stress" in atoms.calc.results for atoms in images)
        data = TrainingData.read(images, True, stress)

        def fitted(more: MeanFunction | None) -> Potential:
            potential = settings.build()
            potential.prior = with_mean(potential.prior, more)
            return potential.fit_data(data, calibrate="loo")

        if self.mean is None:
            return fitted(None)
        return fit_with_mean(self.mean, engine_mean(self.mean), fitted, data)[0]


def adapted(recipe: Recipe, images: Sequence[Atoms]) -> Recipe:
    """A recipe for one run, smoother and with Gaussians narrow enough for the shortest bonds."""
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
