"""Dask clusters: processes of this machine, jobs of a queue, or a running scheduler.

`DaskExecutor.lost` says when no more results can be expected: the scheduler is silent, all workers
are gone, jobs cannot be submitted, or they end before they have done anything. Whoever waits for
results asks it every few seconds, since Dask itself waits for ever.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from importlib import import_module
from typing import Any

from nugget.engines.engine_settings import HEARTBEAT, MAX_LOSSES, ExecutionConfig
from nugget.errors import NuggetError

CONNECT = 30.0  # seconds in which a Dask scheduler must answer at the start

_SILENCE = 25.0  # seconds without an answer, or without workers, until a cluster is given up

_ASK = 5.0  # seconds between two questions, and for the answer

_CLOSE = 5.0  # seconds in which a client or a cluster must close

_MISSING = (
    'execution.kind = "dask" needs Dask, which is not installed. To install it: '
    "pip install 'dask[distributed]' dask-jobqueue"
)

# The programs of a queue that submit a job and show it while it is waiting or running.
_SUBMIT = {"slurm": "sbatch", "pbs": "qsub"}

_SHOW = {"slurm": ("squeue", "-h", "-o", "%A", "-j"), "pbs": ("qstat",)}

# Dask writes tracebacks of everything that goes wrong in the background.
_LOGGERS = ("distributed", "distributed.client", "tornado.application", "asyncio")


class Jobs:
    """Counts the jobs that are submitted to a queue, and stops when they lead to nothing."""

    def __init__(self, cluster: str, limit: int) -> None:
        self._cluster, self._limit = cluster, limit
        self._in_vain = 0  # submissions since the last result
        self._ids: list[str] = []
        self._error = ""

    def limited(self, job: type[Any]) -> type[Any]:
        """The class of jobs, with a limit of submissions."""
        jobs = self

        class Limited(job):
            async def start(self) -> None:
                if jobs.failure() is not None:
                    raise NuggetError("no more jobs are submitted.")
                jobs._in_vain += 1
                try:
                    await super().start()
                except Exception as error:
                    jobs._error = str(error)
                    raise
                jobs._error = ""
                jobs._ids = [*jobs._ids, str(self.job_id)][-jobs._limit :]

        return Limited

    def useful(self) -> None:
        """A result has arrived."""
        self._in_vain = 0

    def failure(self) -> str | None:
        """Why no more jobs are submitted; None while they are."""
        if self._error:
            lines = [line.strip() for line in self._error.splitlines() if line.strip()]
            stderr = self._error.partition("stderr:")[2].strip().splitlines()
            return f"{_SUBMIT[self._cluster]} failed: {(stderr or lines)[0][:200]}"
        if self._in_vain > self._limit:
            return f"{self._limit} jobs ended without a result, the last was {self._ids[-1]}"
        return None

    def ended(self) -> str | None:
        """The last job, if none of the jobs is waiting or running; None if unknown."""
        if not self._ids:
            return None
        for job in self._ids:
            command = [*_SHOW[self._cluster], job]
            try:
                shown = subprocess.run(command, capture_output=True, text=True, timeout=_ASK)
            except (OSError, subprocess.SubprocessError):
                return None
            number = re.match(r"\d*", job)
            if number and number[0] in shown.stdout:
                return None
        return self._ids[-1]


class DaskExecutor(Executor):
    """Runs jobs on a Dask cluster that may be lost."""

    def __init__(self, client: Any, jobs: Jobs | None) -> None:
        self._client, self._jobs = client, jobs
        self._inner = client.get_executor(pure=False)
        self._asked = self._answered = self._seen = time.monotonic()
        self._had_workers = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = self._inner.submit(fn, *args, **kwargs)
        if self._jobs is not None:
            future.add_done_callback(self._take)
        return future

    def _take(self, future: Future[Any]) -> None:
        if self._jobs is not None and not future.cancelled() and future.exception() is None:
            self._jobs.useful()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._inner.shutdown(wait, cancel_futures=cancel_futures)

    def lost(self) -> str | None:
        """Why no more results can be expected; None while they can."""
        if self._jobs is not None and (failure := self._jobs.failure()) is not None:
            return failure
        if time.monotonic() - self._asked < _ASK:
            return None
        workers = self._workers()
        now = self._asked = time.monotonic()
        if workers is None:
            silent = now - self._answered > _SILENCE
            return f"the Dask scheduler has not answered for {_SILENCE:g} s" if silent else None
        self._answered = now
        if workers:
            self._seen, self._had_workers = now, True
            return None
        if now - self._seen <= _SILENCE:
            return None
        if self._jobs is not None:  # new jobs may wait in the queue for days
            job = self._jobs.ended()
            return None if job is None else f"job {job} ended before its worker answered"
        # Workers of a scheduler that somebody else runs may come later, but do not come again.
        return "all Dask workers are gone" if self._had_workers else None

    def _workers(self) -> int | None:
        """The number of workers; None if the scheduler does not answer."""
        with contextlib.suppress(Exception):  # a lost scheduler shows itself in many ways
            return len(self._client.sync(self._client.scheduler.ncores, callback_timeout=_ASK))
        return None


def _ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def dask_executor(
    config: ExecutionConfig, environment: Mapping[str, str]
) -> Iterator[DaskExecutor]:
    """Executor on a Dask cluster that is started here, or on a running scheduler."""
    try:
        from distributed import Client
    except ImportError:
        raise NuggetError(_MISSING) from None
    jobs: Jobs | None = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        if config.address is not None:
            try:
                client = Client(config.address, timeout=CONNECT)
            except (OSError, ValueError) as error:
                raise NuggetError(
                    f"execution.address: no Dask scheduler answers at {config.address} ({error})."
                ) from None
        else:
            count = config.count if config.cluster == "local" else config.workers or 1
            watched = Jobs(config.cluster, count * (MAX_LOSSES + 1))
            cluster = _started(config, environment, watched)
            stack.callback(_close, cluster)
            client = Client(cluster)
            if config.cluster == "local":
                # Also on workers that replace lost ones; only the main process reacts to Ctrl-C.
                client.register_worker_callbacks(_ignore_ctrl_c)
            else:
                # Submits jobs now, and again when they have reached their walltime.
                cluster.adapt(minimum=count, maximum=count)
                jobs = watched
        stack.callback(_close, client)
        client.run_on_scheduler(_allow_failures, number=MAX_LOSSES)
        yield DaskExecutor(client, jobs)


def _close(part: Any) -> None:
    """Close a client or a cluster, also one whose scheduler or jobs are lost."""
    with contextlib.suppress(Exception):
        part.close(timeout=_CLOSE)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Errors of Dask are reported in one sentence, not as tracebacks."""
    former = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in former.items():
            logging.getLogger(name).setLevel(level)


def _started(config: ExecutionConfig, environment: Mapping[str, str], jobs: Jobs) -> Any:
    import dask

    if config.cluster != "local" and shutil.which(program := _SUBMIT[config.cluster]) is None:
        raise NuggetError(
            f'execution.cluster = "{config.cluster}" needs the program {program}, which is not on '
            "PATH; start the search on a login node of the cluster."
        )

    # The scheduler restarts workers after so long without a heartbeat, and their jobs.
    with dask.config.set({"distributed.scheduler.worker-ttl": f"{HEARTBEAT:g}s"}):
        try:
            return make_cluster(config, environment, jobs)
        except NuggetError:
            raise
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise NuggetError(
                f'The Dask cluster (execution.cluster = "{config.cluster}") could not be started: '
                f"{text[:300]}."
            ) from None


def _allow_failures(dask_scheduler: Any, number: int) -> None:
    dask_scheduler.allowed_failures = number


def make_cluster(
    config: ExecutionConfig, environment: Mapping[str, str], jobs: Jobs | None = None
) -> Any:
    """A Dask cluster whose workers are processes with one thread each.

    `environment` is that of the workers; `jobs` limits the number of jobs that are submitted.
    """
    if config.cluster == "local":
        from distributed import LocalCluster

        local = {
            "n_workers": config.count,
            "threads_per_worker": 1,
            "processes": True,
            "dashboard_address": None,
            "memory_limit": 0,  # Dask's own limit would kill workers without need
            "silence_logs": logging.CRITICAL,
            "env": dict(environment),
        }
        return LocalCluster(**(local | config.options))
    try:
        queues = import_module("dask_jobqueue")
    except ImportError:
        raise NuggetError(_MISSING) from None
    options = job_queue_options(config)
    exports = [f"export {name}={value}" for name, value in environment.items()]
    options["job_script_prologue"] = exports + list(options.get("job_script_prologue", []))
    kind = getattr(queues, {"slurm": "SLURMCluster", "pbs": "PBSCluster"}[config.cluster])
    if jobs is not None:
        options["job_cls"] = jobs.limited(kind.job_cls)
    return kind(**options)


def job_script_of(config: ExecutionConfig, environment: Mapping[str, str]) -> str:
    """The script of the jobs of a queue, which is not submitted."""
    with _quiet():
        cluster = make_cluster(config, environment)
        try:
            return str(cluster.job_script())
        finally:
            _close(cluster)


def job_queue_options(config: ExecutionConfig) -> dict[str, Any]:
    """Options of dask-jobqueue: one worker with one thread, and cores for the engine's ranks.

    A job has `processes` workers (one by default), each of which runs an engine on its share of the
    `cores`. Dask would start as many threads as there are cores, and SLURM give them all to one
    task, where MPI needs a task for each rank.
    """
    given = dict(config.options)
    cores, workers = int(given.pop("cores", 1)), int(given.pop("processes", 1))
    if cores < workers:
        raise NuggetError(
            f"execution.options has {workers} processes on {cores} cores; each worker needs a core."
        )
    options: dict[str, Any] = {"memory": f"{2 * cores} GB"} | given
    options |= {"cores": workers, "processes": workers}
    if config.cluster == "slurm":
        skipped, added = given.get("job_directives_skip", []), given.get("job_extra_directives", [])
        options["job_directives_skip"] = ["-n 1", "--cpus-per-task", *skipped]
        options["job_extra_directives"] = [f"--ntasks={cores}", *added]
    elif cores > workers and "resource_spec" not in given:
        options["resource_spec"] = f"select=1:ncpus={cores}:mpiprocs={cores}"
    return options
