"""A search whose evaluations are SLURM jobs of two ranks, through a cancelled job and a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ase.db import connect

NUGGET = [sys.executable, "-c", "from nugget.cli.main import app; app()"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("sinfo") is None
        or subprocess.run(["sinfo", "-h"], capture_output=True).returncode != 0,
        reason="no SLURM answers on this machine",
    ),
]

ENGINE = """
import subprocess, time
from ase.calculators.emt import EMT

class TwoRanks(EMT):
    def calculate(self, *arguments, **options):
        ranks = subprocess.run(["srun", "-n", "2", "hostname"], capture_output=True, text=True)
        assert len(ranks.stdout.split()) == 2, ranks.stderr
        time.sleep(3)
        super().calculate(*arguments, **options)

def make():
    return TwoRanks()
"""

SETTINGS = """
[system]
formula = "Au6"
[engine]
name = "two_ranks:make"
[search]
budget = 6
in_flight = 2
polish = 0
[execution]
kind = "jobs"
[execution.options]
ranks = 2
memory = "500M"
poll = 1
"""


def started(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [*NUGGET, "search", *arguments, "--trust", "--no-live"]
    env = {**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)


def wait_for(condition: Callable[[], bool], search: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, (folder / "log").read_text()
        assert search.poll() is None, (folder / "log").read_text()
        time.sleep(0.5)


def numbers(log: Path) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[-1] for line in lines if "submitted as" in line]


def evaluated(run: Path) -> int:
    file = run / "search.db"
    return len(list(connect(file).select())) if file.exists() else 0


def test_a_search_with_a_cancelled_job_that_is_killed_and_resumed(tmp_path: Path):
    (tmp_path / "two_ranks.py").write_text(ENGINE)
    (tmp_path / "s.toml").write_text(SETTINGS)
    run, log = tmp_path / "run", tmp_path / "run" / "jobs.log"
    first = started(tmp_path, "s.toml", "--out", "run", "--seed", "1")
    # The first job is that of an isolated atom; the next two are in flight together.
    wait_for(lambda: len(numbers(log)) >= 3, first, tmp_path)
    subprocess.run(["scancel", numbers(log)[2]], check=True)
    wait_for(lambda: evaluated(run) >= 2 and len(numbers(log)) >= 5, first, tmp_path)
    first.send_signal(signal.SIGKILL)
    first.wait()
    done = evaluated(run)
    assert done < 6
    second = started(tmp_path, "--resume", "run")
    assert second.wait(600) == 0, (tmp_path / "log").read_text()
    text = log.read_text()
    assert "CANCELLED" in text
    assert "submitted again" in text
    assert "found again" in text  # a job of the search that was killed
    rows = list(connect(run / "search.db").select())
    assert len(rows) == 6
    assert all(row.get("energy") is not None for row in rows)
