"""Whole molecules at random places and in random orientations, each in contact with the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Bools, Floats
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.molecules import Unit
from nugget.generators.problem import Failure, Problem
from nugget.generators.sampling import directions, random_rotation
from nugget.registry import registered

_TRIES = 30  # directions from which a molecule is brought near
_NEAR, _FAR, _STEP = 1.0, 9.0, 0.2  # Å; the distances from its host that are tried


def dock(rng: Rng, problem: Problem, unit: Unit, shape: Floats, x: Floats, present: Bools) -> bool:
    """Put a unit of this shape beside something present, as near as it may be; False if it fails.

    `x` and `present` are changed in place.
    """
    own, rules = problem.n_fixed + unit.atoms, problem.rules
    hosts = np.flatnonzero(present)
    for direction in directions(rng, _TRIES):
        turned = shape @ random_rotation(rng).T
        host = x[rng.choice(hosts)] if len(hosts) else np.zeros(3)
        for r in np.arange(_NEAR, _FAR, _STEP) if len(hosts) else [0.0]:
            at = host + r * direction + turned
            clear, touches = rules.has_room(own, at, x, present)
            if not clear:
                continue
            if touches and (problem.free or problem.region is None or all_inside(problem, at)):
                x[own], present[own] = at, True
                return True
            break
    return False


def all_inside(problem: Problem, at: Floats) -> bool:
    """Are all these atoms in the problem's region?"""
    return problem.region is None or bool(problem.region.inside(at).all())


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class RandomMolecules(BaseGenerator):
    """Molecules in random order; each is brought to a random one that is there until they touch."""

    name: ClassVar[str] = "random_molecules"
    whole_molecules: ClassVar[bool] = True

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        x, present = problem.start()
        for k in rng.permutation(len(problem.units)):
            unit = problem.units[k]
            if not dock(rng, problem, unit, unit.shape, x, present):
                yield Failure("no room was found for a molecule")
                return
        yield Proposal(x)
