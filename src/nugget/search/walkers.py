"""Walkers on the surrogate: basin hopping with replica exchange that continues between evaluations.

A walker occupies a minimum of E − κσ. In a hop, a generator perturbs its structure, the result is
relaxed, and the Metropolis rule accepts or rejects it. The walkers minimise the acquisition's score
for exploration, by default minus the logarithm of the expected improvement EI: a move from a to b
is accepted with probability (EI(b)/EI(a))^(1/T), so temperatures have no unit and suit every
system. All walkers hop together, each at its own temperature, and neighbours exchange structures.
An evaluation changes the surface, so every walker is relaxed and scored again, and better new
candidates replace walkers.

The positions of the walkers are part of each record, so a search resumes and replays
bit-identically.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget.engines.engine import engines
from nugget.generators import Generator
from nugget.numerics.arrays import Floats
from nugget.search.search_settings import Config
from nugget.systems.base import System

#: Most hops of a walker per evaluation: one, and one more after each unsuccessful exploration step;
#: all of them where walkers run before every evaluation. More hops did not shorten searches.
MAX_HOPS = 10

# Temperatures of the coldest and the hottest walker.
_COLD, _HOT = 0.1, 2.0

_NAME = "walkers"


@dataclass(frozen=True, eq=False)
class Walk:
    """Structures that walkers visited, and their positions (walkers, atoms, 3), coldest first."""

    visited: list[Atoms]
    positions: Floats | None


def walk_always(config: Config) -> bool:
    """Do walkers run before every evaluation? By default where the engine is expensive."""
    search, engine = config.search, engines().get(config.engine.name)
    expensive = engine is None or not engine.cheap
    wanted = search.walk == "always" or (search.walk == "auto" and expensive)
    return bool(search.walkers) and wanted


@dataclass(frozen=True)
class Walkers:
    """`number` walkers that make `hops` hops each; the moves are generators with one parent."""

    problem: System
    moves: Sequence[Generator]
    relax: Callable[[list[Atoms]], list[Atoms]]  # valid relaxed structures; keeps `info`
    score: Callable[[list[Atoms]], tuple[Floats, Floats]]  # what is minimised, and energies
    is_known: Callable[[Atoms, float], bool]  # structures that walkers must not occupy
    number: int
    hops: int

    def walk(self, rng: np.random.Generator, start: Floats | None, fresh: list[Atoms]) -> Walk:
        """Continue from `start`; candidates in `fresh` with a better score replace walkers."""
        former = [] if start is None else [self.problem.assemble(x) for x in start[: self.number]]
        for atoms in former:
            atoms.info["generator"] = _NAME
        visited = self.relax(former)
        current, scores = self._select([*visited, *fresh])
        if not current or not self.moves:
            return Walk(visited, start)
        temperatures = np.geomspace(_COLD, _HOT, len(current))
        for _ in range(self.hops):
            visited = visited + self._hop(rng, current, scores, temperatures)
            _exchange(rng, current, scores, temperatures)
        return Walk(visited, np.array([atoms.positions for atoms in current]))

    def _select(self, images: list[Atoms]) -> tuple[list[Atoms], Floats]:
        """The best new structures with their scores, the best first."""
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
        self, rng: np.random.Generator, current: list[Atoms], scores: Floats, temperatures: Floats
    ) -> list[Atoms]:
        """One hop of every walker; `current` and `scores` change in place."""
        trials = []
        for k, atoms in enumerate(current):
            move = self.moves[int(rng.integers(len(self.moves)))]
            trial = move(rng, self.problem, [atoms])
            if isinstance(trial, Atoms):
                trial.info.update(generator=_NAME, walker=k)
                trials.append(trial)
        draws = rng.random(len(current))
        relaxed = self.relax(trials)
        if not relaxed:
            return []
        for atoms, score, energy in zip(relaxed, *self.score(relaxed), strict=True):
            k = atoms.info.pop("walker")
            accepted = _accepts(float(draws[k]), score - scores[k], float(temperatures[k]))
            if accepted and not self.is_known(atoms, float(energy)):
                current[k], scores[k] = atoms, score
        return relaxed


def _accepts(draw: float, rise: float, temperature: float) -> bool:
    """The Metropolis rule; a score that is not a number is rejected."""
    return bool(rise <= 0.0 or draw < np.exp(-rise / temperature))


def _exchange(
    rng: np.random.Generator, current: list[Atoms], scores: Floats, temperatures: Floats
) -> None:
    """Exchange neighbours with probability min(1, exp((1/T₁ − 1/T₂)(S₁ − S₂)))."""
    draws = rng.random(len(current))
    for k in range(len(current) - 1):
        gain = (1 / temperatures[k] - 1 / temperatures[k + 1]) * (scores[k] - scores[k + 1])
        if draws[k] < np.exp(min(gain, 0.0)):
            current[k], current[k + 1] = current[k + 1], current[k]
            scores[k], scores[k + 1] = scores[k + 1], scores[k]
