"""Batch jobs: scripts and states everywhere; submission on a real SLURM where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import pytest

from nugget.engines import slurm
from nugget.engines.batch_jobs import JobExecutor, JobOptions, job_options, job_script
from nugget.engines.dask_cluster import job_queue_options
from nugget.engines.engine_settings import ExecutionConfig, execution_code
from nugget.engines.execution import make_executor, script_of
from nugget.engines.outcome import WalltimeError
from nugget.engines.slurm import State, state_of
from nugget.errors import NuggetError

needs_slurm = pytest.mark.skipif(
    shutil.which("sinfo") is None
    or subprocess.run(["sinfo", "-h"], capture_output=True).returncode != 0,
    reason="no SLURM answers on this machine",
)


def jobs(**options: object) -> ExecutionConfig:
    return ExecutionConfig(kind="jobs", options=options)


def test_the_script_requests_what_the_options_say(tmp_path):
    options = job_options(
        jobs(
            ranks=32, memory="8G", walltime="02:00:00", queue="long", account="gold",
            directives=["--exclusive"], environment={"NAME": "a b"}, prologue=["module load qe"],
        )
    )  # fmt: skip
    lines = job_script(options, {"OMP_NUM_THREADS": "1"}, tmp_path, "nugget-x").splitlines()
    for line in (
        "--ntasks=32", "--cpus-per-task=1", "--mem=8G", "--time=02:00:00", "--partition=long",
        "--account=gold", "--exclusive", "--job-name=nugget-x",
    ):  # fmt: skip
        assert f"#SBATCH {line}" in lines
    assert not any("--nodes" in line for line in lines)
    order = [lines.index(x) for x in ("export OMP_NUM_THREADS=1", "export NAME='a b'")]
    assert order[0] < order[1] < lines.index("module load qe") < len(lines) - 1
    assert "nugget.engines.job" in lines[-1]


def test_wrong_options_and_settings_are_named():
    with pytest.raises(NuggetError, match=r"execution\.options\.rank: Extra"):
        job_options(jobs(rank=2))
    with pytest.raises(ValueError, match="options belong"):
        ExecutionConfig(kind="processes", options={"ranks": 2})
    with pytest.raises(NuggetError, match="submit no jobs"):
        script_of(ExecutionConfig(), None)


def test_shell_code_needs_trust():
    config = jobs(ranks=2, walltime="01:00:00", prologue=["module load qe"])
    assert execution_code(config) == ["jobs:prologue=['module load qe']"]


def test_without_sbatch_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(NuggetError, match="needs the program sbatch"),
        make_executor(jobs(), tmp_path),
    ):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", State.WAITING),
        ("COMPLETING", State.RUNNING),
        ("COMPLETED", State.DONE),
        ("TIMEOUT", State.WALLTIME),
        ("CANCELLED by 0", State.LOST),
        ("NODE_FAIL", State.LOST),
        ("", State.LOST),
    ],
)
def test_states(word, state):
    assert state_of(word) is state


def test_cores_of_a_dask_job_belong_to_one_worker():
    """32 cores used to start 32 serial workers."""
    config = ExecutionConfig(kind="dask", cluster="slurm", options={"cores": 32, "queue": "long"})
    options = job_queue_options(config)
    assert (options["cores"], options["processes"], options["memory"]) == (1, 1, "64 GB")
    assert "--ntasks=32" in options["job_extra_directives"]
    several = job_queue_options(config.model_copy(update={"options": {"cores": 4, "processes": 4}}))
    assert (several["cores"], several["processes"]) == (4, 4)
    with pytest.raises(NuggetError, match="each worker needs a core"):
        job_queue_options(config.model_copy(update={"options": {"processes": 2}}))


def executor(directory, **options) -> JobExecutor:
    return JobExecutor(JobOptions(poll=1, memory="500M", **options), directory, {})


@pytest.mark.slow
@needs_slurm
def test_a_cancelled_job_is_submitted_again_and_a_killed_search_finds_its_jobs(tmp_path):
    first = executor(tmp_path)
    first.submit(time.sleep, 8)
    while not first.waiting():
        time.sleep(0.2)
    (number,) = first.waiting()
    first._end()  # as after a kill: the job stays
    second = executor(tmp_path)
    future = second.submit(time.sleep, 8)
    time.sleep(1.5)
    assert second.waiting() == [number]
    slurm.cancel([number])
    assert future.result(timeout=90) is None
    assert not list((tmp_path / "jobs").iterdir())
    log = (tmp_path / "jobs.log").read_text()
    assert f"found again, job {number}" in log
    assert "submitted again" in log
    second.cancel()


@pytest.mark.slow
@needs_slurm
def test_an_equal_call_is_a_job_of_its_own(tmp_path):
    """It used to take the job before it, which was completing, for its own."""
    repeated = executor(tmp_path)
    for _ in range(2):
        assert repeated.submit(os.cpu_count).result(timeout=90) == os.cpu_count()
    log = (tmp_path / "jobs.log").read_text()
    assert log.count("submitted as") == 2
    assert "without a result" not in log
    repeated.cancel()


@pytest.mark.slow
@needs_slurm
def test_jobs_that_always_die_end_in_one_sentence(tmp_path):
    dying = executor(tmp_path, resubmissions=1, prologue=("echo no such module; exit 3",))
    future = dying.submit(os.getcwd)
    with pytest.raises(NuggetError, match=r"FAILED.*no such module"):
        future.result(timeout=90)
    assert "2 jobs in a row ended without a result" in str(dying.lost())
    dying.cancel()


@pytest.mark.slow
@needs_slurm
def test_the_walltime_is_a_failure_of_its_own(tmp_path):
    short = executor(tmp_path, walltime="00:01:00")
    future = short.submit(time.sleep, 400)
    with pytest.raises(WalltimeError, match="reached its walltime"):
        future.result(timeout=240)
    short.cancel()


@pytest.mark.slow
@needs_slurm
def test_the_log_says_why_a_job_waits(tmp_path):
    node = subprocess.run(["sinfo", "-h", "-o", "%n"], capture_output=True, text=True)
    change = ["scontrol", "update", f"nodename={node.stdout.split()[0]}"]
    drained = subprocess.run([*change, "state=drain", "reason=test"], capture_output=True)
    if drained.returncode:
        pytest.skip("only administrators of SLURM may drain a node")
    waiting = executor(tmp_path)
    try:
        future = waiting.submit(os.cpu_count)
        end, log = time.monotonic() + 60, tmp_path / "jobs.log"
        while "PENDING (" not in (log.read_text() if log.exists() else ""):
            assert time.monotonic() < end
            time.sleep(0.5)
    finally:
        subprocess.run([*change, "state=resume"], check=True)
    assert future.result(timeout=120) == os.cpu_count()
    assert "DOWN, DRAINED" in log.read_text() or "UnavailableNodes" in log.read_text()
    waiting.cancel()
