"""Crystals: formula units in a periodic cell that is optimised together with the atoms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers
from ase.units import GPa

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered
from nugget.relax.cell_relaxation import relax_cells
from nugget.relax.engine_relaxation import CellRelaxation, EngineRelaxation
from nugget.structures.geometry import (
    closest_ratio,
    distances,
    radii_of,
    reduced,
    thickness,
    volume_per_atom,
)
from nugget.structures.identity import primitive
from nugget.structures.regions import CellLimits
from nugget.systems.base import Failure, RelaxationSurface, System
from nugget.systems.goal import Goal, LowestEnthalpy
from nugget.systems.system_settings import SystemConfig, SystemKind
from nugget.systems.validity import count_atoms, learned_ratio

#: First guess of the share of space that spheres of covalent radii fill: 0.3 in silicon, 0.6 in
#: gold.
PACKING = 0.45

#: Valid volumes per atom, in units of the guess.
LOWEST, HIGHEST = 0.3, 3.0

#: Spread of ln(volume) of new candidates, before and after the first evaluations.
GUESSED, LEARNED = 0.3, 0.1

#: Weights of the generators of a crystal search.
CRYSTAL_GENERATORS: dict[str, float] = {
    "random_crystal": 1.0,
    "space_group": 2.0,
    "strain": 1.0,
    "crystal_permutation": 1.0,
    "crystal_splice": 1.0,
    "supercell": 0.5,
}


def closest_ratios(images: Sequence[Atoms]) -> Floats:
    """The shortest distance of each crystal, in units of the sum of two covalent radii."""
    return np.array([
        closest_ratio(a.get_scaled_positions(), radii_of(a.numbers), np.asarray(a.cell.array))
        for a in images
    ])  # fmt: skip


@dataclass(frozen=True)
class Crystal(System):
    """A number of formula units within `units` in a periodic cell of any shape.

    No two atoms are closer than `min_ratio` times the sum of their covalent radii, nor than
    `min_distance` Å. `pressure` is in eV/Å³; the goal is the lowest (E + pV) per atom. `guess` is
    the first guess of the volume per atom, `volume` the present estimate.
    """

    variable_cell: ClassVar[bool] = True
    start_generator: ClassVar[str] = "random_crystal"
    requirement: ClassVar[str] = (
        "the composition and the number of atoms in the cell must be among those"
    )

    formula: str
    units: tuple[int, int] = (1, 4)
    pressure: float = 0.0
    guess: float = 0.0  # Å³; 0: from covalent radii
    min_ratio: float = 0.75
    min_distance: float = 0.0
    volume: float = 0.0
    spread: float = GUESSED

    def __post_init__(self) -> None:
        self.count  # noqa: B018 (reports mistakes in the formula now)
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
        """Atomic numbers of this many units, one element after the other."""
        return np.repeat(
            [atomic_numbers[s] for s in self.count], [units * n for n in self.count.values()]
        ).astype(np.int64)

    def numbers_for(self, n_atoms: int) -> Ints:
        return self.numbers_of(max(n_atoms // len(self.numbers), 1))

    def units_of(self, atoms: Atoms) -> int:
        """Formula units in a crystal of this composition."""
        return len(atoms) // len(self.numbers)

    def holds(self, atoms: Atoms) -> bool:
        """Whether a crystal has the composition and one of the sizes of this system."""
        units, rest = divmod(len(atoms), len(self.numbers))
        if rest or not self.units[0] <= units <= self.units[1]:
            return False
        return np.array_equal(np.sort(atoms.numbers), np.sort(self.numbers_of(units)))

    def to_frame(self, atoms: Atoms) -> tuple[Atoms, Ints] | None:
        """The crystal with a reduced cell, which is not rotated: forces and stress stay valid."""
        if not atoms.pbc.all() or not self.holds(atoms):
            return None
        order = np.argsort([self.order.index(z) for z in atoms.numbers], kind="stable")
        bare = Atoms(atoms.numbers[order], atoms.positions[order], cell=atoms.cell.array, pbc=True)
        return reduced(bare), order

    def equivalents(self, atoms: Atoms) -> Iterator[Atoms]:
        yield atoms
        if atoms.pbc.all():
            yield primitive(atoms)

    @property
    def limits(self) -> CellLimits:
        """Soft walls for relaxations."""
        return CellLimits((LOWEST * self.guess, HIGHEST * self.guess), self._thinnest)

    @property
    def _thinnest(self) -> float:
        closest = max(2 * self.min_ratio * float(radii_of(self.numbers).min()), self.min_distance)
        return 0.5 * closest

    def objective(self, atoms: Atoms, energy: float) -> float:
        """The enthalpy per atom in eV, which is minimised."""
        return (energy + self.pressure * float(atoms.get_volume())) / len(atoms)

    def updated(self, images: Sequence[Atoms], energies: Sequence[float]) -> Crystal:
        """With the mean volume per atom of the lowest three, and a new shortest distance."""
        values = [self.objective(a, e) for a, e in zip(images, energies, strict=True)]
        volumes = [volume_per_atom(images[k]) for k in np.argsort(values, kind="stable")[:3]]
        if not volumes:
            return self
        return replace(
            self, volume=float(np.exp(np.mean(np.log(volumes)))), spread=LEARNED,
            min_ratio=learned_ratio(closest_ratios(images), np.array(values), self.min_ratio),
        )  # fmt: skip

    def draw_units(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.units[0], self.units[1] + 1))

    def draw_volume(self, rng: np.random.Generator, n_atoms: int) -> float:
        """Volume of a new cell, Å³."""
        factor = np.exp(self.spread * rng.normal())
        volume = float(np.clip(self.volume * factor, LOWEST * self.guess, HIGHEST * self.guess))
        return n_atoms * volume

    def ratio(self, points: Floats, numbers: Ints, cell: Floats) -> float:
        """Shortest distance in a reduced cell, in units of the shortest valid one."""
        radii = radii_of(numbers)
        shortest = closest_ratio(points, radii, cell) / self.min_ratio
        if self.min_distance:
            apart = distances(points, points, cell)
            np.fill_diagonal(apart, np.linalg.norm(cell, axis=1).min())
            shortest = min(shortest, float(apart.min()) / self.min_distance)
        return shortest

    def fault(self, atoms: Atoms) -> str | None:
        """What makes this crystal invalid, or None; its cell must be reduced."""
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
        return self.checked(reduced(atoms), info)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Atomic numbers in the order of the formula."""
        return tuple(atomic_numbers[s] for s in self.count)

    def _relaxed(
        self, images: Sequence[Atoms], surface: RelaxationSurface, fmax: float, steps: int,
        model_cutoff: float | None, stiffness: float,
    ) -> list[Atoms | None]:  # fmt: skip
        """Relax atoms and cells and reduce the cells.

        On a mean function the cells stay fixed: a pair well does not describe volumes, and would
        compress silicon to half of its own.
        """
        relaxed = relax_cells(
            images, surface.on_cells, fmax, steps, pressure=self.pressure, limits=self.limits,
            cell=model_cutoff is not None, cutoff=model_cutoff,
        )  # fmt: skip
        return [reduced(one.atoms) if one.ok else None for one in relaxed]


@registered("system")
class CrystalKind(SystemKind):
    """Crystals of one composition."""

    name = "crystal"
    variable_cell = True
    flag = "--crystal"

    def make(self, settings: SystemConfig, directory: Path) -> Crystal:
        return Crystal(
            settings.formula, settings.units, settings.pressure * GPa, settings.volume or 0.0,
            min_distance=settings.min_distance,
        )  # fmt: skip

    def goal(self, settings: SystemConfig) -> Goal:
        return LowestEnthalpy(settings.pressure * GPa)

    def title(self, settings: SystemConfig) -> str:
        return f"{settings.formula} crystal"

    def defaults(self) -> dict[str, dict[str, Any]]:
        return {
            "engine": {"stress": True},
            "model": {
                "use_forces": True,
                "cutoff": 4.5,
                "sigma": 0.6,
                "force_noise": 0.5,
                "length_factor": 2.0,
                "kernel_options": {"amplitude": 100.0},
                "baseline_options": {"complete": True},
            },
            "search": {
                "generators": CRYSTAL_GENERATORS,
                "reference_tolerance": 0.01,
                "explore": 0,
                "walkers": 0,
            },
        }

    def engine_relaxation(
        self, settings: SystemConfig, atoms: Atoms, fmax: float, max_evaluations: int, probes: int
    ) -> EngineRelaxation:
        """Atoms and cell relax together; soft modes are not probed."""
        return CellRelaxation(atoms, fmax, max_evaluations, settings.pressure * GPa)
