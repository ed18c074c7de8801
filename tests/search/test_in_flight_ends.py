from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flights import Scripted, assert_whole, bits, in_order, run_scripted, settings

from nugget.engines.task import Task, run_task
from nugget.errors import NuggetError
from nugget.search import Search, make_config
from nugget.search.store import PENDING

pytestmark = pytest.mark.usefixtures("engines")


# --------------------------------------------------------------------------- stopping and dying

RUN = "from nugget.search import Search; import sys; Search.resume(sys.argv[1], trust=True).run()"


def waiting(directory: Path) -> list[int]:
    try:
        entries = json.loads((directory / PENDING).read_text())["records"]
    except FileNotFoundError:
        return []
    return [entry["proposal"] for entry in entries]


@pytest.mark.slow
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
    Search.resume(tmp_path, trust=True).run()
    records = assert_whole(tmp_path, 12)
    assert bits(records[: len(done)]) == bits(done)
    after = {r.proposal: r for r in records}
    for one in pending:
        np.testing.assert_array_equal(after[one.proposal].atoms.positions, one.atoms.positions)
        assert after[one.proposal].predicted == one.predicted
        assert after[one.proposal].n_observed == one.n_observed


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
    Search.resume(tmp_path / "run", trust=True).run(executor=left)
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
    assert Search.resume(tmp_path / "run", trust=True).run(budget=8).evaluations == 8
    Search.resume(tmp_path / "run", trust=True).run()
    records = assert_whole(tmp_path / "run", 12)
    assert [r.n_observed for r in records if r.proposal in (6, 7)] == [6, 6]


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
    assert Search.resume(tmp_path / "run", trust=True).run(budget=3).evaluations == 3
    assert [r.proposal for r in search.store.pending()] == [3, 4, 5]
    Search.resume(tmp_path / "run", trust=True).run()
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
    again = Search.resume(tmp_path / "run", trust=True).run()
    assert again.found
    assert again.evaluations == result.evaluations


# ------------------------------------------------------------------------------------ failures


@pytest.mark.slow
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


@pytest.mark.slow
def test_an_engine_that_lies_does_not_mislead(tmp_path: Path) -> None:
    """False energies, wrong shapes, NaN, deaths and hangs: each is recorded for what it was."""
    better: dict[str, Any] = {
        "relax_steps": 100, "candidates": 10, "use_forces": True,
    }  # fmt: skip
    clean = Search.create(make_config(settings(1, budget=20, **better)), tmp_path / "clean")
    goal = clean.run().best
    liar = {
        "name": "faulty_engines:liar",
        "time_limit": 4.0,
        "retries": 0,
        "options": {"counter": str(tmp_path / "count")},
    }
    config = make_config(settings(1, engine=liar, budget=36, **better))
    search = Search.create(config, tmp_path / "run")
    found = search.run().best
    records = search.store.records()
    kinds = {r.failure for r in records}
    assert kinds == {"", "exception", "implausible", "invalid", "nan", "died", "timeout"}
    lie = next(r for r in records if r.failure == "implausible")
    assert lie.reason.count(" eV") >= 3  # both energies and what was expected
    for record in records:
        if record.ok:
            again = run_task(Task(name="emt"), record.atoms)
            assert record.energy == pytest.approx(again.energy, abs=1e-9)
    assert goal is not None
    assert found is not None
    assert found.energy == pytest.approx(goal.energy, abs=0.05)


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
