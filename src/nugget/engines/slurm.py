"""The programs of SLURM: submit a job script, ask for states, cancel.

A controller that restarts does not answer for a while. This raises `NoAnswer`, which is no error
of a job. Waiting does not cure any other error of `sbatch`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from enum import StrEnum

from nugget.errors import NuggetError

_ANSWER = 60.0  # seconds in which a program of SLURM must answer

# What sbatch and squeue say while the controller is away or too busy.
_AWAY = re.compile(
    r"unable to contact|connect failure|connection refused|socket timed out|timed? ?out|"
    r"temporarily|transport endpoint|controller.*not respond|protocol authentication",
    re.IGNORECASE,
)

# Limits of a user or an association, which pass when other jobs have ended.
_FULL = re.compile(r"QOSMaxSubmit|AssocMaxSubmit|maximum.*jobs|job violates.*limit", re.IGNORECASE)


class NoAnswer(Exception):
    """The controller does not answer now, or takes no more jobs now."""


class State(StrEnum):
    """What became of a job, as far as a search is concerned."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"  # ended with exit code 0
    WALLTIME = "walltime"
    LOST = "lost"  # cancelled, failed, out of memory, or gone with its node


_STATES = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"), "w"),
    **dict.fromkeys(
        ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING",
         "STAGE_OUT", "RESV_DEL_HOLD"), "r",
    ),
    "COMPLETED": "d",
    "TIMEOUT": "t",
    "DEADLINE": "t",
}  # fmt: skip

_MEANING = {"w": State.WAITING, "r": State.RUNNING, "d": State.DONE, "t": State.WALLTIME}


def state_of(word: str) -> State:
    """The state that SLURM calls `word`, as PENDING or `CANCELLED by 0`."""
    first = word.split()[0].rstrip("+") if word.split() else ""
    return _MEANING.get(_STATES.get(first, ""), State.LOST)


def require() -> None:
    """NuggetError if this machine cannot submit jobs."""
    if shutil.which("sbatch") is None:
        raise NuggetError(
            'execution.kind = "jobs" needs the program sbatch, which is not on PATH; start nugget '
            "on a login node of a cluster with SLURM."
        )


def submit(script: str) -> str:
    """Submit a job script; returns the number of the job."""
    reply = _run(["sbatch", "--parsable", script])
    return reply.strip().partition(";")[0]


def named(name: str) -> str | None:
    """The number of a job of this name that waits or runs, if there is one."""
    numbers = _run(["squeue", "-h", "-o", "%i", "--me", "-t", "PD,R", "--name", name]).split()
    return numbers[0] if numbers else None


def states(jobs: Sequence[str]) -> dict[str, tuple[State, str]]:
    """State of each job, and SLURM's own word for it, with the reason why a job waits."""
    if not jobs:
        return {}
    # All jobs of the user: squeue -j fails as a whole if one number is no longer known.
    lines = _run(["squeue", "-h", "--me", "-t", "all", "-o", "%i|%T|%r"]).splitlines()
    listed = {number: _word(*rest) for number, *rest in (line.split("|", 2) for line in lines)}
    found = {}
    for job in jobs:
        word = listed.get(job) or _past(job)
        found[job] = (state_of(word), word)
    return found


def _word(state: str, reason: str) -> str:
    """The state of a listed job; one that waits has a reason, such as a node that is drained."""
    return f"{state} ({reason})" if state == "PENDING" and reason != "None" else state


def _past(job: str) -> str:
    """The last state of a job that squeue no longer lists, from accounting or the controller."""
    for command in (
        ["sacct", "-n", "-X", "-P", "-o", "State", "-j", job],
        ["scontrol", "-o", "show", "job", job],
    ):
        try:
            reply = _run(command)
        except (NoAnswer, NuggetError):
            continue  # without accounting sacct fails; the controller forgets jobs after minutes
        match = re.search(r"JobState=(\S+)", reply)
        word = match[1] if match else reply.strip().splitlines()[-1] if reply.strip() else ""
        if word:
            return word
    return "UNKNOWN"


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs; those that have ended already are no error."""
    numbers = list(jobs)
    if numbers:
        subprocess.run(["scancel", *numbers], capture_output=True, timeout=_ANSWER, check=False)


def _run(command: list[str]) -> str:
    # Variables of a job in which nugget itself runs would become options of the new job.
    clean = {
        name: value
        for name, value in os.environ.items()
        if name == "SLURM_CONF" or not name.startswith(("SLURM_", "SBATCH_", "SQUEUE_", "PMI"))
    }
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER, env=clean)
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{command[0]} did not answer within {_ANSWER:g} s") from None
    except OSError as error:
        raise NuggetError(f"{command[0]} cannot be run ({error.strerror}).") from None
    if done.returncode == 0:
        return done.stdout
    complaints = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
    text = complaints[-1].removeprefix(f"{command[0]}: ").removeprefix("error: ")
    if _AWAY.search(done.stderr) or _FULL.search(done.stderr):
        raise NoAnswer(f"{command[0]}: {text}")
    raise NuggetError(f"{command[0]} failed: {text[:200].rstrip('.')}.")
