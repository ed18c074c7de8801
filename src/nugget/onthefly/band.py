"""A band of images on the surrogate: ASE's climbing NEB, all images evaluated in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.mep import NEB
from ase.optimize import FIRE

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError
from nugget.onthefly.calculator import free_components
from nugget.onthefly.certainty import force_std, largest
from nugget.potential.evaluate import MEAN, value_and_grad
from nugget.potential.potential import Potential
from nugget.structures.batch import as_batch

# Steps of a band that is not yet climbing, and of one that is; σ is looked at after so many.
_STEPS, _LOOK = (60, 200), 5
# A band is followed while σ of its forces is below this many allowed errors.
_FAR = 2.0
_HALVINGS = 5


@dataclass(frozen=True, eq=False)
class Band:
    """Images with the model's energies (eV), and the largest σ of a force component on each."""

    images: list[Atoms]
    energy: Floats
    std: Floats
    forces: list[Floats]
    forces_std: list[Floats]
    energy_std: Floats

    @property
    def top(self) -> int:
        """The highest image between the ends."""
        return 1 + int(np.argmax(self.energy[1:-1]))


class SurrogateNEB(NEB):
    """ASE's NEB whose forces come from one evaluation of all images."""

    def __init__(self, images: Sequence[Atoms], potential: Potential, **options: Any) -> None:
        super().__init__(list(images), method="improvedtangent", **options)
        self.potential = potential

    def get_forces(self) -> Floats:
        attach(self.images, self.potential)
        return np.asarray(super().get_forces())


def attach(images: Sequence[Atoms], potential: Potential) -> None:
    """Give all images the model's energies and forces, from one batch."""
    found = potential.predict(images, uncertainty=False)
    assert found.forces is not None
    for atoms, energy, forces in zip(images, found.energy, found.forces, strict=True):
        atoms.calc = SinglePointCalculator(atoms, energy=float(energy), forces=forces)


def interpolated(start: Atoms, end: Atoms, number: int) -> list[Atoms]:
    """Images between two structures, with distances that change evenly (IDPP)."""
    if not np.array_equal(start.numbers, end.numbers):
        raise NuggetError("START and END must hold the same atoms in the same order.")
    if not np.allclose(start.cell.array, end.cell.array):
        raise NuggetError("START and END must have the same cell.")
    images = [start.copy() for _ in range(number - 1)] + [end.copy()]
    for atoms in images:
        atoms.calc = None
    NEB(images, method="improvedtangent").interpolate(method="idpp", mic=True)
    images[-1].positions = images[0].positions + _nearest(images[0], end)
    return images


def _nearest(start: Atoms, end: Atoms) -> Floats:
    """Displacements from start to end, to the nearest periodic image."""
    from ase.geometry import find_mic

    return np.asarray(find_mic(end.positions - start.positions, start.cell, start.pbc)[0])


def relaxed(
    images: Sequence[Atoms], potential: Potential, fmax: float, limit: float
) -> list[Atoms]:
    """The band relaxed on the surrogate, or to where σ of a force exceeds the limit by far.

    Without climbing first, then with the highest image climbing.
    """
    band = [atoms.copy() for atoms in images]
    safe = [atoms.positions.copy() for atoms in band]
    for climb, steps in zip((False, True), _STEPS, strict=True):
        neb = SurrogateNEB(band, potential, climb=climb)
        run = FIRE(neb, logfile=None, maxstep=0.1)
        for k, converged in enumerate(run.irun(fmax=0.5 * fmax, steps=steps)):
            if k % _LOOK == 0 or converged:
                if evaluated(band, potential, limit).std.max() > _FAR * limit:
                    _retreat(band, safe, potential, limit)
                    return band
                safe = [atoms.positions.copy() for atoms in band]
    return band


def _retreat(
    band: Sequence[Atoms], safe: Sequence[Floats], potential: Potential, limit: float
) -> None:
    """Go back towards `safe` to where σ is above the limit, but not by far: there is to learn.

    Back to `safe` itself would lead to the same structures again.
    """
    ahead = [atoms.positions.copy() for atoms in band]
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        share = 0.5 * (low + high)
        _place(band, safe, ahead, share)
        std = evaluated(band, potential, limit).std.max()
        if limit < std <= _FAR * limit:
            return
        low, high = (share, high) if std <= limit else (low, share)
    _place(band, safe, ahead, high)


def _place(
    band: Sequence[Atoms], start: Sequence[Floats], end: Sequence[Floats], share: float
) -> None:
    for atoms, a, b in zip(band, start, end, strict=True):
        atoms.positions = a + share * (b - a)


def evaluated(images: Sequence[Atoms], potential: Potential, limit: float) -> Band:
    """Energies and σ along the path."""
    batch = as_batch(images)
    found = value_and_grad(potential, batch, MEAN, keep_rows=True)
    assert found.std is not None
    std = batch.split(force_std(found, limit))
    peak = [largest(s, free_components(a)) for s, a in zip(std, images, strict=True)]
    forces = batch.split(-found.gradients[0])
    return Band(list(images), found.energy, np.array(peak), forces, std, found.std)
