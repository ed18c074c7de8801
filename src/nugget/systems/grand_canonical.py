"""Clusters and surfaces with a varying number of atoms, for phase diagrams over μ or (T, p)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers

from nugget.errors import NuggetError
from nugget.numerics.arrays import Ints
from nugget.registry import registered
from nugget.settings import resolve_path
from nugget.structures.io import read_images
from nugget.systems.goal import Goal
from nugget.systems.grand_potential import Counts, Envelope, GrandPotential
from nugget.systems.placed_atoms import PlacedAtoms
from nugget.systems.reservoirs import TOTAL, Reservoirs, make_reservoirs, parse_vary
from nugget.systems.system_settings import SystemConfig, SystemKind

#: Share of candidates whose composition differs by at most one atom from that of a parent; the
#: others have any composition.
_NEAR = 0.5

#: Weights of the generators. Those that change the composition take parents of other compositions.
GENERATORS: dict[str, float] = {
    "random_cluster": 1.0,
    "random_placement": 1.0,
    "symmetric": 1.0,
    "rattle": 1.0,
    "surface_move": 1.0,
    "permutation": 1.0,
    "cut_and_splice": 1.0,
    "twist": 0.5,
    "insert": 2.0,
    "remove": 2.0,
    "exchange": 2.0,
}


@dataclass(frozen=True)
class VariedAtoms(PlacedAtoms):
    """Placed atoms whose numbers lie in the ranges `counts`, one per element of `varied`.

    `symbols` are those of the largest composition. Each composition is a `PlacedAtoms` with the
    same template and region, a member. Generators work on members, which `draw_target` selects.
    """

    requirement: ClassVar[str] = (
        "cell and template must be the same, and the numbers of atoms within their ranges"
    )

    varied: tuple[str, ...] = ()
    counts: tuple[tuple[int, int], ...] = ()
    total: tuple[int, int] | None = None  # limits of the number of all placed atoms

    @classmethod
    def of(cls, largest: PlacedAtoms, ranges: dict[str, tuple[int, int]]) -> VariedAtoms:
        """The system whose largest composition is `largest`; `ranges` are those of `parse_vary`."""
        elements = {symbol: ends for symbol, ends in ranges.items() if symbol != TOTAL}
        system = cls(
            largest.symbols, largest.template, largest.region, largest.min_ratio,
            largest.bond_ratio, varied=tuple(elements), counts=tuple(elements.values()),
            total=ranges.get(TOTAL),
        )  # fmt: skip
        if not system.members:
            raise NuggetError("vary: no composition has a permitted total number of atoms.")
        return system

    @cached_property
    def members(self) -> dict[Counts, PlacedAtoms]:
        """The systems of all compositions, by placed atoms of each element."""
        every = product(*(range(low, high + 1) for low, high in self.counts))
        low, high = self.total or (0, len(self.symbols))
        return {
            c: self._member(c) for c in every if low <= sum(c) <= high and (any(c) or self.n_fixed)
        }

    def _member(self, counts: Counts) -> PlacedAtoms:
        symbols = tuple(s for s, n in zip(self.varied, counts, strict=True) for _ in range(n))
        return PlacedAtoms(
            symbols, self.template, self.region, self.min_ratio, self.bond_ratio
        )  # fmt: skip

    def placed(self, atoms: Atoms) -> Counts:
        """The placed atoms of each element."""
        return placed_counts(atoms.numbers[self.n_fixed :], self.varied)

    def member_of(self, atoms: Atoms) -> PlacedAtoms | None:
        """The member with the composition of a structure; None if it is out of range."""
        placed = self.placed(atoms)
        fits = sum(placed) == len(atoms) - self.n_fixed
        return self.members.get(placed) if fits else None

    def name_of(self, counts: Counts) -> str:
        """The placed atoms as a formula; "clean" without any."""
        parts = zip(self.varied, counts, strict=True)
        return "".join(f"{s}{n if n > 1 else ''}" for s, n in parts if n) or "clean"

    @property
    def several_sizes(self) -> bool:
        return True

    @property
    def counts_rediscoveries(self) -> bool:
        return False

    def fault(self, atoms: Atoms) -> str | None:
        member = self.member_of(atoms)
        return "the composition is out of range" if member is None else member.fault(atoms)

    def to_frame(self, atoms: Atoms) -> tuple[Atoms, Ints] | None:
        member = self.member_of(atoms)
        return None if member is None else member.to_frame(atoms)

    def required_first(self, images: Sequence[Atoms]) -> PlacedAtoms:
        """The bare template, if it is among the compositions and was not evaluated."""
        bare = self.members.get((0,) * len(self.varied))
        if bare is None or any(len(atoms) == self.n_fixed for atoms in images):
            return self
        return bare

    def draw_target(
        self, rng: np.random.Generator, parents: Sequence[Atoms]
    ) -> tuple[PlacedAtoms, Sequence[Atoms]]:
        """A composition with placed atoms, near that of a parent or any, and all parents."""
        every = [counts for counts in self.members if sum(counts)]
        if parents and rng.random() < _NEAR:
            near = np.array(self.placed(parents[int(rng.integers(len(parents)))]))
            every = [c for c in every if np.abs(np.array(c) - near).sum() <= 1] or every
        return self.members[every[int(rng.integers(len(every)))]], parents


def placed_counts(numbers: Ints, elements: Sequence[str]) -> Counts:
    """Atoms of each element among these."""
    return tuple(int(np.sum(numbers == atomic_numbers[symbol])) for symbol in elements)


def reservoirs_of(settings: SystemConfig) -> Reservoirs:
    """The reservoirs that the settings of a system describe."""
    return make_reservoirs(
        str(settings.vary), settings.chemical_potential, settings.reservoirs,
        settings.reference_energies, settings.temperature, settings.partial_pressures,
    )  # fmt: skip


@registered("system")
class GrandCanonicalKind(SystemKind):
    """A cluster, or atoms on a template, with a varying number of atoms."""

    name = "grand-canonical"
    several_sizes = True

    def check(self, settings: SystemConfig) -> None:
        if settings.kind == "surface" and settings.template is None:
            raise ValueError("a surface search needs system.template, a file with the slab")
        try:
            reservoirs_of(settings)
        except NuggetError as error:
            raise ValueError(str(error)) from None

    def make(self, settings: SystemConfig, directory: Path) -> VariedAtoms:
        ranges = parse_vary(str(settings.vary))
        elements = {symbol: ends for symbol, ends in ranges.items() if symbol != TOTAL}
        symbols = tuple(s for s, (_, high) in elements.items() for _ in range(high))
        if settings.kind == "surface":
            template = read_images(resolve_path(str(settings.template), directory), -1)[0]
            largest = PlacedAtoms.on_template(symbols, template, settings.height)
        else:
            largest = PlacedAtoms.cluster(symbols, settings.radius)
        return VariedAtoms.of(largest, ranges)

    def goal(self, settings: SystemConfig) -> Goal:
        reservoirs = reservoirs_of(settings)
        lowest, highest = zip(*reservoirs.ranges, strict=True)
        elements = tuple(atomic_numbers[symbol] for symbol in reservoirs.elements)
        references = tuple(reservoirs.references.tolist())
        return GrandPotential(envelope=Envelope(elements, references, lowest, highest))

    def title(self, settings: SystemConfig) -> str:
        place = f" on {Path(settings.template).stem}" if settings.template else ""
        return f"{settings.title}{place}"

    def defaults(self) -> dict[str, dict[str, Any]]:
        """Walkers have the positions of one composition, so that there are none."""
        return {
            "search": {
                "generators": GENERATORS, "walkers": 0, "n_parents": 16, "candidates": 40,
                "initial": 8,
            }
        }  # fmt: skip
