"""A cluster that is lost ends the search with one sentence; that is no failure of a structure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from ase.build import molecule

from nugget.engines import dask_cluster
from nugget.engines.dask_cluster import DaskExecutor, Jobs
from nugget.engines.engine_settings import EngineConfig, ExecutionConfig
from nugget.engines.execution import make_executor
from nugget.engines.queue import EvaluationQueue
from nugget.errors import NuggetError


class Gone(Executor):
    """Takes work and cancels it, as a Dask client whose scheduler was killed."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


class Silent(Executor):
    """Takes work and never answers, as a Dask client often does."""

    def submit(self, fn, /, *args, **kwargs):
        return Future()

    def lost(self):
        return "nobody answers"


@pytest.mark.parametrize("executor", [Gone(), Silent()])
def test_it_ends_the_search_and_costs_no_evaluation(executor):
    with EvaluationQueue(EngineConfig(name="emt", retries=1), 1, executor) as queue:
        queue.submit(0, molecule("N2"))
        with pytest.raises(NuggetError, match="takes no more work"):
            queue.next()


@pytest.mark.parametrize("executor", [Gone(), Silent()])
def test_it_ends_the_checks_of_an_engine(executor):
    """They come before the first evaluation, and wait for their result."""
    with (
        EvaluationQueue(EngineConfig(name="emt", retries=1), 1, executor) as queue,
        pytest.raises(NuggetError, match="takes no more work"),
    ):
        queue.evaluate(molecule("N2"))


class Client:
    """A Dask client with a number of workers, or None for a scheduler that does not answer."""

    scheduler = SimpleNamespace(ncores=None)
    workers: int | None = 1

    def get_executor(self, pure):
        return None

    def sync(self, question, callback_timeout):
        if self.workers is None:
            raise OSError
        return dict.fromkeys(range(self.workers))


@pytest.mark.parametrize(
    ("workers", "reason"),
    [(None, "scheduler has not answered"), (0, "all Dask workers are gone"), (1, None)],
)
def test_a_scheduler_and_workers_that_are_gone(monkeypatch, workers, reason):
    monkeypatch.setattr(dask_cluster, "_ASK", 0.0)
    client = Client()
    executor = DaskExecutor(client, None)
    assert executor.lost() is None
    client.workers = workers
    assert executor.lost() is None  # not at once
    monkeypatch.setattr(dask_cluster, "_SILENCE", -1.0)
    lost = executor.lost()
    assert (lost is None) if reason is None else (reason in lost)


def test_workers_that_have_not_come_yet_are_waited_for(monkeypatch):
    monkeypatch.setattr(dask_cluster, "_ASK", 0.0)
    monkeypatch.setattr(dask_cluster, "_SILENCE", -1.0)
    client = Client()
    client.workers = 0
    assert DaskExecutor(client, None).lost() is None


def script(directory: Path, name: str, text: str) -> None:
    file = directory / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A directory for false programs, first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_jobs_that_are_no_longer_in_the_queue(programs, monkeypatch):
    monkeypatch.setattr(dask_cluster, "_ASK", 10.0)
    jobs = Jobs("slurm", 4)
    assert jobs.ended() is None  # none was submitted
    jobs._ids = ["12", "13"]
    script(programs, "squeue", '[ "$5" = 13 ] && echo 13; exit 0')
    assert jobs.ended() is None
    script(programs, "squeue", "exit 1")
    assert jobs.ended() == "13"


def test_submissions_have_a_limit():
    jobs = Jobs("slurm", 2)

    class Job:
        job_id = "7"
        started = 0

        async def start(self):
            Job.started += 1

    def submit():
        job = jobs.limited(Job)()
        with pytest.raises(StopIteration):
            job.start().send(None)

    for _ in range(3):
        submit()
    assert "2 jobs ended without a result, the last was 7" in jobs.failure()
    with pytest.raises(NuggetError):
        jobs.limited(Job)().start().send(None)
    assert Job.started == 3
    jobs.useful()
    assert jobs.failure() is None


def test_a_queue_without_its_programs(monkeypatch, tmp_path):
    pytest.importorskip("distributed")
    monkeypatch.setenv("PATH", str(tmp_path))
    config = ExecutionConfig(kind="dask", cluster="slurm")
    with pytest.raises(NuggetError, match="needs the program sbatch"), make_executor(config):
        pass


SEARCH = """
[system]
formula = "Au3"
[engine]
name = "emt"
[search]
budget = 2
polish = 0
[execution]
kind = "dask"
"""

SLURM = """cluster = "slurm"
[execution.options]
interface = "lo"
"""


def nugget(*words: str, timeout: float = 400.0) -> tuple[int, str]:
    program = "from nugget.cli.main import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=timeout
    )
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sbatch", "reason"),
    [
        ("echo 'no partition' >&2; exit 1", "sbatch failed: no partition"),
        ("echo Submitted batch job 99", "job 99 ended before its worker answered"),
    ],
)
def test_submissions_in_vain_end_with_one_sentence(programs, monkeypatch, sbatch, reason):
    pytest.importorskip("dask_jobqueue")
    monkeypatch.chdir(programs)
    script(programs, "sbatch", sbatch)
    script(programs, "squeue", "exit 0")
    script(programs, "scancel", "exit 0")
    Path("s.toml").write_text(SEARCH + SLURM)
    code, text = nugget("search", "s.toml", "--out", "run", "--no-live")
    assert code == 2
    assert reason in text
    assert "Traceback" not in text
    settings = Path("run/config.toml")
    plain = settings.read_text().split("[execution]")[0]
    settings.write_text(plain)
    assert nugget("search", "--resume", "run", "--no-live")[0] == 0


@pytest.mark.slow
def test_a_killed_scheduler(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(
        "import time\nfrom pathlib import Path\nfrom ase.calculators.emt import EMT\n\n"
        "def make():\n    Path(__file__).with_name('started').touch()\n    time.sleep(300)\n"
        "    return EMT()\n"
    )
    address = "tcp://127.0.0.1:18797"
    begin = [sys.executable, "-m"]
    scheduler = subprocess.Popen(
        [*begin, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "18797"]
    )
    worker = subprocess.Popen([*begin, "distributed.cli.dask_worker", address, "--nthreads", "1"])
    try:
        settings = SEARCH.replace('"emt"', '"slow:make"') + f'address = "{address}"\n'
        Path("s.toml").write_text(settings)
        program = "from nugget.cli.main import app; app()"
        words = ["search", "s.toml", "--trust", "--out", "run", "--no-live"]
        search = subprocess.Popen([sys.executable, "-c", program, *words], stderr=subprocess.PIPE)
        while not Path("started").exists():
            assert search.poll() is None
            time.sleep(1.0)
        scheduler.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        text = search.communicate(timeout=120)[1].decode()
        assert time.monotonic() - killed < 60
        assert search.returncode == 2
        assert "takes no more work" in text
        assert "Traceback" not in text
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
