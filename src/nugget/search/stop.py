"""When a search stops: the estimate that the lowest structure is found, and the stopping rules.

**The estimate.** A draw is a candidate that was generated without parents and relaxed on the
surrogate. It is independent of the lowest structure, so it reaches that structure only by chance.
Candidates of generators with few results (`motif`) do not count.
Of the draws since the lowest bond graph was first evaluated, and in the latter half of the search,

    k  rediscovered its bond graph,
    u  reached graphs that are not evaluated and have a predicted energy below the lowest one.

If draws fall on the lowest graph and on lower ones with unknown probabilities, all shares equally
likely before (Laplace's rule of succession, the Bayesian form of Good and Turing's estimate of the
unseen mass), the next such draw reaches the lowest one with probability (k + 1)/(k + u + 2). This
is the estimate. It assumes that a lower structure, if there is one, is reached by draws about as
easily as the lowest one, and that the model predicts it to be lower. A narrow funnel, or a
structure whose predicted energy is far too high, breaks this assumption. There is no estimate while
the search is still improving: the lowest graph must have been known for a third of all evaluations,
and for longer than any earlier one remained the lowest. There is none either where three times the
median error of predictions in the latter half of the search (two standard deviations of a normal
distribution) exceeds the energies by which the five lowest graphs differ, because the model cannot
tell then which structures are lower.

**The rules.** `stopping_rules` lists them in order of precedence; the first that applies decides
how the run ends. A new rule is one more class with a method `check` and one more entry of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from ase import Atoms

from nugget.numerics.arrays import Floats
from nugget.search.record import EndReason, EndStatus, Record
from nugget.structures.identity import graph_key

# The lowest graphs must differ by more than this many median errors of predictions.
_LOWEST, _ERRORS = 5, 3.0

_LENGTH = 12  # characters of a key; accidental coincidences are impossible in practice


@dataclass(frozen=True)
class Confidence:
    """Counts that estimate the probability that the lowest structure is found."""

    met: int  # k, independent rediscoveries
    lower: int  # u
    improving: bool = False  # was the lowest structure found only recently?
    error: float = 0.0  # median error of predicted energies in the latter half, eV
    spread: float = np.inf  # of the energies of the lowest graphs, eV

    @property
    def probability(self) -> float | None:
        """The estimate; None if there is a reason against it."""
        if self.no_estimate:
            return None
        return (self.met + 1) / (self.met + self.lower + 2)

    @property
    def no_estimate(self) -> str:
        """Why there is no estimate; empty if there is one."""
        if self.improving:
            return "the lowest structure was found recently"
        if not self.met:
            return "it was not rediscovered from independent starts"
        if _ERRORS * self.error > self.spread:
            return (
                f"the median error of predictions is {self.error:.2g} eV, and the {_LOWEST} lowest "
                f"structures differ by {self.spread:.2g} eV"
            )
        return ""


def short_key(atoms: Atoms) -> str:
    """The bond graph as it is written in `Record.draws`."""
    return graph_key(atoms)[:_LENGTH]


def write_draws(
    images: Sequence[Atoms], energies: Floats, best: float, known: Collection[str]
) -> list[str]:
    """Draws that may count later, one word each: of evaluated graphs, or below the best energy."""
    keys = [short_key(atoms) for atoms in images]
    return [
        f"{key}:{float(energy)!r}"
        for key, energy in zip(keys, energies, strict=True)
        if key in known or energy < best
    ]


class RediscoveryCounter:
    """Counts rediscoveries of the lowest bond graph; `confidence` depends on the records alone."""

    def __init__(self, learned: Sequence[Record] = ()) -> None:
        self.keys: dict[str, int] = {}  # first evaluation of each graph; −1: before the search
        self._lowest: dict[str, float] = {}  # energy of each graph, eV
        self.records: list[Record] = []
        self._best: tuple[float, str] | None = None
        self._improved: list[int] = []  # evaluations with a new lowest graph
        for record in learned:
            self._see(record, -1)

    @classmethod
    def of(cls, records: Sequence[Record], learned: Sequence[Record] = ()) -> RediscoveryCounter:
        """The counter after all records of a search."""
        counter = cls(learned)
        for record in records:
            counter.add(record)
        return counter

    def add(self, record: Record) -> None:
        """Add the next record."""
        self.records.append(record)
        if record.ok:
            self._see(record, record.iteration)

    def _see(self, record: Record, when: int) -> None:
        key = short_key(record.atoms)
        self.keys.setdefault(key, when)
        self._lowest[key] = min(record.energy, self._lowest.get(key, np.inf))
        if self._best is None or record.energy < self._best[0]:
            if self._best is None or key != self._best[1]:
                self._improved.append(max(when, 0))
            self._best = record.energy, key

    def confidence(self) -> Confidence:
        """The counts after these records."""
        if self._best is None:
            return Confidence(0, 0)
        energy, best = self._best
        since = max(self.keys[best], len(self.records) // 2)
        rediscovered, lower = 0, set()
        for record in self.records:
            for word in record.draws.split() if record.n_observed > since else ():
                key, _, predicted = word.partition(":")
                if key == best:
                    rediscovered += 1
                elif key not in self.keys and float(predicted) < energy:
                    lower.add(key)
        return Confidence(
            rediscovered, len(lower), self._improving(), self._error(), self._spread()
        )

    def _error(self) -> float:
        """The median error of predicted energies in the latter half of the search; 0: not known."""
        late = self.records[len(self.records) // 2 :]
        errors = [abs(r.energy - r.predicted) for r in late if r.ok and r.predicted is not None]
        return float(np.median(errors)) if errors else 0.0

    def _spread(self) -> float:
        """The energies by which the lowest graphs differ; infinite for fewer graphs."""
        energies = sorted(self._lowest.values())
        return energies[_LOWEST - 1] - energies[0] if len(energies) >= _LOWEST else np.inf

    def _improving(self) -> bool:
        """Was the lowest graph found in the last third, or after a longer wait than the last?"""
        times, end = self._improved, len(self.records)
        longest = max((b - a for a, b in pairwise(times)), default=0)
        return end - times[-1] < max(end / 3, longest)


@dataclass(frozen=True)
class Stop:
    """The decision to end a run. With `drain`, evaluations in flight are awaited first."""

    cause: EndReason
    status: EndStatus
    sentence: str
    drain: bool = False


@dataclass(frozen=True, eq=False)
class RunState:
    """What stopping rules may depend on."""

    records: Sequence[Record]  # of the whole search
    completed: int  # evaluations of this run
    budget: int
    reference_found: bool
    confidence: Callable[[], Confidence]  # takes some time, so it is computed on demand


class StoppingRule(Protocol):
    """One reason to end a run."""

    def check(self, state: RunState) -> Stop | None:
        """The decision to stop, or None to go on."""


@dataclass(frozen=True)
class ReferenceFound:
    """A reference structure was evaluated."""

    def check(self, state: RunState) -> Stop | None:
        return REFERENCE_FOUND if state.reference_found else None


@dataclass(frozen=True)
class FailuresInARow:
    """The last evaluations all failed. A resumed run makes one evaluation before this applies."""

    engine: str
    limit: int
    remedy: Callable[[], str]  # advice for the error message

    def check(self, state: RunState) -> Stop | None:
        last = state.records[-self.limit :]
        if not state.completed or len(last) < self.limit or any(record.ok for record in last):
            return None
        failure = f"{last[-1].failure}: {last[-1].reason}"
        times = f"The engine {self.engine!r} failed {self.limit} times in a row"
        sentence = f"{times}, last with '{failure}'. {self.remedy()}"
        return Stop(EndReason.FAILURES, EndStatus.FAILED, sentence)


@dataclass(frozen=True)
class ConfidenceReached:
    """The lowest structure is found with the probability of search.stop_when."""

    limit: float

    def check(self, state: RunState) -> Stop | None:
        estimate = state.confidence().probability
        if estimate is None or estimate < self.limit:
            return None
        sentence = "the lowest structure is found by search.stop_when"
        return Stop(EndReason.CONFIDENCE, EndStatus.FINISHED, sentence)


@dataclass(frozen=True)
class BudgetUsed:
    """All evaluations of the budget are done."""

    def check(self, state: RunState) -> Stop | None:
        if len(state.records) < state.budget:
            return None
        if any(record.ok for record in state.records):
            return Stop(EndReason.BUDGET, EndStatus.FINISHED, "the budget is used up", drain=True)
        last = state.records[-1]
        sentence = f"no evaluation succeeded, the last with {last.failure}: {last.reason}"
        return Stop(EndReason.NO_SUCCESS, EndStatus.FAILED, sentence, drain=True)


@dataclass(frozen=True)
class Requested:
    """The user asked the search to stop."""

    requested: Callable[[], bool]

    def check(self, state: RunState) -> Stop | None:
        return STOPPED_ON_REQUEST if self.requested() else None


REFERENCE_FOUND = Stop(EndReason.REFERENCE, EndStatus.FOUND, "the reference was found")
STOPPED_ON_REQUEST = Stop(
    EndReason.REQUEST, EndStatus.INTERRUPTED, "stopped on request", drain=True
)
NOTHING_NEW = Stop(EndReason.EXHAUSTED, EndStatus.FINISHED, "nothing new is left to evaluate")


def stopping_rules(
    failures: FailuresInARow, stop_when: float | None, requested: Callable[[], bool]
) -> list[StoppingRule]:
    """The rules of a run, in order of precedence."""
    confidence = [] if stop_when is None else [ConfidenceReached(stop_when)]
    return [ReferenceFound(), failures, *confidence, BudgetUsed(), Requested(requested)]


def first_stop(rules: Sequence[StoppingRule], state: RunState) -> Stop | None:
    """The decision of the first rule that applies."""
    return next((stop for rule in rules if (stop := rule.check(state)) is not None), None)
