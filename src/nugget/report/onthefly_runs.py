"""Runs that learn on the fly, as they are on the disk. Nothing is written, none is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError
from nugget.evaluation.outcome import Outcome
from nugget.onthefly.config import MDConfig, NEBConfig
from nugget.onthefly.directory import read_checkpoint, read_run
from nugget.onthefly.md import CHECKPOINT
from nugget.onthefly.neb import PATH, RESULT
from nugget.onthefly.record import CALLS, read_outcomes
from nugget.onthefly.replica import file_names
from nugget.structures.io import read_images
from nugget.structures.sealed import read_sealed

TRAJECTORY, LOG = file_names(0)  # replicas share the model; the first one is shown
_LOGGED = ("step", "time", "temperature", "potential", "kinetic", "volume", "std", "calls")


@dataclass(frozen=True, eq=False)
class Dynamics:
    """A run of `nugget md`: a row of numbers per frame, calls of the engine, and some frames."""

    directory: Path
    config: MDConfig
    start: Atoms
    log: dict[str, Floats]  # by the names of _LOGGED; time in fs
    calls: list[dict[str, Any]]  # as `Call`, with the step; those up to the last checkpoint
    outcomes: list[Outcome]  # what the engine said, in the same order

    @property
    def step(self) -> int:
        return int(self.log["step"][-1]) if len(self.log["step"]) else 0

    def frames(self, steps: Sequence[int]) -> Iterator[tuple[int, Atoms]]:
        """Frames of the trajectory, by their step."""
        path, wanted = self.directory / TRAJECTORY, set(steps)
        if not path.exists():
            return
        try:
            for atoms in ase.io.iread(path, format="extxyz"):
                if (step := int(atoms.info.get("step", -1))) in wanted:
                    yield step, atoms
        except (OSError, ValueError, KeyError, IndexError, StopIteration):
            return  # the last frame is being written


@dataclass(frozen=True, eq=False)
class ReactionPath:
    """A run of `nugget neb`: its images, what the engine said, and the result, if there is one."""

    directory: Path
    config: NEBConfig
    ends: list[Atoms]
    images: list[Atoms]  # with energies and σ of the model; empty before the end
    outcomes: list[Outcome]
    result: dict[str, Any] | None


def read_dynamics(directory: Path) -> Dynamics:
    """A run of `nugget md`, whether it has ended or not."""
    settings, (start,) = read_run(directory, "md")
    saved = read_checkpoint(directory / CHECKPOINT) or {}
    return Dynamics(
        directory, MDConfig.model_validate(settings), start, _read_log(directory / LOG),
        saved.get("calls", []), read_outcomes(directory / CALLS, repair=False),
    )  # fmt: skip


def read_path(directory: Path) -> ReactionPath:
    """A run of `nugget neb`, whether it has ended or not."""
    settings, ends = read_run(directory, "neb")
    path = directory / PATH
    try:
        result = read_sealed(directory / RESULT, "continue the run")
    except (FileNotFoundError, NuggetError):  # an older run, or one without an end
        result = None
    return ReactionPath(
        directory, NEBConfig.model_validate(settings), ends,
        read_images(path) if path.exists() else [],
        read_outcomes(directory / CALLS, repair=False), result,
    )  # fmt: skip


def _read_log(path: Path) -> dict[str, Floats]:
    """Whole lines of the log; a line that is being written is left out."""
    rows = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        words = line.split()
        if line.startswith("#") or len(words) != len(_LOGGED):
            continue
        try:
            rows.append([float(word) for word in words])
        except ValueError:
            continue
    table = np.array(rows).reshape(-1, len(_LOGGED))
    return {name: table[:, k] for k, name in enumerate(_LOGGED)}
