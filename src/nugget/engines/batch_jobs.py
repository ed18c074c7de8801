"""Each evaluation as a batch job of its own, submitted with `sbatch`; no worker stays alive.

Every call has a directory with its arguments, the job script, the number of the job, its output and
its answer. The name of the directory is a hash of the call. A search that was killed, resumed and
asks for the same call therefore finds its answer, or the job that still waits or runs. The
directory is removed when the answer is read.

A job that ends without an answer (cancelled, node lost, out of memory) is submitted again, up to
`resubmissions` times. A job that SLURM requeues keeps its number and simply runs again. One that
reaches its walltime is not repeated. While the controller does not answer, nothing is concluded.
`jobs.log` beside the directories records all this.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

import nugget
from nugget.engines import slurm
from nugget.engines.engine_settings import MAX_LOSSES, ExecutionConfig
from nugget.engines.job import CALL, RESULT, call_text, write_call
from nugget.engines.outcome import WalltimeError
from nugget.engines.slurm import NoAnswer, State
from nugget.errors import NuggetError
from nugget.settings import Section
from nugget.storage.files import write_atomically

DIRECTORY = "jobs"  # inside the run directory
LOG = "jobs.log"
SCRIPT, NUMBER, OUTPUT = "job.sh", "number", "output.txt"

_LOOK = 0.5  # seconds between two looks at the files
_LATE = 5.0  # seconds in which a network file system shows the answer of a job that has ended
_SLOW = 5.0  # seconds after which an answer of the controller is worth a line in the log
_SILENCE = 3600.0  # seconds without an answer of the controller until it is given up


class JobOptions(Section):
    """What a job requests: `[execution.options]` with `kind = "jobs"`."""

    ranks: int = Field(1, ge=1, description="MPI ranks of one evaluation (--ntasks)")
    cores_per_rank: int = Field(1, ge=1, description="--cpus-per-task")
    nodes: int | None = Field(None, ge=1, description="--nodes; none: as SLURM likes")
    memory: str | None = Field(None, description="memory of the job per node (--mem), as 8G")
    walltime: str | None = Field(None, description="--time, as 02:00:00; above engine.time_limit")
    queue: str | None = Field(None, description="--partition")
    account: str | None = Field(None, description="--account")
    directives: tuple[str, ...] = Field((), description="further lines of #SBATCH")
    environment: dict[str, str] = Field(
        default_factory=dict, description="variables to export, after the one-thread defaults"
    )
    prologue: tuple[str, ...] = Field(
        (), description='shell lines before the evaluation, as "module load qe"'
    )
    python: str = Field(sys.executable, description="Python with nugget on the compute nodes")
    resubmissions: int = Field(
        MAX_LOSSES, ge=0, description="how often a job that was lost is submitted again"
    )
    poll: float = Field(10.0, gt=0, description="seconds between two questions to SLURM")


def job_options(config: ExecutionConfig) -> JobOptions:
    """The options of the jobs; NuggetError if one is unknown or wrong."""
    try:
        return JobOptions(**config.options)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise NuggetError(f"execution.options.{key}: {first['msg']}.") from None


def job_script(
    options: JobOptions, environment: Mapping[str, str], directory: Path, name: str
) -> str:
    """The script of one job; `environment` is that of libraries with threads."""
    requests = {
        "job-name": name,
        "ntasks": options.ranks,
        "cpus-per-task": options.cores_per_rank,
        "nodes": options.nodes,
        "mem": options.memory,
        "time": options.walltime,
        "partition": options.queue,
        "account": options.account,
        "output": directory / OUTPUT,
    }
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH --{key}={value}" for key, value in requests.items() if value is not None]
    lines += ["#SBATCH --open-mode=append", "#SBATCH --requeue"]
    lines += [f"#SBATCH {directive}" for directive in options.directives]
    lines += [f"export {key}={value}" for key, value in environment.items()]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in options.environment.items()]
    lines += options.prologue
    root = str(Path(nugget.__file__).parents[1])
    program = f"import sys; sys.path.insert(0, {root!r}); sys.argv[1:] = [{str(directory)!r}]; "
    program += "import runpy; runpy.run_module('nugget.engines.job', run_name='__main__')"
    lines.append(f"exec {shlex.quote(options.python)} -c {shlex.quote(program)}")
    return "\n".join(lines) + "\n"


class _JobFuture(Future[Any]):
    """Removes the directory of its job when the answer is read, and not before.

    An error is an answer, too. Kept, it would be found again after the machine was repaired.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def result(self, timeout: float | None = None) -> Any:
        try:
            return super().result(timeout)
        finally:
            if self.done() and (self.directory / RESULT).exists():
                shutil.rmtree(self.directory, ignore_errors=True)


@dataclass
class _Job:
    """A call on its way, and the job that answers it."""

    directory: Path
    future: _JobFuture
    number: str | None = None
    losses: int = 0
    unsure: bool = False  # an earlier process may have submitted it before it was killed
    ended: float | None = None  # when the job was first seen to have ended without an answer
    word: str = ""  # SLURM's word for its state

    @property
    def name(self) -> str:
        return f"nugget-{self.directory.name}"


class JobExecutor(Executor):
    """Runs each call as a batch job. Functions and arguments must be plain data."""

    def __init__(
        self, options: JobOptions, directory: Path, environment: Mapping[str, str],
        most: int | None = None,
    ) -> None:  # fmt: skip
        """`directory` is on a file system of all nodes; at most `most` jobs are in the queue."""
        slurm.require()
        self._options, self._environment, self._most = options, environment, most
        self._base = directory.absolute() / DIRECTORY
        self._jobs: list[_Job] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._in_vain = 0  # jobs that were lost since the last answer
        self._failure: str | None = None
        self._silent: float | None = None  # since when the controller does not answer
        self._thread = threading.Thread(target=self._watch, name="nugget-jobs", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if kwargs:
            raise NuggetError("Jobs take positional arguments only.")
        text = call_text(fn, args)
        key = hashlib.sha256(text.encode()).hexdigest()[:12]
        with self._lock:
            # Another call with the same arguments is a repetition on purpose.
            names = {job.directory.name for job in self._jobs}
            free = next(n for n in range(1, len(names) + 2) if f"{key}-{n}" not in names)
            directory = self._base / f"{key}-{free}"
            job = _Job(directory, _JobFuture(directory))
            job.future.set_running_or_notify_cancel()
            known = (directory / CALL).exists()
            directory.mkdir(parents=True, exist_ok=True)
            if known:
                self._attach(job)
            else:
                write_call(directory, text)
            self._jobs.append(job)
        return job.future

    def _attach(self, job: _Job) -> None:
        """Continue with what an earlier process submitted."""
        with contextlib.suppress(OSError):
            job.number = (job.directory / NUMBER).read_text().strip() or None
        job.unsure = job.number is None
        self._note(job, "found again" + (f", job {job.number}" if job.number else ""))

    def lost(self) -> str | None:
        """Why no more results can be expected; None while they can."""
        if self._failure is not None:
            return self._failure
        if self._silent is not None and time.monotonic() - self._silent > _SILENCE:
            return f"SLURM has not answered for {_SILENCE / 60:g} minutes"
        return None

    def waiting(self) -> list[str]:
        """Numbers of the jobs without an answer."""
        with self._lock:
            return [job.number for job in self._jobs if job.number is not None]

    def cancel(self) -> None:
        """Cancel all jobs without an answer, and forget them."""
        self._end()
        slurm.cancel(self.waiting())
        for job in self._jobs:
            shutil.rmtree(job.directory, ignore_errors=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self.cancel()
        elif wait:
            for job in list(self._jobs):
                job.future.exception()
        self._end()

    def _end(self) -> None:
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ------------------------------------------------------------------ the watching thread

    def _watch(self) -> None:
        asked = 0.0
        while not self._stop.wait(_LOOK):
            try:
                self._collect()
                self._submit_new()
                if time.monotonic() - asked >= self._options.poll:
                    asked = time.monotonic()
                    self._ask()
                    self._answers(time.monotonic() - asked)
            except NoAnswer as error:
                self._silence(str(error))
                self._stop.wait(min(self._options.poll, 10.0))
            except NuggetError as error:
                self._failure = str(error).rstrip(".")
                self._note(None, str(error))
                return
            except OSError as error:  # a full or a lost disk
                self._failure = f"{self._base}: {error.strerror}"
                return

    def _collect(self) -> None:
        for job in list(self._jobs):
            if (job.directory / RESULT).exists():
                self._finish(job, *_read_answer(job.directory / RESULT))

    def _finish(self, job: _Job, value: Any, error: Exception | None) -> None:
        with self._lock:
            self._jobs.remove(job)
        if error is None:
            self._in_vain = 0
            self._note(job, f"answered by job {job.number}")
            job.future.set_result(value)
        else:
            job.future.set_exception(error)

    def _submit_new(self) -> None:
        with self._lock:
            queued = sum(job.number is not None for job in self._jobs)
            waiting = [job for job in self._jobs if job.number is None]
        if self._most is not None:
            waiting = waiting[: max(self._most - queued, 0)]
        for job in waiting:
            # Killed between sbatch and the file with its number, the job is in the queue. Only
            # then: a job that is just completing, of an equal call before, has the same name.
            number = slurm.named(job.name) if job.unsure else None
            if number is None:
                script = job_script(self._options, self._environment, job.directory, job.name)
                write_atomically(job.directory / SCRIPT, script)
                number = slurm.submit(str(job.directory / SCRIPT))
                self._note(job, f"submitted as job {number}")
            write_atomically(job.directory / NUMBER, number)
            job.number, job.ended, job.unsure = number, None, False
        if waiting:
            self._answers()

    def _ask(self) -> None:
        with self._lock:
            jobs = {job.number: job for job in self._jobs if job.number is not None}
        for number, (state, word) in slurm.states(list(jobs)).items():
            job = jobs[number]
            if word != job.word:
                self._note(job, f"job {number} is {word}")
                job.word = word
            if state in (State.WAITING, State.RUNNING):
                job.ended = None
            elif job.ended is None:
                job.ended = time.monotonic()
            elif time.monotonic() - job.ended > _LATE and not (job.directory / RESULT).exists():
                self._lose(job, state)

    def _lose(self, job: _Job, state: State) -> None:
        """A job ended without an answer: submit it again, or give it up."""
        last = _last_line(job.directory / OUTPUT)
        reason = f"job {job.number} ended without a result ({job.word})" + (
            f": {last}" if last else ""
        )
        (job.directory / NUMBER).unlink(missing_ok=True)
        if state is State.WALLTIME:
            self._finish(job, None, WalltimeError(f"job {job.number} reached its walltime"))
            return
        job.losses, self._in_vain = job.losses + 1, self._in_vain + 1
        if job.losses <= self._options.resubmissions:
            self._note(job, f"{reason}; submitted again")
            job.number, job.ended = None, None
            return
        self._note(job, f"{reason}; given up after {job.losses} jobs")
        if self._in_vain > self._options.resubmissions:
            # Not a single answer in between: the fault is not that of this structure.
            self._failure = f"{self._in_vain} jobs in a row ended without a result; the last: " + (
                f"{reason}. Files in {job.directory}"
            )
        self._finish(job, None, NuggetError(f"{reason}, {job.losses} times"))

    def _answers(self, seconds: float = 0.0) -> None:
        if self._silent is not None:
            self._note(None, "SLURM answers again")
        elif seconds > _SLOW:  # its commands wait for a controller that is restarted
            self._note(None, f"SLURM answered after {seconds:.0f} s")
        self._silent = None

    def _silence(self, text: str) -> None:
        if self._silent is None:
            self._silent = time.monotonic()
            self._note(None, f"waiting for SLURM ({text})")

    def _note(self, job: _Job | None, text: str) -> None:
        """One line in the log: time, call, event."""
        name = "" if job is None else f"{job.directory.name} "
        stamp = datetime.now().astimezone().isoformat(timespec="seconds")
        self._base.mkdir(parents=True, exist_ok=True)
        with open(self._base.parent / LOG, "a", encoding="utf-8") as log:
            log.write(f"{stamp} {name}{text}\n")


def _read_answer(path: Path) -> tuple[Any, Exception | None]:
    import json

    answer = json.loads(path.read_text())
    if "error" in answer:
        return None, NuggetError(answer["error"])
    return answer["value"], None


def _last_line(path: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")[:200]
    return ""


@contextlib.contextmanager
def job_executor(
    config: ExecutionConfig, directory: Path, environment: Mapping[str, str]
) -> Iterator[JobExecutor]:
    """An executor of batch jobs. At the end jobs without an answer are cancelled.

    After an exception, Ctrl-C included, they stay in the queue for the next process.
    """
    executor = JobExecutor(job_options(config), directory, environment, config.workers)
    try:
        yield executor
    except BaseException:
        executor._end()
        if left := executor.waiting():
            text = f"Jobs {' '.join(left)} stay in the queue: --resume collects their results, "
            print(text + f"scancel {' '.join(left)} ends them.", file=sys.stderr)
        raise
    executor.cancel()
    with contextlib.suppress(OSError):
        (directory / DIRECTORY).rmdir()
