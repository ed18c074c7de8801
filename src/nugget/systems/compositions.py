"""Crystals of several compositions: all mixtures of given elements in small cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb, gcd
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers
from ase.units import GPa

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered
from nugget.structures.geometry import (
    parts_of,
    random_multiple,
    repeated,
    scaled_to,
    volume_per_atom,
)
from nugget.structures.regions import CellLimits
from nugget.systems.crystal import (
    HIGHEST,
    LEARNED,
    LOWEST,
    Crystal,
    CrystalKind,
    closest_ratios,
)
from nugget.systems.goal import AboveHull, Goal, Hull, Shares, shares_of
from nugget.systems.system_settings import SystemConfig
from nugget.systems.validity import elements_of, learned_ratio

#: The largest number of compositions that one search can cover.
MOST = 500

#: Parents that are converted to the composition of a candidate; no generator takes more.
_PARENTS = 2

#: Weight of the first guess in the fit of volumes per element, in numbers of crystals.
_RIDGE = 0.5

#: Volumes are fitted to this many of the lowest crystals of each composition.
_LOWEST = 2


@dataclass(frozen=True)
class Compositions(Crystal):
    """All compositions of the elements of `formula`, with at most `most` atoms in a cell.

    Each composition is a `Crystal`, a member. Generators work on members: `draw_target` selects
    one and converts evaluated crystals to its composition (other elements on some sites, and a
    supercell where the number of atoms requires it).
    """

    most: int = 8
    first: float = 0.0  # Å³: first guess of the volume per atom; 0: from covalent radii
    volumes: tuple[float, ...] = ()  # Å³ per atom of each element, fitted to the evaluations

    def __post_init__(self) -> None:
        super().__post_init__()
        elements = len(self.count)
        if elements < 2:
            raise NuggetError(f"{self.formula}: compositions need two elements or more.")
        if self.most < elements:
            raise NuggetError(
                f"max_atoms is {self.most}: cells with all {elements} elements need that many."
            )
        if comb(self.most + elements, elements) > 4 * MOST or len(self.members) > MOST:
            raise NuggetError(
                f"{'-'.join(self.count)} with up to {self.most} atoms are more than {MOST} "
                "compositions: choose fewer elements or a smaller max_atoms."
            )

    @cached_property
    def members(self) -> dict[Shares, Crystal]:
        """The crystals of all compositions, by atoms of each element in a formula unit."""
        return {counts: self._member(counts) for counts in self._compositions()}

    def _compositions(self) -> Iterator[Shares]:
        """Elements first, then mixtures, the smallest formula units first."""
        ends = np.eye(len(self.count), dtype=int)
        yield from (tuple(row) for row in ends.tolist())
        every = np.array(list(np.ndindex(*[self.most + 1] * len(self.count))))
        order = np.argsort(every.sum(axis=1), kind="stable")
        for counts in every[order].tolist():
            if sum(counts) <= self.most and sum(counts) > max(counts) and gcd(*counts) == 1:
                yield tuple(counts)

    def _member(self, counts: Shares) -> Crystal:
        parts = zip(self.count, counts, strict=True)
        formula = "".join(f"{symbol}{n}" for symbol, n in parts if n)
        member = Crystal(
            formula, (1, self.most // sum(counts)), self.pressure, self.first,
            self.min_ratio, self.min_distance,
        )  # fmt: skip
        if not self.volumes:
            return member
        return replace(member, volume=float(self._vegard(counts, self.volumes)), spread=LEARNED)

    def _vegard(self, counts: Shares, volumes: Sequence[float]) -> float:
        return float(np.dot(counts, volumes) / sum(counts))

    def counts_of(self, atoms: Atoms) -> Shares:
        """Atoms of each element in a formula unit."""
        return shares_of(atoms, self.order)

    def member_of(self, atoms: Atoms) -> Crystal:
        """The member with the composition of a crystal."""
        return self.members[self.counts_of(atoms)]

    def holds(self, atoms: Atoms) -> bool:
        """Whether a crystal has some of the elements and not too many atoms."""
        return set(atoms.numbers.tolist()) <= set(self.order) and len(atoms) <= self.most

    @property
    def limits(self) -> CellLimits:
        """Soft walls for relaxations, wide enough for all compositions."""
        ends = [self.members[tuple(row)].guess for row in np.eye(len(self.count), dtype=int)]
        return CellLimits((LOWEST * min(ends), HIGHEST * max(ends)), self._thinnest)

    def fault(self, atoms: Atoms) -> str | None:
        return self.member_of(atoms).fault(atoms)

    def required_first(self, images: Sequence[Atoms]) -> Crystal:
        """The first element without an evaluated crystal; without elements there is no hull."""
        evaluated = {self.counts_of(atoms) for atoms in images}
        ends = list(self.members)[: len(self.count)]
        return next((self.members[end] for end in ends if end not in evaluated), self)

    def updated(self, images: Sequence[Atoms], energies: Sequence[float]) -> Compositions:
        """With volumes of the elements that fit the lowest crystals of each composition.

        The volume per atom is assumed to be linear in the composition (Vegard's law).
        """
        if not images:
            return self
        values = [self.objective(a, e) for a, e in zip(images, energies, strict=True)]
        seen: dict[Shares, int] = {}
        rows, volumes = [], []
        for k in np.argsort(values, kind="stable"):
            counts = self.counts_of(images[k])
            seen[counts] = seen.get(counts, 0) + 1
            if seen[counts] <= _LOWEST:
                rows.append(np.array(counts) / sum(counts))
                volumes.append(volume_per_atom(images[k]))
        guess, shares = self._first_volumes, np.array(rows)
        factor = float(np.exp(np.mean(np.log(volumes / (shares @ guess)))))
        gram = shares.T @ shares + _RIDGE * np.eye(len(guess))
        fitted = np.linalg.solve(gram, shares.T @ np.array(volumes) + _RIDGE * factor * guess)
        bounded = np.clip(fitted, LOWEST * guess, HIGHEST * guess)
        return replace(
            self, volumes=tuple(bounded.tolist()),
            min_ratio=learned_ratio(closest_ratios(images), np.array(values), self.min_ratio),
        )  # fmt: skip

    @cached_property
    def _first_volumes(self) -> Floats:
        """First guess of the volume per atom of each element, Å³."""
        return np.array([self.first or Crystal(symbol).guess for symbol in self.count])

    def draw_target(
        self, rng: np.random.Generator, parents: Sequence[Atoms]
    ) -> tuple[Crystal, Sequence[Atoms]]:
        """A random composition, and parents converted to it."""
        every = list(self.members.values())
        member = every[int(rng.integers(len(every)))]
        converted: list[Atoms] = []
        for k in rng.permutation(len(parents)):
            if len(converted) == _PARENTS:
                break
            if (one := self.transmuted(rng, parents[k], member)) is not None:
                converted.append(one)
        return member, converted

    def transmuted(self, rng: np.random.Generator, atoms: Atoms, member: Crystal) -> Atoms | None:
        """The crystal converted to the composition of a member with as few changes as possible.

        Surplus atoms become missing elements. None if no supercell has a suitable size.
        """
        unit, (low, high) = len(member.numbers), member.units
        times = [
            t
            for t in range(1, self.most // len(atoms) + 1)
            if t * len(atoms) % unit == 0 and low <= t * len(atoms) // unit <= high
        ]
        if not times:
            return None
        cell, points, numbers = parts_of(
            repeated(atoms, random_multiple(rng, int(rng.choice(times))))
        )
        wanted = member.numbers_of(len(numbers) // unit)
        changed = _changed(rng, numbers, wanted)
        if not np.array_equal(changed, numbers):
            cell = scaled_to(cell, self._expected(cell, numbers, changed))
        return Atoms(changed, cell=cell, scaled_positions=points, pbc=True)

    def _expected(self, cell: Floats, before: Ints, after: Ints) -> float:
        """The expected volume of a cell after elements have changed."""
        volumes = self.volumes or self._first_volumes.tolist()
        per_element = dict(zip(self.order, volumes, strict=True))
        sums = [sum(per_element[int(z)] for z in numbers) for numbers in (before, after)]
        return abs(float(np.linalg.det(cell))) * sums[1] / sums[0]


def _changed(rng: np.random.Generator, numbers: Ints, wanted: Ints) -> Ints:
    """The elements of the sites after the fewest random changes that give the wanted ones."""
    changed = numbers.copy()
    missing: list[int] = []
    free: list[int] = []
    for z in np.union1d(numbers, wanted).tolist():
        sites, n = np.flatnonzero(numbers == z), int(np.sum(wanted == z))
        free += rng.permutation(sites)[: max(len(sites) - n, 0)].tolist()
        missing += [z] * max(n - len(sites), 0)
    changed[free] = rng.permutation(missing)
    return changed


@registered("system")
class CompositionsKind(CrystalKind):
    """Crystals of all mixtures of some elements, and their convex hull."""

    name = "compositions"

    def check(self, settings: SystemConfig) -> None:
        if settings.units != (1, 4):
            raise ValueError("with compositions, max_atoms limits the cells, not units")

    def make(self, settings: SystemConfig, directory: Path) -> Compositions:
        return Compositions(
            settings.formula, (1, settings.max_atoms), settings.pressure * GPa,
            min_distance=settings.min_distance, most=settings.max_atoms,
            first=settings.volume or 0.0,
        )  # fmt: skip

    def goal(self, settings: SystemConfig) -> Goal:
        elements = tuple(atomic_numbers[symbol] for symbol in elements_of(settings.title))
        return AboveHull(settings.pressure * GPa, hull=Hull(elements))

    def title(self, settings: SystemConfig) -> str:
        return f"{settings.title} crystals"

    def defaults(self) -> dict[str, dict[str, Any]]:
        defaults = super().defaults()
        more = {"initial": 10, "n_parents": 16, "candidates": 40, "polish": 10}
        return {**defaults, "search": {**defaults["search"], **more}}
