"""Walkers on the surrogate: basin hopping with replica exchange, from evaluation to evaluation.

A walker stands in a minimum of E − κσ. It hops: a generator disturbs its structure, the result is
relaxed, and Metropolis' rule decides whether it stays there. What it climbs is the expected
improvement EI: the chance of moving from a to b is (EI(b)/EI(a))^(1/T), so temperatures have no
unit and fit every system. All walkers hop in lockstep, each at a temperature of its own, and
neighbours exchange their structures. After an evaluation the surface is another one: every walker
is relaxed and judged on it anew, and fresh candidates that are better take its place.

Where the walkers stand is part of the record of every evaluation that they took part in, so a
search can be resumed and replayed to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.evaluation.engines import engines
from nugget.generators import Generator, Problem
from nugget.potential.surface import Surface
from nugget.search.config import Config

if TYPE_CHECKING:
    from nugget.search.learner import Learner

# Temperatures from the coldest to the hottest walker.
_COLD, _HOT = 0.1, 2.0


@dataclass(frozen=True, eq=False)
class Walk:
    """What walkers have met, and where they stand now (walkers, atoms, 3), the coldest first."""

    met: list[Atoms]
    positions: Floats | None


def walk_always(config: Config) -> bool:
    """Do walkers walk before every evaluation? Where one takes minutes, they are worth it."""
    search, engine = config.search, engines().get(config.engine.name)
    dear = engine is None or not engine.cheap
    return bool(search.walkers) and (search.walk == "always" or (search.walk == "auto" and dear))


def walk_on(
    learner: Learner, rng: np.random.Generator, surface: Surface, fresh: list[Atoms]
) -> Walk:
    """Let the walkers of a search go on, on its present surface."""
    problem, search = learner.problem, learner.config.search
    assert isinstance(problem, Problem)  # the settings refuse walkers for crystals

    def is_known(atoms: Atoms, energy: float) -> bool:
        return learner.known.find(atoms, energy, predicted=True) is not None

    def score(images: list[Atoms]) -> tuple[Floats, Floats]:
        energy, std = learner.predict(images)
        return learner.explore_score(images, energy, std), energy

    hops = search.walker_hops
    if not walk_always(learner.config):
        hops = min(hops, 1 + learner.explored)
    walkers = Walkers(
        problem,
        [made for made in learner.mixer.generators.values() if made.needs == 1],
        lambda images: learner.relaxed(images, surface),
        score,
        is_known,
        search.walkers,
        hops,
    )
    return walkers.walk(rng, learner.stand, fresh)


@dataclass(frozen=True)
class Walkers:
    """How to walk: `number` walkers, `hops` each; moves are generators with one parent.

    `relax` gives relaxed structures that are sensible (others are left out, `info` is kept),
    `score` what is minimised and the energies, `is_known` is where no walker may stand.
    """

    problem: Problem
    moves: Sequence[Generator]
    relax: Callable[[list[Atoms]], list[Atoms]]
    score: Callable[[list[Atoms]], tuple[Floats, Floats]]
    is_known: Callable[[Atoms, float], bool]
    number: int
    hops: int

    def walk(self, rng: np.random.Generator, start: Floats | None, fresh: list[Atoms]) -> Walk:
        """Go on from where the walkers stood; better ones of the `fresh` take their places."""
        stand = [] if start is None else [self.problem.assemble(x) for x in start[: self.number]]
        for atoms in stand:
            atoms.info["generator"] = _NAME
        met = self.relax(stand)
        here, scores = self._places([*met, *fresh])
        if not here or not self.moves:
            return Walk(met, start)
        temperatures = np.geomspace(_COLD, _HOT, len(here))
        for _ in range(self.hops):
            met = met + self._hop(rng, here, scores, temperatures)
            _exchange(rng, here, scores, temperatures)
        return Walk(met, np.array([atoms.positions for atoms in here]))

    def _places(self, images: list[Atoms]) -> tuple[list[Atoms], Floats]:
        """The best that are not known, the best first, with their scores."""
        if not images:
            return [], np.zeros(0)
        scores, energy = self.score(images)
        chosen: list[int] = []
        for k in np.argsort(scores, kind="stable"):
            if len(chosen) == self.number or not np.isfinite(scores[k]):
                break
            if not self.is_known(images[k], float(energy[k])):
                chosen.append(int(k))
        return [images[k] for k in chosen], scores[chosen]

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
        for atoms, score, energy in zip(relaxed, *self.score(relaxed), strict=True):
            k = atoms.info.pop("walker")
            accepted = _accepts(float(draws[k]), score - scores[k], float(temperatures[k]))
            if accepted and not self.is_known(atoms, float(energy)):
                here[k], scores[k] = atoms, score
        return relaxed


_NAME = "walkers"


def _accepts(draw: float, rise: float, temperature: float) -> bool:
    """Metropolis' rule; what has no score is refused."""
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
