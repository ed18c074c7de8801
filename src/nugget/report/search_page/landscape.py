"""A map of all structures: two principal components of the mean features of their atoms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.descriptors.base import Descriptor


class Landscape:
    """Structures that are alike lie close together.

    The axes are found anew whenever the number of structures has grown by a quarter; in between,
    further structures take their places on the axes that are there.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.turns = 0  # how often the axes were found
        self._features: list[Floats] = []
        self._places: list[tuple[float | None, float | None]] = []
        self._axes: Floats | None = None
        self._mean: Floats | None = None
        self._when = 0

    def add(self, images: Sequence[Atoms]) -> None:
        """Take in further structures; one whose positions are no numbers has no place."""
        whole = [a for a in images if np.isfinite(a.positions).all()]
        found = iter(mean_features(self.descriptor, whole))
        for atoms in images:
            there = np.isfinite(atoms.positions).all()
            self._features.append(next(found) if there else np.full(0, np.nan))
        if len(self._features) >= max(3, 1.25 * self._when):
            self._turn()
        else:
            self._places += [self._place(x) for x in self._features[len(self._places) :]]

    @property
    def places(self) -> tuple[list[float | None], list[float | None]]:
        """Two coordinates of every structure."""
        return [x for x, _ in self._places], [y for _, y in self._places]

    def _turn(self) -> None:
        x = np.array([f for f in self._features if f.size])
        if len(x) > 2:
            self._mean = x.mean(axis=0)
            axes = np.linalg.svd(x - self._mean, full_matrices=False)[2][:2]
            # Signs are arbitrary: the largest entry is positive, so that a map is made only once.
            largest = axes[np.arange(len(axes)), np.argmax(np.abs(axes), axis=1)]
            self._axes = axes * np.sign(largest)[:, None]
        self._when, self.turns = len(self._features), self.turns + 1
        self._places = [self._place(f) for f in self._features]

    def _place(self, features: Floats) -> tuple[float | None, float | None]:
        if self._axes is None or self._mean is None or not features.size:
            return None, None
        found = self._axes @ (features - self._mean)
        return float(found[0]), float(found[1]) if len(found) > 1 else 0.0


def mean_features(descriptor: Descriptor, images: Sequence[Atoms]) -> Floats:
    """Mean over the atoms of each structure."""
    if not images:
        return np.empty((0, 0))
    found = descriptor.compute(list(images))
    counts = np.bincount(found.owner, minlength=len(images))
    sums = np.zeros((len(images), found.values.shape[1]))
    np.add.at(sums, found.owner, found.values)
    return np.asarray(sums / counts[:, None])
