"""Molecular dynamics with on-the-fly learning, in a run directory from which it can be resumed.

`run.json` contains settings and start, `calls.jsonl` the outcomes of the engine, `checkpoint.json`
the state, `md.extxyz` the trajectory, `md.log` one line per frame. A resumed run returns to the
last checkpoint and repeats the steps after it with bit-identical results, without repeating
recorded engine calls. Each checkpoint drops cached forces and neighbour lists, as resuming does,
and checkpoints are written at fixed steps only, wherever a run ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms, units
from ase.md.langevin import Langevin
from ase.md.md import MolecularDynamics
from ase.md.verlet import VelocityVerlet

from nugget.errors import NuggetError
from nugget.onthefly.learning_calculator import Call, LearningCalculator
from nugget.onthefly.run_directory import (
    Appended,
    DirectoryRun,
    RecordedEngine,
    finish,
    read_checkpoint,
)
from nugget.onthefly.run_settings import MDConfig
from nugget.potential.calculator import outside_sentence
from nugget.potential.potential import Potential
from nugget.storage.files import write_sealed
from nugget.structures.io import attach_uncertainties

# State of ASE's MTK integrator besides positions, momenta and cell.
_MTK = (
    "_eps", "_p_eps", "_thermostat._eta", "_thermostat._p_eta", "_barostat._xi", "_barostat._p_xi",
)  # fmt: skip


def integrator(atoms: Atoms, config: MDConfig, rng: np.random.Generator) -> MolecularDynamics:
    """The integrator for these settings; `atoms` must have the initial cell of the run."""
    dt = config.dt * units.fs
    if config.ensemble == "nve":
        return VelocityVerlet(atoms, dt)
    if config.ensemble == "nvt":
        friction = config.friction / units.fs
        return Langevin(
            atoms, dt, temperature_K=config.temperature, friction=friction, fixcm=False, rng=rng
        )
    if not atoms.pbc.all() or abs(atoms.cell.volume) < 1e-9:
        raise NuggetError("npt needs a structure that is periodic in three directions.")
    if atoms.constraints:
        raise NuggetError("npt does not support fixed atoms; use nvt, or remove the constraints.")
    from ase.md.nose_hoover_chain import IsotropicMTKNPT

    return IsotropicMTKNPT(
        atoms, dt, temperature_K=config.temperature, pressure_au=config.pressure * units.GPa,
        tdamp=100 * dt, pdamp=1000 * dt,
    )  # fmt: skip


def thermal_momenta(atoms: Atoms, temperature: float, rng: np.random.Generator) -> None:
    """Set Maxwell–Boltzmann momenta without a total momentum, unless there are momenta."""
    if atoms.has("momenta") and np.any(atoms.get_momenta()):
        return
    masses = atoms.get_masses()[:, None]
    momenta = rng.standard_normal((len(atoms), 3)) * np.sqrt(masses * units.kB * temperature)
    if not atoms.constraints and len(atoms) > 1:
        momenta -= masses * momenta.sum(axis=0) / masses.sum()
    atoms.set_momenta(momenta)


def displaced(atoms: Atoms, temperature: float, rng: np.random.Generator) -> Atoms:
    """A copy whose free atoms are displaced at random, by 0.05 Å at 300 K.

    Thermal displacements are larger, but correlated: random ones of the same size cost more energy.
    """
    copy = atoms.copy()
    amplitude = min(0.05 * np.sqrt(temperature / 300.0), 0.15)
    shift = rng.normal(scale=amplitude, size=atoms.positions.shape)
    copy.set_positions(atoms.positions + shift)  # fixed atoms stay
    return copy


def state_of(dynamics: MolecularDynamics, atoms: Atoms, rng: np.random.Generator) -> dict[str, Any]:
    """All that the next step depends on, besides the model, as exact plain data."""
    return {
        "positions": atoms.positions.tolist(),
        "momenta": atoms.get_momenta().tolist(),
        "cell": atoms.cell.array.tolist(),
        "rng": rng.bit_generator.state,
        "integrator": {n: _plain(v) for n in _MTK if (v := _get(dynamics, n)) is not None},
    }


def restore(
    state: dict[str, Any], dynamics: MolecularDynamics, atoms: Atoms, rng: np.random.Generator
) -> None:
    """The inverse of `state_of`."""
    atoms.set_cell(np.array(state["cell"]))
    atoms.positions = np.array(state["positions"])
    atoms.set_momenta(np.array(state["momenta"]), apply_constraint=False)
    rng.bit_generator.state = state["rng"]
    for name, value in state["integrator"].items():
        *path, last = name.split(".")
        owner: Any = dynamics
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, np.array(value) if isinstance(value, list) else value)
    if state["integrator"]:
        mtk: Any = dynamics
        mtk._q, mtk._p = atoms.get_positions(), atoms.get_momenta()


def _get(owner: Any, name: str) -> Any:
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else float(value)


_HEADER = "# step time/fs temperature/K potential/eV kinetic/eV volume/A^3 force_std/(eV/A) calls"

_EARLY = 25  # average steps between random calls at the beginning


class Replica:
    """One trajectory of a run; replicas share only the model and the calibration of its σ.

    `saved` is the result of `state` at the last checkpoint, None at the beginning.
    """

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
        self.above = False  # whether σ of the energy exceeds `warn_above`
        self.atoms = start.copy()
        if number:  # initial momenta belong to the first replica
            self.atoms.set_momenta(np.zeros((len(start), 3)))
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
            self.log.write(f"{_HEADER} outside\n" if config.domain else f"{_HEADER}\n")
        else:
            restore(saved["state"], self.dynamics, self.atoms, self.rng)
            self.above = saved.get("above", False)
            calculator.since = saved["since"]
        self.atoms.calc = calculator

    def step(self, done: int) -> list[dict[str, Any]]:
        """Take step `done` + 1; return its engine calls."""
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

    def too_uncertain(self, step: int) -> str | None:
        """Why the run must stop, None if not; a new warning is written to the log."""
        config, results = self.config, self.calculator.results
        sigma = results.get("energy_uncertainty", 0.0) / len(self.atoms)

        def sentence(limit: float) -> str:
            outside = results.get("outside_atoms")
            return outside_sentence(self.atoms, f"Step {step}", sigma, limit, outside)

        if config.stop_above is not None and sigma > config.stop_above:
            return sentence(config.stop_above)
        above = config.warn_above is not None and sigma > config.warn_above
        if config.warn_above is not None and above and not self.above:
            self.log.write(f"# {sentence(config.warn_above)}\n")
        self.above = above
        return None

    def write_frame(self, step: int, calls: int) -> None:
        """Write a frame with exact σ, and a line of the log."""
        atoms, time = self.atoms, step * self.config.dt
        std = float(np.max(self.calculator.force_std(), initial=0.0))
        atoms.info = {"step": step, "time": time}
        self.trajectory.write_frame(attach_uncertainties(atoms))
        values = (
            time, atoms.get_temperature(), atoms.get_potential_energy(),
            atoms.get_kinetic_energy(), abs(atoms.cell.volume), std,
        )  # fmt: skip
        line = f"{step} {' '.join(f'{value:.8g}' for value in values)} {calls}"
        if self.config.domain:
            line += f" {self.calculator.results.get('outside', 0.0):.3g}"
        self.log.write(f"{line}\n")

    def sync(self) -> list[int]:
        """Flush both files to disk; return their lengths."""
        return [self.trajectory.sync(), self.log.sync()]

    def state(self) -> dict[str, Any]:
        """All that resuming needs besides the model."""
        return {
            "offsets": self.sync(),
            "since": self.calculator.since,
            "state": state_of(self.dynamics, self.atoms, self.rng),
            **({"above": True} if self.above else {}),
        }


def file_names(number: int) -> tuple[str, str]:
    """Trajectory and log: md.extxyz and md.log, md-2.extxyz and md-2.log, …"""
    name = f"md-{number + 1}" if number else "md"
    return f"{name}.extxyz", f"{name}.log"


def audit_chance(step: int, usual: int) -> float:
    """Probability of a random call at this step, larger at first, when σ is not yet tested."""
    return 1.0 / min(usual, _EARLY + step / 4)


CHECKPOINT, GIVEN = "checkpoint.json", "given.model"
ENDED = "ended.json"  # all calls up to the step at which the last process has stopped


@dataclass
class MDProgress:
    """Progress of a run, passed to `Watch` functions after every step."""

    step: int
    steps: int
    dt: float
    temperatures: list[float] = field(default_factory=list)  # of the replicas, K
    std: float = 0.0
    calls: list[dict[str, Any]] = field(default_factory=list)  # of `Call`, with step and replica
    failures: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    done_here: int = 0  # steps since the run was started or resumed
    outside: float = 0.0  # largest value of all replicas, 0 (inside the training domain) to 1
    stopped: str | None = None  # why the run stopped early by itself

    @property
    def ns_per_day(self) -> float:
        return self.done_here * self.dt * 1e-6 / max(self.seconds, 1e-9) * 86400.0

    @property
    def seconds_left(self) -> float:
        return (self.steps - self.step) * self.seconds / max(self.done_here, 1)


Watch = Callable[[MDProgress], None]


class MDRun(DirectoryRun[MDConfig]):
    """Molecular dynamics of one or more replicas."""

    kind, settings = "md", MDConfig
    stopping = False

    @classmethod
    def create(
        cls, start: Atoms, config: MDConfig, directory: Path, model: Path | None = None
    ) -> MDRun:
        """A new run in a new directory."""
        copies = {} if model is None else {GIVEN: model}
        return cls.begin(directory, config, start, copies=copies)

    def stop(self) -> None:
        """End after this step."""
        self.stopping = True

    def run(self, watch: Watch | None = None) -> MDProgress:
        """Run to the last step, or until `stop`."""
        with self.alone():
            saved = read_checkpoint(self.directory / CHECKPOINT)
            used = 0 if saved is None else saved["calls_used"]
            with RecordedEngine(self.config.engine, self.directory, used) as engine:
                self._begin(engine, saved)
                self._take_steps(watch or (lambda progress: None))
        return self.progress

    def _take_steps(self, watch: Watch) -> None:
        begun = time.monotonic()
        while self.progress.step < self.config.steps and not self.stopping:
            self._step()
            self.progress.seconds = time.monotonic() - begun
            watch(self.progress)
        for replica in self.replicas:
            replica.sync()
        # A checkpoint here would change the bits of a continued run, so calls have their own file.
        content = {"step": self.progress.step, "calls": self.progress.calls}
        write_sealed(self.directory / ENDED, content)
        if self.progress.step >= self.config.steps:
            finish(self.directory, self.calculator.model, self.calculator.factor)

    def _begin(self, engine: RecordedEngine, saved: dict[str, Any] | None) -> None:
        config, given = self.config, self.directory / GIVEN
        potential = Potential.load(given) if given.exists() else None
        self.engine = engine
        self.calculator = LearningCalculator(
            potential, engine, config.max_force_error,
            preset=config.preset, use_stress=config.ensemble == "npt", pause=config.pause,
            domain=config.domain, mean=config.mean,
        )  # fmt: skip
        self.progress = MDProgress(0, config.steps, config.dt)
        states: list[Any] = [None] * len(config.temperatures)
        if saved is not None:
            self.calculator.model.restore(engine.good)
            self.calculator.scores[:] = saved["scores"]
            self.progress.step, self.progress.calls = saved["step"], saved["calls"]
            states = replica_states(saved)
        calculators = [self.calculator, *(self.calculator.sharing() for _ in states[1:])]
        self.replicas = [
            Replica(number, self.structures[0], config, calculator, self.directory, state)
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
        """Start the training set with displaced copies, which differ more than successive steps."""
        hottest = max(self.replicas, key=lambda replica: replica.temperature)
        for _ in range(self.config.displaced if wanted else 0):
            labelled = self.engine(displaced(self.structures[0], hottest.temperature, hottest.rng))
            if labelled is not None:
                self.calculator.model.learn(labelled)
            call = Call("first", failed=labelled is None)
            self.progress.calls.append({"step": 0, "replica": 0, **asdict(call)})

    def _step(self) -> None:
        """Take one step of every replica, in order."""
        config, progress = self.config, self.progress
        for replica in self.replicas:
            progress.calls += replica.step(progress.step)
        progress.step += 1
        progress.done_here += 1
        progress.temperatures = [float(r.atoms.get_temperature()) for r in self.replicas]
        progress.std = max(replica.calculator.std for replica in self.replicas)
        progress.outside = max(r.calculator.results.get("outside", 0.0) for r in self.replicas)
        progress.failures = self.engine.failures()
        for replica in self.replicas:
            if (reason := replica.too_uncertain(progress.step)) is not None:
                progress.stopped = reason
                self.stop()
        if progress.step % config.every == 0:
            for replica in self.replicas:
                replica.write_frame(progress.step, len(progress.calls))
        if progress.step % config.checkpoint == 0:
            self._save()

    def _save(self) -> None:
        """Write a checkpoint, and drop cached results as resuming does."""
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
    """States of the replicas in a checkpoint; old checkpoints have one replica and no list."""
    if "replicas" in saved:
        return list(saved["replicas"])
    offsets = [saved["offsets"][name] for name in file_names(0)]
    return [{"offsets": offsets, "since": saved["since"], "state": saved["state"]}]


def summary(progress: MDProgress, config: MDConfig) -> dict[str, Any]:
    """Engine calls of a run and the calibration of σ where it was tested, as plain data."""
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
