"""Dynamics that learns: the same trajectory and the same model however often it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import read
from test_calculator import cluster
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.errors import NuggetError
from nugget.onthefly.molecular_dynamics import MDRun, audit_chance, replica_states, summary
from nugget.onthefly.run_settings import MDConfig
from nugget.potential.potential import Potential

FILES = ("md.extxyz", "md.log", "learned.model")


def config(**changed) -> MDConfig:
    plain = {
        "engine": {"name": "emt"}, "steps": 60, "temperature": 400.0, "every": 10,
        "checkpoint": 25, "audit": 20, "preset": "quick",
    }  # fmt: skip
    return MDConfig.model_validate({**plain, **changed})


def content(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in FILES[:2]}


def same_model(one: Path, other: Path) -> bool:
    """All arrays of two model files, bit for bit; the headers hold dates."""
    with np.load(one / FILES[2]) as a, np.load(other / FILES[2]) as b:
        names = [name for name in a.files if name not in ("header", "checksum")]
        return set(a.files) == set(b.files) and all(
            np.array_equal(a[n], b[n], equal_nan=True) for n in names
        )


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("whole") / "run"
    run = MDRun.create(cluster(), config(), directory)
    progress = run.run()
    assert progress.step == 60
    return directory


def test_files_hold_the_trajectory_and_a_model(whole):
    frames = read(whole / "md.extxyz", ":")
    assert [atoms.info["step"] for atoms in frames] == [10, 20, 30, 40, 50, 60]
    labelled = read(whole / "labelled.extxyz", ":")
    assert np.allclose(
        labelled[3].get_forces(), EMT().get_property("forces", labelled[3].copy()), atol=1e-6
    )
    predicted = Potential.load(whole / "learned.model").predict(frames[-1:])
    assert np.allclose(predicted.forces[0], frames[-1].get_forces(), atol=0.05)
    assert frames[-1].arrays["forces_uncertainty"].shape == (7, 3)
    log = np.loadtxt(whole / "md.log")
    assert np.allclose(log[:, 1], 2.0 * log[:, 0])


def test_forces_on_the_way_are_as_good_as_promised(whole):
    frames = read(whole / "md.extxyz", ":")
    errors = [EMT().get_property("forces", a.copy()) - a.get_forces() for a in frames]
    assert np.mean(np.abs(errors) <= 0.1) > 0.95


def test_stopping_and_going_on_changes_nothing(whole, tmp_path):
    MDRun.create(cluster(), config(), tmp_path / "run")
    for stop in (7, 31, None):  # 7 is before the first checkpoint
        run = MDRun.resume(tmp_path / "run")
        run.run(lambda progress, run=run, stop=stop: progress.step == stop and run.stop())
    assert content(tmp_path / "run") == content(whole)
    assert same_model(tmp_path / "run", whole)


def test_a_longer_run_goes_on_as_if_it_had_been_planned(whole, tmp_path):
    MDRun.create(cluster(), config(steps=33), tmp_path / "run").run()
    MDRun.resume(tmp_path / "run", steps=60).run()
    assert content(tmp_path / "run") == content(whole)


def kill_and_resume(directory: Path, waits: list[float]) -> None:
    """Run to the end in processes that are killed after these many seconds each."""
    command = [sys.executable, "-c", "from nugget.cli.main import app; app()"]
    for wait in [*waits, None]:
        process = subprocess.Popen(
            [*command, "md", "--resume", str(directory), "--json"],
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        if wait is None:
            assert process.wait() == 0
            return
        begun, size = time.monotonic(), _progress(directory)
        while process.poll() is None and (
            _progress(directory) == size or time.monotonic() - begun < wait
        ):
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _progress(directory: Path) -> int:
    """Grows while a run works."""
    names = ("calls.jsonl", "md.extxyz", "checkpoint.json", "md.log")
    found = [directory / name for name in names if (directory / name).exists()]
    return sum(path.stat().st_size + path.stat().st_mtime_ns for path in found)


def killed(whole: Path, directory: Path, count: int, steps: int, seed: int) -> None:
    MDRun.create(cluster(), config(steps=steps), directory)
    waits = np.random.default_rng(seed).uniform(0.0, 3.0, size=count)
    kill_and_resume(directory, list(waits))
    assert content(directory) == content(whole)
    assert same_model(directory, whole)


@pytest.mark.slow
def test_three_kills_change_nothing(whole, tmp_path):
    killed(whole, tmp_path / "run", 3, 60, seed=0)


@pytest.mark.slow
def test_twenty_kills_change_nothing(tmp_path):
    MDRun.create(cluster(), config(steps=400), tmp_path / "whole").run()
    killed(tmp_path / "whole", tmp_path / "run", 20, 400, seed=1)


@pytest.mark.parametrize("ensemble", ["nve", "npt"])
def test_other_ensembles_resume_to_the_same_bits(ensemble, tmp_path):
    start = bulk("Cu", cubic=True)
    settings = config(ensemble=ensemble, steps=30, checkpoint=10, audit=0, every=5)
    MDRun.create(start, settings, tmp_path / "whole").run()
    MDRun.create(start, settings, tmp_path / "part")

    class Killed(Exception):
        pass

    def watch(progress):
        if progress.step == 14:
            raise Killed

    with pytest.raises(Killed):
        MDRun.resume(tmp_path / "part").run(watch)
    MDRun.resume(tmp_path / "part").run()
    assert content(tmp_path / "part") == content(tmp_path / "whole")
    assert same_model(tmp_path / "part", tmp_path / "whole")
    volumes = np.loadtxt(tmp_path / "whole" / "md.log")[:, 5]
    assert (np.ptp(volumes) > 0) == (ensemble == "npt")


def test_replicas_share_one_model_and_resume_to_the_same_bits(tmp_path):
    settings = config(steps=30, checkpoint=10, temperature=200.0, replicas=(700.0,), every=5)
    run = MDRun.create(cluster(), settings, tmp_path / "whole")
    progress = run.run()
    assert {call["replica"] for call in progress.calls if call["step"]} == {0, 1}
    first, second = run.replicas
    assert first.calculator.model is second.calculator.model
    MDRun.create(cluster(), settings, tmp_path / "part")
    for stop in (14, None):
        part = MDRun.resume(tmp_path / "part")
        part.run(lambda progress, run=part, stop=stop: progress.step == stop and run.stop())
    for name in ("md.extxyz", "md-2.extxyz", "md.log", "md-2.log"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert same_model(tmp_path / "part", tmp_path / "whole")
    cold, hot = (np.loadtxt(tmp_path / "whole" / n)[:, 2] for n in ("md.log", "md-2.log"))
    assert cold.mean() < hot.mean()


def test_a_checkpoint_without_replicas_is_read(whole):
    saved = json.loads((whole / "checkpoint.json").read_text())
    new = next(value for value in (saved, *saved.values()) if "replicas" in value)
    one = new["replicas"][0]
    old = {**one, "offsets": dict(zip(FILES[:2], one["offsets"], strict=True))}
    assert replica_states(old) == [one]


def test_random_calls_are_frequent_at_first():
    chances = [audit_chance(step, 500) for step in (0, 100, 1000, 100_000)]
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] == 1 / 500
    assert audit_chance(0, 10) == 1 / 10


def test_a_given_model_is_used_and_kept(whole, tmp_path):
    run = MDRun.create(cluster(), config(steps=10, audit=0), tmp_path / "run", whole / FILES[2])
    progress = run.run()
    assert len(progress.calls) < 3
    assert summary(progress, run.config)["reasons"]["first"] == 0


def test_what_cannot_be_is_refused(whole, tmp_path):
    with pytest.raises(NuggetError, match="contains a run already"):
        MDRun.create(cluster(), config(), whole)
    with pytest.raises(NuggetError, match="no run"):
        MDRun.resume(tmp_path)
    with pytest.raises(NuggetError, match="periodic"):
        MDRun.create(cluster(), config(ensemble="npt"), tmp_path / "npt").run()


def test_a_failing_engine_ends_the_run(tmp_path, engines):
    settings = config(engine={"name": "faulty_engines:broken", "max_failures": 3})
    with pytest.raises(NuggetError, match="3 times in a row"):
        MDRun.create(cluster(), settings, tmp_path / "run").run()
    lines = (tmp_path / "run" / "calls.jsonl").read_text().splitlines()
    assert [json.loads(line)["failure"] for line in lines] == ["exception"] * 3


def test_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Atoms(cluster()).write("start.xyz")
    options = ["--engine", "emt", "--steps", "12", "--every", "4", "--preset", "quick"]
    done = CliRunner().invoke(app, ["md", "start.xyz", *options, "--out", "run", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["steps"] == 12
    assert report["calls"] >= 6
    done = CliRunner().invoke(app, ["md", "--resume", "run", "--steps", "20"])
    assert done.exit_code == 0, done.output
    assert "engine calls" in done.output
    done = CliRunner().invoke(app, ["md", "--resume", "run", "--seed", "2"])
    assert done.exit_code == 2
    model = ["evaluate", "run/learned.model", "run/md.extxyz"]
    done = CliRunner().invoke(app, model)
    assert done.exit_code == 0, done.output


def test_a_run_names_step_and_atom_and_stops(whole, tmp_path):
    settings = config(warn_above=1e-9)
    MDRun.create(cluster(), settings, tmp_path / "warned", whole / "learned.model").run()
    notes = [line for line in (tmp_path / "warned" / "md.log").open() if "uncertain by" in line]
    assert notes
    assert all(note.startswith("# Step ") for note in notes)
    assert len(np.loadtxt(tmp_path / "warned" / "md.log")) == 6
    stopping = MDRun.create(
        cluster(), config(stop_above=1e-9), tmp_path / "stopped", whole / "learned.model"
    )
    progress = stopping.run()
    assert progress.step < 60
    assert progress.stopped.startswith(f"Step {progress.step}: the energy is uncertain by")
