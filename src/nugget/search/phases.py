"""The end of a search over compositions: the lowest crystal of each, and the convex hull."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ase import Atoms

from nugget.search.goal import AboveHull, Goal
from nugget.search.hull import SAME
from nugget.search.polish import Minimum
from nugget.search.store import Record
from nugget.structures.files import write_atomically
from nugget.structures.symmetry import space_group_of

HULL, FIGURE = "hull.json", "hull.png"


@dataclass(frozen=True)
class Phase:
    """The lowest crystal of one composition. Enthalpies are in eV/atom."""

    formula: str
    composition: dict[str, float]  # shares of the elements, which add up to 1
    atoms: int  # in the cell
    enthalpy: float
    formation: float  # relative to the elements
    above_hull: float  # 0: stable against decomposition
    stable: bool
    space_group: str
    start: int  # the evaluation that it is, or was relaxed from; negative: learned before
    relaxed: bool  # with the engine, and converged

    def row(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def make_phases(
    goal: Goal, records: Sequence[Record], minima: Sequence[Minimum]
) -> tuple[Phase, ...]:
    """Of every composition that was evaluated; nothing before all elements were.

    `goal` knows the records and the minima. What is relaxed comes first among equals.
    """
    if not isinstance(goal, AboveHull) or not goal.hull.complete:
        return ()
    known: Iterable[tuple[Atoms, float, int, bool]] = [
        *((one.atoms, one.energy, one.start, one.relaxed.converged) for one in minima),
        *((one.atoms, one.energy, one.iteration, False) for one in records if one.ok),
    ]
    lowest: dict[tuple[int, ...], tuple[float, Atoms, int, bool]] = {}
    for atoms, energy, start, relaxed in known:
        shares, value = goal.hull.shares(atoms), goal.enthalpy(atoms, energy)
        if shares not in lowest or value < lowest[shares][0] - SAME:
            lowest[shares] = (value, atoms, start, relaxed)
    vertices = goal.hull.vertices()
    phases = []
    for shares in sorted(lowest, key=lambda s: [-n / sum(s) for n in s]):
        value, atoms, start, relaxed = lowest[shares]
        formation = goal.hull.formation(shares, value)
        assert formation is not None
        symbols = goal.hull.symbols
        phases.append(
            Phase(
                goal.hull.name(shares),
                {s: n / sum(shares) for s, n in zip(symbols, shares, strict=True)},
                len(atoms),
                value,
                formation,
                max(value - goal.hull.at(shares), 0.0),
                shares in vertices,
                space_group_of(atoms),
                start,
                relaxed,
            )
        )
    return tuple(phases)


def write_phases(directory: Path, phases: Sequence[Phase], pressure: float) -> None:
    """hull.json: all compositions, the stable ones marked."""
    if phases:
        table = {
            "unit": "eV/atom",
            "pressure_GPa": pressure,
            "stable": [phase.formula for phase in phases if phase.stable],
            "phases": [phase.row() for phase in phases],
        }
        write_atomically(directory / HULL, json.dumps(table, indent=1) + "\n")
