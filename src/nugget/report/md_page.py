"""The page of a `nugget md` run: energies, temperature, σ, evaluations and a film."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
from ase import Atoms

from nugget import __version__
from nugget.display import counted
from nugget.engines.outcome import Outcome
from nugget.numerics.arrays import Floats, Ints
from nugget.onthefly.molecular_dynamics import CHECKPOINT, file_names
from nugget.onthefly.run_directory import CALLS, read_checkpoint, read_outcomes, read_run
from nugget.onthefly.run_settings import MDConfig
from nugget.report.digest import fixed
from nugget.report.page import Data, Structures, column, page, sections
from nugget.report.page.sections import Section

TRAJECTORY, LOG = file_names(0)  # the first replica is shown
_LOGGED = ("step", "time", "temperature", "potential", "kinetic", "volume", "std", "calls")


@dataclass(frozen=True, eq=False)
class Dynamics:
    """A run of `nugget md` as read from its directory."""

    directory: Path
    config: MDConfig
    start: Atoms
    log: dict[str, Floats]  # by the names of _LOGGED; time in fs
    calls: list[dict[str, Any]]  # fields of `Call` and the step, up to the last checkpoint
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


_ROWS = 1500  # of a plot
_FRAMES = 150  # of the film
_ATOMS = 30_000  # of all frames, and of all calls
_VALUES = {"force σ": "σ of the force, eV/Å"}
_TIME = sections.axis("time, ps")


def md_page(directory: Path) -> str:
    """The page of a run of `nugget md`, as HTML."""
    run = read_dynamics(directory)
    structures = Structures()
    frames = _film(run, structures)
    rows = _rows(run, list(frames))
    data = [_frames_data(run, rows, frames), _calls_data(run, structures)]
    config = run.config
    target = f"{config.temperature:g} K"
    if config.ensemble == "npt":
        target += f", {config.pressure:g} GPa"
    if len(config.temperatures) > 1:
        target += f", the first of {len(config.temperatures)} replicas"
    done = run.step >= config.steps - config.every
    parts = [
        _figures(run),
        sections.film(list(frames.values()), title="Trajectory", values=_VALUES),
        sections.side_by_side(_energy(run), _temperature(run)),
        sections.side_by_side(_certainty(run), _number_of_calls(run)),
        sections.side_by_side(_answers(run), _when(run)),
        *_volume(run),
        sections.code(
            config.model_dump_json(indent=1), title="Settings", filename="run.json", folded=True
        ),
    ]
    return page(
        run.start.get_chemical_formula(), parts, structures=structures, data=data,
        subtitle=f"dynamics ({config.ensemble}, {target}) with {config.engine.name}, {directory}",
        badge=("finished", "good") if done else ("not finished", "busy"),
        footer=f"nugget {__version__}",
    )  # fmt: skip


def _film(run: Dynamics, structures: Structures) -> dict[int, int]:
    """The structure numbers of evenly spaced frames, by step."""
    steps = run.log["step"].astype(int)
    most = max(2, min(_FRAMES, _ATOMS // max(len(run.start), 1)))
    some = np.unique(np.linspace(0, max(len(steps) - 1, 0), most).astype(int))
    numbers = {}
    for step, atoms in run.frames(steps[some].tolist() if len(steps) else []):
        picoseconds = 1e-3 * step * run.config.dt
        label = f"step {step}, {picoseconds:.2f} ps"
        numbers[step] = structures.add(atoms, label, _per_atom(atoms))
    return numbers


def _per_atom(atoms: Atoms) -> dict[str, Floats]:
    std = atoms.arrays.get("forces_uncertainty")
    return {} if std is None else {"force σ": np.linalg.norm(std, axis=1)}


def _rows(run: Dynamics, steps: list[int]) -> Ints:
    """Rows of the log for the plots: those of the film, and other evenly spaced ones."""
    n = len(run.log["step"])
    even = np.linspace(0, max(n - 1, 0), min(n, _ROWS)).astype(int)
    shown = np.flatnonzero(np.isin(run.log["step"], steps))
    return np.unique(np.concatenate([even, shown])).astype(np.int64)


def _frames_data(run: Dynamics, rows: Ints, frames: dict[int, int]) -> Data:
    log = {name: values[rows] for name, values in run.log.items()}
    columns = {
        "step": column([int(step) for step in log["step"]], "step"),
        "time": column((1e-3 * log["time"]), "time", "ps", 3),
        "potential": column(log["potential"], "potential energy", "eV", 4),
        "total": column((log["potential"] + log["kinetic"]), "total energy", "eV", 4),
        "temperature": column(log["temperature"], "temperature", "K", 1),
        "volume": column(log["volume"], "volume", "Å³", 2),
        "std": column(log["std"], "largest σ of a force", "eV/Å", 4),
    }
    return Data("frames", columns, [frames.get(int(step)) for step in log["step"]])


def _calls_data(run: Dynamics, structures: Structures) -> Data:
    """Evaluations, with their structures up to a total number of atoms."""
    numbers: list[int | None] = []
    atoms_left = _ATOMS
    for k, call in enumerate(run.calls):
        outcome = run.outcomes[k] if k < len(run.outcomes) else None
        if outcome is None or (atoms_left := atoms_left - len(outcome.atoms)) < 0:
            numbers.append(None)
            continue
        label = f"evaluation {k + 1} ({call['reason']}), step {call['step']}"
        energy = outcome.energy if outcome.ok else None
        numbers.append(structures.add(outcome.atoms, label, {}, energy))
    reasons = ["failed" if call["failed"] else call["reason"] for call in run.calls]
    columns = {
        "number": column(range(1, len(run.calls) + 1), "evaluation"),
        "step": column([call["step"] for call in run.calls], "step"),
        "time": column(run.call_times, "time", "ps", 3),
        "reason": column(reasons, "reason"),
    }
    for name, label, unit, digits in (
        ("std", "σ before", "eV/Å", 4),
        ("error", "largest error", "eV/Å", 4),
        ("rms", "rms error", "eV/Å", 4),
        ("within", "share within 2σ", "", 3),
    ):
        columns[name] = column([call.get(name) for call in run.calls], label, unit, digits)
    return Data("calls", columns, numbers)


def _figures(run: Dynamics) -> Section:
    config, calls = run.config, run.calls
    reasons = [call["reason"] for call in calls]
    temperature = run.log["temperature"]
    half = temperature[len(temperature) // 2 :]
    audits = [c for c in calls if c["reason"] == "audit" and c["within"] is not None]
    failed = sum(bool(call["failed"]) for call in calls)
    counts = ", ".join(f"{reasons.count(name)} {name}" for name in ("first", "uncertain", "audit"))
    items = [
        ("steps", f"{run.step}", f"of {config.steps}, {1e-3 * run.step * config.dt:.2f} ps"),
        ("engine calls", f"{len(calls)}", f"{counts}, {failed} failed"),
        ("share of steps", f"{len(calls) / max(run.step, 1):.1%}", "with an evaluation"),
    ]
    if len(half):
        items.append(("temperature", f"{half.mean():.0f} K", "mean of the second half"))
    if audits:
        within = float(np.mean([call["within"] for call in audits]))
        rms = float(np.mean([call["rms"] for call in audits]))
        note = f"of components, {counted(len(audits), 'audit')}"
        items.append(("audits within 2σ", f"{within:.0%}", note))
        items.append(("audits, error", f"{rms:.3f} eV/Å", "rms of a force component"))
    return sections.figures(items)


def _energy(run: Dynamics) -> Section:
    layers = [sections.points("time", "potential")]
    caption = "Energy of the model. Click a point to see the frame."
    if run.config.ensemble == "nve":
        total = run.log["potential"] + run.log["kinetic"]
        if len(total) > 1:
            drift = 1e3 * (total[-1] - total[0]) / len(run.start)
            caption += f" The total energy has drifted by {fixed(drift, 2, plus=True)} meV/atom."
    return sections.plot(
        "frames", layers, title="Potential energy", x=_TIME, caption=caption,
        y=sections.axis("eV above the lowest", relative=True), colors=["temperature"],
    )  # fmt: skip


def _temperature(run: Dynamics) -> Section:
    layers = [
        sections.points("time", "temperature"),
        sections.level(run.config.temperature, "thermostat"),
    ]
    return sections.plot("frames", layers, title="Temperature", x=_TIME, y=sections.axis("K"))


def _certainty(run: Dynamics) -> Section:
    limit = sections.level(run.config.max_force_error, "threshold")
    return sections.plot(
        "frames", [sections.points("time", "std"), limit], title="Largest σ of a force", x=_TIME,
        y=sections.axis("eV/Å", limits=(0, None)),
        caption="In every frame, after an evaluation at that step.",
    )  # fmt: skip


def _number_of_calls(run: Dynamics) -> Section:
    end = 1e-3 * run.step * run.config.dt
    curves = []
    for name in ("first", "uncertain", "audit"):
        own = [t for t, c in zip(run.call_times, run.calls, strict=True) if c["reason"] == name]
        if own:
            counts = [*range(len(own) + 1), len(own)]
            curves.append(sections.curve(name, [0.0, *own, max(end, own[-1])], counts, steps=True))
    return sections.plot(
        "", curves, title="Evaluations", x=_TIME, y=sections.axis("number so far"),
        caption="first: before the first model; uncertain: σ exceeded the threshold; audit: at a "
        "random step, to test σ.",
    )  # fmt: skip


def _answers(run: Dynamics) -> Section:
    return sections.plot(
        "calls", [sections.diagonal(), sections.points("std", "error")],
        title="σ and errors at evaluations", colors=["reason"],
        x=sections.axis("largest σ before, eV/Å", limits=(0, None)),
        y=sections.axis("largest error, eV/Å", limits=(0, None)),
        caption="Largest error of all components, which is expected to be two or three σ.",
    )  # fmt: skip


def _when(run: Dynamics) -> Section:
    limit = run.config.max_force_error
    return sections.plot(
        "calls", [sections.points("time", "error"), sections.level(limit, "threshold of σ")],
        title="Errors at evaluations", x=_TIME, colors=["reason"],
        y=sections.axis("largest error, eV/Å", limits=(0, None)),
        caption="Audits, at random steps, show typical errors; the others are at the largest σ.",
    )  # fmt: skip


def _volume(run: Dynamics) -> list[Section]:
    if run.config.ensemble != "npt":
        return []
    layers = [sections.points("time", "volume")]
    return [sections.plot("frames", layers, title="Volume", x=_TIME, y=sections.axis("Å³"))]
