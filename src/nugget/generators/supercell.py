"""Supercells: a known crystal repeated, and disturbed so that it can become another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Ints
from nugget.generators.base import Rng
from nugget.generators.crystal import Crystal
from nugget.generators.crystal_base import (
    CrystalGenerator,
    CrystalProposal,
    CrystalProposals,
    parts_of,
)
from nugget.generators.problem import Failure
from nugget.registry import registered


def random_multiple(rng: Rng, times: int) -> Ints:
    """A random integer matrix of this determinant, in Hermite's form, axes in random order."""
    divisors = [d for d in range(1, times + 1) if times % d == 0]
    first = int(rng.choice(divisors))
    second = int(rng.choice([d for d in divisors if (times // first) % d == 0]))
    sizes = [first, second, times // first // second]
    matrix = np.diag(sizes)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        matrix[i, j] = rng.integers(sizes[j])
    order = rng.permutation(3)
    return np.asarray(matrix[np.ix_(order, order)])


def repeated(atoms: Atoms, matrix: Ints) -> Atoms:
    """The crystal in the cell matrix·cell."""
    cell, points, numbers = parts_of(atoms)
    inverse = np.linalg.inv(matrix)
    times = round(abs(float(np.linalg.det(matrix))))
    span = int(np.abs(matrix).sum(axis=0).max())
    shifts = np.array(list(np.ndindex(*[2 * span + 1] * 3))) - span
    inside = (shifts @ inverse + 1e-9) % 1.0
    _, first = np.unique(np.round(inside, 6), axis=0, return_index=True)
    every = (points[:, None] + shifts[np.sort(first)[:times]]).reshape(-1, 3) @ inverse
    return Atoms(
        np.repeat(numbers, times), cell=matrix @ cell, scaled_positions=every % 1.0, pbc=True
    )


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Supercell(CrystalGenerator):
    """A random multiple of a parent that has room for more units, atoms moved by `shift` Å."""

    name: ClassVar[str] = "supercell"
    needs: ClassVar[int] = 1
    unsuited: ClassVar[str] = "there is no room for a second formula unit"
    shift: float = 0.3

    def fits(self, problem: Crystal) -> bool:
        return problem.units[1] >= 2 * problem.units[0]

    def propose(self, rng: Rng, problem: Crystal, parents: list[Atoms]) -> CrystalProposals:
        most = problem.units[1] // problem.units_of(parents[0])
        if most < 2:
            yield Failure("the parent has no room for more units")
            return
        made = repeated(parents[0], random_multiple(rng, int(rng.integers(2, most + 1))))
        cell, points, numbers = parts_of(made)
        moves = rng.normal(0.0, self.shift, (len(numbers), 3))
        yield CrystalProposal(cell, points + moves @ np.linalg.inv(cell), numbers)
