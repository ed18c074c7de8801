"""Cut and splice (Deaven and Ho): the upper part of one parent on the lower part of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.problem import Failure, Problem
from nugget.generators.sampling import random_rotation
from nugget.registry import registered


def splice(upper: Floats, lower: Floats, high: Floats, low: Floats, numbers: Ints,
           cut: float) -> tuple[Floats, Bools]:  # fmt: skip
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


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class CutAndSplice(BaseGenerator):
    """Clusters are turned at random first; on a template the cut is a random vertical plane.

    In a periodic cell the height is the fractional coordinate along a random axis, from a random
    zero. Halves that overlap are moved apart by up to `apart` bond lengths (clusters only).
    """

    name: ClassVar[str] = "cut_and_splice"
    needs: ClassVar[int] = 2
    redraws: ClassVar[bool] = True
    unsuited: ClassVar[str] = "a single atom cannot be cut"
    apart: float = 0.4

    def suits(self, problem: Problem) -> bool:
        return len(problem.symbols) > 1

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        n, fixed = len(problem.symbols), problem.n_fixed
        a, b = (x[fixed:] for x in parents)
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
        if from_upper.all() or not from_upper.any():
            yield Failure("the cut gave no new structure")
            return
        x, _ = problem.start()
        for step in range(5 if problem.free else 1):
            x[fixed:] = child
            x[fixed:][from_upper] += up * (step / 4 * self.apart * problem.bond)
            yield Proposal(x)
