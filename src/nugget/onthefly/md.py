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

from nugget._compiled.threads import one_blas_thread
from nugget.onthefly.calculator import Call, LearningCalculator
from nugget.onthefly.config import MDConfig
from nugget.onthefly.directory import create, finish, read_checkpoint, read_run
from nugget.onthefly.dynamics import displaced
from nugget.onthefly.record import RecordedEngine
from nugget.onthefly.replica import Replica, file_names
from nugget.potential.potential import Potential
from nugget.structures.files import locked
from nugget.structures.sealed import write_sealed

CHECKPOINT, GIVEN, MODEL = "checkpoint.json", "given.model", "learned.model"


@dataclass
class Progress:
    """How far a run has come; `Watch` functions are given it after every step."""

    step: int
    steps: int
    dt: float
    temperatures: list[float] = field(default_factory=list)  # of the replicas, K
    std: float = 0.0
    calls: list[dict[str, Any]] = field(default_factory=list)  # of `Call`, with step and replica
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
        with locked(self.directory), one_blas_thread():
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
            for replica in self.replicas:
                replica.sync()
            if self.progress.step >= self.config.steps:
                finish(self.directory, MODEL, self.calculator.model, self.calculator.factor)
        return self.progress

    def _begin(self, engine: RecordedEngine, saved: dict[str, Any] | None) -> None:
        config, given = self.config, self.directory / GIVEN
        potential = Potential.load(given) if given.exists() else None
        self.engine = engine
        self.calculator = LearningCalculator(
            potential, engine, config.max_force_error,
            preset=config.preset, use_stress=config.ensemble == "npt", pause=config.pause,
        )  # fmt: skip
        self.progress = Progress(0, config.steps, config.dt)
        states: list[Any] = [None] * len(config.temperatures)
        if saved is not None:
            self.calculator.model.restore(engine.good)
            self.calculator.scores[:] = saved["scores"]
            self.progress.step, self.progress.calls = saved["step"], saved["calls"]
            states = replica_states(saved)
        calculators = [self.calculator, *(self.calculator.sharing() for _ in states[1:])]
        self.replicas = [
            Replica(number, self.start, config, calculator, self.directory, state)
            for number, (calculator, state) in enumerate(zip(calculators, states, strict=True))
        ]
        if saved is None:
            self._label_displaced(potential is None)
            self._save()

    @property
    def atoms(self) -> Atoms:
        """The atoms of the first replica."""
        return self.replicas[0].atoms

    def _label_displaced(self, wanted: bool) -> None:
        """Let the model begin with displaced copies of the start, instead of steps alike."""
        hottest = max(self.replicas, key=lambda replica: replica.temperature)
        for _ in range(self.config.displaced if wanted else 0):
            found = self.engine(displaced(self.start, hottest.temperature, hottest.rng))
            if found is not None:
                self.calculator.model.learn(found)
            call = Call("first", failed=found is None)
            self.progress.calls.append({"step": 0, "replica": 0, **asdict(call)})

    def _step(self) -> None:
        """One step of every replica, in their order."""
        config, progress = self.config, self.progress
        for replica in self.replicas:
            progress.calls += replica.step(progress.step)
        progress.step += 1
        progress.done_here += 1
        progress.temperatures = [float(r.atoms.get_temperature()) for r in self.replicas]
        progress.std = max(replica.calculator.std for replica in self.replicas)
        progress.failures = self.engine.failures()
        if progress.step % config.every == 0:
            for replica in self.replicas:
                replica.write_frame(progress.step, len(progress.calls))
        if progress.step % config.checkpoint == 0:
            self._save()

    def _save(self) -> None:
        """A state to continue from; whatever is cached is forgotten, here as in a continuation."""
        content = {
            "step": self.progress.step,
            "calls_used": self.engine.used,
            "calls": self.progress.calls,
            "scores": self.calculator.scores,
            "replicas": [replica.state() for replica in self.replicas],
        }
        write_sealed(self.directory / CHECKPOINT, content)
        for replica in self.replicas:
            replica.calculator.forget()


def replica_states(saved: dict[str, Any]) -> list[dict[str, Any]]:
    """States of the replicas in a checkpoint; there was only one when it had no list of them."""
    if "replicas" in saved:
        return list(saved["replicas"])
    offsets = [saved["offsets"][name] for name in file_names(0)]
    return [{"offsets": offsets, "since": saved["since"], "state": saved["state"]}]


def summary(progress: Progress, config: MDConfig) -> dict[str, Any]:
    """How a run went, as plain data: calls, and how often σ was right where it was tested."""
    calls = [call for call in progress.calls if not call["failed"]]
    reasons = [call["reason"] for call in calls]
    tested = [call for call in calls if call["within"] is not None]
    audits = [call for call in tested if call["reason"] == "audit"]
    limit = config.max_force_error
    return {
        "steps": progress.step,
        "replicas": len(config.temperatures),
        "picoseconds": progress.step * config.dt * 1e-3,
        "calls": len(progress.calls),
        "calls_share": len(progress.calls) / max(progress.step * len(config.temperatures), 1),
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
