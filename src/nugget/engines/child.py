"""The main program of a child process that evaluates structures; the runner starts it.

Its standard streams belong to the engine, its current directory to the current evaluation.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from math import ceil
from pathlib import Path

from ase.io.jsonio import decode

from nugget.engines.outcome import atoms_from
from nugget.engines.task import Task, run_task

# The child ends itself this long after its time limit, in case the parent no longer exists.
_GRACE = 60.0


def main(descriptor: int, parent: int) -> None:
    """Read a task, then structures, from a socket until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)  # otherwise a grandchild could keep the socket open
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    connection = socket.socket(fileno=descriptor)
    requests = connection.makefile("r", encoding="utf-8")

    def reply(text: str) -> None:
        connection.sendall(text.encode() + b"\n")

    first = json.loads(requests.readline())
    task = Task.from_json(first["task"])
    os.environ["NUGGET_START_DIR"] = task.start
    # Import the engine before the first time limit begins; errors are raised again there.
    with _inside(first["directory"]), contextlib.suppress(Exception):
        task.calculator()
    reply("ready")
    for line in requests:
        request = decode(line)
        # The kernel keeps the alarm, so that it works even if the engine never returns to Python.
        signal.alarm(ceil(request["limit"] + _GRACE))
        atoms = atoms_from({"structure": request["structure"], "results": {}})
        with _inside(request["directory"]):
            outcome = run_task(task, atoms, Path(request["directory"]))
        signal.alarm(0)
        reply(outcome.to_json())


@contextlib.contextmanager
def _inside(directory: str) -> Iterator[None]:
    """Change the current directory, and leave for one that nobody removes."""
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir("/")


def _end_with(parent: int) -> None:
    """End this process and the programs that it started soon after its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1.0)
    if os.getpgrp() == os.getpid():  # no other process leads this group
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
