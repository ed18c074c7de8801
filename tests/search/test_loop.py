from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

from nugget.errors import NuggetError
from nugget.search import Search, make_config
from nugget.search import learner as stopwatch
from nugget.search.record import Record
from nugget.search.store import Store

HERE = Path(__file__).parent


def settings(**search: object) -> dict[str, object]:
    """A search that takes seconds: six gold atoms, EMT."""
    return {
        "system": {"formula": "Au6"},
        "engine": {"name": "emt"},
        "model": {"cutoff": 5.0, "use_forces": search.pop("use_forces", True)},
        "search": {
            "budget": 12,
            "candidates": 6,
            "relax_steps": 30,
            "initial": 3,
            "polish": 0,
            **search,
        },
    }


def assert_equal(a: list[Record], b: list[Record]) -> None:
    """The same evaluations to the last bit; only the times differ."""
    assert len(a) == len(b)
    for one, two in zip(a, b, strict=True):
        np.testing.assert_array_equal(one.atoms.positions, two.atoms.positions)
        for name in ("iteration", "generator", "predicted", "std", "scale", "acquisition"):
            assert getattr(one, name) == getattr(two, name), name
        assert one.energy == two.energy
        np.testing.assert_array_equal(one.atoms.get_forces(), two.atoms.get_forces())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    search = Search.create(make_config(settings()), tmp_path_factory.mktemp("whole"))
    result = search.run()
    assert result.evaluations == 12
    assert result.failures == 0
    assert not result.interrupted
    return search.store.records()


def test_a_search_lowers_the_energy_and_writes_it_down(uninterrupted: list[Record]) -> None:
    energies = [record.energy for record in uninterrupted]
    assert min(energies[3:]) < min(energies[:3])
    assert [record.iteration for record in uninterrupted] == list(range(12))
    later = uninterrupted[3:]
    assert all(record.predicted is not None and record.std > 0 for record in later)
    assert len({record.generator for record in uninterrupted}) > 2


def test_no_structure_is_evaluated_twice(uninterrupted: list[Record]) -> None:
    for k, a in enumerate(uninterrupted):
        for b in uninterrupted[:k]:
            d1, d2 = (np.sort(r.atoms.get_all_distances(), axis=None) for r in (a, b))
            assert np.abs(d1 - d2).max() > 1e-3


def test_stopping_and_resuming_changes_nothing(uninterrupted: list[Record], tmp_path: Path) -> None:
    search = Search.create(make_config(settings()), tmp_path / "run")
    result = search.run(watch=lambda status: search.stop() if status.evaluations == 2 else None)
    assert result.interrupted
    assert result.evaluations == 2
    assert search.store.end() == result.end
    Search.resume(tmp_path / "run", trust=True).run(budget=7)
    Search.resume(tmp_path / "run", trust=True).run()
    assert_equal(Store.open(tmp_path / "run").records(), uninterrupted)
    assert (tmp_path / "run" / "best.extxyz").exists()


RUN = "from nugget.search import Search; import sys; Search.resume(sys.argv[1], trust=True).run()"


def evaluated(directory: Path) -> int:
    """Rows in the database; 0 as long as there is none, or it is just being written."""
    try:
        with closing(sqlite3.connect(f"file:{directory / 'search.db'}?mode=ro", uri=True)) as db:
            return int(db.execute("select count(*) from systems").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def run_and_kill(directory: Path, rng: np.random.Generator, kills: int) -> int:
    """Run the search in processes of its own, killed −9 at random moments; how many died.

    Each lives for up to two more evaluations and a moment: some die while they start, some in the
    middle of a calculation, some while they write.
    """
    died = 0
    for _ in range(2 * kills + 1):
        process = subprocess.Popen([sys.executable, "-c", RUN, str(directory)])
        if died < kills:
            goal = evaluated(directory) + int(rng.integers(3))
            while process.poll() is None and evaluated(directory) < goal:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.3))
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                died += 1
        if process.wait() == 0:
            return died
    raise AssertionError("the search never finished")


@pytest.mark.parametrize(
    ("kills", "budget"), [(2, 8), pytest.param(20, 100, marks=pytest.mark.slow)]
)
def test_kill_at_any_moment_loses_nothing(tmp_path: Path, kills: int, budget: int) -> None:
    config = make_config(settings(budget=budget))
    whole = Search.create(config, tmp_path / "whole")
    whole.run()
    Search.create(config, tmp_path / "killed")
    died = run_and_kill(tmp_path / "killed", np.random.default_rng(0), kills)
    assert died == kills
    assert_equal(Store.open(tmp_path / "killed").records(), whole.store.records())


@pytest.mark.slow
def test_failures_are_recorded_and_the_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    config = settings(budget=10)
    config["engine"] = {
        "name": "faulty_engines:in_turn",
        "time_limit": 6.0,
        "retries": 0,
        "options": {"counter": str(tmp_path / "count")},
    }
    search = Search.create(make_config(config), tmp_path / "run")
    result = search.run()
    kinds = [record.failure for record in search.store.records()]
    assert {"exception", "timeout", "nan", "died"} <= set(kinds)
    assert result.evaluations == 10
    assert result.failures == sum(kind != "" for kind in kinds)
    assert all(r.reason for r in search.store.records() if not r.ok)


def test_too_many_failures_in_a_row_stop_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    config = settings()
    config["engine"] = {"name": "faulty_engines:raising", "max_failures": 3}
    search = Search.create(make_config(config), tmp_path / "run")
    with pytest.raises(NuggetError, match="failed 3 times in a row"):
        search.run()
    assert len(search.store.records()) == 3
    end = search.store.end()
    assert end is not None
    assert (end.status, end.evaluations) == ("failed", 3)
    assert "failed 3 times in a row" in end.reason
    assert end.reason.endswith("if engine.options must change, begin a new search.")


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    search = Search.create(make_config(settings()), tmp_path / "run")
    with search.store.locked(), pytest.raises(NuggetError, match="is in use by process"):
        Search.resume(tmp_path / "run", trust=True).run()


def test_the_reference_ends_the_search(tmp_path: Path, uninterrupted: list[Record]) -> None:
    goal = min(uninterrupted, key=lambda record: record.energy)
    goal.atoms.write(tmp_path / "goal.extxyz")
    config = make_config(settings(reference=str(tmp_path / "goal.extxyz")))
    result = Search.create(config, tmp_path / "run").run()
    assert result.found
    assert result.evaluations <= goal.iteration + 1


def test_any_of_several_references_will_do(tmp_path: Path, uninterrupted: list[Record]) -> None:
    goal = min(uninterrupted, key=lambda record: record.energy)
    never = Atoms("Au6", np.arange(18).reshape(6, 3) * 2.0)
    never.calc = SinglePointCalculator(never, energy=0.0)
    write(tmp_path / "goals.extxyz", [goal.atoms, never])
    config = make_config(settings(reference=str(tmp_path / "goals.extxyz")))
    assert Search.create(config, tmp_path / "run").run().found


def test_the_reference_must_be_met_in_energy_too(
    tmp_path: Path, uninterrupted: list[Record]
) -> None:
    goal = min(uninterrupted, key=lambda record: record.energy)
    elsewhere = goal.atoms.copy()
    elsewhere.calc = SinglePointCalculator(elsewhere, energy=goal.energy - 1.0)
    elsewhere.write(tmp_path / "goal.extxyz")
    settled = settings(reference=str(tmp_path / "goal.extxyz"), reference_tolerance=0.5)
    result = Search.create(make_config(settled), tmp_path / "run").run()
    assert not result.found
    assert result.evaluations == 12


def test_a_reference_without_energy_is_refused_at_once(tmp_path: Path) -> None:
    Atoms("Au6", np.arange(18).reshape(6, 3) * 2.0).write(tmp_path / "goal.extxyz")
    settled = settings(reference=str(tmp_path / "goal.extxyz"), reference_tolerance=0.5)
    with pytest.raises(NuggetError, match="carries no energy"):
        Search.create(make_config(settled), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("choice", [{"acquisition": "thompson"}, {"acquisition": "ei"}])
def test_other_acquisitions_run_and_resume(tmp_path: Path, choice: dict[str, str]) -> None:
    config = make_config(settings(budget=8, **choice))
    whole = Search.create(config, tmp_path / "whole")
    whole.run()
    part = Search.create(config, tmp_path / "part")
    part.run(budget=5)
    Search.resume(tmp_path / "part", trust=True).run()
    assert_equal(part.store.records(), whole.store.records())


def test_projected_process_and_energies_only(tmp_path: Path) -> None:
    config = settings(budget=7, use_forces=False)
    config["model"] |= {"uncertainty": "projected-process"}
    result = Search.create(make_config(config), tmp_path / "run").run()
    assert result.evaluations == 7


def test_adsorbates_on_a_fixed_slab(tmp_path: Path) -> None:
    slab = fcc111("Cu", (2, 2, 2), vacuum=8.0)
    slab.write(tmp_path / "slab.traj")
    config = settings(budget=7)
    config["system"] = {
        "formula": "Au2",
        "kind": "surface",
        "template": str(tmp_path / "slab.traj"),
        "height": 4.0,
    }
    search = Search.create(make_config(config), tmp_path / "run")
    result = search.run()
    assert result.failures == 0
    for record in search.store.records():
        np.testing.assert_array_equal(record.atoms.positions[:8], slab.positions)
        assert record.atoms.positions[8:, 2].min() > slab.positions[:, 2].max() - 1.0


def test_bulk_cells(tmp_path: Path) -> None:
    config = settings(budget=7)
    config["system"] = {"formula": "Cu3Au", "kind": "bulk", "cell": [3.8, 3.8, 3.8]}
    result = Search.create(make_config(config), tmp_path / "run").run()
    assert result.failures == 0
    assert result.best is not None


def test_mistakes_are_found_before_anything_is_written(tmp_path: Path) -> None:
    config = settings()
    config["system"] = {"formula": "Qq3"}
    with pytest.raises(NuggetError):
        Search.create(make_config(config), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_surrogate_seconds_leave_out_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, compiling = [100.0], [7.0]
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(stopwatch, "compile_seconds", lambda: compiling[0])
    watch = stopwatch.Stopwatch()
    for _ in range(2):
        with watch:
            clock[0] += 5.0  # of which three were spent compiling
            compiling[0] += 3.0
        clock[0] += 50.0  # outside
    assert watch.take() == pytest.approx(4.0)
    assert watch.take() == 0.0
