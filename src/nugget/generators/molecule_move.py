"""Molecule move: turn and shift whole molecules of a parent, or put some of them elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.problem import Failure, Problem
from nugget.generators.random_molecules import dock
from nugget.generators.sampling import directions, in_ball, random_rotation, rotation
from nugget.registry import registered

_TRIES = 10  # places tried for each molecule


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class MoleculeMove(BaseGenerator):
    """A random share of the molecules turns and shifts; in a share `jumps` of all moves, one or two
    molecules go to another place.

    The farthest shift is drawn between `smallest` and `largest` Å, the largest turn between 0.3 and
    π, anew for every structure. The shape of a molecule stays that of the parent.
    """

    name: ClassVar[str] = "molecule_move"
    needs: ClassVar[int] = 1
    whole_molecules: ClassVar[bool] = True
    smallest: float = 0.2
    largest: float = 2.0
    share: float = 0.2
    jumps: float = 0.3

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        [x] = parents
        order = rng.permutation(len(problem.units))
        if rng.random() < self.jumps and len(order) > 1:
            yield from self._jump(rng, problem, x, order[: int(rng.integers(1, 3))])
            return
        reach, turn = rng.uniform(self.smallest, self.largest), rng.uniform(0.3, np.pi)
        count = max(1, round(len(order) * rng.uniform(self.share, 1.0)))
        present = np.ones(len(x), dtype=bool)
        for k in order[:count]:
            own = problem.n_fixed + problem.units[k].atoms
            middle = x[own].mean(axis=0)
            present[own] = False
            for shift in in_ball(rng, _TRIES, reach):
                about = rotation(directions(rng, 1)[0], rng.uniform(-turn, turn))
                at = (x[own] - middle) @ about.T + middle + shift
                if all(problem.rules.has_room(own, at, x, present)):
                    x[own] = at
                    break
            present[own] = True
        yield Proposal(x)

    def _jump(self, rng: Rng, problem: Problem, x: Floats, chosen: Ints) -> Proposals:
        present = np.ones(len(x), dtype=bool)
        units = [problem.units[int(k)] for k in chosen]
        for unit in units:
            present[problem.n_fixed + unit.atoms] = False
        for unit in units:
            places = x[problem.n_fixed + unit.atoms]
            shape = (places - places.mean(axis=0)) @ random_rotation(rng).T
            if not dock(rng, problem, unit, shape, x, present):
                yield Failure("no other place was found for a molecule")
                return
        yield Proposal(x)
