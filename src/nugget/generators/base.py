"""What a generator is, and what all of ours share.

`Generator` is the contract. `BaseGenerator` draws the parents, retries, builds and checks the
structure and names its origin, so that a generator's file holds its proposal only:

    @registered("generator")
    @dataclass(frozen=True, kw_only=True)
    class Shift(BaseGenerator):
        '''Moves one atom.'''

        name: ClassVar[str] = "shift"
        needs: ClassVar[int] = 1

        def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
            [x] = parents
            x[-1] += rng.normal(size=3)
            yield Proposal(x)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.generators.problem import Failure, Problem

Rng = np.random.Generator


class Generator(Protocol):
    """Makes one new structure from random numbers and, for some, known structures.

    `name` is its name in settings, and `info["generator"]` of every structure that it makes.
    `needs` is how many parents it takes; it draws them from the given pool and never changes them.
    A call gives a valid structure (see `Problem`) or a `Failure` with a reason, after a bounded
    number of tries. The same state of `rng` gives the same structure.
    """

    name: ClassVar[str]
    needs: ClassVar[int]

    def suits(self, problem: Any) -> bool:
        """Whether it makes sense for this problem at all."""
        ...

    def __call__(self, rng: Rng, problem: Any, parents: Sequence[Atoms] = ()) -> Atoms | Failure:
        """The problem is a `Problem`; a `Crystal` for generators with `variable_cell = True`."""
        ...


def suits(generator: Generator, problem: Any) -> bool:
    """Whether a generator serves this problem: cells, molecules or atoms, and its own word."""
    varies = bool(getattr(generator, "variable_cell", False))
    whole = bool(getattr(generator, "whole_molecules", False))
    if varies != bool(problem.variable_cell) or (not varies and whole != bool(problem.units)):
        return False
    return generator.suits(problem)


@dataclass(frozen=True)
class Proposal:
    """Positions of all atoms, the template's first; `info` goes to the structure's `info`."""

    positions: Floats
    info: Mapping[str, str] = field(default_factory=dict)


Proposals = Iterator[Proposal | Failure]


@dataclass(frozen=True, kw_only=True)
class BaseGenerator(ABC):
    """Takes the first valid structure that `propose` gives in up to `tries` tries."""

    name: ClassVar[str]
    needs: ClassVar[int] = 0
    redraws: ClassVar[bool] = False  # whether every try draws its own parents
    unsuited: ClassVar[str] = "it does not suit this problem"  # the reason when `suits` says no
    idle: ClassVar[str] = "no tries were allowed"  # the reason when nothing at all was proposed

    tries: int = 20

    def suits(self, problem: Problem) -> bool:
        return True

    @abstractmethod
    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        """The candidates of one try, best first, or the reason why there is none.

        `parents` are copies of the positions of `needs` known structures and may be changed. All
        random numbers are drawn before the first candidate is given.
        """

    def __call__(
        self, rng: Rng, problem: Problem, parents: Sequence[Atoms] = ()
    ) -> Atoms | Failure:
        if not self.suits(problem):
            return Failure(self.unsuited)
        chosen: list[Floats] | Failure | None = None
        result: Atoms | Failure = Failure(self.idle)
        for _ in range(self.tries):
            if chosen is None or self.redraws:
                chosen = draw_parents(rng, problem, parents, self.needs)
            if isinstance(chosen, Failure):
                return chosen
            for proposal in self.propose(rng, problem, [x.copy() for x in chosen]):
                if isinstance(proposal, Failure):
                    result = proposal
                    continue
                result = problem.build(proposal.positions, generator=self.name, **proposal.info)
                if isinstance(result, Atoms):
                    return result
        return result


def draw_parents(
    rng: Rng, problem: Problem, parents: Sequence[Atoms], n: int
) -> list[Floats] | Failure:
    """Positions of n different parents out of the pool."""
    if n == 0:
        return []
    if len(parents) < n:
        return Failure(f"needs {n} known structures, there are {len(parents)}")
    chosen = [parents[k] for k in rng.choice(len(parents), size=n, replace=False)]
    for atoms in chosen:
        if not np.array_equal(atoms.numbers, problem.numbers):
            return Failure("a parent's atoms are not those of the problem, in the same order")
    return [atoms.positions for atoms in chosen]
