"""Molecular dynamics that learns, in a directory from which it can be continued to the same bits.

`run.json` holds settings and start, `calls.jsonl` what the engine said, `checkpoint.json` the
state, `md.extxyz` the trajectory, `md.log` a line per frame. A continued run goes back to the last
checkpoint and repeats what followed; engine calls that were made already are not made again. At
each checkpoint a run forgets cached forces and lists of pairs, as a continued one has to; so there
are checkpoints at their steps only, wherever a run ends.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from nugget.onthefly.calculator import Call, LearningCalculator
from nugget.onthefly.config import MDConfig
from nugget.onthefly.directory import Appended, create, finish, read_checkpoint, read_run
from nugget.onthefly.dynamics import displaced, integrator, restore, state_of, thermal_momenta
from nugget.onthefly.record import RecordedEngine
from nugget.potential.potential import Potential
from nugget.structures.files import locked
from nugget.structures.io import attach_uncertainties
from nugget.structures.sealed import write_sealed

CHECKPOINT, TRAJECTORY, LOG = "checkpoint.json", "md.extxyz", "md.log"
_EARLY = 25  # steps between random calls at the beginning
GIVEN, MODEL = "given.model", "learned.model"
_HEADER = "# step time/fs temperature/K potential/eV kinetic/eV volume/A^3 force_std/(eV/A) calls\n"


@dataclass
class Progress:
    """How far a run has come; `Watch` functions are given it after every step."""

    step: int
    steps: int
    dt: float
    temperature: float = 0.0
    std: float = 0.0
    calls: list[dict[str, Any]] = field(default_factory=list)  # of `Call`, with the step
    failures: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    done_here: int = 0  # steps since the run was started or continued

    @property
    def ns_per_day(self) -> float:
        return self.done_here * self.dt * 1e-6 / max(self.seconds, 1e-9) * 86400.0

    @property
    def seconds_left(self) -> float:
        return (self.steps - self.step) * self.seconds / max(self.done_here, 1)


Watch = Callable[[Progress], None]


class MDRun:
    """One run; `create` or `resume` it, then `run`."""

    def __init__(self, directory: Path, config: MDConfig, start: Atoms) -> None:
        self.directory, self.config, self.start = directory, config, start
        self.stopping = False

    @classmethod
    def create(
        cls, start: Atoms, config: MDConfig, directory: Path, model: Path | None = None
    ) -> MDRun:
        """A new run in a new directory."""
        create(directory, "md", config, start)
        if model is not None:
            shutil.copyfile(model, directory / GIVEN)
        return cls(directory, config, start)

    @classmethod
    def resume(cls, directory: Path, steps: int | None = None) -> MDRun:
        """A run that was stopped or killed; `steps` may be more than before."""
        settings, (start,) = read_run(directory, "md")
        config = MDConfig.model_validate(settings)
        if steps is not None:
            config = config.model_copy(update={"steps": steps})
        return cls(directory, config, start)

    def stop(self) -> None:
        """End after this step."""
        self.stopping = True

    def run(self, watch: Watch | None = None) -> Progress:
        """Go on to the last step, or until `stop`."""
        with locked(self.directory):
            return self._run(watch or (lambda progress: None))

    def _run(self, watch: Watch) -> Progress:
        saved = read_checkpoint(self.directory / CHECKPOINT)
        used = 0 if saved is None else saved["calls_used"]
        with RecordedEngine(self.config.engine, self.directory, used) as engine:
            self._begin(engine, saved)
            begun = time.monotonic()
            while self.progress.step < self.config.steps and not self.stopping:
                self._step()
                self.progress.seconds = time.monotonic() - begun
                watch(self.progress)
            for file in self.files.values():
                file.sync()
            if self.progress.step >= self.config.steps:
                finish(self.directory, MODEL, self.calculator.model, self.calculator.factor)
        return self.progress

    def _begin(self, engine: RecordedEngine, saved: dict[str, Any] | None) -> None:
        config, given = self.config, self.directory / GIVEN
        potential = Potential.load(given) if given.exists() else None
        self.engine, self.rng = engine, np.random.default_rng(config.seed)
        self.calculator = LearningCalculator(
            potential, engine, config.max_force_error,
            preset=config.preset, use_stress=config.ensemble == "npt", pause=config.pause,
        )  # fmt: skip
        self.atoms = self.start.copy()
        thermal_momenta(self.atoms, config.temperature, self.rng)
        self.dynamics: Any = integrator(self.atoms, config, self.rng)
        self.progress = Progress(0, config.steps, config.dt)
        if saved is not None:
            self.calculator.model.restore(engine.good)
            restore(saved["state"], self.dynamics, self.atoms, self.rng)
            self.progress.step, self.progress.calls = saved["step"], saved["calls"]
            self.calculator.since, self.calculator.scores = saved["since"], saved["scores"]
        offsets = {} if saved is None else saved["offsets"]
        self.files = {
            name: Appended(self.directory / name, offsets.get(name, 0))
            for name in (TRAJECTORY, LOG)
        }
        self.atoms.calc = self.calculator
        if saved is None:
            self.files[LOG].write(_HEADER)
            self._label_displaced(potential is None)
            self._save()

    def _label_displaced(self, wanted: bool) -> None:
        """Let the model begin with displaced copies of the start, instead of steps alike."""
        for _ in range(self.config.displaced if wanted else 0):
            found = self.engine(displaced(self.start, self.config.temperature, self.rng))
            if found is not None:
                self.calculator.model.learn(found)
            self.progress.calls.append({"step": 0, **asdict(Call("first", failed=found is None))})

    def _step(self) -> None:
        config, progress = self.config, self.progress
        if config.audit and self.rng.random() < audit_chance(progress.step, config.audit):
            self.calculator.audit_next = self.calculator.model.potential is not None
        self.dynamics.step()
        progress.step += 1
        progress.done_here += 1
        progress.temperature = float(self.atoms.get_temperature())
        progress.std = self.calculator.std
        for call in self.calculator.calls:
            progress.calls.append({"step": progress.step, **asdict(call)})
        self.calculator.calls.clear()
        progress.failures = self.engine.failures()
        if progress.step % config.every == 0:
            self._write_frame()
        if progress.step % config.checkpoint == 0:
            self._save()

    def _write_frame(self) -> None:
        atoms, progress = self.atoms, self.progress
        progress.std = float(np.max(self.calculator.force_std(), initial=0.0))
        atoms.info = {"step": progress.step, "time": progress.step * self.config.dt}
        self.files[TRAJECTORY].write_frame(attach_uncertainties(atoms))
        values = (
            progress.step * self.config.dt, progress.temperature, atoms.get_potential_energy(),
            atoms.get_kinetic_energy(), abs(atoms.cell.volume), progress.std,
        )  # fmt: skip
        line = " ".join(f"{value:.8g}" for value in values)
        self.files[LOG].write(f"{progress.step} {line} {len(progress.calls)}\n")

    def _save(self) -> None:
        """A state to continue from; whatever is cached is forgotten, here as in a continuation."""
        offsets = {name: file.sync() for name, file in self.files.items()}
        write_sealed(
            self.directory / CHECKPOINT,
            {
                "step": self.progress.step,
                "calls_used": self.engine.used,
                "calls": self.progress.calls,
                "since": self.calculator.since,
                "scores": self.calculator.scores,
                "offsets": offsets,
                "state": state_of(self.dynamics, self.atoms, self.rng),
            },
        )
        self.calculator.forget()


def audit_chance(step: int, usual: int) -> float:
    """Of a random call at this step: often at first, when nothing tells yet whether σ is right."""
    return 1.0 / min(usual, _EARLY + step / 4)


def summary(progress: Progress, config: MDConfig) -> dict[str, Any]:
    """How a run went, as plain data: calls, and how often σ was right where it was tested."""
    calls = [call for call in progress.calls if not call["failed"]]
    reasons = [call["reason"] for call in calls]
    tested = [call for call in calls if call["within"] is not None]
    audits = [call for call in tested if call["reason"] == "audit"]
    limit = config.max_force_error
    return {
        "steps": progress.step,
        "picoseconds": progress.step * config.dt * 1e-3,
        "calls": len(progress.calls),
        "calls_share": len(progress.calls) / max(progress.step, 1),
        "reasons": {name: reasons.count(name) for name in ("first", "uncertain", "audit")},
        "failures": progress.failures,
        "within_two_std": _mean([call["within"] for call in tested]),
        "audits": len(audits),
        "audits_within_two_std": _mean([call["within"] for call in audits]),
        "audits_rms_error": _mean([call["rms"] for call in audits]),
        "audits_below_limit": _mean([call["error"] <= limit for call in audits]),
        "ns_per_day": progress.ns_per_day,
        "seconds": progress.seconds,
    }


def _mean(values: list[Any]) -> float | None:
    return float(np.mean(values)) if values else None
