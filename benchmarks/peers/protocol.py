"""How the driver and the two workers speak: one JSON object per line, over pipes.

The workers live in different environments, so this file needs the standard library alone. A worker
answers one question at a time; the driver asks them in turns, so that both codes meet the same
machine in the same seconds.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ),
    "1",
)

# The settings that both codes are given.
SOAP = {"r_cut": 6.0, "n_max": 3, "l_max": 2, "sigma": 1.0}
LENGTH_SCALE, NOISE, LABEL, PRIOR, MEMBERS, KAPPA = 20.0, 0.01, 0.01, 0.05, 10, 2.0


def timed(work: Callable[[], object], at_least: float = 0.15) -> dict[str, float]:
    """Processor and wall seconds of one call; short work is repeated for `at_least` seconds."""
    calls, cpu, wall = 0, time.process_time(), time.perf_counter()
    while True:
        work()
        calls += 1
        spent = time.process_time() - cpu
        if spent >= at_least:
            return {"cpu": spent / calls, "wall": (time.perf_counter() - wall) / calls}


def processor_seconds() -> float:
    """Of this process and all below it, those that have ended and were waited for included."""
    fields = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:  # it has ended
                continue
            words = text.rpartition(")")[2].split()
            ticks = sum(map(int, words[11:15]))
            fields[int(entry.name)] = int(words[1]), ticks / os.sysconf("SC_CLK_TCK")
    family = {os.getpid()}
    while more := {pid for pid, (parent, _) in fields.items() if parent in family} - family:
        family |= more
    return sum(fields[pid][1] for pid in family if pid in fields)


def serve(verbs: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """Answer questions from standard input until it ends; what libraries print goes to stderr."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = verbs[question.pop("do")](**question)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=out, flush=True)


def peak_memory(**_: Any) -> dict[str, float]:
    """High-water mark of this process in MB."""
    return {"mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


class Worker:
    """A worker process; call it with a verb and its arguments."""

    def __init__(self, name: str, python: Path, script: Path, log: Path) -> None:
        self.name = name
        self._log = log.open("a")
        self._process = subprocess.Popen(
            [str(python), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **ONE_THREAD},
            cwd=log.parent,
        )

    def __call__(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The worker {self.name} ended; see {self._log.name}.")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"The worker {self.name} failed at {do}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()
