"""Handle on a process that evaluates structures (`nugget.evaluation.child`).

Parent and child exchange lines of JSON: requests through the child's stdin, replies through a pipe
of their own. Whatever the engine prints goes to a nameless file, whose last line is kept as the
reason when the child dies. The child leads its own session, so that Ctrl-C in the terminal does
not reach it and that a kill takes its descendants along. POSIX only.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

from ase import Atoms
from ase.io.jsonio import encode

from nugget.evaluation.outcome import Outcome, atoms_dict
from nugget.evaluation.run import Task
from nugget.evaluation.scratch import Scratch

#: Seconds that a process may take to start and import its engine.
START_LIMIT = 120.0
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class _Died(Exception):
    pass


class _TimedOut(Exception):
    pass


class Worker:
    """Handle on one child process, started when first needed and again after each loss.

    `evaluate` belongs to one thread at a time; `close` may be called from any.
    """

    def __init__(self, task: Task, scratch: Scratch) -> None:
        self._task, self._scratch = task, scratch
        self._process: subprocess.Popen[bytes] | None = None
        self._replies = -1
        self._buffer = b""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        self._busy = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the child, if there is one."""
        return None if self._process is None else self._process.pid

    def evaluate(self, atoms: Atoms, time_limit: float, fresh: bool = False) -> Outcome:
        """The outcome for one structure; a hang or a death is an outcome too.

        `fresh` begins with a new process. Files of the engine go to a scratch directory, whose
        path is part of the reason if it is kept after a failure.
        """
        with self._busy:
            begun = time.perf_counter()
            try:
                directory = self._scratch.make()
            except OSError as error:
                reason = (
                    f"the scratch directory {self._scratch.base} cannot be made "
                    f"({error.strerror}); choose another with engine.scratch"
                )
                return Outcome(atoms.copy(), "exception", reason)
            outcome = None
            try:
                outcome = self._attempt(atoms, time_limit, directory, fresh)
            finally:
                failed = outcome is not None and not outcome.ok and not self._closed
                kept = self._scratch.finish(directory, failed, self._output() if failed else b"")
            if failed and kept is not None:
                outcome = replace(outcome, reason=f"{outcome.reason} (files in {kept})")
            return replace(outcome, seconds=time.perf_counter() - begun)

    def _attempt(self, atoms: Atoms, time_limit: float, directory: Path, fresh: bool) -> Outcome:
        limit = START_LIMIT
        try:
            # Lost while idle: nothing was under way, so that is no failure of the structure.
            if self._process is not None and (fresh or _ended(self._process, 0.0)):
                self._discard()
            if self._process is None:
                self._start()
            limit = time_limit
            return self._converse(atoms, time_limit, directory)
        except _TimedOut:
            self._discard()
            return Outcome(atoms.copy(), "timeout", f"no answer within {limit:g} s")
        except _Died:
            return Outcome(atoms.copy(), "died", self._obituary())
        except BaseException:
            # Ctrl-C in the parent: a late reply must not be taken for the next structure's.
            self._discard()
            raise

    def close(self) -> None:
        """End the child for good; an evaluation under way in another thread returns "died"."""
        self._closed = True
        process = self._process
        if process is not None:
            _kill(process)  # only the evaluating thread touches the pipes
        with self._busy:
            self._discard()

    def __del__(self) -> None:
        self._discard()
        self._log.close()

    def _converse(self, atoms: Atoms, time_limit: float, directory: Path) -> Outcome:
        os.ftruncate(self._log.fileno(), 0)
        os.lseek(self._log.fileno(), 0, os.SEEK_SET)  # the child shares this offset
        deadline = time.monotonic() + time_limit
        request = {
            "structure": atoms_dict(atoms)["structure"],
            "limit": time_limit,
            "directory": str(directory),
        }
        self._send(encode(request), deadline)
        return Outcome.from_json(self._receive(deadline))

    def _start(self) -> None:
        if self._closed:
            raise _Died
        reading, writing = os.pipe()
        # The child finds what the parent finds, whatever its current directory is.
        program = (
            f"import sys; sys.path[:] = {[os.path.abspath(p) for p in sys.path]!r}; "
            f"from nugget.evaluation.child import main; main({writing}, {os.getpid()})"
        )
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1")},
                pass_fds=(writing,),
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(reading, False)
        self._process, self._replies, self._buffer = process, reading, b""
        if self._closed:  # `close` came while the process was not yet known to it
            raise _Died
        deadline = time.monotonic() + START_LIMIT
        directory = self._scratch.make()
        try:
            beginning = {"task": asdict(self._task), "directory": str(directory)}
            self._send(json.dumps(beginning), deadline)
            self._receive(deadline)
        finally:
            self._scratch.finish(directory, failed=False)

    def _discard(self) -> None:
        """Kill the child and its descendants, and leave no zombie."""
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        process.wait()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        os.close(self._replies)
        self._buffer = b""

    def _send(self, line: str, deadline: float) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise _Died
        data = memoryview(line.encode() + b"\n")
        while data:
            self._wait(process.stdin.fileno(), selectors.EVENT_WRITE, deadline)
            try:
                data = data[os.write(process.stdin.fileno(), data) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise _Died from error

    def _receive(self, deadline: float) -> str:
        while b"\n" not in self._buffer:
            self._wait(self._replies, selectors.EVENT_READ, deadline)
            try:
                more = os.read(self._replies, 1 << 16)
            except BlockingIOError:
                continue
            except OSError as error:
                raise _Died from error
            if not more:
                raise _Died
            self._buffer += more
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, event)
            if not selector.select(max(deadline - time.monotonic(), 0.0)):
                raise _TimedOut

    def _obituary(self) -> str:
        """How the child ended, and its last words."""
        process = self._process
        if process is None:
            return "the evaluator was closed"
        ended = _ended(process, 5.0)
        self._discard()
        if not ended:
            return "the process closed its pipe"
        code = process.returncode
        if code >= 0:
            how = f"exited with code {code}"
        else:
            names = {int(s): s.name for s in signal.Signals}
            how = f"killed by {names.get(-code, f'signal {-code}')}"
        words = self._output(4096).decode(errors="replace")
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        return f"{how}: {lines[-1]}"[:500] if lines else how

    def _output(self, longest: int = 1 << 20) -> bytes:
        """The end of what the engine printed for this structure."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), longest, max(size - longest, 0))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole group that the child leads; its number is its own until it is reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _ended(process: subprocess.Popen[bytes], patience: float) -> bool:
    """Has the child ended? It is left unreaped where possible, so that its group can be killed."""
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
