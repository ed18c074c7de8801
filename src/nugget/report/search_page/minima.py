"""The lowest distinct structures of a search, polished ones before others, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget.identity.crystal import conventional
from nugget.identity.point_group import point_group
from nugget.report.page import Structures, sections
from nugget.report.page.sections import Section
from nugget.report.search_page.atom_values import NAMES, AtomModel, forces_of
from nugget.search.goal import Goal
from nugget.search.polish_step import PolishStep, energy_of, lowest_steps
from nugget.search.store import Record
from nugget.structures.symmetry import space_group_of

COUNT = 8
#: Symmetry is looked for in structures of at most so many atoms.
MOST_ATOMS = 150
_CONVERGED = 0.05  # eV/Å, as polishing asks for


@dataclass(frozen=True, eq=False)
class Low:
    """A low structure, as it was evaluated or after it was relaxed with the engine."""

    atoms: Atoms
    value: float
    start: int  # iteration of the evaluation that it is, or that it was relaxed from
    polished: bool


class Lowest:
    """The lowest structures that differ, kept while a search goes on."""

    def __init__(self, goal: Goal, count: int = COUNT) -> None:
        self.goal, self.count = goal, count
        self._known = goal.memory(coarse=True)
        self._kinds: dict[int, list[Low]] = {}  # all low evaluations that are the same

    def add(self, records: Sequence[Record]) -> None:
        """Take in further evaluations."""
        for record in records:
            if not record.ok:
                continue
            value = self.goal.value(record.atoms, record.energy)
            if value < self._limit():
                low = Low(record.atoms, value, record.iteration, False)
                self._kinds.setdefault(self._kind(low), []).append(low)

    def _limit(self) -> float:
        """Above it, nothing will ever be shown: twice as many kinds are lower."""
        values = sorted(min(one.value for one in kind) for kind in self._kinds.values())
        return values[2 * self.count - 1] if len(values) >= 2 * self.count else np.inf

    def _kind(self, low: Low) -> int:
        found = self._known.find(low.atoms)
        return self._known.add(low.atoms) if found is None else found

    def chosen(self, records: Sequence[Record], steps: Sequence[PolishStep]) -> list[Low]:
        """The lowest first. What was relaxed stands for the evaluation that it began with."""
        best: dict[int, Low] = {}
        relaxed = lowest_steps(steps)
        pool = [one for kind in self._kinds.values() for one in kind if one.start not in relaxed]
        for start, atoms in relaxed.items():
            # A relaxation may end where it began.
            first = [r.atoms for r in records if r.iteration == start and r.ok]
            end = min([atoms, *first], key=lambda one: self.goal.value(one, energy_of(one)))
            pool.append(Low(end, self.goal.value(end, energy_of(end)), start, True))
        kinds = {id(one): k for k, kind in self._kinds.items() for one in kind}
        for one in sorted(pool, key=lambda one: (one.value, one.start)):
            kind = kinds[id(one)] if id(one) in kinds else self._kind(one)
            best.setdefault(kind, one)
        return sorted(best.values(), key=lambda one: one.value)[: self.count]


def lowest(
    records: Sequence[Record], steps: Sequence[PolishStep], goal: Goal, count: int = COUNT
) -> list[Low]:
    """The lowest ones of a whole search."""
    made = Lowest(goal, count)
    made.add(records)
    return made.chosen(records, steps)


def symmetry(atoms: Atoms) -> tuple[str, str]:
    """What it is called, and the symbol; empty where there is none to look for."""
    if len(atoms) > MOST_ATOMS or not np.isfinite(atoms.positions).all():
        return "", ""
    if atoms.pbc.all():
        return "space group", space_group_of(atoms)
    return ("", "") if atoms.pbc.any() else ("point group", point_group(atoms))


class Gallery:
    """Adds low structures to a page, each once."""

    def __init__(self, structures: Structures, goal: Goal) -> None:
        self.structures, self.goal = structures, goal
        self._made: dict[tuple[int, float, bool, int], int] = {}
        self._own: dict[tuple[int, float, bool], list[tuple[str, str]]] = {}

    def section(
        self,
        low: Sequence[Low],
        rows: Sequence[int],
        model: AtomModel | None,
        why: str = "",
        quick: bool = False,
    ) -> Section:
        """Side by side; `rows` are the structures of the evaluations. `quick`: no symmetries."""
        items = [
            sections.item(
                self._number(one, rows, model), _title(k, one), self._facts(one, low, quick)
            )
            for k, one in enumerate(low)
        ]
        caption = (
            "Structures “from” an evaluation were relaxed with the engine, others are as evaluated."
        )
        if model is not None:
            caption += (
                " Energies of atoms are those of a model fitted to the evaluations, against the "
                "mean of their element; σ is what it does not know about them."
            )
        if why:
            caption += f" No energies per atom: {why}"
        return sections.gallery(
            items, title="The lowest structures", values=NAMES, caption=caption,
            empty="No evaluation has succeeded yet.",
        )  # fmt: skip

    def _number(self, one: Low, rows: Sequence[int], model: AtomModel | None) -> int:
        key = (one.start, one.value, one.polished, 0 if model is None else model.count)
        if key not in self._made:
            crystal = one.atoms.pbc.all()
            if not one.polished and not crystal and self._is_complete(rows[one.start], model):
                return rows[one.start]
            atoms = conventional(one.atoms) if crystal else one.atoms
            values = {} if model is None else dict(model.values([atoms])[0])
            if not crystal and (force := forces_of(one.atoms)) is not None:
                values = {"force": force, **values}
            energy = None if crystal else energy_of(one.atoms)
            label = f"minimum {_origin(one)}" if one.polished else _origin(one)
            self._made[key] = self.structures.add(atoms, label, values, energy)
        return self._made[key]

    def _is_complete(self, number: int, model: AtomModel | None) -> bool:
        """Does the evaluation's own structure show all there is?"""
        return model is None or "std" in self.structures.frames[number].get("values", {})

    def _facts(self, one: Low, low: Sequence[Low], quick: bool) -> list[tuple[str, str]]:
        facts = [("E", f"{signed(one.value)} {self.goal.unit}")]
        if one is not low[0]:
            facts.append(("gap", f"+{one.value - low[0].value:.4f} {self.goal.unit}"))
        if quick:
            return facts + _own_facts(one)
        key = (one.start, one.value, one.polished)
        if key not in self._own:  # symmetry takes a while
            kind, symbol = symmetry(one.atoms)
            self._own[key] = _own_facts(one) + ([(kind, symbol)] if symbol else [])
        return facts + self._own[key]


def _own_facts(one: Low) -> list[tuple[str, str]]:
    facts = []
    if (force := forces_of(one.atoms)) is not None:
        largest = float(np.max(force, initial=0.0))
        facts.append(("fmax", f"{largest:.3f} eV/Å"))
        if one.polished and largest > _CONVERGED:
            facts.append(("converged", "no"))
    return facts


def signed(value: float, digits: int = 4) -> str:
    """A number with a minus sign that is one."""
    return f"{value:.{digits}f}".replace("-", "−")


def _title(k: int, one: Low) -> str:
    return f"{k + 1}. {_origin(one)}"


def _origin(one: Low) -> str:
    if one.start < 0:
        return "from what was known before"
    return f"{'from ' if one.polished else ''}evaluation {one.start + 1}"
