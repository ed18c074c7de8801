from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ase.db
import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator
from flights import assert_whole, backwards, bits, in_order, run_scripted, settings
from threadpoolctl import threadpool_limits

from nugget.engines.task import Task, run_task
from nugget.errors import NuggetError
from nugget.search import Search, make_config
from nugget.search.learner import Learner
from nugget.search.loop import complete, make_pending
from nugget.search.store import PENDING
from nugget.systems import PlacedAtoms

pytestmark = pytest.mark.usefixtures("engines")


# ------------------------------------------------------------------------------- one at a time


def test_one_at_a_time_is_propose_evaluate_learn(tmp_path: Path) -> None:
    """The plain loop, written out."""
    config = make_config(settings(1, use_forces=True))
    search = Search.create(config, tmp_path / "run")
    search.run()
    learner = Learner(config, PlacedAtoms.cluster("Au6"))
    with threadpool_limits(1):  # as in Search: two threads add up in another order
        for k in range(12):
            proposal = learner.propose(k)
            assert proposal is not None
            outcome = run_task(Task(name="emt"), proposal.atoms)
            learner.learn(complete(make_pending(k, k, proposal, 2.0), k, outcome))
    assert bits(search.store.records()) == bits(learner.records)
    assert not (tmp_path / "run" / PENDING).exists()
    assert Search.replay(tmp_path / "run").same


def test_databases_without_a_log_resume_and_replay(tmp_path: Path) -> None:
    """They were written one at a time."""
    config = make_config(settings(1, budget=8))
    whole = Search.create(config, tmp_path / "whole")
    whole.run()
    old = Search.create(config, tmp_path / "old")
    old.run(budget=5)
    with ase.db.connect(tmp_path / "old" / "search.db") as database:
        for row in list(database.select()):
            database.update(row.id, delete_keys=["proposal", "n_observed"], data={"digest": None})
    assert Search.replay(tmp_path / "old").proposals == 5
    Search.resume(tmp_path / "old", trust=True).run()
    assert bits(old.store.records()) == bits(whole.store.records())
    assert Search.replay(tmp_path / "old").same


# ------------------------------------------------------------------------------------- several


def test_four_in_flight_in_processes_of_their_own(tmp_path: Path) -> None:
    slow = {"name": "faulty_engines:dawdler", "options": {"delay": 0.5}}
    search = Search.create(make_config(settings(engine=slow)), tmp_path / "run")
    flying: list[int] = []
    result = search.run(lambda status: flying.append(status.in_flight))
    assert result.evaluations == 12
    # None at the start; then what is left when one has just been done.
    assert flying == [0] + 9 * [3] + [2, 1, 0]
    records = assert_whole(tmp_path / "run", 12)
    assert [r.n_observed for r in sorted(records, key=lambda r: r.proposal)] == [0, 0, 0, *range(9)]
    assert sum(r.engine_seconds for r in records) > 0.1 * 12


def test_the_order_of_completion_decides(tmp_path: Path) -> None:
    first = run_scripted(tmp_path / "a", backwards)
    # The last one ends inside `submit`, before a callback could be added.
    assert [r.proposal for r in first] == [3, 4, 5, 6, 7, 8, 9, 10, 2, 1, 0, 11]
    assert bits(run_scripted(tmp_path / "b", backwards)) == bits(first)
    other = run_scripted(tmp_path / "c", in_order)
    assert [r.proposal for r in other] == list(range(12))
    by_proposal = [{r.proposal: r.proposed.positions for r in run} for run in (first, other)]
    same = [np.array_equal(by_proposal[0][p], by_proposal[1][p]) for p in range(12)]
    assert same[:4] == [True] * 4  # nothing was known as yet
    assert not any(same[6:])
    for name in "abc":
        assert_whole(tmp_path / name, 12)


@pytest.mark.parametrize(
    "more",
    [
        {"use_forces": True},
        {"acquisition": "lcb"},
        {"acquisition": "ei"},
        {"engine": {"name": "emt", "relax_steps": 2}},
    ],
)
def test_other_searches_replay_too(tmp_path: Path, more: dict[str, Any]) -> None:
    records = run_scripted(tmp_path / "run", backwards, **more)
    assert_whole(tmp_path / "run", 12)
    moved = [not np.array_equal(r.proposed.positions, r.atoms.positions) for r in records]
    assert any(moved) == ("engine" in more)


def test_a_process_pool_evaluates(tmp_path: Path) -> None:
    """Somebody else's executor: it gets a function and plain data, and goes on living."""
    search = Search.create(make_config(settings(2, budget=6)), tmp_path / "run")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        search.run(executor=pool)
        assert pool.submit(int, "3").result() == 3
    assert_whole(tmp_path / "run", 6)


def test_a_changed_structure_is_found(tmp_path: Path) -> None:
    run_scripted(tmp_path / "run", in_order)
    with ase.db.connect(tmp_path / "run" / "search.db") as database:
        row = next(database.select(proposal=11))  # no later proposal depends on it
        atoms = row.toatoms()
        results = atoms.calc.results
        atoms.positions[2, 1] = np.nextafter(atoms.positions[2, 1], np.inf)
        atoms.calc = SinglePointCalculator(atoms, **results)
        database.update(row.id, atoms)
    with pytest.raises(NuggetError, match="row 12 was changed"):
        Search.replay(tmp_path / "run")
    with ase.db.connect(tmp_path / "run" / "search.db") as database:
        database.update(row.id, data={"digest": None})  # as an earlier version wrote it
    assert Search.replay(tmp_path / "run").differences == ("proposal 11: structures differ",)
    atoms.positions += 0.1
    with ase.db.connect(tmp_path / "run" / "search.db") as database:
        database.update(row.id, atoms)  # ASE drops results that do not belong to the positions
    with pytest.raises(NuggetError, match="evaluation 11 has neither an energy nor a failure"):
        Search.replay(tmp_path / "run")


def test_a_log_that_cannot_be_is_found(tmp_path: Path) -> None:
    run_scripted(tmp_path / "run", in_order)
    with ase.db.connect(tmp_path / "run" / "search.db") as database:
        row = next(database.select(proposal=5))
        database.update(row.id, n_observed=9, data={"digest": None})
    text = " ".join(Search.replay(tmp_path / "run").differences)
    assert "proposal 5 cannot have observed 9 evaluations" in text
    with ase.db.connect(tmp_path / "run" / "search.db") as database:
        del database[next(database.select(proposal=7)).id]
    with pytest.raises(NuggetError, match="evaluations are missing or there twice"):
        Search.replay(tmp_path / "run")
