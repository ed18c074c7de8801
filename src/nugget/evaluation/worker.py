"""A process that evaluates structures, and the handle on it.

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
from dataclasses import asdict
from math import ceil
from typing import Any

from ase import Atoms
from ase.io.jsonio import decode, encode

from nugget.evaluation.outcome import Outcome, atoms_dict, atoms_from
from nugget.evaluation.run import Task, run_engine

#: Seconds that a process may take to start and import its engine.
START_LIMIT = 120.0
# The child ends itself this long after its time limit, should the parent be gone by then.
_GRACE = 60.0
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class _Died(Exception):
    pass


class _TimedOut(Exception):
    pass


class Worker:
    """Handle on one child process, started when first needed and again after each loss.

    `ask` belongs to one thread at a time; `close` may be called from any.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._process: subprocess.Popen[bytes] | None = None
        self._replies = -1
        self._buffer = b""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        self._asking = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the child, if there is one."""
        return None if self._process is None else self._process.pid

    def ask(self, atoms: Atoms, time_limit: float) -> Outcome:
        """The outcome for one structure; a hang or a death is an outcome too."""
        with self._asking:
            begun = time.perf_counter()
            limit = START_LIMIT
            try:
                # Lost while idle: nothing was under way, so that is no failure of the structure.
                if self._process is not None and _ended(self._process, 0.0):
                    self._discard()
                if self._process is None:
                    self._start()
                limit = time_limit
                return self._converse(atoms, time_limit)
            except _TimedOut:
                self._discard()
                reason = f"no answer within {limit:g} s"
                return Outcome(atoms.copy(), "timeout", reason, time.perf_counter() - begun)
            except _Died:
                reason = self._obituary()
                return Outcome(atoms.copy(), "died", reason, time.perf_counter() - begun)
            except BaseException:
                # Ctrl-C in the parent: a late reply must not be taken for the next structure's.
                self._discard()
                raise

    def close(self) -> None:
        """End the child for good; an `ask` under way in another thread returns "died"."""
        self._closed = True
        process = self._process
        if process is not None:
            _kill(process)  # only the asking thread touches the pipes
        with self._asking:
            self._discard()

    def __del__(self) -> None:
        self._discard()
        self._log.close()

    def _converse(self, atoms: Atoms, time_limit: float) -> Outcome:
        os.ftruncate(self._log.fileno(), 0)
        os.lseek(self._log.fileno(), 0, os.SEEK_SET)  # the child shares this offset
        deadline = time.monotonic() + time_limit
        request = {"structure": atoms_dict(atoms)["structure"], "limit": time_limit}
        self._send(encode(request), deadline)
        return Outcome.from_json(self._receive(deadline))

    def _start(self) -> None:
        if self._closed:
            raise _Died
        reading, writing = os.pipe()
        # Not `-m`: that would import this module twice. The child finds what the parent finds.
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from nugget.evaluation.worker import main; main({writing}, {os.getpid()})"
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
        self._send(json.dumps(asdict(self._task)), deadline)
        self._receive(deadline)

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
        size = os.fstat(self._log.fileno()).st_size
        words = os.pread(self._log.fileno(), 4096, max(size - 4096, 0)).decode(errors="replace")
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        return f"{how}: {lines[-1]}"[:500] if lines else how


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


def main(replies: int, parent: int) -> None:
    """The child: read a task, then structures, until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(replies, False)  # else a grandchild could keep the pipe open
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # an engine that reads stdin must not eat requests
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    task = Task(**json.loads(requests.readline()))
    _warm(task)
    with os.fdopen(replies, "w", encoding="utf-8") as answers:
        _say(answers, "ready")
        for line in requests:
            request = decode(line)
            # Kept by the kernel, so it works even if the engine never returns to Python.
            signal.alarm(ceil(request["limit"] + _GRACE))
            atoms = atoms_from({"structure": request["structure"], "results": {}})
            outcome = run_engine(
                task.engine,
                task.options,
                atoms,
                task.relax_steps,
                task.relax_fmax,
                task.keep_path,
            )
            signal.alarm(0)
            _say(answers, outcome.to_json())


def _say(answers: Any, text: str) -> None:
    answers.write(text + "\n")
    answers.flush()


def _warm(task: Task) -> None:
    """Import the engine outside the first structure's time; errors will show up there again."""
    from nugget.evaluation.engines import get_engine

    with contextlib.suppress(Exception):
        get_engine(task.engine).calculator(**task.options)


def _end_with(parent: int) -> None:
    """Do not outlive the parent for long."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
