"""Make every proposal of a search again, from its log alone, and compare to the last bit.

No engine is needed: the database holds the results of all proposals and the order of completion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget.search.learner import Learner
from nugget.search.proposal import Proposal
from nugget.search.store import UNFINISHED, Record


@dataclass(frozen=True)
class Replay:
    """What a replay found."""

    proposals: int  # made again
    differences: tuple[str, ...]  # one sentence each

    @property
    def same(self) -> bool:
        """Is the search what its log says?"""
        return not self.differences


def replay(learner: Learner, records: Sequence[Record], pending: Sequence[Record]) -> Replay:
    """Fold the log again: learn, propose with what was pending at the time, compare.

    `learner` is that of the search before its first evaluation.
    """
    log = sorted([*records, *pending], key=lambda record: record.proposal)
    if broken := tuple(_gaps(log, records)):
        return Replay(0, broken)
    differences = []
    for record in log:
        for known in records[len(learner.records) : record.n_observed]:
            learner.learn(known)
        waiting = [
            before.proposed
            for before in log[: record.proposal]
            if before.iteration == UNFINISHED or before.iteration >= record.n_observed
        ]
        again = learner.propose(record.proposal, waiting)
        if parts := _differing(record, again, relaxed=learner.config.engine.relax_steps > 0):
            differences.append(f"proposal {record.proposal}: {', '.join(parts)} differ")
    return Replay(len(log), tuple(differences))


def _gaps(log: Sequence[Record], records: Sequence[Record]) -> Iterator[str]:
    """Records that no search can have written."""
    if [record.proposal for record in log] != list(range(len(log))):
        yield "proposals are missing or there twice"
    before = 0
    for record in log:
        done = len(records) if record.iteration == UNFINISHED else record.iteration
        if not before <= record.n_observed <= done:
            yield (
                f"proposal {record.proposal} cannot have observed {record.n_observed} evaluations"
            )
        before = record.n_observed


def _differing(record: Record, again: Proposal | None, relaxed: bool) -> list[str]:
    """The parts that are not the same bits."""
    if again is None:
        return ["all parts (nothing is proposed now)"]
    names = ("generator", "predicted", "std", "scale", "acquisition", "purpose")
    odd = [name for name in names if getattr(record, name) != getattr(again, name)]
    if record.draws and record.draws != again.draws:  # earlier databases hold none
        odd.append("draws")
    then, now = record.walkers, again.walkers
    if then is not None and (now is None or not np.array_equal(then, now)):
        odd.append("walkers")
    # Where the engine relaxed a structure, early databases hold only the result.
    unknown = relaxed and record.proposed_positions is None and record.ok
    if not unknown and not _same_structure(record.proposed, again.atoms):
        odd.insert(0, "structures")
    return odd


def _same_structure(a: Atoms, b: Atoms) -> bool:
    pairs = ((a.numbers, b.numbers), (a.positions, b.positions), (a.cell.array, b.cell.array),
             (a.pbc, b.pbc))  # fmt: skip
    return all(np.array_equal(x, y) for x, y in pairs)
