"""Evaluate structures in child processes, each evaluation in its own scratch directory.

`Scratch` creates and removes the directories, `Worker` controls one child process
(`nugget.engines.child`), and `Evaluator` distributes structures over workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

from ase import Atoms
from ase.io.jsonio import encode

from nugget.engines.execution import ONE_THREAD
from nugget.engines.outcome import Failure, Outcome, atoms_dict
from nugget.engines.task import Task
from nugget.errors import NuggetError
from nugget.storage.files import alive

OUTPUT = "output.txt"

_LONGEST = 1 << 20  # bytes of output that are kept

_IN_USE = ".in-use"  # suffix of the file beside a directory

#: Seconds in which a process must start and import its engine.
START_LIMIT = 120.0

#: Only this failure is retried. Others are deterministic, but a process may die because another
#: program used up the memory.
RETRY_ON = Failure.DIED


class Scratch:
    """Creates directories below `base`, one for each evaluation, and removes them.

    The directory of an evaluation is its current directory and ASE's `directory`, so that parallel
    evaluations share no files and nothing is written where nugget was started. It is removed after
    a success. After a failure it is kept, with the engine's output in `output.txt`, unless it is
    empty. While it is in use, a file beside it contains the number of its process; directories of
    processes that were killed are removed by the next process on the same machine.
    """

    def __init__(self, base: str | None = None, keep: bool = False, start: str = "") -> None:
        """`base` may contain ~ and $VARIABLES of the machine on which the evaluation runs.

        A relative one begins in the directory `start`. The default is the system's directory for
        temporary files.
        """
        written = os.path.expandvars(os.path.expanduser(base)) if base else _temporary()
        self.base = Path(start or os.getcwd(), written)
        self.keep = keep
        self._created_base = False

    def make(self) -> Path:
        """A fresh, empty directory."""
        while True:
            if not self.base.exists():
                self.base.mkdir(parents=True, exist_ok=True)
                self._created_base = True
            # The mark comes first and goes last, so that no kill leaves a directory without one.
            directory = self.base / f"evaluation-{secrets.token_hex(4)}"
            try:
                with open(_mark(directory), "x") as mark:
                    mark.write(f"{os.getpid()} {platform.node()}\n")
                directory.mkdir(mode=0o700)
                return directory
            except FileExistsError:
                continue
            except FileNotFoundError:
                continue  # another worker has just removed the empty base

    def finish(self, directory: Path, failed: bool, output: bytes = b"") -> Path | None:
        """Remove the directory, or return it if it is kept."""
        kept = False
        if failed or self.keep:
            with contextlib.suppress(OSError):
                if output.strip():
                    (directory / OUTPUT).write_bytes(output[-_LONGEST:])
                kept = any(directory.iterdir())
        if not kept:
            shutil.rmtree(directory, ignore_errors=True)
        _mark(directory).unlink(missing_ok=True)
        return directory if kept else None

    def sweep(self) -> None:
        """Remove directories of processes of this machine that no longer exist."""
        for mark in self.base.glob(f"evaluation-*{_IN_USE}"):
            with contextlib.suppress(OSError, ValueError):
                process, machine = mark.read_text().split()
                if machine == platform.node() and not alive(int(process)):
                    shutil.rmtree(mark.with_suffix(""), ignore_errors=True)
                    mark.unlink()

    def close(self) -> None:
        """Remove the base directory if it was created here and is empty."""
        if self._created_base:
            with contextlib.suppress(OSError):
                self.base.rmdir()


def remove_stale(base: Path) -> None:
    """Remove scratch directories of processes that were killed, where no evaluation follows."""
    if base.is_dir() and not base.is_symlink():
        Scratch(str(base)).sweep()
        with contextlib.suppress(OSError):  # failed evaluations are kept
            base.rmdir()


def _temporary() -> str:
    """The directory for temporary files.

    Python's own search for it writes a test file, which a kill would leave behind.
    """
    named = tempfile.tempdir or os.environ.get("TMPDIR") or "/tmp"
    return named if os.access(named, os.W_OK | os.X_OK) else tempfile.gettempdir()


def _mark(directory: Path) -> Path:
    return directory.with_name(directory.name + _IN_USE)


class _Died(Exception):
    pass


class Worker:
    """Controls one child process, which is started when needed and again after each loss.

    Parent and child exchange lines of JSON through a socket. The output of the engine goes to a
    nameless file, whose last line becomes the reason when the child dies. The child leads its own
    session: Ctrl-C in the terminal does not reach it, and a kill includes its descendants. POSIX
    only. `evaluate` may be used by one thread at a time, `close` by any.
    """

    def __init__(self, task: Task, scratch: Scratch) -> None:
        self._task, self._scratch = task, scratch
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._log = tempfile.TemporaryFile(dir=_temporary())  # noqa: SIM115 (lives as long as this)
        self._busy = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the child, if there is one."""
        return None if self._process is None else self._process.pid

    def evaluate(self, atoms: Atoms, fresh: bool = False) -> Outcome:
        """The outcome for one structure, in a new process if it must be `fresh`.

        The path of a scratch directory that is kept after a failure is part of the reason.
        """
        with self._busy:
            start = time.perf_counter()
            try:
                directory = self._scratch.make()
            except OSError as error:
                reason = (
                    f"the scratch directory {self._scratch.base} cannot be made "
                    f"({error.strerror}); choose another with engine.scratch"
                )
                return Outcome(atoms.copy(), Failure.EXCEPTION, reason)
            outcome = None
            try:
                outcome = self._attempt(atoms, directory, fresh)
            finally:
                failed = outcome is not None and not outcome.ok and not self._closed
                kept = self._scratch.finish(directory, failed, self._output() if failed else b"")
            if failed and kept is not None:
                outcome = replace(outcome, reason=f"{outcome.reason} (files in {kept})")
            return replace(outcome, seconds=time.perf_counter() - start)

    def _attempt(self, atoms: Atoms, directory: Path, fresh: bool) -> Outcome:
        limit = START_LIMIT
        try:
            # A process that was lost while idle is replaced; this is no failure of the structure.
            if self._process is not None and (fresh or _ended(self._process, 0.0)):
                self._discard()
            if self._process is None:
                self._start()
            limit = self._task.time_limit
            return self._evaluate(atoms, directory)
        except TimeoutError:
            self._discard()
            return Outcome(atoms.copy(), Failure.TIMEOUT, f"no answer within {limit:g} s")
        except _Died:
            return Outcome(atoms.copy(), Failure.DIED, self._exit_reason())
        except BaseException:
            # Ctrl-C in the parent: a late reply must not be taken for that of the next structure.
            self._discard()
            raise

    def close(self) -> None:
        """End the child; an evaluation in another thread returns the failure "died"."""
        self._closed = True
        process = self._process
        if process is not None:
            _kill(process)  # only the evaluating thread uses the socket
        with self._busy:
            self._discard()

    def __del__(self) -> None:
        self._discard()
        self._log.close()

    def _evaluate(self, atoms: Atoms, directory: Path) -> Outcome:
        os.ftruncate(self._log.fileno(), 0)
        os.lseek(self._log.fileno(), 0, os.SEEK_SET)  # the child shares this offset
        limit = self._task.time_limit
        request = {
            "structure": atoms_dict(atoms)["structure"],
            "limit": limit,
            "directory": str(directory),
        }
        return Outcome.from_json(self._ask(encode(request), limit))

    def _start(self) -> None:
        if self._closed:
            raise _Died
        ours, theirs = socket.socketpair()
        # The child imports from the same places as the parent, whatever its current directory.
        program = (
            f"import sys; sys.path[:] = {[os.path.abspath(p) for p in sys.path]!r}; "
            f"from nugget.engines.child import main; main({theirs.fileno()}, {os.getpid()})"
        )
        with theirs:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-c", program],
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    env={**os.environ, **ONE_THREAD},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self._process, self._socket, self._buffer = process, ours, b""
        if self._closed:  # `close` was called before the process was stored
            raise _Died
        directory = self._scratch.make()
        try:
            first = {"task": self._task.to_json(), "directory": str(directory)}
            self._ask(json.dumps(first), START_LIMIT)
        finally:
            self._scratch.finish(directory, failed=False)

    def _discard(self) -> None:
        """Kill the child and its descendants, and leave no zombie."""
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        process.wait()
        if self._socket is not None:
            self._socket.close()

    def _ask(self, line: str, limit: float) -> str:
        """Send a line and wait for the reply; TimeoutError after `limit` seconds."""
        connection, deadline = self._socket, time.monotonic() + limit
        if connection is None:
            raise _Died
        try:
            connection.settimeout(limit)
            connection.sendall(line.encode() + b"\n")
            while b"\n" not in self._buffer:
                if (left := deadline - time.monotonic()) <= 0:
                    raise TimeoutError
                connection.settimeout(left)
                if not (received := connection.recv(1 << 16)):
                    raise _Died
                self._buffer += received
        except TimeoutError:
            raise
        except OSError as error:
            raise _Died from error
        reply, self._buffer = self._buffer.split(b"\n", 1)
        return reply.decode()

    def _exit_reason(self) -> str:
        """How the child ended, and the last line of its output."""
        process = self._process
        if process is None:
            return "the evaluator was closed"
        ended = _ended(process, 5.0)
        self._discard()
        if not ended:
            return "the process closed its connection"
        code = process.returncode
        if code >= 0:
            how = f"exited with code {code}"
        else:
            names = {int(s): s.name for s in signal.Signals}
            how = f"killed by {names.get(-code, f'signal {-code}')}"
        output = self._output(4096).decode(errors="replace")
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        return f"{how}: {lines[-1]}"[:500] if lines else how

    def _output(self, longest: int = _LONGEST) -> bytes:
        """The end of the engine's output for this structure."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), longest, max(size - longest, 0))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of the child; its number cannot be reused before it is reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _ended(process: subprocess.Popen[bytes], patience: float) -> bool:
    """Whether the child has ended; not reaped if possible, so that its group can be killed."""
    deadline = time.monotonic() + patience
    while True:
        if hasattr(os, "waitid"):
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            ended = os.waitid(os.P_PID, process.pid, flags) is not None
        else:
            ended = process.poll() is not None
        if ended or time.monotonic() >= deadline:
            return ended
        time.sleep(0.005)


class Evaluator:
    """Evaluates structures in child processes with a time limit.

    A process is reused for the next structure (starting one costs more than a small calculation),
    runs one thread, and is killed and replaced when it hangs or dies. Each evaluation has its own
    scratch directory. Close the evaluator after use, or use `with`.
    """

    def __init__(self, task: Task, workers: int = 1) -> None:
        if workers < 1:
            raise NuggetError(f"workers is {workers}; it must be at least one.")
        task.check()
        self.task = task
        self._closed = False
        self._scratch = Scratch(task.scratch, task.keep_scratch, task.start)
        self._scratch.sweep()
        self._workers = [Worker(task, self._scratch) for _ in range(workers)]
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; evaluations in other threads return the failure "died"."""
        self._closed = True
        for worker in self._workers:
            worker.close()
        self._scratch.close()

    def evaluate(self, atoms: Atoms, *, fresh: bool = False) -> Outcome:
        """Evaluate one structure, in a new process if it must be `fresh`.

        Errors of the engine become failures; may be called from many threads.
        """
        if self._closed:
            raise NuggetError("the evaluator is closed; make a new one.")
        start = time.perf_counter()
        worker = self._free.get()
        try:
            attempts = 1
            outcome = worker.evaluate(atoms, fresh)
            while outcome.failure is RETRY_ON and attempts <= self.task.retries:
                attempts += 1
                outcome = worker.evaluate(atoms)
        finally:
            self._free.put(worker)
        for frame in (outcome.atoms, *outcome.path):
            frame.info = dict(atoms.info)  # not sent to the child, see atoms_dict
        return replace(outcome, seconds=time.perf_counter() - start, attempts=attempts)
