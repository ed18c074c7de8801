"""One trajectory of a run: atoms, integrator, random numbers, calculator and files.

Replicas of a run share the model and what is known about its σ, and nothing else.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from nugget.onthefly.calculator import LearningCalculator
from nugget.onthefly.config import MDConfig
from nugget.onthefly.directory import Appended
from nugget.onthefly.dynamics import integrator, restore, state_of, thermal_momenta
from nugget.structures.io import attach_uncertainties

_HEADER = "# step time/fs temperature/K potential/eV kinetic/eV volume/A^3 force_std/(eV/A) calls\n"
_EARLY = 25  # steps between random calls at the beginning


class Replica:
    """A trajectory; `saved` is what `state` gave at the last checkpoint, None at the beginning."""

    def __init__(
        self,
        number: int,
        start: Atoms,
        config: MDConfig,
        calculator: LearningCalculator,
        directory: Path,
        saved: dict[str, Any] | None,
    ) -> None:
        self.number, self.config, self.calculator = number, config, calculator
        self.rng = np.random.default_rng([config.seed, number] if number else config.seed)
        self.atoms = start.copy()
        if number:
            self.atoms.set_momenta(np.zeros((len(start), 3)))  # START's are of the first replica
        temperature = self.temperature = config.temperatures[number]
        thermal_momenta(self.atoms, temperature, self.rng)
        mine = config.model_copy(update={"temperature": temperature})
        self.dynamics: Any = integrator(self.atoms, mine, self.rng)
        offsets = [0, 0] if saved is None else saved["offsets"]
        self.trajectory, self.log = (
            Appended(directory / name, offset)
            for name, offset in zip(file_names(number), offsets, strict=True)
        )
        if saved is None:
            self.log.write(_HEADER)
        else:
            restore(saved["state"], self.dynamics, self.atoms, self.rng)
            calculator.since = saved["since"]
        self.atoms.calc = calculator

    def step(self, done: int) -> list[dict[str, Any]]:
        """Take step `done` + 1; the engine calls that it needed."""
        config, calculator = self.config, self.calculator
        if config.audit:
            chance = audit_chance(done, config.audit) / len(config.temperatures)
            if self.rng.random() < chance:
                calculator.audit_next = calculator.model.potential is not None
        self.dynamics.step()
        calls = [
            {"step": done + 1, "replica": self.number, **asdict(call)} for call in calculator.calls
        ]
        calculator.calls.clear()
        return calls

    def write_frame(self, step: int, calls: int) -> None:
        """A frame with exact σ, and a line of the log."""
        atoms, time = self.atoms, step * self.config.dt
        std = float(np.max(self.calculator.force_std(), initial=0.0))
        atoms.info = {"step": step, "time": time}
        self.trajectory.write_frame(attach_uncertainties(atoms))
        values = (
            time, atoms.get_temperature(), atoms.get_potential_energy(),
            atoms.get_kinetic_energy(), abs(atoms.cell.volume), std,
        )  # fmt: skip
        self.log.write(f"{step} {' '.join(f'{value:.8g}' for value in values)} {calls}\n")

    def sync(self) -> list[int]:
        """Bring both files to the disk; their lengths."""
        return [self.trajectory.sync(), self.log.sync()]

    def state(self) -> dict[str, Any]:
        """All that a continuation needs besides the model."""
        return {
            "offsets": self.sync(),
            "since": self.calculator.since,
            "state": state_of(self.dynamics, self.atoms, self.rng),
        }


def file_names(number: int) -> tuple[str, str]:
    """Trajectory and log: md.extxyz and md.log, md-2.extxyz and md-2.log, …"""
    name = f"md-{number + 1}" if number else "md"
    return f"{name}.extxyz", f"{name}.log"


def audit_chance(step: int, usual: int) -> float:
    """Of a random call at this step: often at first, when nothing tells yet whether σ is right."""
    return 1.0 / min(usual, _EARLY + step / 4)
