"""Walkers on the surrogate: basin hopping at several temperatures that goes on all search long.

A walker stands in a minimum of E − κσ. It hops: a generator disturbs its structure, the result is
relaxed, and Metropolis' rule decides whether it stays there. All walkers hop in lockstep, each at a
temperature of its own, and neighbours exchange their structures (replica exchange). After an
evaluation the surface is another one: every walker is relaxed and judged on it anew.

Where the walkers stand is part of the record of every evaluation, so a search can be resumed and
replayed to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.generators import Generator, Problem
from nugget.potential.surface import Surface

if TYPE_CHECKING:
    from nugget.search.learner import Learner

# Temperatures from the coldest to the hottest walker, in units of how far the median of the fresh
# candidates lies above the lowest of them.
_COLD, _HOT = 0.01, 0.1


@dataclass(frozen=True, eq=False)
class Walk:
    """What walkers have met, and where they stand now (walkers, atoms, 3), the coldest first."""

    met: list[Atoms]
    positions: Floats


def walk_on(
    learner: Learner, rng: np.random.Generator, surface: Surface, fresh: list[Atoms]
) -> Walk:
    """Let the walkers of a search go on, on its present surface."""
    problem, search = learner.problem, learner.config.search
    assert isinstance(problem, Problem)  # the settings refuse walkers for crystals
    walkers = Walkers(
        problem,
        [made for made in learner.mixer.generators.values() if made.needs == 1],
        lambda images: learner.relaxed(images, surface),
        lambda images: learner.score(images, *learner.predict(images)),
        search.walkers,
        search.walker_hops,
    )
    return walkers.walk(rng, learner.stand, fresh)


@dataclass(frozen=True)
class Walkers:
    """How to walk: `number` walkers, `hops` each; moves are generators with one parent.

    `relax` gives relaxed structures that are sensible (others are left out, `info` is kept), and
    `score` what is minimised.
    """

    problem: Problem
    moves: Sequence[Generator]
    relax: Callable[[list[Atoms]], list[Atoms]]
    score: Callable[[list[Atoms]], Floats]
    number: int
    hops: int

    def walk(self, rng: np.random.Generator, start: Floats | None, fresh: list[Atoms]) -> Walk:
        """Go on from where the walkers stood; `fresh` structures replace those that are lost."""
        stand = [] if start is None else [self.problem.assemble(x) for x in start[: self.number]]
        for atoms in stand:
            atoms.info["generator"] = _NAME
        here = self.relax(stand)
        values = self.score(fresh) if fresh else np.zeros(0)
        order = np.argsort(values, kind="stable")
        here += [fresh[k].copy() for k in order[: self.number - len(here)]]
        if not here:
            return Walk([], np.zeros((0, len(self.problem.numbers), 3)))
        spread = float(np.median(values) - values.min()) if len(values) else 0.0
        temperatures = np.geomspace(_COLD, _HOT, len(here)) * max(spread, 1e-3)
        scores = self.score(here)
        met = list(here)
        for _ in range(self.hops):
            met += self._hop(rng, here, scores, temperatures)
            _exchange(rng, here, scores, temperatures)
        return Walk(met, np.array([atoms.positions for atoms in here]))

    def _hop(
        self, rng: np.random.Generator, here: list[Atoms], scores: Floats, temperatures: Floats
    ) -> list[Atoms]:
        """One hop of every walker; `here` and `scores` change in place."""
        trials = []
        for k, atoms in enumerate(here):
            move = self.moves[int(rng.integers(len(self.moves)))]
            made = move(rng, self.problem, [atoms])
            if isinstance(made, Atoms):
                made.info.update(generator=_NAME, walker=k)
                trials.append(made)
        draws = rng.random(len(here))
        relaxed = self.relax(trials)
        if not relaxed:
            return []
        for atoms, score in zip(relaxed, self.score(relaxed), strict=True):
            k = atoms.info.pop("walker")
            if np.isfinite(score) and _accepts(
                float(draws[k]), score - scores[k], float(temperatures[k])
            ):
                here[k], scores[k] = atoms, score
        return relaxed


_NAME = "walkers"


def _accepts(draw: float, rise: float, temperature: float) -> bool:
    """Metropolis' rule."""
    return bool(rise <= 0.0 or draw < np.exp(-rise / temperature))


def _exchange(
    rng: np.random.Generator, here: list[Atoms], scores: Floats, temperatures: Floats
) -> None:
    """Neighbours exchange structures with probability min(1, exp((1/T₁ − 1/T₂)(S₁ − S₂)))."""
    draws = rng.random(len(here))
    for k in range(len(here) - 1):
        gain = (1 / temperatures[k] - 1 / temperatures[k + 1]) * (scores[k] - scores[k + 1])
        if draws[k] < np.exp(min(gain, 0.0)):
            here[k], here[k + 1] = here[k + 1], here[k]
            scores[k], scores[k + 1] = scores[k + 1], scores[k]
