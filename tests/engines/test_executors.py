"""Executors: real processes, real losses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nugget.engines import dask_cluster, execution
from nugget.engines.dask_cluster import make_cluster
from nugget.engines.engine_settings import ExecutionConfig
from nugget.engines.execution import ONE_THREAD, InProcess, make_executor
from nugget.errors import NuggetError
from nugget.search import make_config

TWO = ExecutionConfig(kind="processes", workers=2)


def threads() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in ONE_THREAD}


def who() -> int:
    return os.getpid()


def dies_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def dies(count: str) -> None:
    with open(count, "a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)


def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def raises() -> None:
    raise ValueError("as it should")


def interrupted() -> str:
    """What Ctrl-C and a batch system send to every process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
    return "still here"


def test_in_process_is_an_executor():
    with make_executor(ExecutionConfig(kind="in-process")) as executor:
        assert executor.submit(who).result() == os.getpid()
        assert isinstance(executor.submit(raises).exception(), ValueError)
        assert list(executor.map(abs, [-1, 2])) == [1, 2]

    def breaks() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        InProcess().submit(breaks)


def test_processes_run_one_thread_each_and_survive_losses(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with make_executor(TWO) as executor:
        assert executor.submit(threads).result() == ONE_THREAD
        # One process dies under two jobs; the job beside it is not disturbed.
        calm, lost = executor.submit(sleeps, 0.5), executor.submit(dies_once, str(tmp_path / "a"))
        assert lost.result() == "done"
        assert calm.result() == 0.5
        with pytest.raises(ValueError, match="as it should"):
            executor.submit(raises).result()
        assert executor.submit(interrupted).result() == "still here"
        found = {executor.submit(who).result() for _ in range(4)}
        assert os.getpid() not in found
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_a_job_that_kills_its_workers_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "MAX_LOSSES", 1)
    count = tmp_path / "count"
    with make_executor(ExecutionConfig(workers=1)) as executor:
        bad, good = executor.submit(dies, str(count)), executor.submit(who)
        with pytest.raises(NuggetError, match="died 2 times"):
            bad.result()
        assert good.result() != os.getpid()
    assert count.read_text() == "xx"


def test_leaving_by_an_exception_kills_the_workers():
    """Else this would take as long as its jobs: half an hour."""
    pids, futures = [], []

    def leave() -> None:
        with make_executor(TWO) as executor:
            pids.append(executor.submit(who).result())
            futures.extend(executor.submit(sleeps, 600.0) for _ in range(5))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert all(future.done() for future in futures)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_workers_do_not_outlive_their_parent(tmp_path):
    program = (
        "import time\nfrom test_executors import TWO, sleeps, who\n"
        "from nugget.engines.execution import make_executor\n"
        "if __name__ == '__main__':\n"
        "    with make_executor(TWO) as executor:\n"
        "        print(executor.submit(who).result(), flush=True)\n"
        "        executor.submit(sleeps, 1000.0).result()\n"
    )
    (tmp_path / "program.py").write_text(program)
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    gone(pid)


@pytest.mark.parametrize(
    ("told", "hint"),
    [
        ({"kind": "threads"}, "'in-process', 'processes', 'dask' or 'jobs'"),
        ({"workers": 0}, "execution.workers"),
        ({"wokers": 2}, "execution.wokers is not an option; did you mean 'workers'?"),
        ({"address": "tcp://x:1"}, 'belong to kind = "dask"'),
        ({"kind": "dask", "address": "tcp://x:1", "cluster": "slurm"}, "not both"),
    ],
)
def test_mistakes_are_named(told, hint):
    with pytest.raises(NuggetError) as error:
        make_config({"execution": told})
    assert hint in str(error.value)


def test_dask_is_not_loaded_unless_used():
    probe = "import nugget.campaign.campaign, nugget.engines.execution, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True).stdout
    assert "nugget.engines.execution" in loaded.split()
    assert not {"dask", "distributed", "dask_jobqueue"} & set(loaded.split())


@pytest.mark.parametrize("cluster", ["local", "slurm"])
def test_a_missing_dask_is_one_clear_error(monkeypatch, cluster):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    config = ExecutionConfig(kind="dask", cluster=cluster)
    with (
        pytest.raises(NuggetError, match=r"pip install 'dask\[distributed\]' dask-jobqueue"),
        make_executor(config),
    ):
        pass


def test_a_scheduler_that_is_not_there(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("nugget.engines.dask_cluster.CONNECT", 1.0)
    config = ExecutionConfig(kind="dask", address="tcp://127.0.0.1:9")
    with pytest.raises(NuggetError, match="no Dask scheduler answers"), make_executor(config):
        pass


def test_a_local_dask_cluster_of_single_threads():
    pytest.importorskip("distributed")
    with make_executor(ExecutionConfig(kind="dask", workers=1)) as executor:
        assert executor.submit(threads).result() == ONE_THREAD
        assert executor.submit(who).result() != os.getpid()
        # pure=False: the same call again is done again
        one, two = executor.submit(time.monotonic), executor.submit(time.monotonic)
        assert one.result() != two.result()
        client = executor._client
        assert client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.allowed_failures) == 3
        [state] = client.scheduler_info()["workers"].values()
        assert state["nthreads"] == 1


@pytest.mark.parametrize(
    ("cluster", "lines"),
    [
        ("slurm", ["#SBATCH -p long", "#SBATCH --ntasks=4", "-t 02:00:00"]),
        ("pbs", ["#PBS -q long", "ncpus=4", "walltime=02:00:00"]),
    ],
)
def test_the_job_script_of_a_queue(cluster, lines):
    """Each worker has one thread, and libraries are told before they start."""
    pytest.importorskip("dask_jobqueue")
    options = {
        "cores": 4,
        "processes": 2,
        "queue": "long",
        "walltime": "02:00:00",
        "interface": "lo",
    }
    config = ExecutionConfig(kind="dask", cluster=cluster, options=options)
    with make_cluster(config, ONE_THREAD) as made:
        script = made.job_script()
    for line in lines:
        assert line in script
    assert "--nworkers 2" in script
    assert "-n 1\n" not in script
    assert "cpus-per-task" not in script
    assert "--nthreads 1" in script
    worker = script.index("distributed.cli.dask_worker")
    for name in ONE_THREAD:
        assert 0 < script.index(f"export {name}=1") < worker
    bad = ExecutionConfig(kind="dask", cluster=cluster, options={**options, "processes": 5})
    with pytest.raises(NuggetError, match="5 processes on 4 cores"):
        make_cluster(bad, ONE_THREAD)


def stops_once(marker: str) -> str:
    """Suspended in the middle, as by SIGSTOP: it neither works nor dies."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return "done"


@pytest.mark.slow
def test_a_suspended_process_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "HEARTBEAT", 2.0)
    with make_executor(ExecutionConfig(workers=1)) as executor:
        assert executor.submit(stops_once, str(tmp_path / "a")).result(60) == "done"
        assert executor.submit(busy, 3.0).result(60) == 3.0  # it works, so it lives


def busy(seconds: float) -> float:
    """Work in Python that never sleeps."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass
    return seconds


def test_errors_about_time_are_the_works_own():
    with (
        make_executor(ExecutionConfig(workers=1)) as executor,
        pytest.raises(TimeoutError, match="theirs"),
    ):
        executor.submit(late).result(60)


def late() -> None:
    raise TimeoutError("theirs")


@pytest.mark.slow
def test_a_suspended_dask_worker_is_replaced(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(dask_cluster, "HEARTBEAT", 3.0)
    with make_executor(ExecutionConfig(kind="dask", workers=1)) as executor:
        assert executor.submit(stops_once, str(tmp_path / "a")).result(120) == "done"


def test_a_cluster_that_does_not_start(monkeypatch):
    distributed = pytest.importorskip("distributed")

    def fails(**options: object) -> None:
        raise RuntimeError("Nanny failed to start.\nTraceback ...")

    monkeypatch.setattr(distributed, "LocalCluster", fails)
    with (
        pytest.raises(NuggetError, match=r"could not be started: Nanny failed to start\."),
        make_executor(ExecutionConfig(kind="dask")),
    ):
        pass


INTERRUPTED = """
import os, signal, sys, threading, time
from test_executors import suspended
from nugget.engines.engine_settings import ExecutionConfig
from nugget.engines import execution as executors
executors.PATIENCE = 5.0
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kind, hangs = sys.argv[1], sys.argv[2] == "hangs"
    with executors.make_executor(ExecutionConfig(kind=kind, workers=1)) as executor:
        pid = executor.submit(os.getpid).result()
        future = executor.submit(suspended)
        time.sleep(1.0)
        print(pid, flush=True)
        if hangs:  # an executor that cannot be ended
            executor.kill = lambda: time.sleep(1000)
        future.result()
"""


def suspended() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize(
    "kind",
    [
        "processes",
        pytest.param("processes hangs", marks=pytest.mark.slow),
        pytest.param("dask", marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_ends_the_program_whatever_the_workers_do(tmp_path, kind):
    if kind == "dask":
        pytest.importorskip("distributed")
    (tmp_path / "program.py").write_text(INTERRUPTED)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(tmp_path / "program.py"), *(kind + " ends").split()[:2]]
    parent = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": path}, start_new_session=True,
    )  # fmt: skip
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGINT)
    parent.wait(timeout=120)
    assert parent.returncode != 0
    gone(pid)


def gone(pid: int) -> None:
    """Wait until a process has ended; the test's own time limit is the only one."""
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
