"""What all generators of crystals share: drawing parents, trying again, building and checking."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from ase import Atoms
from ase.cell import Cell

from nugget._compiled.arrays import Floats, Ints
from nugget.generators.base import Rng
from nugget.generators.crystal import Crystal
from nugget.generators.problem import Failure


@dataclass(frozen=True)
class CrystalProposal:
    """A cell, fractional coordinates and atomic numbers; `info` goes to the structure's `info`."""

    cell: Floats
    points: Floats
    numbers: Ints
    info: dict[str, str] = field(default_factory=dict)


CrystalProposals = Iterator[CrystalProposal | Failure]


@dataclass(frozen=True, kw_only=True)
class CrystalGenerator(ABC):
    """Takes the first valid crystal that `propose` gives in up to `tries` tries.

    The limit is one of tries, not of seconds: the same seed gives the same search anywhere.
    """

    name: ClassVar[str]
    needs: ClassVar[int] = 0
    variable_cell: ClassVar[bool] = True
    unsuited: ClassVar[str] = "it does not suit this problem"

    tries: int = 20

    def suits(self, problem: Any) -> bool:
        return bool(problem.variable_cell) and self.fits(problem)

    def fits(self, problem: Crystal) -> bool:
        """Whether it makes sense for this crystal."""
        return True

    @abstractmethod
    def propose(self, rng: Rng, problem: Crystal, parents: list[Atoms]) -> CrystalProposals:
        """The candidates of one try, best first, or the reason why there is none."""

    def __call__(
        self, rng: Rng, problem: Crystal, parents: Sequence[Atoms] = ()
    ) -> Atoms | Failure:
        if not self.suits(problem):
            return Failure(self.unsuited)
        if len(parents) < self.needs:
            return Failure(f"needs {self.needs} known structures, there are {len(parents)}")
        result: Atoms | Failure = Failure("no tries were allowed")
        for _ in range(self.tries):
            chosen = []
            if self.needs:
                rows = rng.choice(len(parents), size=self.needs, replace=False)
                chosen = [parents[k] for k in rows]
            for proposal in self.propose(rng, problem, chosen):
                if isinstance(proposal, Failure):
                    result = proposal
                    continue
                result = problem.build(
                    proposal.cell, proposal.points, proposal.numbers, generator=self.name,
                    **proposal.info,
                )  # fmt: skip
                if isinstance(result, Atoms):
                    return result
        return result


def random_cell(rng: Rng, volume: float) -> Floats:
    """A cell of this volume: lengths within a factor of about three, angles of 60 to 120°."""
    while True:
        lengths = np.exp(0.35 * rng.normal(size=3))
        angles = rng.uniform(60, 120, size=3)
        a, b, c = np.cos(np.radians(angles))
        if 1 - a * a - b * b - c * c + 2 * a * b * c > 0.1:
            break
    cell = np.asarray(Cell.fromcellpar([*lengths, *angles]).array)
    return scaled_to(cell, volume)


def scaled_to(cell: Floats, volume: float) -> Floats:
    """The cell with another volume."""
    return np.asarray(cell * (volume / abs(np.linalg.det(cell))) ** (1 / 3))


def parts_of(atoms: Atoms) -> tuple[Floats, Floats, Ints]:
    """Cell, fractional coordinates and atomic numbers, as copies."""
    return (
        np.array(atoms.cell.array),
        atoms.get_scaled_positions(wrap=True),
        np.array(atoms.numbers, dtype=np.int64),
    )
