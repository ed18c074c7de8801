"""The job scripts of docs/how-to/slurm.md, with a slow engine, signals and a false scontrol."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest
from ase.db import connect
from doc_pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "slurm.md"
ENGINE = """
import os, time
from ase.calculators.emt import EMT


class Slow(EMT):
    def calculate(self, *args, **keywords):
        time.sleep(float(os.environ["SECONDS_EACH"]))
        super().calculate(*args, **keywords)


def make():
    return Slow()
"""
SETTINGS = """
[system]
formula = "Au5"
[engine]
name = "slow_engine:make"
[search]
budget = 4
candidates = 5
polish = 0
"""


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """A directory with the scripts and an engine; `scontrol` notes what it was asked."""
    for block in blocks(PAGE):
        if block.file is not None and block.file.endswith(".sh"):
            (tmp_path / block.file).write_text(block.code)
    (tmp_path / "slow_engine.py").write_text(ENGINE)
    (tmp_path / "settings.toml").write_text(SETTINGS)
    (tmp_path / "bin").mkdir()
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/requeued\n')
    scontrol.chmod(0o755)
    path = [str(tmp_path / "bin"), sysconfig.get_path("scripts"), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(path), "SLURM_JOB_ID": "17"}


def job(
    tmp_path: Path, cluster: dict[str, str], script: str, **more: str
) -> subprocess.Popen[bytes]:
    log = (tmp_path / "log").open("ab")
    return subprocess.Popen(
        ["bash", script], cwd=tmp_path, env={**cluster, **more}, stdout=log, stderr=log
    )


def wait_for(condition, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.2)


def evaluated(directory: Path) -> list[float]:
    file = directory / "search.db"
    return [row.energy for row in connect(file).select()] if file.exists() else []


@pytest.mark.slow
def test_a_job_that_is_stopped_and_queued_again_ends_as_one_that_was_not(tmp_path, cluster):
    run = tmp_path / "run"
    # The signal comes during a calculation that ends in time: it is kept.
    first = job(tmp_path, cluster, "search.sh", SECONDS_EACH="3")
    wait_for(lambda: len(evaluated(run)) >= 1)
    first.send_signal(signal.SIGUSR1)
    assert first.wait(60) == 0
    assert (tmp_path / "requeued").read_text() == "requeue 17\n"
    done = len(evaluated(run))
    assert 1 <= done < 4
    # One that would take two hours is broken off.
    second = job(tmp_path, cluster, "search.sh", SECONDS_EACH="7200", PATIENCE="1")
    wait_for(lambda: any((run / "scratch").glob("evaluation-*")))
    time.sleep(2)
    second.send_signal(signal.SIGUSR1)
    assert second.wait(60) == 0
    assert (tmp_path / "requeued").read_text() == 2 * "requeue 17\n"
    assert len(evaluated(run)) == done
    # The third turn comes to the end, and asks for no other.
    assert job(tmp_path, cluster, "search.sh", SECONDS_EACH="0").wait(120) == 0
    assert (tmp_path / "requeued").read_text() == 2 * "requeue 17\n"
    whole = job(tmp_path, cluster, "search.sh", SECONDS_EACH="0", DIR="whole")
    assert whole.wait(120) == 0
    assert evaluated(run) == evaluated(tmp_path / "whole")
    assert len(evaluated(run)) == 4


@pytest.mark.slow
def test_a_campaign_that_is_stopped_goes_on(tmp_path, cluster):
    more = {"SECONDS_EACH": "0.5", "REPEATS": "1", "SLURM_CPUS_PER_TASK": "2"}
    first = job(tmp_path, cluster, "campaign.sh", **more)
    wait_for(lambda: any(tmp_path.glob("kappas/runs/*/*/search.db")))
    first.send_signal(signal.SIGUSR1)
    assert first.wait(90) == 0
    assert (tmp_path / "requeued").read_text() == "requeue 17\n"
    more["SECONDS_EACH"] = "0"
    assert job(tmp_path, cluster, "campaign.sh", **more).wait(180) == 0
    assert len((tmp_path / "kappas" / "results.csv").read_text().splitlines()) == 5
