"""The page of a `nugget md` run: energies, temperature, σ, evaluations and a film."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from nugget import __version__
from nugget.numerics.arrays import Floats, Ints
from nugget.report.digest import rounded
from nugget.report.onthefly_runs import Dynamics, read_dynamics
from nugget.report.page import Data, Structures, as_html, column, page_spec, sections
from nugget.report.page.sections import Section
from nugget.report.run_verdicts import drift_of, md_verdict
from nugget.report.trajectory import mean_square_displacement, radial_distribution

_ROWS = 1500  # of a plot
_FRAMES = 150  # of the film
_ATOMS = 30_000  # of all frames, and of all calls
_VALUES = {"force σ": "σ of the force, eV/Å"}
_TIME = sections.axis("time, ps")


def md_spec(directory: Path) -> dict[str, Any]:
    """The page of a run of `nugget md`, as plain data."""
    run = read_dynamics(directory)
    structures = Structures()
    frames = _film(run, structures)
    rows = _rows(run, list(frames))
    data = [_frames_data(run, rows, frames), _calls_data(run, structures)]
    config = run.config
    target = f"{'from ' if config.ensemble == 'nve' else ''}{config.temperature:g} K"
    if config.ensemble == "npt":
        target += f", {config.pressure:g} GPa"
    if len(config.temperatures) > 1:
        target += f", the first of {len(config.temperatures)} replicas"
    done = run.step >= config.steps - config.every
    parts = [
        sections.verdict(md_verdict(run).to_dict()),
        sections.film(list(frames.values()), title="Trajectory", values=_VALUES, span="half"),
        _energy(run),
        sections.side_by_side(_temperature(run), *_drift(run)),
        *_distributions(run),
        sections.side_by_side(_certainty(run), _number_of_calls(run)),
        sections.side_by_side(_answers(run), _when(run)),
        *_volume(run),
        sections.code(
            config.model_dump_json(indent=1), title="Settings", filename="run.json", folded=True
        ),
    ]
    return page_spec(
        f"Dynamics of {run.start.get_chemical_formula()}", parts, structures=structures, data=data,
        subtitle=f"{config.ensemble.upper()}, {target} · {config.engine.name} · {directory}",
        badge=("finished", "good") if done else ("not finished", "busy"), inspector=False,
        footer=f"nugget {__version__}",
    )  # fmt: skip


def md_page(directory: Path) -> str:
    """The page of a run of `nugget md`, as HTML."""
    return as_html(md_spec(directory))


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


def _energy(run: Dynamics) -> Section:
    layers = [sections.points("time", "potential")]
    caption = "Energy of the model. Click a point to see the frame."
    return sections.plot(
        "frames", layers, title="Potential energy", x=_TIME, caption=caption,
        y=sections.axis("eV above the lowest", relative=True), colors=["temperature"],
        span="half",
    )  # fmt: skip


def _drift(run: Dynamics) -> list[Section]:
    """The total energy, which dynamics without a thermostat should keep."""
    if (drift := drift_of(run)) is None:
        return []
    total, time = run.log["potential"] + run.log["kinetic"], 1e-3 * run.log["time"]
    some = np.linspace(0, len(total) - 1, min(len(total), _ROWS)).astype(int)
    values, ends = 1e3 * (total - total[0]) / len(run.start), time[[0, -1]]
    curves = [
        sections.curve("total energy", time[some], values[some]),
        sections.curve("linear fit", ends, np.polyval(np.polyfit(time, values, 1), ends)),
    ]
    slope = rounded(drift, plus=True)
    return [
        sections.plot(
            "", curves, title="Drift of the energy", x=_TIME, y=sections.axis("meV/atom"),
            caption=f"The line has a slope of {slope} meV/atom per ps.",
        )
    ]  # fmt: skip


def _distributions(run: Dynamics) -> list[Section]:
    """Distances and displacements in the frames of the second half and of the whole run."""
    steps = run.log["step"].astype(int)
    most = max(2, min(_FRAMES, _ATOMS // max(len(run.start), 1)))
    some = np.unique(np.linspace(0, max(len(steps) - 1, 0), most).astype(int))
    frames = list(run.frames(steps[some].tolist() if len(steps) else []))
    if len(frames) < 2:
        return []
    images = [atoms for _, atoms in frames]
    r, g = radial_distribution(images[len(images) // 2 :])
    what = "g(r)" if run.start.pbc.all() else "pairs per Å and atom"
    rdf = sections.plot(
        "", [sections.curve(name, r, values) for name, values in g.items()],
        title="Radial distribution", x=sections.axis("distance, Å"),
        y=sections.axis(what, limits=(0, None)), caption="Second half of the run.",
    )  # fmt: skip
    time = [1e-3 * step * run.config.dt for step, _ in frames]
    lag = np.array(time) - time[0]
    moved = mean_square_displacement(images)
    msd = sections.plot(
        "", [sections.curve(name, lag, values) for name, values in moved.items()],
        title="Mean square displacement", x=_TIME, y=sections.axis("Å²", limits=(0, None)),
        caption="From the first frame, without the motion of the centre of mass. Atoms are "
        "followed across the boundaries of the cell from frame to frame.",
    )  # fmt: skip
    return [sections.side_by_side(rdf, msd)]


def _temperature(run: Dynamics) -> Section:
    thermostat = run.config.ensemble != "nve"
    layers = [
        sections.points("time", "temperature"),
        sections.level(run.config.temperature, "thermostat" if thermostat else "initial"),
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
    for name in ("audit", "first", "uncertain"):  # as the colours of the other plots
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
