"""Molecule splice: whole molecules from above a plane of one parent, the others from another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Floats
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.problem import Failure, Problem
from nugget.generators.sampling import random_rotation
from nugget.registry import registered


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class MoleculeSplice(BaseGenerator):
    """Clusters are turned at random first; on a template the cut is a random vertical plane.

    Halves that overlap are moved apart by up to `apart` Å (clusters only).
    """

    name: ClassVar[str] = "molecule_splice"
    needs: ClassVar[int] = 2
    redraws: ClassVar[bool] = True
    unsuited: ClassVar[str] = "a single molecule cannot be cut"
    whole_molecules: ClassVar[bool] = True
    apart: float = 1.5

    def suits(self, problem: Problem) -> bool:
        return len(problem.units) > 1

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        fixed, units = problem.n_fixed, problem.units
        a, b = (x[fixed:] for x in parents)
        angle = rng.uniform(0, 2 * np.pi)
        normal = np.array([np.cos(angle), np.sin(angle), 0.0])
        if problem.free:
            a = (a - a.mean(axis=0)) @ random_rotation(rng).T
            b = (b - b.mean(axis=0)) @ random_rotation(rng).T
        high, low = (np.array([x[u.atoms].mean(axis=0) @ normal for u in units]) for x in (a, b))
        cut = np.sort(high)[int(rng.integers(0, len(units) - 1))]
        child, lifted = np.empty_like(a), np.zeros(len(a), dtype=bool)
        for name in dict.fromkeys(unit.name for unit in units):
            own = np.array([k for k, unit in enumerate(units) if unit.name == name])
            top = own[high[own] > cut]
            rest = own[np.argsort(low[own], kind="stable")][: len(own) - len(top)]
            for k, source in enumerate([*top, *rest]):
                place, taken = units[own[k]].atoms, units[source].atoms
                child[place] = (a if k < len(top) else b)[taken]
                lifted[place] = k < len(top)
        if lifted.all() or not lifted.any():
            yield Failure("the cut gave no new structure")
            return
        x, _ = problem.start()
        for step in range(5 if problem.free else 1):
            x[fixed:] = child
            x[fixed:][lifted] += normal * (step / 4 * self.apart)
            yield Proposal(x)
