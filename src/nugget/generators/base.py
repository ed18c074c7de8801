"""The contract of a generator, and the base classes of ours.

`Generator` is the contract. The base classes draw parents, repeat failed tries, build and check the
structure, and record its origin. A generator's file contains only its proposal:

    @registered("generator")
    @dataclass(frozen=True, kw_only=True)
    class Shift(BaseGenerator):
        '''Moves one atom.'''

        name = "shift"
        needs = 1

        def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
            [x] = parents
            x[-1] += rng.normal(size=3)
            yield Proposal(x)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from ase import Atoms

from nugget.numerics.arrays import Floats, Ints
from nugget.systems.base import Failure, System
from nugget.systems.crystal import Crystal
from nugget.systems.placed_atoms import PlacedAtoms

Rng = np.random.Generator


class Generator(Protocol):
    """Generates one new structure from random numbers and, for some generators, from parents.

    `name` is its name in settings, and `info["generator"]` of all its structures. `needs` is the
    number of parents, which it draws from the given structures and never changes. A call returns a
    valid structure (see `System.fault`) or, after a bounded number of tries, a `Failure` with a
    reason. The same state of `rng` gives the same structure.

    Generators of crystals have an attribute `variable_cell = True`, those of whole molecules
    `whole_molecules = True`, those whose parents have other compositions `other_compositions =
    True`; all are False where they are missing. Structures of a generator with `few_results = True`
    repeat each other, so that they do not count as independent rediscoveries (`search.stop`).
    """

    name: ClassVar[str]
    needs: ClassVar[int]

    def suits(self, system: Any) -> bool:
        """Whether it can generate structures of this system; see also `suits` below."""
        ...

    def __call__(self, rng: Rng, system: Any, parents: Sequence[Atoms] = ()) -> Atoms | Failure:
        """A new structure of the system."""
        ...


def suits(generator: Generator, system: System) -> bool:
    """Whether a generator supports this system and its kind (atoms, molecules, cells)."""
    if getattr(generator, "variable_cell", False) != system.variable_cell:
        return False
    if getattr(generator, "whole_molecules", False) != system.whole_molecules:
        return False
    return generator.suits(system)


@dataclass(frozen=True)
class Proposal:
    """Positions of all atoms, the template's first; `info` goes to the structure's `info`."""

    positions: Floats
    info: Mapping[str, str] = field(default_factory=dict)

    def build(self, system: Any, generator: str) -> Atoms | Failure:
        built: Atoms | Failure = system.build(self.positions, generator=generator, **self.info)
        return built


@dataclass(frozen=True)
class CrystalProposal:
    """A cell, fractional coordinates and atomic numbers; `info` goes to the structure's `info`."""

    cell: Floats
    points: Floats
    numbers: Ints
    info: Mapping[str, str] = field(default_factory=dict)

    def build(self, system: Any, generator: str) -> Atoms | Failure:
        built: Atoms | Failure = system.build(
            self.cell, self.points, self.numbers, generator=generator, **self.info
        )
        return built


Proposals = Iterator[Proposal | Failure]
CrystalProposals = Iterator[CrystalProposal | Failure]


@dataclass(frozen=True, kw_only=True)
class _TryingGenerator(ABC):
    """Returns the first valid structure that `propose` yields in up to `tries` tries.

    Tries are limited in number, not in time, so that a seed gives the same search on any machine.
    """

    name: ClassVar[str]
    needs: ClassVar[int] = 0
    variable_cell: ClassVar[bool] = False
    whole_molecules: ClassVar[bool] = False
    few_results: ClassVar[bool] = False  # see `Generator`
    redraws: ClassVar[bool] = False  # whether every try draws its own parents
    unsuited: ClassVar[str] = "it does not suit this system"  # the reason when `suits` is False
    idle: ClassVar[str] = "no tries were allowed"  # the reason when nothing was proposed

    tries: int = 20

    def suits(self, system: Any) -> bool:
        return True

    @abstractmethod
    def propose(self, rng: Rng, system: Any, parents: list[Any]) -> Any:
        """Yield the candidates of one try, best first, or a `Failure`.

        `parents` are `needs` copies and may be changed. All random numbers are drawn before the
        first candidate is yielded.
        """

    @abstractmethod
    def _prepare(self, system: Any, atoms: Atoms) -> Any:
        """A parent as `propose` takes it, or a `Failure`."""

    def __call__(self, rng: Rng, system: Any, parents: Sequence[Atoms] = ()) -> Atoms | Failure:
        if not suits(self, system):
            return Failure(self.unsuited)
        chosen: list[Any] | Failure | None = None
        result: Atoms | Failure = Failure(self.idle)
        for _ in range(self.tries):
            if chosen is None or self.redraws:
                chosen = self._draw_parents(rng, system, parents)
            if isinstance(chosen, Failure):
                return chosen
            for proposal in self.propose(rng, system, [parent.copy() for parent in chosen]):
                if isinstance(proposal, Failure):
                    result = proposal
                    continue
                result = proposal.build(system, self.name)
                if isinstance(result, Atoms):
                    return result
        return result

    def _draw_parents(self, rng: Rng, system: Any, parents: Sequence[Atoms]) -> list[Any] | Failure:
        """Different parents out of those given that suit the system."""
        if self.needs == 0:
            return []
        if len(parents) < self.needs:
            return Failure(f"needs {self.needs} parents, there are {len(parents)}")
        prepared = [self._prepare(system, parent) for parent in parents]
        fitting = [one for one in prepared if not isinstance(one, Failure)]
        if len(fitting) < self.needs:
            return next(one for one in prepared if isinstance(one, Failure))
        rows = rng.choice(len(fitting), size=self.needs, replace=False)
        return [fitting[k] for k in rows]


class BaseGenerator(_TryingGenerator):
    """Base class of generators for `PlacedAtoms`; parents are positions."""

    @abstractmethod
    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        """Yield the candidates of one try, best first, or a `Failure`."""

    def _prepare(self, system: PlacedAtoms, atoms: Atoms) -> Floats | Failure:
        if not np.array_equal(atoms.numbers, system.numbers):
            return Failure("a parent's atoms are not those of the system, in the same order")
        return atoms.positions


class CompositionGenerator(_TryingGenerator):
    """Base class of generators for `PlacedAtoms` whose parents have another composition."""

    needs = 1
    redraws = True
    other_compositions: ClassVar[bool] = True
    most: int = 3  # atoms that a parent may differ by

    def suits(self, system: PlacedAtoms) -> bool:
        return not system.units

    @abstractmethod
    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Atoms]) -> Proposals:
        """Yield the candidates of one try, best first, or a `Failure`."""

    @abstractmethod
    def takes(self, missing: int, surplus: int) -> bool:
        """Whether a parent may lack and exceed the system by these numbers of atoms."""

    def _prepare(self, system: PlacedAtoms, atoms: Atoms) -> Atoms | Failure:
        n = system.n_fixed
        if not np.array_equal(atoms.numbers[:n], system.numbers[:n]):
            return Failure("a parent has another template")
        missing, surplus = composition_difference(system, atoms)
        if not self.takes(sum(missing.values()), sum(surplus.values())):
            return Failure("no parent has a suitable composition")
        return atoms


def composition_difference(
    system: PlacedAtoms, atoms: Atoms
) -> tuple[dict[int, int], dict[int, int]]:
    """Placed atoms that a structure lacks and that it has too many, by atomic number."""
    n = system.n_fixed
    wanted, present = Counter(system.numbers[n:].tolist()), Counter(atoms.numbers[n:].tolist())
    return dict(wanted - present), dict(present - wanted)


def in_system_order(system: PlacedAtoms, numbers: Ints, positions: Floats) -> Floats:
    """Positions of all atoms in the order of the system, which has these placed atoms."""
    n = system.n_fixed
    order = np.argsort(numbers[n:], kind="stable")
    places = np.argsort(system.numbers[n:], kind="stable")
    ordered = positions.copy()
    ordered[n + places] = positions[n + order]
    return ordered


class CrystalGenerator(_TryingGenerator):
    """Base class of generators for `Crystal`; parents are structures."""

    variable_cell = True
    redraws = True

    @abstractmethod
    def propose(self, rng: Rng, system: Crystal, parents: list[Atoms]) -> CrystalProposals:
        """Yield the candidates of one try, best first, or a `Failure`."""

    def _prepare(self, system: Crystal, atoms: Atoms) -> Atoms:
        return atoms
