"""The sections of a search's page: evaluations as columns, plots, map, times and failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ase import Atoms

from nugget.descriptors.base import Descriptor
from nugget.display import duration
from nugget.numerics.arrays import Floats
from nugget.report.digest import improvements, shares
from nugget.report.minima import AtomModel, Low, letter_of
from nugget.report.page import Data, Structures, column
from nugget.report.page import sections as parts
from nugget.report.page.sections import Section
from nugget.search.record import PolishStep, Record, energy_of
from nugget.search.store import State
from nugget.structures.geometry import force_lengths
from nugget.systems.goal import Goal

NAME, _RELAXATION, _LADDER = "evaluations", "relaxation", "ladder"

#: Differences below this value are drawn at the foot of logarithmic axes, in the goal's unit.
FLOOR = 1e-3


class Evaluations:
    """The table of evaluations; rows are appended and never change."""

    def __init__(self, goal: Goal, structures: Structures) -> None:
        self.goal, self.structures = goal, structures
        self.records: list[Record] = []
        self.rows: list[int] = []  # number of each evaluation's structure
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}

    def add(self, records: Sequence[Record], model: AtomModel | None = None) -> None:
        """Append evaluations."""
        finite = [r.atoms for r in records if np.isfinite(r.atoms.positions).all()]
        predicted = iter(model.values(finite)) if model is not None else None
        for record in records:
            is_finite = bool(np.isfinite(record.atoms.positions).all())
            values = dict(next(predicted)) if predicted is not None and is_finite else {}
            force = force_lengths(record.atoms)
            if force is not None:
                values = {"force": force, **values}
            label = f"evaluation {record.iteration + 1}"
            energy = record.energy if record.ok else None
            self.rows.append(self.structures.add(record.atoms, label, values, energy))
            for name, value in _row(self.goal, record, force).items():
                self._columns[name].append(value)
            self.records.append(record)

    def data(self) -> Data:
        """All columns except those of the map."""
        columns = {}
        for name, (label, unit, digits) in _COLUMNS.items():
            if name == "value":
                label = letter_of(self.goal)
            unit = self.goal.unit if unit == "goal" else unit
            columns[name] = column(self._columns[name], label, unit, digits)
        return Data(NAME, columns, self.rows)


#: Label, unit and digits of each column; the unit "goal" is that of the minimised quantity.
_COLUMNS: dict[str, tuple[str, str, int | None]] = {
    "number": ("evaluation", "", 0),
    "value": ("E", "goal", 4),
    "expected": ("predicted", "goal", 4),
    "std": ("± σ", "goal", 4),
    "z": ("(E − predicted)/σ", "", 2),
    "generator": ("generator", "", None),
    "purpose": ("purpose", "", None),
    "fmax": ("fmax", "eV/Å", 3),
    "engine": ("engine", "s", 2),
    "surrogate": ("surrogate", "s", 2),
    "failure": ("failure", "", None),
}


def _row(goal: Goal, record: Record, force: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "number": record.iteration + 1,
        "value": goal.value(record.atoms, record.energy) if record.ok else None,
        "expected": None,
        "std": None,
        "z": None,
        "generator": record.generator.replace("_", " "),
        "purpose": record.purpose,
        "fmax": None if force is None else float(np.max(force, initial=0.0)),
        "engine": record.engine_seconds,
        "surrogate": record.surrogate_seconds,
        "failure": record.failure,
    }
    if record.predicted is not None and record.std:
        bar = record.scale * record.std
        expected = goal.values([record.proposed], np.array([record.predicted]))[0]
        std = goal.stds([record.proposed], np.array([bar]))[0]
        row |= {"expected": float(expected), "std": float(std)}
        if row["value"] is not None:
            row["z"] = (row["value"] - row["expected"]) / row["std"]
    return row


class StructureMap:
    """Two principal components of the mean features of the atoms of each structure."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self._features: list[Floats] = []  # empty for structures without finite positions

    def add(self, images: Sequence[Atoms]) -> None:
        """Add structures; one whose positions are not finite has no coordinates."""
        finite = [a for a in images if np.isfinite(a.positions).all()]
        features = iter(mean_features(self.descriptor, finite))
        for atoms in images:
            is_finite = np.isfinite(atoms.positions).all()
            self._features.append(next(features) if is_finite else np.empty(0))

    def coordinates(self) -> tuple[list[float | None], list[float | None]]:
        """Two coordinates of every structure; None for all before there are three structures."""
        rows = [k for k, features in enumerate(self._features) if features.size]
        x: list[float | None] = [None] * len(self._features)
        y = list(x)
        if len(rows) > 2:
            features = np.array([self._features[k] for k in rows])
            features = features - features.mean(axis=0)
            axes = np.linalg.svd(features, full_matrices=False)[2][:2]
            # The sign of an axis is arbitrary; a positive largest entry makes it reproducible.
            largest = axes[np.arange(len(axes)), np.argmax(np.abs(axes), axis=1)]
            axes = axes * np.sign(largest)[:, None]
            for k, point in zip(rows, features @ axes.T, strict=True):
                x[k], y[k] = float(point[0]), float(point[1]) if len(point) > 1 else 0.0
        return x, y


def mean_features(descriptor: Descriptor, images: Sequence[Atoms]) -> Floats:
    """Mean over the atoms of each structure."""
    if not images:
        return np.empty((0, 0))
    features = descriptor.compute(list(images))
    counts = np.bincount(features.owner, minlength=len(images))
    sums = np.zeros((len(images), features.values.shape[1]))
    np.add.at(sums, features.owner, features.values)
    return np.asarray(sums / counts[:, None])


#: States of a search, and the kind of badge that shows them.
BADGES = {
    "running": "busy",
    "finished": "good",
    "found": "good",
    "interrupted": "plain",
    "stopped": "bad",
    "failed": "bad",
}


def _difference(goal: Goal) -> str:
    """The plotted quantity of an evaluation."""
    if goal.hull is not None:
        return "above the hull"
    letter = letter_of(goal)
    return letter if goal.quantity == "grand potential" else f"{letter} − lowest"


def energies(goal: Goal) -> Section:
    """Every evaluation and the best so far."""
    return parts.plot(
        NAME,
        [
            parts.points("number", "value"),
            parts.line("number", "value", "lowest so far", "min", steps=True),
        ],
        title="The search",
        x=parts.axis("evaluation", integer=True),
        y=parts.axis(
            f"{_difference(goal)} ({goal.unit})", scale="log", relative=True, robust=True,
            floor=FLOOR,
        ),
        colors=["generator", "purpose"],
        span="wide",
        caption="Every evaluation; paler marks at the upper edge lie above the plotted range. "
        "The purpose of an evaluation is start (before the first model), improve (to find a lower "
        "structure) or explore (to learn about dissimilar structures). Click a point to see its "
        "structure; drag a rectangle to zoom in, double-click to zoom out.",
    )  # fmt: skip


def ladder(low: Sequence[Low], numbers: Sequence[int], goal: Goal) -> tuple[Data, Section]:
    """The energies of the lowest distinct structures, one step each; `numbers` are on the page."""
    unit = "meV" if goal.unit == "eV" else "meV/atom"
    above = [1e3 * (one.value - low[0].value) for one in low]
    columns = {
        "rank": column([k + 1 for k in range(len(low))], "structure", shown=False),
        "above": column(above, "above the lowest", unit, 1, shown=False),
    }
    section = parts.plot(
        _LADDER, [parts.points("rank", "above", mark="step")], title="Energy ladder",
        x=parts.axis("structure", integer=True), y=parts.axis(f"above the lowest ({unit})"),
        span="third", caption="The lowest distinct structures in the order of their energies.",
    )  # fmt: skip
    return Data(_LADDER, columns, numbers), section


class RelaxationFilms:
    """The final relaxations of the lowest structures as a film; structures are added once."""

    def __init__(self, structures: Structures) -> None:
        self.structures = structures
        self._numbers: dict[tuple[int, int], int] = {}

    def parts(
        self, records: Sequence[Record], steps: Sequence[PolishStep], low: Sequence[Low], goal: Goal
    ) -> tuple[Data, list[Section]]:
        """Each relaxed structure from its evaluation to its end, in the order of the gallery."""
        names = ("minimum", "step", "part", "value", "fmax")
        columns: dict[str, list[Any]] = {name: [] for name in names}
        numbers: list[int] = []
        frames: list[int] = []
        curves: dict[int, Section] = {}
        for start in dict.fromkeys(one.start for one in low if one.polished and one.start >= 0):
            images = [(0, r.atoms) for r in records if r.iteration == start and r.ok]
            images += [(step.step, step.atoms) for step in steps if step.start == start and step.ok]
            if len(images) < 2:
                continue
            values = [goal.value(atoms, energy_of(atoms)) for _, atoms in images]
            forces = [force_lengths(atoms) for _, atoms in images]
            fmax = [None if f is None else float(np.max(f, initial=0.0)) for f in forces]
            # Later steps are displaced along soft modes, which shows that the end is no saddle.
            end = int(np.argmin(values)) + 1
            tests = len(images) - end
            own = [self._number(start, step, atoms) for step, atoms in images]
            columns["minimum"] += [f"evaluation {start + 1}"] * len(images)
            columns["step"] += [step for step, _ in images]
            columns["part"] += ["relaxation"] * end + ["test for a saddle"] * tests
            columns["value"] += values
            columns["fmax"] += fmax
            curves[start] = parts.curve("", columns["step"][-len(images) :][:end], fmax[:end])
            numbers += own
            frames += own[:end]
        if not frames:
            data = Data(_RELAXATION, {})
            return data, [parts.remark("No structure has been relaxed with the engine yet.")]
        units = {"value": (goal.quantity, goal.unit, 4), "fmax": ("fmax", "eV/Å", 3)}
        shown = {name: column(columns[name], *units.get(name, (name,))) for name in names}
        film = parts.film(
            frames, title="Final relaxations", span="half",
            caption="The relaxed structures one after the other, each from its evaluation on.",
        )  # fmt: skip
        ordered = [curves[start] for start in sorted(curves)]  # with the colours of their points
        plot = parts.plot(
            _RELAXATION, [*ordered, parts.points("step", "fmax")],
            title="Convergence of the relaxations", span="half", colors=["minimum", "part"],
            x=parts.axis("step", integer=True),
            y=parts.axis("fmax on free atoms (eV/Å)", scale="log", floor=FLOOR),
            caption="The largest force of the engine. At the end atoms are displaced along soft "
            "modes, which shows whether the structure is a saddle point; no line leads there.",
        )  # fmt: skip
        return Data(_RELAXATION, shown, numbers), [film, plot]

    def _number(self, start: int, step: int, atoms: Atoms) -> int:
        if (start, step) not in self._numbers:
            force = force_lengths(atoms)
            values = {} if force is None else {"force": force}
            label = f"relaxing evaluation {start + 1}, step {step}"
            number = self.structures.add(atoms, label, values, energy_of(atoms))
            self._numbers[start, step] = number
        return self._numbers[start, step]


def expectations(goal: Goal) -> Section:
    """Predictions made before each evaluation, and its results."""
    over_time = parts.plot(
        NAME,
        [
            parts.zone(-2, 2), parts.zone(-1, 1, "within 1 and 2 σ"),
            parts.points("number", "z"), parts.line("number", "z", "rms of the last 20", "rms"),
        ],
        title="Prediction errors",
        x=parts.axis("evaluation"),
        y=parts.axis("(E − predicted) / σ", robust=True),
        colors=["purpose"],
        caption="Energy of the engine minus the prediction made before the evaluation, in units of "
        "σ. The line stays near 1 if σ is well calibrated.",
    )  # fmt: skip
    parity = parts.plot(
        NAME,
        [parts.diagonal(), parts.points("value", "expected", error="std")],
        title="Predicted and evaluated energies",
        x=parts.axis(
            f"evaluated: {_difference(goal)} ({goal.unit})", relative="value", robust=True
        ),
        y=parts.axis(f"predicted ± σ ({goal.unit})", relative="value", robust=True),
        colors=["number"],
        square=True,
        caption="Predictions made before each evaluation, with error bars of one σ.",
    )
    return parts.side_by_side(over_time, parity)


def landscape() -> Section:
    """The map of all structures."""
    return parts.plot(
        NAME,
        [parts.points("map_x", "map_y")],
        title="Map of the structures",
        x=parts.axis("principal component 1", robust=True),
        y=parts.axis("principal component 2", robust=True),
        colors=["value", "number", "generator"],
        axes=["map_x", "map_y", "number", "value", "expected", "std", "z", "fmax"],
        caption="Two principal components of the mean descriptor of the atoms. Similar structures "
        "lie close together.",
    )


def spent(records: Sequence[Record], steps: Sequence[PolishStep], goal: Goal) -> Section:
    """Times, and contributions of the generators."""
    times = {
        "engine": sum(r.engine_seconds for r in records),
        "surrogate": sum(r.surrogate_seconds for r in records),
        "final relaxations": sum(s.engine_seconds for s in steps),
    }
    total = sum(times.values())
    items = [
        (name, t, f"{duration(t)} ({t / total:.0%})" if total else duration(t))
        for name, t in times.items()
        if t or name != "final relaxations"
    ]
    bars = parts.bars(items, title="Time")
    contributions = shares(records, improvements(records, goal), None)
    rows = [[one.name.replace("_", " "), one.chosen, one.best] for one in contributions]
    generators = parts.table(
        ["generator", "evaluated", "new lowest"], rows, title="Generators",
        empty="No structure has been evaluated yet.",
    )  # fmt: skip
    return parts.side_by_side(bars, generators)


def failed(records: Sequence[Record], steps: Sequence[PolishStep], rows: Sequence[int]) -> Section:
    """Failures and their reasons."""
    lines: list[list[Any]] = []
    structures: list[int | None] = []
    for record, row in zip(records, rows, strict=True):
        if not record.ok:
            reason = " ".join(record.reason.split())
            generator = record.generator.replace("_", " ")
            lines.append([record.iteration + 1, generator, record.failure, reason])
            structures.append(row)
    for step in steps:
        if not step.ok:
            where = f"relaxing {step.start + 1}"
            lines.append([where, "", step.failure, " ".join(step.reason.split())])
            structures.append(None)
    if not lines:
        return parts.remark("No evaluation failed." if records else "Nothing was evaluated yet.")
    return parts.table(
        ["evaluation", "generator", "failure", "reason"], lines, title="Failures",
        structures=structures,
    )  # fmt: skip


def state_words(state: State, done: int, budget: int) -> tuple[str, str]:
    """The badge, and the text below the title."""
    if state.doing == "running":
        flying = f", {state.in_flight} in flight" if state.in_flight > 1 else ""
        return "running", f"{done} of {budget} evaluations{flying}"
    if state.doing == "stopped":
        why = state.reason or "no process on this machine runs it"
        return "stopped", f"{done} of {budget} evaluations, {why}"
    return state.doing, f"{done} of {budget} evaluations, {state.reason}"
