"""Several relaxations with an engine at a time, through a queue of evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ase import Atoms

from nugget.relax.learning import EngineRelaxed
from nugget.relax.local_surrogate import Point


class EngineRelaxation(Protocol):
    """A relaxation that proposes structures and is given what an engine says of them."""

    evaluations: int
    points: list[Point]  # all that was observed

    @property
    def done(self) -> bool: ...

    def propose(self) -> Atoms: ...

    def observe(self, atoms: Atoms | None) -> None: ...

    def result(self) -> EngineRelaxed: ...


class Queue(Protocol):
    """Evaluations under way, each under a number; results have `ok` and `atoms`."""

    width: int

    def __len__(self) -> int: ...

    def submit(self, key: int, atoms: Atoms) -> None: ...

    def next(self) -> tuple[int, Any]: ...


def relax_through(
    queue: Queue,
    runs: Mapping[int, EngineRelaxation],
    seen: Callable[[int, Any], None],
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Advance relaxations until all are done, or until `stopping` and nothing is under way.

    `seen` is called with the number of a relaxation and what came of its evaluation, before the
    relaxation observes it.
    """
    waiting = [key for key, run in runs.items() if not run.done]
    while True:
        while waiting and len(queue) < queue.width and not stopping():
            key = waiting.pop(0)
            queue.submit(key, runs[key].propose())
        if not len(queue):
            return
        key, outcome = queue.next()
        seen(key, outcome)
        runs[key].observe(outcome.atoms if outcome.ok else None)
        if not runs[key].done:
            waiting.append(key)
