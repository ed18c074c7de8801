"""What the tests of several evaluations in flight share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from nugget.search import Search, make_config
from nugget.search.record import Record
from nugget.search.store import PENDING, Store
from nugget.structures.memory import KnownStructures


def settings(in_flight: int = 4, engine: object = None, **search: object) -> dict[str, Any]:
    """A search that takes seconds: six gold atoms, EMT.

    Scripted executors answer in an order of their own, so the engine is not checked beforehand.
    """
    return {
        "system": {"formula": "Au6"},
        "engine": {"verify": False, **(engine or {"name": "emt"})},
        "model": {"cutoff": 5.0, "use_forces": search.pop("use_forces", False)},
        "search": {
            "budget": 12, "candidates": 6, "relax_steps": 30, "initial": 3, "polish": 0,
            "in_flight": in_flight, **search,
        },
    }  # fmt: skip


class Scripted(Executor):
    """Answers in an order that it is told, not in that of submission.

    When `width` calculations are under way, `choose` picks the one that ends next; once `total`
    have been submitted, nobody waits for more and all of them end.
    """

    def __init__(self, choose: Callable[[int], int], width: int = 4, total: int = 12) -> None:
        self.choose, self.width, self.total = choose, width, total
        self.submitted = 0
        self.open: list[tuple[Future[Any], Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.open.append((future, self.answer(fn, *args, **kwargs)))
        self.submitted += 1
        while len(self.open) == self.width or (self.submitted == self.total and self.open):
            done, answer = self.open.pop(self.choose(len(self.open)))
            if isinstance(answer, Exception):
                done.set_exception(answer)
            else:
                done.set_result(answer)
        return future

    def answer(self, fn: Any, *args: Any) -> Any:
        return fn(*args)


def in_order(n: int) -> int:
    return 0


def backwards(n: int) -> int:
    return n - 1


def bits(records: list[Record]) -> list[object]:
    """All that must be the same; times are not."""
    names = ("iteration", "proposal", "n_observed", "generator", "predicted", "std", "scale",
             "acquisition", "failure")  # fmt: skip
    return [
        (*(getattr(r, name) for name in names), r.atoms.positions.tobytes(), r.energy)
        for r in records
    ]


def apart(a: Atoms, b: Atoms) -> float:
    d1, d2 = (np.sort(atoms.get_all_distances(), axis=None) for atoms in (a, b))
    return float(np.abs(d1 - d2).max())


def assert_whole(directory: Path, budget: int) -> list[Record]:
    """Every proposal once, none like one that was known or pending, and all of them made again."""
    store = Store.open(directory)
    records = store.records()
    assert [r.iteration for r in records] == list(range(budget))
    log = sorted(records, key=lambda r: r.proposal)
    assert [r.proposal for r in log] == list(range(budget))
    for record in log:
        before = log[: record.proposal]
        pending = KnownStructures()
        for other in before:
            if other.iteration >= record.n_observed:
                pending.add(other.proposed)
        assert record.proposed not in pending
        assert all(apart(record.proposed, other.atoms) > 1e-3 for other in before)
    assert store.pending() == []
    assert not (directory / PENDING).exists()
    found = Search.replay(directory)
    assert found.differences == ()
    assert found.proposals == budget
    return records


def run_scripted(directory: Path, choose: Callable[[int], int], **more: Any) -> list[Record]:
    search = Search.create(make_config(settings(**more)), directory)
    executor = Scripted(choose)
    assert search.run(executor=executor).evaluations == 12
    assert executor.submitted == 12
    return search.store.records()
