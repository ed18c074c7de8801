"""Is the lowest structure found? How often it was met again, and what that is worth.

A draw is a candidate that was made without parents and relaxed on the surrogate: it knows nothing
of the lowest structure, so it ends there by chance. Of the draws since the lowest bond graph was
first evaluated, and in the latter half of the search,

    k  ended in its bond graph,
    u  graphs were met that are not evaluated and whose predicted energy is below the lowest one.

If draws fall on the lowest graph and on lower ones with unknown probabilities, all shares equally
likely before (Laplace's rule of succession, the Bayesian form of Good and Turing's estimate of the
mass that has not been seen), the next such draw ends in the lowest one with probability
(k + 1)/(k + u + 2). That is the estimate. It assumes that a lower structure, if there is one, can
be reached by draws about as easily as the lowest one, and that the model sees that it is lower. A
narrow funnel, or a structure that the model puts far too high, breaks this assumption.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.identity import graph_key
from nugget.search.store import Record

_LENGTH = 12  # characters of a key: chance coincidences are out of the question


@dataclass(frozen=True)
class Confidence:
    """How sure it is that the lowest structure has been found."""

    met: int  # k
    lower: int  # u

    @property
    def probability(self) -> float | None:
        """That the lowest is found; None while nothing is known about it."""
        return (self.met + 1) / (self.met + self.lower + 2) if self.met else None


def short_key(atoms: Atoms) -> str:
    """Its bond graph, as draws are written down."""
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


class Meetings:
    """The records of a search with their bond graphs; `confidence` is a function of them alone."""

    def __init__(self, learned: Sequence[Record] = ()) -> None:
        self.keys: dict[str, int] = {}  # the first evaluation of each graph; −1: learned before
        self.records: list[Record] = []
        self._best: tuple[float, str] | None = None
        for record in learned:
            self._see(record, -1)

    @classmethod
    def of(cls, records: Sequence[Record], learned: Sequence[Record] = ()) -> Meetings:
        """All records of a search."""
        made = cls(learned)
        for record in records:
            made.add(record)
        return made

    def add(self, record: Record) -> None:
        """Take in the next record."""
        self.records.append(record)
        if record.ok:
            self._see(record, record.iteration)

    def _see(self, record: Record, when: int) -> None:
        key = short_key(record.atoms)
        self.keys.setdefault(key, when)
        if self._best is None or record.energy < self._best[0]:
            self._best = record.energy, key

    def confidence(self) -> Confidence:
        """The estimate after these records."""
        if self._best is None:
            return Confidence(0, 0)
        energy, best = self._best
        since = max(self.keys[best], len(self.records) // 2)
        met, lower = 0, set()
        for record in self.records:
            for word in record.draws.split() if record.n_observed > since else ():
                key, _, predicted = word.partition(":")
                if key == best:
                    met += 1
                elif key not in self.keys and float(predicted) < energy:
                    lower.add(key)
        return Confidence(met, len(lower))
