"""A mixture of generators whose weights follow what has worked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError
from nugget.generators.base import Generator, suits
from nugget.generators.crystal import Crystal
from nugget.generators.problem import Failure, Problem


class Mixer:
    """Chooses generators at random; `credit` tells it how well their structures did.

    The weight of a generator is w_k (s_k + 1)/(t_k + 2): its starting weight times the estimated
    chance that it succeeds, with s and t counts of successes and trials that fade by `memory` with
    each credit. A share `floor` of all choices ignores this, so that no generator dies out.
    """

    def __init__(
        self,
        generators: Sequence[Generator],
        weights: Mapping[str, float] | None = None,
        floor: float = 0.2,
        memory: float = 0.98,
    ) -> None:
        names = [g.name for g in generators]
        weights = dict(weights or {})
        stray = [n for n in weights if n not in names]
        if not names or len(set(names)) < len(names) or stray:
            raise NuggetError(
                f"A mixer needs different generators, and weights for those only; got {names} "
                f"and weights for {stray or 'them'}."
            )
        if not 0 < floor <= 1 or not 0 < memory <= 1:
            raise NuggetError("A mixer's floor and memory lie above 0 and up to 1.")
        self.generators = {g.name: g for g in generators}
        self.weights = np.array([float(weights.get(n, 1.0)) for n in names])
        if (self.weights < 0).any() or not self.weights.any():
            raise NuggetError("A mixer's weights are positive, or 0 for what is not to be used.")
        self.floor, self.memory = floor, memory
        self.trials, self.successes = np.zeros(len(names)), np.zeros(len(names))

    @property
    def names(self) -> list[str]:
        return list(self.generators)

    def probabilities(self, problem: Problem | Crystal, n_parents: int) -> Floats:
        """Chances of the generators, 0 for those that do not suit or lack parents."""
        usable = np.array(
            [suits(g, problem) and g.needs <= n_parents for g in self.generators.values()]
        )
        base = self.weights * usable
        if not base.any():
            raise NuggetError(
                f"None of the generators {self.names} can start with {n_parents} known structures; "
                "add one that needs no parents, such as random_cluster, random_placement or "
                "random_crystal."
            )
        learned = base * (self.successes + 1.0) / (self.trials + 2.0)
        return np.asarray(
            self.floor * base / base.sum() + (1.0 - self.floor) * learned / learned.sum()
        )

    def __call__(
        self, rng: np.random.Generator, problem: Problem | Crystal, parents: Sequence[Atoms] = (),
        tries: int = 10,
    ) -> Atoms | Failure:  # fmt: skip
        """One structure; after a failure another generator is drawn, up to `tries` times."""
        problem, parents = problem.drawn(rng, parents)
        p = self.probabilities(problem, len(parents))
        reasons = []
        for _ in range(tries):
            name = self.names[int(rng.choice(len(p), p=p))]
            result = self.generators[name](rng, problem, parents)
            match result:
                case Failure(reason):
                    reasons.append(f"{name}: {reason}")
                case atoms:
                    return atoms
        return Failure("; ".join(dict.fromkeys(reasons)))

    def credit(self, name: str, success: float) -> None:
        """One structure of this generator was tried; `success` from 0 (useless) to 1 (a find)."""
        if name not in self.generators or not 0.0 <= success <= 1.0:
            raise NuggetError(
                f"Credit {success!r} for {name!r}: use 0 to 1 and one of {self.names}."
            )
        self.trials *= self.memory
        self.successes *= self.memory
        k = self.names.index(name)
        self.trials[k] += 1.0
        self.successes[k] += success
