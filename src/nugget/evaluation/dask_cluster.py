"""Work on a Dask cluster: this machine's processes, jobs of a queue, or a scheduler that runs."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Iterator
from concurrent.futures import Executor
from importlib import import_module
from typing import Any

from nugget.errors import NuggetError
from nugget.evaluation.config import ExecutionConfig
from nugget.evaluation.processes import ONE_THREAD, one_thread

CONNECT = 30.0  # seconds that a Dask scheduler has to answer


def _ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def dask_executor(config: ExecutionConfig) -> Iterator[Executor]:
    """Executor on a Dask cluster, which is started here or runs already."""
    try:
        from distributed import Client
    except ImportError:
        raise NuggetError(_MISSING) from None
    with contextlib.ExitStack() as stack:
        if config.address is not None:
            try:
                client = stack.enter_context(Client(config.address, timeout=CONNECT))
            except (OSError, ValueError) as error:
                raise NuggetError(
                    f"execution.address: no Dask scheduler answers at {config.address} ({error})."
                ) from None
        else:
            stack.enter_context(one_thread())
            cluster = stack.enter_context(_started(config))
            client = stack.enter_context(Client(cluster))
            if config.cluster == "local":
                # Also on workers that replace lost ones; Ctrl-C is the first process's business.
                client.register_worker_callbacks(_ignore_ctrl_c)
            else:
                # Jobs are asked for here, and again when they have reached their walltime.
                cluster.adapt(minimum=config.workers or 1, maximum=config.workers or 1)
        client.run_on_scheduler(_allow_failures, number=config.max_losses)
        yield client.get_executor(pure=False)


def _started(config: ExecutionConfig) -> Any:
    import dask

    # The scheduler restarts workers that have been silent for so long, and begins their work again.
    with dask.config.set({"distributed.scheduler.worker-ttl": f"{config.heartbeat:g}s"}):
        try:
            return make_cluster(config)
        except NuggetError:
            raise
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise NuggetError(
                f'The Dask cluster (execution.cluster = "{config.cluster}") could not be started: '
                f"{text[:300]}."
            ) from None


_MISSING = (
    'execution.kind = "dask" needs Dask, which is not installed. To install it: '
    "pip install 'dask[distributed]' dask-jobqueue"
)


def _allow_failures(dask_scheduler: Any, number: int) -> None:
    dask_scheduler.allowed_failures = number


def make_cluster(config: ExecutionConfig) -> Any:
    """A Dask cluster whose workers are processes with one thread each."""
    if config.cluster == "local":
        from distributed import LocalCluster

        local = {
            "n_workers": config.count,
            "threads_per_worker": 1,
            "processes": True,
            "dashboard_address": None,
            "memory_limit": 0,  # the system's own limit will do; Dask's would kill without need
            "silence_logs": logging.CRITICAL,
            "env": ONE_THREAD,
        }
        return LocalCluster(**(local | config.options))
    try:
        queues = import_module("dask_jobqueue")
    except ImportError:
        raise NuggetError(_MISSING) from None
    cores = int(config.options.get("cores", 1))
    options: dict[str, Any] = {
        "cores": cores,
        "processes": cores,
        "memory": f"{2 * cores} GB",
    } | config.options
    if options["processes"] != cores:
        raise NuggetError(
            f"execution.options has {cores} cores and {options['processes']} processes; workers "
            "run one thread, so leave processes out."
        )
    exports = [f"export {name}={value}" for name, value in ONE_THREAD.items()]
    options["job_script_prologue"] = exports + list(options.get("job_script_prologue", []))
    kind = {"slurm": "SLURMCluster", "pbs": "PBSCluster"}[config.cluster]
    return getattr(queues, kind)(**options)
