"""Cut and splice (Deaven and Ho): the upper part of one parent on the lower part of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget.generators._base import draw_parents, random_rotation
from nugget.generators._validity import Floats
from nugget.generators.problem import Failure, Problem


def splice(upper: Floats, lower: Floats, high: Floats, low: Floats, numbers: np.ndarray,
           cut: float) -> tuple[Floats, np.ndarray]:  # fmt: skip
    """Atoms of `upper` with height above the cut, filled up with the lowest of `lower`.

    Done element by element, so the child has the right composition whatever the parents look like.
    Returns its positions, in the order of `numbers`, and which of them come from `upper`.
    """
    child = np.empty_like(upper)
    from_upper = np.zeros(len(numbers), dtype=bool)
    for z in np.unique(numbers):
        own = np.flatnonzero(numbers == z)
        top = own[high[own] > cut]
        bottom = own[np.argsort(low[own], kind="stable")][: len(own) - len(top)]
        child[own[: len(top)]] = upper[top]
        child[own[len(top) :]] = lower[bottom]
        from_upper[own[: len(top)]] = True
    return child, from_upper


@dataclass(frozen=True)
class CutAndSplice:
    """Clusters are turned at random first; on a template the cut is a random vertical plane.

    In a periodic cell the height is the fractional coordinate along a random axis, from a random
    zero. Halves that overlap are moved apart by up to `apart` bond lengths (clusters only).
    """

    name: ClassVar[str] = "cut_and_splice"
    needs: ClassVar[int] = 2
    apart: float = 0.4
    tries: int = 20

    def suits(self, problem: Problem) -> bool:
        return len(problem.symbols) > 1

    def __call__(
        self, rng: np.random.Generator, problem: Problem, parents: Sequence[Atoms] = ()
    ) -> Atoms | Failure:
        result: Atoms | Failure = Failure("no tries were allowed")
        for _ in range(self.tries):
            chosen = draw_parents(rng, problem, parents, 2)
            if isinstance(chosen, Failure):
                return chosen
            a, b = (x[problem.n_fixed :] for x in chosen)
            result = self._once(rng, problem, a, b)
            if isinstance(result, Atoms):
                return result
        return result

    def _once(
        self, rng: np.random.Generator, problem: Problem, a: Floats, b: Floats
    ) -> Atoms | Failure:
        n, fixed = len(problem.symbols), problem.n_fixed
        up = np.zeros(3)
        if problem.free:
            a = (a - a.mean(axis=0)) @ random_rotation(rng).T
            b = (b - b.mean(axis=0)) @ random_rotation(rng).T
            up[2] = 1.0
            high, low = a[:, 2], b[:, 2]
        elif fixed:
            angle = rng.uniform(0, 2 * np.pi)
            normal = np.array([np.cos(angle), np.sin(angle), 0.0])
            high, low = a @ normal, b @ normal
        else:
            axis, zero = int(rng.integers(3)), rng.random()
            inverse = problem.lattice.inverse[:, axis]
            high, low = (a @ inverse + zero) % 1.0, (b @ inverse + zero) % 1.0
        take = int(rng.integers(1, n))
        cut = float(np.sort(high)[n - take - 1])
        child, from_upper = splice(a, b, high, low, problem.numbers[fixed:], cut)
        x, _ = problem.start()
        result: Atoms | Failure = Failure("the cut gave no new structure")
        if from_upper.all() or not from_upper.any():
            return result
        for step in range(5 if problem.free else 1):
            x[fixed:] = child
            x[fixed:][from_upper] += up * (step / 4 * self.apart * problem.bond)
            result = problem.build(x, generator=self.name)
            if isinstance(result, Atoms):
                break
        return result
