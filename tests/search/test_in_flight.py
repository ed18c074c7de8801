from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ase.db
import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from threadpoolctl import threadpool_limits

from nugget.errors import NuggetError
from nugget.identity import KnownStructures
from nugget.search import Search, make_config
from nugget.search.evaluate import run_engine
from nugget.search.flight import complete, make_pending
from nugget.search.generators import Problem
from nugget.search.learner import Learner
from nugget.search.store import PENDING, Record, Store

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines of this folder, here and in every child process."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))


def settings(in_flight: int = 4, engine: object = None, **search: object) -> dict[str, Any]:
    """A search that takes seconds: six gold atoms, EMT."""
    return {
        "system": {"formula": "Au6"},
        "engine": engine or {"name": "emt"},
        "model": {"cutoff": 5.0, "use_forces": search.pop("use_forces", False)},
        "search": {
            "budget": 12, "candidates": 6, "relax_steps": 30, "initial": 3,
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
    names = ("iteration", "proposal", "learnt", "generator", "predicted", "sigma", "scale",
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
            if other.iteration >= record.learnt:
                pending.add(other.proposed)
        assert record.proposed not in pending
        assert all(apart(record.proposed, other.atoms) > 1e-3 for other in before)
    assert store.pending() == []
    assert not (directory / PENDING).exists()
    found = Search.replay(directory)
    assert found.differences == ()
    assert found.proposals == budget
    return records


# ------------------------------------------------------------------------------- one at a time


def test_one_at_a_time_is_propose_evaluate_learn(tmp_path: Path) -> None:
    """The plain loop, written out."""
    config = make_config(settings(1, use_forces=True))
    search = Search.create(config, tmp_path / "run")
    search.run()
    learner = Learner(config, Problem.cluster("Au6"))
    with threadpool_limits(1):  # as in Search: two threads add up in another order
        for k in range(12):
            proposal = learner.propose(k)
            assert proposal is not None
            outcome = run_engine("emt", {}, proposal.atoms)
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
            database.update(row.id, delete_keys=["proposal", "learnt"])
    assert Search.replay(tmp_path / "old").proposals == 5
    Search.resume(tmp_path / "old").run()
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
    assert [r.learnt for r in sorted(records, key=lambda r: r.proposal)] == [0, 0, 0, *range(9)]
    assert sum(r.engine_seconds for r in records) > 0.1 * 12


def run_scripted(directory: Path, choose: Callable[[int], int], **more: Any) -> list[Record]:
    search = Search.create(make_config(settings(**more)), directory)
    executor = Scripted(choose)
    assert search.run(executor=executor).evaluations == 12
    assert executor.submitted == 12
    return search.store.records()


def test_the_order_of_completion_decides(tmp_path: Path) -> None:
    first = run_scripted(tmp_path / "a", backwards)
    # The last one ends inside `submit`, before anybody could have asked to be told.
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
        {"acquisition": "ei", "hops": 1},
        {"engine": {"name": "emt", "relax_steps": 2}},
    ],
)
def test_other_searches_replay_too(tmp_path: Path, more: dict[str, Any]) -> None:
    records = run_scripted(tmp_path / "run", backwards, **more)
    assert_whole(tmp_path / "run", 12)
    moved = [not np.array_equal(r.proposed.positions, r.atoms.positions) for r in records]
    assert any(moved) == ("engine" in more)


def test_thompson_sampling_is_chosen_for_several() -> None:
    def chosen(tree: dict[str, Any]) -> str:
        return Learner(make_config(tree), Problem.cluster("Au6")).acquisition

    assert chosen(settings(1)) == "lcb"
    assert chosen(settings(2)) == "thompson"
    assert chosen(settings(2, acquisition="lcb")) == "lcb"
    assert chosen(settings(1, acquisition="thompson")) == "thompson"
    without = settings(2)
    without["model"]["uncertainty"] = "projected-process"
    assert chosen(without) == "lcb"  # there is no committee to draw from


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
        row = next(database.select(proposal=11))  # nothing was learnt from it
        atoms = row.toatoms()
        results = atoms.calc.results
        atoms.positions[2, 1] = np.nextafter(atoms.positions[2, 1], np.inf)
        atoms.calc = SinglePointCalculator(atoms, **results)
        database.update(row.id, atoms)
    assert Search.replay(tmp_path / "run").differences == ("proposal 11: structures differ",)
    atoms.positions += 0.1
    with ase.db.connect(tmp_path / "run" / "search.db") as database:
        database.update(row.id, atoms)  # ASE drops results that do not belong to the positions
    told = Search.replay(tmp_path / "run").differences
    assert told == ("evaluation 11 has neither an energy nor a failure",)


def test_a_log_that_cannot_be_is_found(tmp_path: Path) -> None:
    run_scripted(tmp_path / "run", in_order)
    with ase.db.connect(tmp_path / "run" / "search.db") as database:
        database.update(next(database.select(proposal=5)).id, learnt=9)
    text = " ".join(Search.replay(tmp_path / "run").differences)
    assert "proposal 5 cannot have learnt from 9 evaluations" in text
    with ase.db.connect(tmp_path / "run" / "search.db") as database:
        del database[next(database.select(proposal=7)).id]
    assert "missing" in " ".join(Search.replay(tmp_path / "run").differences)


# --------------------------------------------------------------------------- stopping and dying

RUN = "from nugget.search import Search; import sys; Search.resume(sys.argv[1]).run()"


def waiting(directory: Path) -> list[int]:
    path = directory / PENDING
    return [entry["proposal"] for entry in json.loads(path.read_text())] if path.exists() else []


def test_kill_with_four_in_flight(tmp_path: Path) -> None:
    """Nothing is lost, nothing is done twice, what was pending is evaluated as it was."""
    slow = {"name": "faulty_engines:dawdler", "options": {"delay": 0.8}}
    store = Search.create(make_config(settings(engine=slow)), tmp_path).store
    for goal in (0, 4):
        process = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path)])
        while len(waiting(tmp_path)) < 4 or max(waiting(tmp_path)) < goal + 3:
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        done, pending = store.records(), store.pending()
        assert len(done) >= goal
        assert len(pending) in (3, 4)  # 3 between an answer and the next proposal
        assert Search.replay(tmp_path).proposals == len(done) + len(pending)
        assert Search.replay(tmp_path).same
    Search.resume(tmp_path).run()
    records = assert_whole(tmp_path, 12)
    assert bits(records[: len(done)]) == bits(done)
    after = {r.proposal: r for r in records}
    for one in pending:
        np.testing.assert_array_equal(after[one.proposal].atoms.positions, one.atoms.positions)
        assert after[one.proposal].predicted == one.predicted
        assert after[one.proposal].learnt == one.learnt


def test_a_broken_executor_loses_nothing(tmp_path: Path) -> None:
    """Killed anywhere, the search ends with the same bits, given the same order."""

    class Breaks(Scripted):
        def answer(self, fn: Any, *args: Any) -> Any:
            if self.submitted == 7:
                raise RuntimeError("cannot schedule new futures")
            return fn(*args)

    whole = run_scripted(tmp_path / "whole", in_order)
    search = Search.create(make_config(settings()), tmp_path / "run")
    with pytest.raises(NuggetError, match=r"takes no more work.*cannot schedule"):
        search.run(executor=Breaks(in_order))
    pending = search.store.pending()
    assert [r.proposal for r in pending] == [4, 5, 6, 7]
    left = Scripted(in_order, total=8)
    Search.resume(tmp_path / "run").run(executor=left)
    assert bits(search.store.records()) == bits(whole)
    assert_whole(tmp_path / "run", 12)


def test_stop_finishes_what_is_in_flight(tmp_path: Path) -> None:
    slow = {"name": "faulty_engines:dawdler", "options": {"delay": 0.2}}
    search = Search.create(make_config(settings(engine=slow)), tmp_path / "run")
    result = search.run(lambda status: search.stop() if status.evaluations == 3 else None)
    assert result.interrupted
    assert result.evaluations == 6  # the third answer found three others in flight
    assert not search.store.pending()
    # A smaller budget is never exceeded either.
    assert Search.resume(tmp_path / "run").run(budget=8).evaluations == 8
    Search.resume(tmp_path / "run").run()
    records = assert_whole(tmp_path / "run", 12)
    assert [r.learnt for r in records if r.proposal in (6, 7)] == [6, 6]


def test_a_smaller_budget_leaves_the_rest_pending(tmp_path: Path) -> None:
    class Breaks(Scripted):
        def answer(self, fn: Any, *args: Any) -> Any:
            if self.submitted == 5:
                raise RuntimeError("broken")
            return fn(*args)

    search = Search.create(make_config(settings()), tmp_path / "run")
    with pytest.raises(NuggetError, match="broken"):
        search.run(executor=Breaks(in_order))
    assert len(search.store.records()) == 2
    assert Search.resume(tmp_path / "run").run(budget=3).evaluations == 3
    assert [r.proposal for r in search.store.pending()] == [3, 4, 5]
    Search.resume(tmp_path / "run").run()
    assert_whole(tmp_path / "run", 12)


def test_the_reference_ends_it_at_once(tmp_path: Path) -> None:
    goal = min(run_scripted(tmp_path / "a", in_order), key=lambda record: record.energy)
    goal.atoms.write(tmp_path / "goal.extxyz")
    found = {"reference": str(tmp_path / "goal.extxyz"), "reference_tolerance": 1e-6}
    search = Search.create(make_config(settings(**found)), tmp_path / "run")
    result = search.run(executor=Scripted(in_order))
    assert result.found
    assert result.evaluations == len(search.store.records()) == goal.iteration + 1
    left = min(3, 11 - goal.iteration)
    assert len(search.store.pending()) == left
    assert Search.replay(tmp_path / "run").proposals == result.evaluations + left
    again = Search.resume(tmp_path / "run").run()
    assert again.found
    assert again.evaluations == result.evaluations


# ------------------------------------------------------------------------------------ failures


def test_failures_among_several(tmp_path: Path) -> None:
    """A calculation that hangs does not keep the others from going on."""
    faulty = {
        "name": "faulty_engines:in_turn",
        "time_limit": 6.0,
        "retries": 0,
        "options": {"counter": str(tmp_path / "count")},
    }
    search = Search.create(make_config(settings(engine=faulty)), tmp_path / "run")
    assert search.run().failures >= 4
    records = search.store.records()
    assert {"exception", "timeout", "nan", "died"} <= {r.failure for r in records}
    hung = next(r for r in records if r.failure == "timeout")
    assert hung.iteration > hung.proposal
    assert_whole(tmp_path / "run", 12)


def test_too_many_failures_in_a_row(tmp_path: Path) -> None:
    broken = {"name": "faulty_engines:raising", "max_failures": 5}
    search = Search.create(make_config(settings(engine=broken)), tmp_path / "run")
    with pytest.raises(NuggetError, match="failed 5 times in a row"):
        search.run()
    assert len(search.store.records()) == 5
    assert len(search.store.pending()) == 3


@pytest.mark.parametrize("retries", [0, 2])
def test_a_lost_worker_is_tried_again_and_then_recorded(tmp_path: Path, retries: int) -> None:
    class Loses(Scripted):
        """The first structure never comes back."""

        first: Any = None

        def answer(self, fn: Any, *args: Any) -> Any:
            place = args[1]["positions"].tobytes()
            self.first = self.first or place
            return RuntimeError("node7 is gone") if place == self.first else fn(*args)

    engine = {"name": "emt", "retries": retries}
    search = Search.create(make_config(settings(engine=engine)), tmp_path / "run")
    executor = Loses(in_order, total=12 + retries)
    assert search.run(executor=executor).failures == 1
    assert executor.submitted == 12 + retries
    (lost,) = [r for r in search.store.records() if not r.ok]
    assert (lost.proposal, lost.failure) == (0, "died")
    assert "node7 is gone" in lost.reason
    assert_whole(tmp_path / "run", 12)


# ----------------------------------------------------------------------------------- fantasies


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Learner:
    config = make_config(settings(1, use_forces=True))
    search = Search.create(config, tmp_path_factory.mktemp("learnt"))
    search.run()
    learner = Learner(config, search.problem)
    for record in search.store.records():
        learner.learn(record)
    return learner


def test_believing_takes_sigma_away_and_leaves_the_mean(learner: Learner) -> None:
    proposal = learner.propose(12)
    assert proposal is not None
    images = [proposal.atoms]
    before = learner.potential.predict(images, forces=False)
    believer = learner._believing(images).potential.predict(images, forces=False)
    assert before.energy_uncertainty is not None
    assert believer.energy_uncertainty is not None
    assert believer.energy_uncertainty[0] < 0.8 * before.energy_uncertainty[0]
    # New inducing points may move the mean, by less than what σ allowed.
    moved = abs(believer.energy[0] - before.energy[0])
    assert moved < 0.3 * before.energy_uncertainty[0]
    lcb = [p.energy[0] - 2 * p.energy_uncertainty[0] for p in (before, believer)]
    assert lcb[1] > lcb[0]


def test_pending_structures_leave_the_learner_as_it_is(learner: Learner) -> None:
    fit, known, online = learner.potential.fitted, len(learner.known), learner.online
    state = learner.potential.rng.bit_generator.state
    alone = learner.propose(12)
    assert alone is not None
    beside = learner.propose(12, [alone.atoms])
    assert beside is not None
    assert learner.potential.fitted is fit
    assert (len(learner.known), learner.online) == (known, online)
    assert learner.potential.rng.bit_generator.state == state
    # What is written down, and calibrated with, is what the data say, not the fantasies.
    energy, sigma = learner._predict([beside.atoms])
    assert (beside.predicted, beside.sigma) == (energy[0], sigma[0])
    assert beside.scale == learner.scale
    again = learner.propose(12)
    assert again is not None
    np.testing.assert_array_equal(again.atoms.positions, alone.atoms.positions)


def test_what_is_pending_is_not_proposed_again(learner: Learner) -> None:
    """The same seed and the same candidates: only the pending ones make the difference."""
    pending: list[Atoms] = []
    for _ in range(4):
        proposal = learner.propose(12, pending)
        assert proposal is not None
        known = KnownStructures()
        for atoms in pending:
            known.add(atoms)
        assert proposal.atoms not in known
        pending.append(proposal.atoms)


def test_first_structures_differ_though_nothing_is_known() -> None:
    fresh = Learner(make_config(settings()), Problem.cluster("Au6"))
    pending: list[Atoms] = []
    for _ in range(4):
        proposal = fresh.propose(0, pending)  # the same random numbers each time
        assert proposal is not None
        assert proposal.predicted is None
        pending.append(proposal.atoms)
    for k in range(4):
        assert all(apart(pending[k], pending[j]) > 0.05 for j in range(k))
