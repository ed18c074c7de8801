"""The evaluations of a search as columns, and their structures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nugget.report.page import Data, Structures, column
from nugget.report.search_page.atom_values import AtomModel, forces_of
from nugget.search.goal import Goal
from nugget.search.store import Record

NAME = "evaluations"


class Evaluations:
    """Grows with the search; rows that are there never change."""

    def __init__(self, goal: Goal, structures: Structures) -> None:
        self.goal, self.structures = goal, structures
        self.records: list[Record] = []
        self.rows: list[int] = []  # number of each evaluation's structure
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}

    def add(self, records: Sequence[Record], model: AtomModel | None = None) -> None:
        """Take in further evaluations."""
        known = [r.atoms for r in records if np.isfinite(r.atoms.positions).all()]
        found = iter(model.values(known)) if model is not None else None
        for record in records:
            whole = bool(np.isfinite(record.atoms.positions).all())
            values = dict(next(found)) if found is not None and whole else {}
            force = forces_of(record.atoms)
            if force is not None:
                values = {"force": force, **values}
            label = f"evaluation {record.iteration + 1}"
            energy = record.energy if record.ok else None
            self.rows.append(self.structures.add(record.atoms, label, values, energy))
            for name, value in _row(self.goal, record, force).items():
                self._columns[name].append(value)
            self.records.append(record)

    def data(self) -> Data:
        """All columns, without those of the map."""
        made = {}
        for name, (label, unit, digits) in _COLUMNS.items():
            unit = self.goal.unit if unit == "goal" else unit
            made[name] = column(self._columns[name], label, unit, digits)
        return Data(NAME, made, self.rows)


#: Label, unit and digits of each column; "goal": whatever is minimised.
_COLUMNS: dict[str, tuple[str, str, int | None]] = {
    "number": ("evaluation", "", 0),
    "value": ("E", "goal", 4),
    "expected": ("expected", "goal", 4),
    "std": ("± σ", "goal", 4),
    "z": ("(E − expected)/σ", "", 2),
    "generator": ("made by", "", None),
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
