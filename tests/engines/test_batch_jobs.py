"""Batch jobs: scripts and states everywhere; submission on a real SLURM where there is one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time

import pytest
from ase import Atoms
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.engines import slurm
from nugget.engines.batch_jobs import JobExecutor, JobOptions, _JobFuture, job_options, job_script
from nugget.engines.dask_cluster import job_queue_options
from nugget.engines.engine_settings import EngineConfig, ExecutionConfig, execution_code
from nugget.engines.execution import InProcess, make_executor, script_of
from nugget.engines.job import RESULT
from nugget.engines.outcome import WalltimeError
from nugget.engines.queue import EvaluationQueue
from nugget.engines.slurm import State, state_of
from nugget.errors import NuggetError
from nugget.search.prepare import check
from nugget.search.search_settings import read_config

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


ELSEWHERE = """
[system]
formula = "Au3"
[engine]
name = "espresso"
options = {pseudopotentials = {Au = "Au.upf"}, command = "nowhere/pw.x"}
[execution]
kind = "jobs"
options = {environment = {ESPRESSO_PSEUDO = "/data/pseudo"}}
"""


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (ELSEWHERE, None),
        (ELSEWHERE.replace("options = {ps", "options = {kpts = 3, ps"), "the option kpts is 3"),
        (ELSEWHERE.partition("[execution]")[0], "'espresso' is not installed"),
    ],
    ids=["jobs", "wrong option", "here"],
)
def test_a_search_and_a_trial_agree_on_what_must_be_installed(tmp_path, settings, refused):
    """Modules and variables of a job are its own, so that only the settings are checked here."""
    file = tmp_path / "s.toml"
    file.write_text(settings)
    config = read_config(file)
    trial = ["engines", "--try", str(file), "--execution", "--dry-run", "--trust"]
    result = CliRunner().invoke(app, trial, env={"COLUMNS": "200"})
    if refused is None:
        check(config, {})
        assert result.exit_code == 0, result.output
        return
    with pytest.raises(NuggetError, match=refused):
        check(config, {})
    assert re.search(refused, result.output + str(result.exception)), result.output


@pytest.mark.parametrize("submitted", [True, False], ids=["evaluation", "check"])
def test_an_engine_that_is_missing_there_ends_the_run(submitted):
    """No evaluation of the budget is spent on a machine without the program."""
    settings = EngineConfig(name="espresso", options={"command": "nowhere/pw.x"})
    with EvaluationQueue(settings, 1, InProcess()) as queue:
        if submitted:
            queue.submit(0, Atoms("Au"))
        with pytest.raises(NuggetError, match="machine of a worker: engine 'espresso' is not"):
            queue.next() if submitted else queue.evaluate(Atoms("Au"))


@pytest.mark.parametrize("answered", [True, False])
def test_an_answer_that_is_an_error_is_not_found_again(tmp_path, answered):
    """The next process submits the call again; files of a job without an answer stay."""
    job = tmp_path / "job"
    job.mkdir()
    if answered:
        (job / RESULT).touch()
    future = _JobFuture(job)
    future.set_exception(NuggetError("engine 'espresso' is not installed"))
    with pytest.raises(NuggetError, match="not installed"):
        future.result()
    assert job.exists() is not answered


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
