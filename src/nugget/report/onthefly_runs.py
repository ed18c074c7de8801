"""Runs of `nugget md` and `neb` as read from their directories, and calls of the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
from ase import Atoms

from nugget.engines.outcome import Outcome
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.onthefly.molecular_dynamics import CHECKPOINT, ENDED, file_names
from nugget.onthefly.reaction_path import PATH, RESULT
from nugget.onthefly.run_directory import CALLS, read_checkpoint, read_outcomes, read_run
from nugget.onthefly.run_settings import MDConfig, NEBConfig
from nugget.report.page import Data, Structures, column, sections
from nugget.report.page.sections import Section
from nugget.storage.files import read_sealed
from nugget.structures.geometry import largest_force
from nugget.structures.io import read_images

TRAJECTORY, LOG = file_names(0)  # the first replica is shown
_LOGGED = ("step", "time", "temperature", "potential", "kinetic", "volume", "std", "calls")


@dataclass(frozen=True, eq=False)
class Dynamics:
    """A run of `nugget md` as read from its directory."""

    directory: Path
    config: MDConfig
    start: Atoms
    log: dict[str, Floats]  # by the names of _LOGGED; time in fs
    calls: list[dict[str, Any]]  # fields of `Call` and the step, up to the last checkpoint or end
    outcomes: list[Outcome]  # results of the engine in the same order

    @property
    def step(self) -> int:
        return int(self.log["step"][-1]) if len(self.log["step"]) else 0

    @property
    def call_times(self) -> list[float]:
        """Times of the evaluations, ps."""
        return [1e-3 * call["step"] * self.config.dt for call in self.calls]

    def frames(self, steps: Sequence[int]) -> Iterator[tuple[int, Atoms]]:
        """Frames of the trajectory at these steps."""
        path, wanted = self.directory / TRAJECTORY, set(steps)
        if not path.exists():
            return
        try:
            for atoms in ase.io.iread(path, format="extxyz"):
                if (step := int(atoms.info.get("step", -1))) in wanted:
                    yield step, atoms
        except (OSError, ValueError, KeyError, IndexError, StopIteration):
            return  # the last frame is incomplete


def read_dynamics(directory: Path) -> Dynamics:
    """Read a run of `nugget md`, finished or not; nothing is written."""
    settings, (start,) = read_run(directory, "md")
    saved = read_checkpoint(directory / CHECKPOINT) or {}
    ended = read_checkpoint(directory / ENDED) or {}
    if ended.get("step", -1) >= saved.get("step", 0):
        saved = ended
    config, log = MDConfig.model_validate(settings), _read_log(directory / LOG)
    outcomes = read_outcomes(directory / CALLS)
    return Dynamics(directory, config, start, log, saved.get("calls", []), outcomes)


def _read_log(path: Path) -> dict[str, Floats]:
    """Complete lines of the log."""
    rows = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        words = line.split()
        if line.startswith("#") or len(words) < len(_LOGGED):
            continue
        try:
            rows.append([float(word) for word in words[: len(_LOGGED)]])
        except ValueError:
            continue
    table = np.array(rows).reshape(-1, len(_LOGGED))
    return {name: table[:, k] for k, name in enumerate(_LOGGED)}


@dataclass(frozen=True, eq=False)
class ReactionPath:
    """A run of `nugget neb` as read from its directory."""

    directory: Path
    config: NEBConfig
    ends: list[Atoms]
    images: list[Atoms]  # with energies and σ of the model; empty before the end
    outcomes: list[Outcome]
    result: dict[str, Any] | None


def read_path(directory: Path) -> ReactionPath:
    """Read a run of `nugget neb`, finished or not; nothing is written."""
    settings, ends = read_run(directory, "neb")
    path = directory / PATH
    try:
        result = read_sealed(directory / RESULT, "continue the run")
    except (FileNotFoundError, NuggetError):  # an older or unfinished run
        result = None
    config, images = NEBConfig.model_validate(settings), read_images(path) if path.exists() else []
    outcomes = read_outcomes(directory / CALLS)
    return ReactionPath(directory, config, ends, images, outcomes, result)


# --------------------------------------------------------------------------- calls of the engine


def calls_data(outcomes: Sequence[Outcome], phases: Sequence[str], structures: Structures) -> Data:
    """The calls of a path or saddle search in their order, each with the phase of the run."""
    energy = [one.energy if one.ok else None for one in outcomes]
    first = next((value for value in energy if value is not None), 0.0)
    n = len(outcomes)
    rows = [
        structures.add(outcomes[k].atoms, f"evaluation {k + 1}", {}, energy[k]) for k in range(n)
    ]
    columns = {
        "number": column(range(1, n + 1), "evaluation"),
        "phase": column(phases, "phase"),
        "energy": column(energy, "energy", "eV", 4),
        "above": column([None if e is None else e - first for e in energy], "above start", "eV", 4),
        "force": column(
            [largest_force(one.atoms) if one.ok else None for one in outcomes],
            "largest force", "eV/Å", 3,
        ),
        "failure": column(
            ["" if one.ok else f"{one.failure}: {one.reason}" for one in outcomes], "failure"
        ),
    }  # fmt: skip
    return Data("calls", columns, rows)


def calls_plot(fmax: float, caption: str) -> Section:
    """The largest force of every call."""
    return sections.plot(
        "calls", [sections.points("number", "force"), sections.level(fmax, "converged")],
        title="Evaluations", x=sections.axis("evaluation", integer=True), colors=["phase"],
        y=sections.axis("largest force, eV/Å", scale="log", floor=1e-3), caption=caption,
    )  # fmt: skip
