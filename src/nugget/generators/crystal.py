"""Crystals as the goal of a search: a formula in a cell that is found together with the atoms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.generators.composition import count_atoms
from nugget.generators.problem import Failure
from nugget.relax.cell_coordinates import CellLimits
from nugget.structures.bonds import radii_of
from nugget.structures.cells import closest_ratio, distances, reduced, thickness, volume_per_atom

#: Share of space that spheres of covalent radii fill, before anything is known: 0.3 in silicon,
#: 0.6 in gold.
PACKING = 0.45
#: Volumes per atom that are allowed, in units of the guess.
LOWEST, HIGHEST = 0.3, 3.0
#: Spread of ln(volume) of new candidates, before and after something is known.
GUESSED, LEARNED = 0.3, 0.1
#: So much above the lowest (eV/atom), a crystal with close atoms counts against such distances,
#: and so much further apart others must be. Nothing is forbidden that is nearly as far apart as in
#: the lowest third.
BAD, APART, NEARLY = 1.0, 1.03, 0.9


def learned_ratio(images: Sequence[Atoms], values: Floats, least: float) -> float:
    """The closest approach that evaluations leave open, in units of the sum of two radii.

    Some models foresee low energies where atoms are too close. Where all crystals with atoms that
    close were found to be bad, no more of them are made.
    """
    closest = np.array([
        closest_ratio(a.get_scaled_positions(), radii_of(a.numbers), np.asarray(a.cell.array))
        for a in images
    ])  # fmt: skip
    fine = values <= values.min() + BAD
    low = values <= np.quantile(values, 1 / 3)
    bad = closest[(closest < closest[fine].min()) & ~fine]
    if not len(bad):
        return least
    return max(least, min(APART * float(bad.max()), NEARLY * float(closest[low].min())))


@dataclass(frozen=True)
class Crystal:
    """A crystal search's setting: 1 to `units` formula units in a periodic cell of any shape.

    No two atoms are closer than `min_ratio` times the sum of their covalent radii, nor than
    `min_distance` Å. `pressure` is in eV/Å³; the goal is the lowest (E + pV) per atom. `guess` is
    the first guess of the volume per atom, `volume` what is known now.
    """

    variable_cell: ClassVar[bool] = True

    formula: str
    units: tuple[int, int] = (1, 4)
    pressure: float = 0.0
    guess: float = 0.0  # Å³; 0: from covalent radii
    min_ratio: float = 0.75
    min_distance: float = 0.0
    volume: float = 0.0
    spread: float = GUESSED

    def __post_init__(self) -> None:
        self.count  # noqa: B018 (mistakes in the formula are found now)
        if not 1 <= self.units[0] <= self.units[1]:
            raise NuggetError(f"units {self.units} must be 1 or more, the smaller number first.")
        if not self.guess:
            spheres = 4 / 3 * np.pi * float(np.mean(radii_of(self.numbers) ** 3))
            object.__setattr__(self, "guess", spheres / PACKING)
        if not self.volume:
            object.__setattr__(self, "volume", self.guess)

    @cached_property
    def count(self) -> dict[str, int]:
        """Atoms of each element in one formula unit."""
        return count_atoms(self.formula)

    @cached_property
    def numbers(self) -> Ints:
        """Atomic numbers of one formula unit."""
        return self.numbers_of(1)

    def numbers_of(self, units: int) -> Ints:
        """Atomic numbers of so many units, one element after the other."""
        return np.repeat(
            [atomic_numbers[s] for s in self.count], [units * n for n in self.count.values()]
        ).astype(np.int64)

    def units_of(self, atoms: Atoms) -> int:
        """Formula units in a crystal of this composition."""
        return len(atoms) // len(self.numbers)

    def holds(self, atoms: Atoms) -> bool:
        """Has it the composition, and one of the sizes, that are searched for?"""
        units, rest = divmod(len(atoms), len(self.numbers))
        if rest or not self.units[0] <= units <= self.units[1]:
            return False
        return np.array_equal(np.sort(atoms.numbers), np.sort(self.numbers_of(units)))

    def adopted(self, atoms: Atoms) -> tuple[Atoms, Ints] | None:
        """A known crystal as the search writes it, and which atom became which; None if another.

        The cell is reduced, and not turned: forces and stress stay as they are.
        """
        if not atoms.pbc.all() or not self.holds(atoms):
            return None
        order = np.argsort([self.order.index(z) for z in atoms.numbers], kind="stable")
        bare = Atoms(atoms.numbers[order], atoms.positions[order], cell=atoms.cell.array, pbc=True)
        return reduced(bare), order

    @property
    def limits(self) -> CellLimits:
        """Soft walls for relaxations."""
        return CellLimits((LOWEST * self.guess, HIGHEST * self.guess), self._thinnest)

    @property
    def _thinnest(self) -> float:
        closest = max(2 * self.min_ratio * float(radii_of(self.numbers).min()), self.min_distance)
        return 0.5 * closest

    def objective(self, atoms: Atoms, energy: float) -> float:
        """What is minimised: enthalpy per atom, eV."""
        return (energy + self.pressure * float(atoms.get_volume())) / len(atoms)

    def learned(self, images: Sequence[Atoms], energies: Sequence[float]) -> Crystal:
        """With the volume per atom of the lowest three of these, and the distances they teach."""
        values = [self.objective(a, e) for a, e in zip(images, energies, strict=True)]
        volumes = [volume_per_atom(images[k]) for k in np.argsort(values, kind="stable")[:3]]
        if not volumes:
            return self
        return replace(
            self, volume=float(np.exp(np.mean(np.log(volumes)))), spread=LEARNED,
            min_ratio=learned_ratio(images, np.array(values), self.min_ratio),
        )  # fmt: skip

    def drawn(
        self, rng: np.random.Generator, parents: Sequence[Atoms]
    ) -> tuple[Crystal, Sequence[Atoms]]:
        """What the next candidate is made for, and from which known crystals."""
        return self, parents

    def lacking(self, images: Sequence[Atoms]) -> Crystal:
        """What must be evaluated before all else, when these are known; else the whole problem."""
        return self

    def draw_units(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.units[0], self.units[1] + 1))

    def draw_volume(self, rng: np.random.Generator, n_atoms: int) -> float:
        """Volume of a new cell, Å³."""
        factor = np.exp(self.spread * rng.normal())
        volume = float(np.clip(self.volume * factor, LOWEST * self.guess, HIGHEST * self.guess))
        return n_atoms * volume

    def ratio(self, points: Floats, numbers: Ints, cell: Floats) -> float:
        """Shortest distance in a reduced cell, in units of what is allowed."""
        radii = radii_of(numbers)
        found = closest_ratio(points, radii, cell) / self.min_ratio
        if self.min_distance:
            apart = distances(points, points, cell)
            np.fill_diagonal(apart, np.linalg.norm(cell, axis=1).min())
            found = min(found, float(apart.min()) / self.min_distance)
        return found

    def fault(self, atoms: Atoms) -> str | None:
        """What is wrong with this crystal, or None; its cell must be reduced."""
        cell = np.asarray(atoms.cell.array)
        low, high = self.limits.volume
        if not 0.9 * low <= volume_per_atom(atoms) <= 1.1 * high:
            return "the volume is out of all proportion"
        if thickness(cell).min() < 0.9 * self._thinnest:
            return "the cell is too thin"
        if self.ratio(atoms.get_scaled_positions(wrap=False), atoms.numbers, cell) < 1.0:
            return "two atoms are too close"
        return None

    def build(self, cell: Floats, points: Floats, numbers: Ints, **info: str) -> Atoms | Failure:
        """The crystal with a reduced cell, elements in the order of the formula, when valid."""
        order = np.argsort([self.order.index(z) for z in numbers], kind="stable")
        atoms = Atoms(numbers[order], cell=cell, scaled_positions=points[order], pbc=True)
        if abs(np.linalg.det(cell)) < 1e-3 * len(numbers):
            return Failure("the cell has no volume")
        atoms = reduced(atoms)
        fault = self.fault(atoms)
        if fault is not None:
            return Failure(fault)
        atoms.info.update(info)
        return atoms

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Atomic numbers in the order of the formula."""
        return tuple(atomic_numbers[s] for s in self.count)
