"""The page of molecular dynamics that learn: energies, temperature, σ, calls, and a film."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from nugget import __version__
from nugget._compiled.arrays import Floats, Ints
from nugget.report.onthefly_runs import Dynamics, read_dynamics
from nugget.report.page import Data, Structures, column, page, sections
from nugget.report.page.sections import Section
from nugget.structures.shown import counted

_ROWS = 1500  # of a plot
_FRAMES = 150  # of the film
_ATOMS = 30_000  # of all frames, and of all calls
_VALUES = {"force σ": "σ of the force, eV/Å"}


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
        sections.code(_settings(run), title="Settings", filename="run.json", folded=True),
    ]
    return page(
        run.start.get_chemical_formula(), parts, structures=structures, data=data,
        subtitle=f"dynamics ({config.ensemble}, {target}) with {config.engine.name}, {directory}",
        badge=("finished", "good") if done else ("not finished", "busy"),
        footer=f"nugget {__version__}",
    )  # fmt: skip


def _settings(run: Dynamics) -> str:
    return run.config.model_dump_json(indent=1)


def _film(run: Dynamics, structures: Structures) -> dict[int, int]:
    """Frames at even distances: the structure of each step that is shown."""
    steps = run.log["step"].astype(int)
    most = max(2, min(_FRAMES, _ATOMS // max(len(run.start), 1)))
    some = np.unique(np.linspace(0, max(len(steps) - 1, 0), most).astype(int))
    found = {}
    for step, atoms in run.frames(steps[some].tolist() if len(steps) else []):
        picoseconds = 1e-3 * step * run.config.dt
        label = f"step {step}, {picoseconds:.2f} ps"
        found[step] = structures.add(atoms, label, _per_atom(atoms))
    return found


def _per_atom(atoms: Atoms) -> dict[str, Floats]:
    std = atoms.arrays.get("forces_uncertainty")
    return {} if std is None else {"force σ": np.linalg.norm(std, axis=1)}


def _rows(run: Dynamics, steps: list[int]) -> Ints:
    """Rows of the log for the plots: those of the film, and others at even distances."""
    n = len(run.log["step"])
    even = np.linspace(0, max(n - 1, 0), min(n, _ROWS)).astype(int)
    shown = np.flatnonzero(np.isin(run.log["step"], steps))
    return np.unique(np.concatenate([even, shown])).astype(np.int64)


def _frames_data(run: Dynamics, rows: Ints, frames: dict[int, int]) -> Data:
    log = {name: values[rows] for name, values in run.log.items()}
    columns = {
        "step": column([int(step) for step in log["step"]], "step"),
        "time": column((1e-3 * log["time"]).tolist(), "time", "ps", 3),
        "potential": column(log["potential"].tolist(), "potential energy", "eV", 4),
        "total": column((log["potential"] + log["kinetic"]).tolist(), "total energy", "eV", 4),
        "temperature": column(log["temperature"].tolist(), "temperature", "K", 1),
        "volume": column(log["volume"].tolist(), "volume", "Å³", 2),
        "std": column(log["std"].tolist(), "largest σ of a force", "eV/Å", 4),
    }
    return Data("frames", columns, [frames.get(int(step)) for step in log["step"]])


def _calls_data(run: Dynamics, structures: Structures) -> Data:
    """Calls of the engine; their structures, as far as there is room."""
    numbers: list[int | None] = []
    atoms_left = _ATOMS
    for k, call in enumerate(run.calls):
        outcome = run.outcomes[k] if k < len(run.outcomes) else None
        if outcome is None or (atoms_left := atoms_left - len(outcome.atoms)) < 0:
            numbers.append(None)
            continue
        label = f"call {k + 1} ({call['reason']}), step {call['step']}"
        energy = outcome.energy if outcome.ok else None
        numbers.append(structures.add(outcome.atoms, label, {}, energy))
    known: dict[str, list[Any]] = {
        name: [call.get(name) for call in run.calls]
        for name in ("step", "reason", "std", "error", "rms", "within")
    }
    columns = {
        "number": column(list(range(1, len(run.calls) + 1)), "call"),
        "step": column(known["step"], "step"),
        "time": column([1e-3 * step * run.config.dt for step in known["step"]], "time", "ps", 3),
        "reason": column(
            ["failed" if call["failed"] else call["reason"] for call in run.calls], "reason"
        ),
        "std": column(known["std"], "σ before", "eV/Å", 4),
        "error": column(known["error"], "largest error", "eV/Å", 4),
        "rms": column(known["rms"], "rms error", "eV/Å", 4),
        "within": column(known["within"], "share within 2σ", "", 3),
    }
    return Data("calls", columns, numbers)


def _figures(run: Dynamics) -> Section:
    config, calls = run.config, run.calls
    reasons = [call["reason"] for call in calls]
    temperature = run.log["temperature"]
    half = temperature[len(temperature) // 2 :]
    audits = [c for c in calls if c["reason"] == "audit" and c["within"] is not None]
    failed = sum(bool(call["failed"]) for call in calls)
    words = ", ".join(f"{reasons.count(name)} {name}" for name in ("first", "uncertain", "audit"))
    items = [
        ("steps", f"{run.step}", f"of {config.steps}, {1e-3 * run.step * config.dt:.2f} ps"),
        ("engine calls", f"{len(calls)}", f"{words}, {failed} failed"),
        ("share of steps", f"{len(calls) / max(run.step, 1):.1%}", "where the engine was called"),
    ]
    if len(half):
        items.append(("temperature", f"{half.mean():.0f} K", "mean of the second half"))
    if audits:
        within = float(np.mean([call["within"] for call in audits]))
        rms = float(np.mean([call["rms"] for call in audits]))
        items += [
            (
                "audits within 2σ",
                f"{within:.0%}",
                f"of components, {counted(len(audits), 'audit')}",
            ),
            ("audits, error", f"{rms:.3f} eV/Å", "rms of a force component"),
        ]
    return sections.figures(items)


def _time() -> Section:
    return sections.axis("time, ps")


def _energy(run: Dynamics) -> Section:
    layers = [sections.points("time", "potential")]
    caption = "Of the model. Click a point to see the frame."
    if run.config.ensemble == "nve":
        total = run.log["potential"] + run.log["kinetic"]
        if len(total) > 1:
            drift = 1e3 * (total[-1] - total[0]) / len(run.start)
            caption += f" The total energy has drifted by {drift:+.2f} meV/atom."
    return sections.plot(
        "frames", layers, title="Potential energy", x=_time(), caption=caption,
        y=sections.axis("eV above the lowest", relative=True), colors=["temperature"],
    )  # fmt: skip


def _temperature(run: Dynamics) -> Section:
    return sections.plot(
        "frames",
        [sections.points("time", "temperature"),
         sections.level(run.config.temperature, "as asked for")],
        title="Temperature", x=_time(), y=sections.axis("K"),
    )  # fmt: skip


def _certainty(run: Dynamics) -> Section:
    limit = run.config.max_force_error
    return sections.plot(
        "frames", [sections.points("time", "std"), sections.level(limit, "the engine is called")],
        title="Largest σ of a force", x=_time(), y=sections.axis("eV/Å", limits=(0, None)),
        caption="In every frame, after what the model has learned there.",
    )  # fmt: skip


def _number_of_calls(run: Dynamics) -> Section:
    times = [1e-3 * call["step"] * run.config.dt for call in run.calls]
    end = 1e-3 * run.step * run.config.dt
    curves = []
    for name in ("first", "uncertain", "audit"):
        own = [t for t, call in zip(times, run.calls, strict=True) if call["reason"] == name]
        if own:
            counts = [*range(len(own) + 1), len(own)]
            curves.append(sections.curve(name, [0.0, *own, max(end, own[-1])], counts, steps=True))
    return sections.plot(
        "", curves, title="Calls of the engine", x=_time(), y=sections.axis("so far"),
        caption="first: before there was a model; uncertain: σ was too large; audit: at random, "
        "to test σ.",
    )  # fmt: skip


def _answers(run: Dynamics) -> Section:
    return sections.plot(
        "calls", [sections.diagonal(), sections.points("std", "error")],
        title="σ and the engine's answer", colors=["reason"],
        x=sections.axis("largest σ before, eV/Å", limits=(0, None)),
        y=sections.axis("largest error, eV/Å", limits=(0, None)),
        caption="Errors are the largest of all components; two or three σ are to be expected.",
    )  # fmt: skip


def _when(run: Dynamics) -> Section:
    limit = run.config.max_force_error
    return sections.plot(
        "calls", [sections.points("time", "error"), sections.level(limit, "allowed")],
        title="Errors where the engine was called", x=_time(), colors=["reason"],
        y=sections.axis("largest error, eV/Å", limits=(0, None)),
        caption="Audits tell how good the forces are on the way; the others are the worst places.",
    )  # fmt: skip


def _volume(run: Dynamics) -> list[Section]:
    if run.config.ensemble != "npt":
        return []
    layers = [sections.points("time", "volume")]
    return [sections.plot("frames", layers, title="Volume", x=_time(), y=sections.axis("Å³"))]
