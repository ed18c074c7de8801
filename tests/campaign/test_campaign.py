"""Campaigns of real, small searches: run, stopped, killed, adopted; always the same results."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase.io import read, write

from nugget.campaign import Campaign
from nugget.campaign.results import Outcome, Row, keep, read_csv, read_outcome, write_csv
from nugget.engines.engine_settings import ExecutionConfig
from nugget.engines.execution import InProcess, ProcessExecutor, make_executor
from nugget.errors import NuggetError
from nugget.search import Search, make_config
from nugget.search.record import Record
from nugget.search.search_settings import Config
from nugget.search.store import Store

TIMES = ("engine_seconds", "surrogate_seconds")
VARY = {"kappa": ("0", "4")}


def config(**search: object) -> Config:
    return make_config(
        {
            "system": {"formula": "Au5"},
            "engine": {"name": "emt"},
            "model": {"cutoff": 4.0, "use_forces": False},
            "search": {
                "budget": 8,
                "candidates": 3,
                "relax_steps": 15,
                "initial": 3,
                "explore": 0,
                **search,
            },
        }
    )


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the search with seed 0 and κ = 0 evaluates as its seventh, with its energy."""
    folder = tmp_path_factory.mktemp("reference")
    search = Search.create(config(kappa=0.0), folder / "search")
    search.run()
    file = folder / "seventh.extxyz"
    write(file, search.store.records()[6].atoms)
    return file


@pytest.fixture(scope="module")
def base(reference: Path) -> Config:
    return config(reference=str(reference), reference_tolerance=1e-6)


@pytest.fixture(scope="module")
def whole(base: Config, tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """Four searches, one after the other, undisturbed."""
    campaign = Campaign.create(base, VARY, 2, tmp_path_factory.mktemp("whole") / "c")
    campaign.run(InProcess())
    return campaign


def assert_same(one: Campaign, two: Campaign) -> None:
    """Every evaluation and every result to the last bit; only times differ."""
    count = len(two.members)  # perhaps fewer: these are the first of the other's
    for a, b in zip(one.members[:count], two.members, strict=True):
        first, second = (Store.open(m.directory).records() for m in (a, b))
        assert [record.iteration for record in second] == list(range(len(first)))
        for x, y in zip(first, second, strict=True):
            assert_same_record(x, y)
        log = (b.directory / "search.log").read_text()
        assert log.count("finished: ") + log.count("found: ") == 1, log
        end = Store.open(b.directory).end()
        assert end is not None
        outcome = read_outcome(b.directory)
        assert outcome is not None
        assert end.status == ("found" if outcome.found else "finished")
    wanted = [(member.setting.values, member.seed) for member in two.members]
    theirs = [plain(row) for row in one.collect() if (row.setting, row.seed) in wanted]
    assert [plain(row) for row in two.collect()] == theirs


def assert_same_record(x: Record, y: Record) -> None:
    np.testing.assert_array_equal(x.atoms.positions, y.atoms.positions)
    np.testing.assert_array_equal(x.atoms.get_forces(), y.atoms.get_forces())
    for name in ("energy", "generator", "predicted", "std", "scale", "kappa", "acquisition"):
        assert getattr(x, name) == getattr(y, name), name


def plain(row: Row) -> dict[str, Any]:
    numbers = {k: v for k, v in asdict(row.outcome).items() if k not in TIMES}
    return {**row.setting, "seed": row.seed, **numbers}


def test_a_campaign_is_a_grid_of_ordinary_searches(whole: Campaign, reference: Path):
    rows = whole.rows()
    assert [(row.setting["kappa"], row.seed) for row in rows] == [
        ("0", 0), ("0", 1), ("4", 0), ("4", 1),
    ]  # fmt: skip
    first = rows[0].outcome
    assert first.found
    assert first.evaluations_to_solution == first.evaluations == first.first_reference_graph == 7
    for row in rows:
        directory = (
            whole.directory / "runs" / f"kappa={row.setting['kappa']}" / f"seed-{row.seed:04d}"
        )
        store = Store.open(directory)
        assert store.config().search.kappa == float(row.setting["kappa"])
        assert store.config().search.seed == row.seed
        assert store.config().search.reference == "reference/seventh.extxyz"
        copy = directory / "reference" / "seventh.extxyz"
        assert copy.read_bytes() == reference.read_bytes()
        records = store.records()
        assert row.outcome.evaluations == len(records)
        assert row.outcome.found or len(records) == 8
        best = read(directory / "best.extxyz").get_potential_energy()  # relaxed
        assert best <= min(record.energy for record in records)
        assert row.outcome.best_energy == pytest.approx(best, abs=1e-7)
        known = read(reference).get_potential_energy()
        assert row.outcome.best_above_reference == row.outcome.best_energy - known
        assert row.outcome.engine_seconds == sum(record.engine_seconds for record in records)


@pytest.mark.slow
def test_stopped_and_resumed(whole: Campaign, base: Config, tmp_path: Path):
    """Stopped in the middle of a search and after one, it ends as if nothing had happened."""
    campaign = Campaign.create(base, VARY, 2, tmp_path)
    stopper = threading.Thread(
        target=lambda: (wait_for(lambda: rows_in(tmp_path) >= 3), campaign.stop())
    )
    stopper.start()
    campaign.run(InProcess())
    stopper.join()
    assert campaign.stopped
    assert len(campaign.rows()) < 4
    assert 3 <= rows_in(tmp_path) < rows_in(whole.directory)
    again = Campaign.resume(tmp_path)
    seen: list[tuple[int, int]] = []
    again.run(InProcess(), lambda row, done, total: seen.append((done, total)))
    assert seen[-1] == (4, 4)
    assert not again.stopped
    assert not (tmp_path / "stop").exists()
    assert_same(whole, again)


def test_what_has_ended_is_only_read(whole: Campaign, base: Config, tmp_path: Path):
    """Searches without a campaign around them are adopted, and not a byte of them changes."""
    shutil.copytree(whole.directory / "runs", tmp_path / "runs")
    for kept in tmp_path.rglob("result.json"):
        kept.unlink()
    before = {f: f.read_bytes() for f in tmp_path.rglob("seed-*/*") if f.is_file()}
    campaign = Campaign.create(base, VARY, 2, tmp_path)
    campaign.run(Nobody())
    assert {f: f.read_bytes() for f in before} == before
    assert [plain(row) for row in campaign.rows()] == [plain(row) for row in whole.rows()]
    # A third seed is added to it, without anything else.
    assert len(Campaign.resume(tmp_path, repeats=3).members) == 6
    assert Campaign.resume(tmp_path).repeats == 3
    with pytest.raises(NuggetError, match="can only raise"):
        Campaign.resume(tmp_path, repeats=2)


class Nobody(Executor):
    def submit(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("there is nothing to do")


def test_a_search_killed_in_its_final_relaxations_has_not_ended(
    whole: Campaign, base: Config, tmp_path: Path
):
    """Its budget is used, but what it would report is neither relaxed nor checked."""
    shutil.copytree(whole.directory / "runs", tmp_path / "runs")
    killed = tmp_path / "runs" / "kappa=4" / "seed-0001"
    for name in ("result.json", "status.json"):
        (killed / name).unlink()
    with closing(sqlite3.connect(killed / "search.db")) as db, db:
        db.execute(f"delete from systems where id > {base.search.budget}")
    assert len(Store.open(killed).records()) == base.search.budget
    assert read_outcome(killed) is None
    campaign = Campaign.create(base, VARY, 2, tmp_path)
    campaign.run(InProcess())
    assert [plain(row) for row in campaign.rows()] == [plain(row) for row in whole.rows()]


def test_searches_of_somebody_else_are_refused(whole: Campaign, base: Config, tmp_path: Path):
    other = tmp_path / "runs" / "kappa=0" / "seed-0000"
    Search.create(config(candidates=7), other)
    with pytest.raises(NuggetError, match="candidates is 7 there and 3 here"):
        Campaign.create(base, VARY, 2, tmp_path)
    assert not (tmp_path / "campaign.toml").exists()
    with pytest.raises(NuggetError, match="another campaign"):
        Campaign.create(base, {"kappa": ("0", "2")}, 2, whole.directory)
    assert Campaign.create(base, VARY, 2, whole.directory).collect()  # the same one is welcome


def test_nothing_new_is_an_end_too(tmp_path: Path):
    """One atom has one structure: the search ends long before its budget, and stays ended."""
    atom = make_config(
        {
            "system": {"formula": "Au"},
            "engine": {"name": "emt"},
            "search": {"budget": 30, "candidates": 2, "initial": 2},
        }
    )
    campaign = Campaign.create(atom, {}, 1, tmp_path)
    campaign.run(InProcess())
    [row] = campaign.rows()
    assert 0 < row.outcome.evaluations < 30
    (campaign.members[0].directory / "result.json").unlink()
    assert read_outcome(campaign.members[0].directory) == row.outcome
    Campaign.resume(tmp_path).run(Nobody())
    end = Store.open(campaign.members[0].directory).end()
    assert end is not None
    assert (end.status, end.exhausted) == ("finished", True)
    (campaign.members[0].directory / "status.json").unlink()  # as after a kill
    (campaign.members[0].directory / "result.json").unlink()
    assert read_outcome(campaign.members[0].directory) is None


def test_a_search_that_fails_becomes_a_row(tmp_path: Path):
    """EMT knows no iron; gold in the same campaign is not troubled, and a repair is taken up."""
    base = make_config(
        {
            "engine": {"name": "emt", "max_failures": 2},
            "search": {"budget": 4, "candidates": 2, "initial": 3, "relax_steps": 5},
        }
    )
    campaign = Campaign.create(base, {"formula": ("Fe3", "Au3")}, 1, tmp_path)
    iron, gold = campaign.run(InProcess())
    assert "failed 2 times in a row" in iron.outcome.error
    assert (iron.outcome.evaluations, iron.outcome.failures) == (2, 2)
    assert not gold.outcome.error
    assert [row.outcome.error for row in Campaign.resume(tmp_path).collect()] == [
        iron.outcome.error, "",
    ]  # fmt: skip
    submitted: list[Any] = []

    class Noting(InProcess):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            submitted.append(args[0].directory)
            return super().submit(fn, *args, **kwargs)

    Campaign.resume(tmp_path).run(Noting())
    assert [Path(directory).parent.name for directory in submitted] == ["formula=Fe3"]


def test_a_kept_result_counts_until_the_search_goes_on(whole: Campaign, tmp_path: Path):
    member = whole.members[-1]
    directory = tmp_path / "search"
    shutil.copytree(member.directory, directory)
    kept = directory / "result.json"
    keep(directory, replace(read_outcome(directory), failures=99))
    known = read_outcome(directory)
    assert known is not None
    assert known.failures == 99  # nothing else was read
    later = kept.stat().st_mtime_ns + 10**9
    os.utime(directory / "search.db", ns=(later, later))
    known = read_outcome(directory)
    assert known is not None
    assert known.failures == 0
    kept.write_text("{")
    os.utime(directory / "search.db", ns=(0, 0))
    assert read_outcome(directory) == known  # made again from the database


def test_the_table_of_results_loses_nothing(tmp_path: Path):
    rows = [
        Row({"kappa": "0", "baseline": "a,b"}, 3, Outcome(True, 7, 8, -1 / 3, 0.1, 0, 0.1, 0.2, 6)),
        Row({"kappa": "1", "baseline": "c"}, 4, Outcome(False, None, 9, None, None, 9, 0.0, 0.0)),
        Row({"kappa": "1", "baseline": "c"}, 5, Outcome(error='no "engine", at all')),
    ]
    write_csv(tmp_path / "results.csv", rows)
    assert read_csv(tmp_path / "results.csv") == rows
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(NuggetError, match="not a table of searches"):
        read_csv(tmp_path / "other.csv")


def rows_in(directory: Path) -> int:
    """Evaluations in all databases; one that is just being made has none."""
    total = 0
    for file in (directory / "search.db", *directory.glob("runs/*/seed-*/search.db")):
        try:
            with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
                total += int(db.execute("select count(*) from systems").fetchone()[0])
        except sqlite3.OperationalError:
            continue
    return total


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def kill_in_the_middle(directory: Path, killed: list[int]) -> None:
    """Kill −9 the process that is in the middle of a search: 2 to 5 of at least 7 evaluations."""
    while True:
        for search in directory.glob("runs/*/seed-*"):
            if 2 <= rows_in(search) <= 5:
                pid = int(json.loads((search / "lock").read_text() or '{"pid": 0}')["pid"])
                if pid and pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return
        time.sleep(0.005)


def run_with_a_loss(campaign: Campaign, executor: Executor) -> int:
    """The campaign, with one of its workers killed on the way; its process id."""
    killed: list[int] = []
    killer = threading.Thread(
        target=kill_in_the_middle, args=(campaign.directory, killed), daemon=True
    )
    killer.start()
    campaign.run(executor)
    killer.join(timeout=5)
    assert len(killed) == 1
    logs = [m.directory / "search.log" for m in campaign.members]
    continued = sum(log.read_text().count("continued after") for log in logs)
    assert continued == 1, "the search of the lost worker went on in another"
    return killed[0]


@pytest.mark.slow
def test_a_killed_process_is_replaced(whole: Campaign, base: Config, tmp_path: Path):
    campaign = Campaign.create(base, VARY, 1, tmp_path)
    with make_executor(ExecutionConfig(kind="processes", workers=2)) as executor:
        assert isinstance(executor, ProcessExecutor)
        pid = run_with_a_loss(campaign, executor)
        assert pid not in executor.pids()
    assert_same(whole, campaign)


@pytest.mark.slow
def test_a_dask_worker_is_killed(whole: Campaign, base: Config, tmp_path: Path):
    """A real cluster of two processes; one dies in the middle of a search."""
    distributed = pytest.importorskip("distributed")
    campaign = Campaign.create(base, VARY, 2, tmp_path)
    del campaign.members[3:]  # three searches for two workers are enough
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        scheduler = ExecutionConfig(kind="dask", address=cluster.scheduler_address)
        with make_executor(scheduler) as executor:
            run_with_a_loss(campaign, executor)
    assert_same(whole, campaign)
