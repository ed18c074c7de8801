"""A random choice between generators, with weights that follow their success."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.generators.base import Generator, suits
from nugget.numerics.arrays import Floats
from nugget.systems.base import Failure, System


class Mixer:
    """Chooses generators at random; `credit` reports how successful their structures were.

    The weight of a generator is w_k (s_k + 1)/(t_k + 2), its initial weight times the estimated
    probability of success. s and t count successes and trials; both decay by `memory` with each
    credit. A share `floor` of all choices uses the initial weights, so that every generator remains
    in use.
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
            raise NuggetError("The floor and the memory of a mixer must be above 0 and at most 1.")
        self.generators = {g.name: g for g in generators}
        self.weights = np.array([float(weights.get(n, 1.0)) for n in names])
        if (self.weights < 0).any() or not self.weights.any():
            raise NuggetError("The weights of generators must be 0 or more, and one positive.")
        self.floor, self.memory = floor, memory
        self.trials, self.successes = np.zeros(len(names)), np.zeros(len(names))

    @property
    def names(self) -> list[str]:
        return list(self.generators)

    def probabilities(self, system: System, n_parents: int) -> Floats:
        """Probabilities of the generators, 0 for those that do not suit or need more parents."""
        usable = np.array(
            [suits(g, system) and g.needs <= n_parents for g in self.generators.values()]
        )
        base = self.weights * usable
        if not base.any():
            raise NuggetError(
                f"None of the generators {self.names} can start with {n_parents} parents; "
                "add one that needs no parents, such as random_cluster, random_placement or "
                "random_crystal."
            )
        learned = base * (self.successes + 1.0) / (self.trials + 2.0)
        return np.asarray(
            self.floor * base / base.sum() + (1.0 - self.floor) * learned / learned.sum()
        )

    def __call__(
        self, rng: np.random.Generator, system: System, parents: Sequence[Atoms] = (),
        tries: int = 10,
    ) -> Atoms | Failure:  # fmt: skip
        """One structure; after a failure another generator is drawn, up to `tries` times."""
        system, parents = system.draw_target(rng, parents)
        p = self.probabilities(system, len(parents))
        reasons = []
        for _ in range(tries):
            name = self.names[int(rng.choice(len(p), p=p))]
            result = self.generators[name](rng, system, parents)
            match result:
                case Failure(reason):
                    reasons.append(f"{name}: {reason}")
                case atoms:
                    return atoms
        return Failure("; ".join(dict.fromkeys(reasons)))

    def credit(self, name: str, success: float) -> None:
        """Record the success of one structure of this generator, from 0 (none) to 1."""
        if name not in self.generators or not 0.0 <= success <= 1.0:
            raise NuggetError(
                f"Credit {success!r} for {name!r}: use 0 to 1 and one of {self.names}."
            )
        self.trials *= self.memory
        self.successes *= self.memory
        k = self.names.index(name)
        self.trials[k] += 1.0
        self.successes[k] += success
