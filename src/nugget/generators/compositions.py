"""Crystals of several compositions at once: all mixtures of some elements in small cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb, gcd

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.generators.crystal import HIGHEST, LEARNED, LOWEST, Crystal, learned_ratio
from nugget.generators.crystal_base import parts_of, scaled_to
from nugget.generators.supercell import random_multiple, repeated
from nugget.relax.cell_coordinates import CellLimits
from nugget.structures.cells import volume_per_atom

#: Compositions at the most: a search cannot look at more.
MOST = 500
#: Parents that are put into the composition of a candidate; no generator takes more.
_PARENTS = 2
#: Weight of the guess when volumes of elements are fitted, in crystals.
_RIDGE = 0.5
#: Crystals of each composition that volumes are learned from, the lowest ones.
_LOWEST = 2

Counts = tuple[int, ...]


@dataclass(frozen=True)
class Compositions(Crystal):
    """All compositions of the elements of `formula`, with at most `most` atoms in a cell.

    Each composition is a `Crystal` of its own, a member. Generators work on members: `drawn` picks
    one, and puts known crystals into its composition (other elements on some sites, and a
    supercell where the number of atoms asks for it).
    """

    most: int = 8
    first: float = 0.0  # Å³: first guess of the volume per atom of all; 0: from covalent radii
    volumes: tuple[float, ...] = ()  # Å³ per atom of each element, as the evaluations suggest

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
    def members(self) -> dict[Counts, Crystal]:
        """The crystals of all compositions, by atoms of each element in a formula unit."""
        return {counts: self._member(counts) for counts in self._compositions()}

    def _compositions(self) -> Iterator[Counts]:
        """Elements first, then mixtures, the smallest formula units first."""
        ends = np.eye(len(self.count), dtype=int)
        yield from (tuple(row) for row in ends.tolist())
        every = np.array(list(np.ndindex(*[self.most + 1] * len(self.count))))
        order = np.argsort(every.sum(axis=1), kind="stable")
        for counts in every[order].tolist():
            if sum(counts) <= self.most and sum(counts) > max(counts) and gcd(*counts) == 1:
                yield tuple(counts)

    def _member(self, counts: Counts) -> Crystal:
        parts = zip(self.count, counts, strict=True)
        formula = "".join(f"{symbol}{n}" for symbol, n in parts if n)
        made = Crystal(
            formula, (1, self.most // sum(counts)), self.pressure, self.first,
            self.min_ratio, self.min_distance,
        )  # fmt: skip
        if not self.volumes:
            return made
        return replace(made, volume=float(self._vegard(counts, self.volumes)), spread=LEARNED)

    def _vegard(self, counts: Counts, volumes: Sequence[float]) -> float:
        return float(np.dot(counts, volumes) / sum(counts))

    def counts_of(self, atoms: Atoms) -> Counts:
        """Atoms of each element in a formula unit; of one element, 1."""
        found = [int(np.sum(atoms.numbers == z)) for z in self.order]
        divisor = gcd(*found)
        return tuple(n // divisor for n in found)

    def member_of(self, atoms: Atoms) -> Crystal:
        """The composition of a crystal."""
        return self.members[self.counts_of(atoms)]

    def holds(self, atoms: Atoms) -> bool:
        """Is this one of the crystals that are searched for?"""
        return set(atoms.numbers.tolist()) <= set(self.order) and len(atoms) <= self.most

    @property
    def limits(self) -> CellLimits:
        """Soft walls for relaxations, wide enough for all compositions."""
        ends = [self.members[tuple(row)].guess for row in np.eye(len(self.count), dtype=int)]
        return CellLimits((LOWEST * min(ends), HIGHEST * max(ends)), self._thinnest)

    def fault(self, atoms: Atoms) -> str | None:
        return self.member_of(atoms).fault(atoms)

    def lacking(self, images: Sequence[Atoms]) -> Crystal:
        """The first element that none of these is; all compositions if there is none."""
        known = {self.counts_of(atoms) for atoms in images}
        ends = list(self.members)[: len(self.count)]
        return next((self.members[end] for end in ends if end not in known), self)

    def learned(self, images: Sequence[Atoms], energies: Sequence[float]) -> Compositions:
        """With volumes of the elements that fit the lowest crystals of each composition.

        Volumes per atom are taken as linear in the composition (Vegard).
        """
        if not images:
            return self
        values = [self.objective(a, e) for a, e in zip(images, energies, strict=True)]
        seen: dict[Counts, int] = {}
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
            min_ratio=learned_ratio(images, np.array(values), self.min_ratio),
        )  # fmt: skip

    @cached_property
    def _first_volumes(self) -> Floats:
        """Å³ per atom of each element, before anything is known."""
        return np.array([self.first or Crystal(symbol).guess for symbol in self.count])

    def drawn(
        self, rng: np.random.Generator, parents: Sequence[Atoms]
    ) -> tuple[Crystal, Sequence[Atoms]]:
        """A random composition, and known crystals in that composition."""
        every = list(self.members.values())
        member = every[int(rng.integers(len(every)))]
        made: list[Atoms] = []
        for k in rng.permutation(len(parents)):
            if len(made) == _PARENTS:
                break
            if (one := self.transmuted(rng, parents[k], member)) is not None:
                made.append(one)
        return member, made

    def transmuted(self, rng: np.random.Generator, atoms: Atoms, member: Crystal) -> Atoms | None:
        """A crystal in the composition of a member, with as few changes as that takes.

        Surplus atoms turn into elements that are lacking; None if no cell has a fitting size.
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
        """The volume of a cell when its elements have changed."""
        volumes = self.volumes or self._first_volumes.tolist()
        per_element = dict(zip(self.order, volumes, strict=True))
        sums = [sum(per_element[int(z)] for z in numbers) for numbers in (before, after)]
        return abs(float(np.linalg.det(cell))) * sums[1] / sums[0]


def _changed(rng: np.random.Generator, numbers: Ints, wanted: Ints) -> Ints:
    """The elements of the sites after as few changes as lead to the wanted ones."""
    changed = numbers.copy()
    lacking: list[int] = []
    free: list[int] = []
    for z in np.union1d(numbers, wanted).tolist():
        sites, n = np.flatnonzero(numbers == z), int(np.sum(wanted == z))
        free += rng.permutation(sites)[: max(len(sites) - n, 0)].tolist()
        lacking += [z] * max(n - len(sites), 0)
    changed[free] = rng.permutation(lacking)
    return changed


def elements_of(compositions: str) -> list[str]:
    """The elements of "Cu-Au", each once."""
    elements = [part.strip() for part in compositions.split("-")]
    for symbol in elements:
        if atomic_numbers.get(symbol, 0) < 1:
            raise NuggetError(
                f"compositions {compositions!r}: {symbol!r} is not an element; write Cu-Au."
            )
    if len(set(elements)) < len(elements):
        raise NuggetError(f"compositions {compositions!r} name an element twice.")
    if len(elements) < 2:
        raise NuggetError(f"compositions {compositions!r}: name two elements or more, as Cu-Au.")
    return elements
