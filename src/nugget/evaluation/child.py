"""The process that evaluates structures; `nugget.evaluation.worker` starts it.

Its standard streams belong to the engine, its current directory to the evaluation under way.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

from ase.io.jsonio import decode

from nugget.evaluation.outcome import atoms_from
from nugget.evaluation.run import Task, run_task

# The child ends itself this long after its time limit, should the parent be gone by then.
_GRACE = 60.0


def main(replies: int, parent: int) -> None:
    """Read a task, then structures, until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(replies, False)  # else a grandchild could keep the pipe open
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # an engine that reads stdin must not eat requests
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    beginning = json.loads(requests.readline())
    task = Task(**beginning["task"])
    os.environ["NUGGET_START_DIR"] = task.start
    with _inside(beginning["directory"]):
        _warm(task)
    with os.fdopen(replies, "w", encoding="utf-8") as answers:
        _say(answers, "ready")
        for line in requests:
            request = decode(line)
            # Kept by the kernel, so it works even if the engine never returns to Python.
            signal.alarm(ceil(request["limit"] + _GRACE))
            atoms = atoms_from({"structure": request["structure"], "results": {}})
            with _inside(request["directory"]):
                outcome = run_task(task, atoms, Path(request["directory"]))
            signal.alarm(0)
            _say(answers, outcome.to_json())


@contextlib.contextmanager
def _inside(directory: str) -> Iterator[None]:
    """The current directory for a while; then one that nobody removes."""
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir("/")


def _say(answers: Any, text: str) -> None:
    answers.write(text + "\n")
    answers.flush()


def _warm(task: Task) -> None:
    """Import the engine outside the first structure's time; errors will show up there again."""
    with contextlib.suppress(Exception):
        task.calculator()


def _end_with(parent: int) -> None:
    """Do not outlive the parent for long, nor let a program that was started here do so."""
    while os.getppid() == parent:
        time.sleep(1.0)
    if os.getpgrp() == os.getpid():  # the group is ours alone
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
