"""Numbered candidates of a data set, and which of them are taken.

Candidate k of a stream is a function of seed, stream and k alone, and what is taken follows from a
fold over the results in the order of k. Neither a kill nor the number of workers changes either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from ase import Atoms

from nugget.dataset.recipe import Recipe
from nugget.errors import NuggetError
from nugget.generators import Failure, Mixer, Problem, make_generator
from nugget.identity import graph_key, is_connected
from nugget.potential.priors import PairWell
from nugget.relax import relax

# What may come of a candidate. "late": labelled after its stream had been given up.
ACCEPTED, DUPLICATE, INVALID, FAILED, LATE = "accepted", "duplicate", "invalid", "failed", "late"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A structure that may be labelled, or the reason why not."""

    atoms: Atoms | None
    reason: str = ""


@dataclass(eq=False)
class Stream:
    """The candidates of one formula and what has come of them so far."""

    name: str
    wanted: int
    make: Callable[[int], Candidate | None]  # None: there are no more
    fault: Callable[[Atoms], str | None]
    patience: int
    issued: int = 0
    folded: int = 0  # candidates 0 … folded − 1 are decided
    ended: bool = False
    barren: int = 0  # candidates in a row that brought nothing
    starts: set[str] = field(default_factory=set)
    graphs: set[str] = field(default_factory=set)
    results: dict[int, Atoms | str] = field(default_factory=dict)  # waiting for their turn
    accepted: list[tuple[int, Atoms]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def next(self) -> tuple[int, Atoms] | None:
        """The next candidate worth labelling, or None if none is needed now."""
        while not self.ended and len(self.accepted) + self._hopes() < self.wanted:
            k = self.issued
            candidate = self.make(k)
            if candidate is None:
                self.ended = True
                break
            self.issued += 1
            atoms = candidate.atoms
            if atoms is None:
                self.take(k, INVALID)
                continue
            key = graph_key(atoms)
            if key in self.starts:
                self.take(k, DUPLICATE)
                continue
            self.starts.add(key)
            return k, atoms
        return None

    def _hopes(self) -> int:
        """Candidates not decided yet that may still be accepted."""
        hopeless = sum(isinstance(result, str) for result in self.results.values())
        return self.issued - self.folded - hopeless

    def take(self, k: int, result: Atoms | str) -> None:
        """What came of candidate k; decisions are made in the order of k."""
        self.results[k] = result
        while self.folded in self.results:
            result = self.results.pop(self.folded)
            exhausted = self.barren >= self.patience
            verdict = LATE if exhausted else self._decide(self.folded, result)
            self.barren = 0 if verdict == ACCEPTED else self.barren + 1
            self.ended |= self.barren >= self.patience
            self.counts[verdict] = self.counts.get(verdict, 0) + 1
            self.folded += 1

    def _decide(self, k: int, result: Atoms | str) -> str:
        if isinstance(result, str):
            return result
        if self.fault(result) is not None:
            return INVALID
        key = graph_key(result)
        if key in self.graphs:
            return DUPLICATE
        self.graphs.add(key)
        self.accepted.append((k, result))
        return ACCEPTED


def generated_stream(recipe: Recipe, index: int, formula: str, wanted: int) -> Stream:
    """Candidates from generators, relaxed on a crude pair potential."""
    problem = Problem.cluster(formula)
    generators = [make_generator(name) for name in recipe.generators]
    usable = [g for g in generators if g.suits(problem) and not g.needs]
    if not usable:
        raise NuggetError(
            f"None of the generators {', '.join(recipe.generators)} can make {formula} from "
            "nothing; add random_cluster."
        )
    mixer = Mixer(usable)
    well = PairWell()

    def make(k: int) -> Candidate:
        rng = np.random.default_rng([recipe.seed, index, k])
        made = mixer(rng, problem)
        if isinstance(made, Failure):
            return Candidate(None, made.reason)
        start = relax([made], well, 0.1, recipe.well_steps, problem.region, runaway=10.0)[0]
        atoms = start.atoms
        # Shaken by a random amount, so that not only minima are labelled.
        atoms.positions += rng.normal(0.0, recipe.rattle * rng.random(), (len(atoms), 3))
        if not start.ok or (fault := problem.fault(atoms.positions)) is not None:
            return Candidate(None, start.reason if not start.ok else str(fault))
        atoms.info = {"generator": made.info["generator"], "stream": formula, "candidate": k}
        return Candidate(atoms)

    return Stream(formula, wanted, make, lambda a: problem.fault(a.positions), recipe.patience)


def gathered_stream(recipe: Recipe, images: Sequence[Atoms]) -> Stream:
    """Candidates from files, in random order."""
    order = np.random.default_rng([recipe.seed, 0]).permutation(len(images))

    def make(k: int) -> Candidate | None:
        if k >= len(order):
            return None
        atoms = images[order[k]].copy()
        atoms.info = {"generator": "file", "stream": "file", "candidate": k}
        return Candidate(atoms)

    def fault(atoms: Atoms) -> str | None:
        return None if is_connected(atoms) else "the structure is not connected"

    # A file ends by itself, so that patience is not needed.
    return Stream("file", recipe.count, make, fault, patience=len(order) + 1)
