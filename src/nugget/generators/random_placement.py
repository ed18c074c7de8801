"""Random placement in the problem's region: a box, a sphere, above a slab, in a bulk cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget.generators.problem import Failure, Problem

CHUNK = 32


@dataclass(frozen=True)
class RandomPlacement:
    """Atoms in random order, uniform in the region, each bonded to the template or another atom."""

    name: ClassVar[str] = "random_placement"
    needs: ClassVar[int] = 0
    tries: int = 20
    chunks: int = 60

    def suits(self, problem: Problem) -> bool:
        return problem.region is not None

    def __call__(
        self, rng: np.random.Generator, problem: Problem, parents: Sequence[Atoms] = ()
    ) -> Atoms | Failure:
        result: Atoms | Failure = Failure("no tries were allowed")
        for _ in range(self.tries):
            result = self._once(rng, problem)
            if isinstance(result, Atoms):
                return result
        return result

    def _once(self, rng: np.random.Generator, problem: Problem) -> Atoms | Failure:
        assert problem.region is not None
        x, present = problem.start()
        for i in problem.n_fixed + rng.permutation(len(problem.symbols)):
            for _ in range(self.chunks):
                points = problem.region.sample(rng, CHUNK)
                k = problem.fit(points, int(i), x, present, 1 if present.any() else 0)
                if k >= 0:
                    break
            else:
                return Failure("no room was found for an atom in the region")
            x[i] = points[k]
            present[i] = True
        return problem.build(x, generator=self.name)
