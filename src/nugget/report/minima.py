"""The lowest distinct structures of a search, and the values per atom that colour them.

The values per atom are the forces of the engine and the energies and σ of a model. The model is
fitted to the evaluations of the search with the settings of the search. Energies of atoms are shown
relative to the mean of their element, because a model determines only sums over the atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase import Atoms

from nugget.calibration import OnlineScale
from nugget.engines.engine_settings import require_trust
from nugget.numerics.arrays import Floats
from nugget.potential.potential import Potential
from nugget.report.digest import fixed
from nugget.report.page import Structures, sections
from nugget.report.page.sections import Section
from nugget.report.verdict import FORCES
from nugget.search.record import PolishStep, Record, energy_of, lowest_steps
from nugget.search.search_settings import Config
from nugget.search.store import MINIMA
from nugget.search.surrogate import baseline_code, baseline_engine, fit, make_potential
from nugget.structures.geometry import force_lengths
from nugget.structures.identity import conventional
from nugget.structures.io import read_images
from nugget.structures.symmetry import point_group, space_group_of
from nugget.systems.goal import Goal
from nugget.systems.system_settings import make_system

#: Keys of the values per atom, and the labels that readers see.
NAMES = {"force": "force (eV/Å)", "energy": "energy (eV)", "std": "σ (eV)"}

#: Training structures of the model at most; more would take minutes and look the same.
MAX_TRAINING = 300

#: Structures in the gallery.
COUNT = 8

#: Symmetry is determined for structures of at most this many atoms.
MAX_SYMMETRY_ATOMS = 150
_LETTERS = {"energy": "E", "enthalpy": "H", "grand potential": "Ω above envelope"}


def letter_of(goal: Goal) -> str:
    """The name of the minimised quantity in tables and plots."""
    return "above hull" if goal.hull is not None else _LETTERS[goal.quantity]


class AtomModel:
    """A model of a search that predicts energies and σ per atom."""

    def __init__(
        self, potential: Potential, scale: float, means: dict[int, float], count: int
    ) -> None:
        self._potential, self._scale, self._means = potential, scale, means
        self.count = count  # successful evaluations when the model was fitted

    @classmethod
    def of(
        cls, config: Config, directory: Path, records: Sequence[Record], trust: bool = False
    ) -> AtomModel | None:
        """Fit the surrogate of the search to its evaluations; None before there are enough.

        None as well if the mean function is an engine, which would have to run for every structure.
        """
        good = [record for record in records if record.ok]
        if len(good) < config.search.initial or baseline_engine(config.model):
            return None
        require_trust(baseline_code(config, directory), str(directory), trust)
        problem = make_system(config.system, directory)
        potential = make_potential(config.model, problem, config.search.seed, directory)
        images = [record.atoms for record in _training_records(good)]
        fit(potential, config.model, images, config.system.kind == "crystal")
        prediction = potential.predict(images, forces=False, uncertainty=False, energies=True)
        assert prediction.energies is not None
        energies = np.concatenate(prediction.energies)
        numbers = np.concatenate([atoms.numbers for atoms in images])
        means = {int(z): float(energies[numbers == z].mean()) for z in np.unique(numbers)}
        return cls(potential, _calibration_factor(config, good), means, len(good))

    def values(self, images: Sequence[Atoms]) -> list[dict[str, Floats]]:
        """Energies and σ of the atoms of each structure."""
        if not images:
            return []
        prediction = self._potential.predict(
            list(images), forces=False, uncertainty=False, energies=True, energies_uncertainty=True
        )
        assert prediction.energies is not None
        assert prediction.energies_uncertainty is not None
        values = []
        for atoms, energies, std in zip(
            images, prediction.energies, prediction.energies_uncertainty, strict=True
        ):
            mean = np.array([self._means.get(int(z), 0.0) for z in atoms.numbers])
            values.append({"energy": energies - mean, "std": self._scale * std})
        return values


def _training_records(records: Sequence[Record]) -> list[Record]:
    """At most MAX_TRAINING records: the lowest ones, and others spread over the search."""
    if len(records) <= MAX_TRAINING:
        return list(records)
    by_atom = sorted(range(len(records)), key=lambda k: records[k].energy / len(records[k].atoms))
    spread = np.linspace(0, len(records) - 1, MAX_TRAINING // 2).astype(int)
    kept = {*by_atom[: MAX_TRAINING // 2], *(int(k) for k in spread)}
    return [records[k] for k in sorted(kept)]


def _calibration_factor(config: Config, records: Sequence[Record]) -> float:
    """The factor on σ at the end of the search."""
    online = OnlineScale()
    for record in records:
        if record.predicted is not None and record.std:
            online = online.update(record.predicted, record.std, record.energy)
    return online.scale if config.search.calibrate else 1.0


@dataclass(frozen=True, eq=False)
class Low:
    """A low-energy structure, as evaluated or after the final relaxation."""

    atoms: Atoms
    value: float
    start: int  # iteration of its evaluation, or of the start of its relaxation; < 0: --learn
    polished: bool
    end: RelaxedEnd | None = None  # as the search has written it

    @property
    def fmax(self) -> float | None:
        """The largest force on a free atom, and of relaxed crystals that of the cell, eV/Å."""
        if self.end is not None:
            return self.end.fmax
        lengths = force_lengths(self.atoms)
        return None if lengths is None else float(np.max(lengths, initial=0.0))

    @property
    def converged(self) -> bool:
        """Whether the final relaxation has converged; False without one."""
        if self.end is not None:
            return self.end.converged
        return self.polished and self.fmax is not None and self.fmax <= FORCES[0]


@dataclass(frozen=True)
class RelaxedEnd:
    """The end of a final relaxation."""

    fmax: float
    converged: bool
    energy: float


def relaxed_ends(directory: Path) -> dict[int, RelaxedEnd]:
    """The ends of the final relaxations in minima.extxyz, by the evaluation that they started from.

    Empty before the search has written the file.
    """
    file = directory / MINIMA
    if not file.exists():
        return {}
    ends = {}
    for atoms in read_images(file):
        info = atoms.info
        if {"start", "fmax", "converged"} <= info.keys():
            end = RelaxedEnd(float(info["fmax"]), bool(info["converged"]), energy_of(atoms))
            ends[int(info["start"])] = end
    return ends


class Lowest:
    """The lowest distinct structures, updated as a search proceeds."""

    def __init__(self, goal: Goal, count: int = COUNT) -> None:
        self.goal, self.count = goal, count
        self._memory = goal.memory(coarse=True)
        self._kinds: dict[int, list[Low]] = {}  # low evaluations of the same structure

    def add(self, records: Sequence[Record]) -> None:
        """Add evaluations."""
        for record in records:
            if not record.ok:
                continue
            value = self.goal.value(record.atoms, record.energy)
            if value < self._limit():
                low = Low(record.atoms, value, record.iteration, False)
                self._kinds.setdefault(self._kind(low), []).append(low)

    def _limit(self) -> float:
        """Structures above this value are never shown: twice as many kinds lie below it."""
        values = sorted(min(one.value for one in kind) for kind in self._kinds.values())
        return values[2 * self.count - 1] if len(values) >= 2 * self.count else np.inf

    def _kind(self, low: Low) -> int:
        kind = self._memory.find(low.atoms)
        return self._memory.add(low.atoms) if kind is None else kind

    def chosen(
        self,
        records: Sequence[Record],
        steps: Sequence[PolishStep],
        ends: Mapping[int, RelaxedEnd] | None = None,
    ) -> list[Low]:
        """The lowest first. A relaxed structure replaces the evaluation that it started from.

        `ends` tell how the relaxations ended, as soon as the search has written that.
        """
        best: dict[int, Low] = {}
        relaxed = lowest_steps(steps, self.goal)
        pool = [one for kind in self._kinds.values() for one in kind if one.start not in relaxed]
        for start, atoms in relaxed.items():
            # The start may remain the lowest structure of its relaxation.
            first = [r.atoms for r in records if r.iteration == start and r.ok]
            end = min([atoms, *first], key=lambda one: self.goal.value(one, energy_of(one)))
            known = (ends or {}).get(start)
            if known is not None and abs(known.energy - energy_of(end)) > 1e-6:
                known = None  # the file belongs to an earlier moment
            pool.append(Low(end, self.goal.value(end, energy_of(end)), start, True, known))
        kinds = {id(one): k for k, kind in self._kinds.items() for one in kind}
        for one in sorted(pool, key=lambda one: (one.value, one.start)):
            kind = kinds[id(one)] if id(one) in kinds else self._kind(one)
            best.setdefault(kind, one)
        return sorted(best.values(), key=lambda one: one.value)[: self.count]


def symmetry(atoms: Atoms) -> tuple[str, str]:
    """The kind of group and its symbol; both empty for slabs and large structures."""
    if len(atoms) > MAX_SYMMETRY_ATOMS or not np.isfinite(atoms.positions).all():
        return "", ""
    if atoms.pbc.all():
        return "space group", space_group_of(atoms)
    return ("", "") if atoms.pbc.any() else ("point group", point_group(atoms))


class Gallery:
    """Adds each low-energy structure to a page once."""

    def __init__(
        self, structures: Structures, goal: Goal, composition: Callable[[Atoms], str] | None = None
    ) -> None:
        """`composition` names structures in searches over numbers of atoms."""
        self.structures, self.goal, self.composition = structures, goal, composition
        self._numbers: dict[tuple[int, float, bool, int], int] = {}
        self._cached_facts: dict[tuple[int, float, bool], list[tuple[str, str]]] = {}

    def section(
        self,
        low: Sequence[Low],
        rows: Sequence[int],
        model: AtomModel | None,
        why: str = "",
        quick: bool = False,
    ) -> Section:
        """The section; `rows` are the structures of the evaluations. `quick` skips symmetries."""
        items = []
        for k, one in enumerate(low, start=1):
            number, facts = self._number(one, rows, model), self._facts(one, low, quick)
            items.append(sections.item(number, f"{k}. {self._name(one)}", facts))
        caption = (
            "Relaxed structures are minima of the engine; the others are shown as evaluated. fmax "
            "is the largest force on a free atom; that of relaxed crystals includes the stress."
        )
        if model is not None:
            caption += (
                " Energies of atoms come from a model fitted to the evaluations, relative to the "
                "mean of their element; σ is their uncertainty."
            )
        if why:
            caption += f" No energies per atom: {why}"
        return sections.gallery(
            items, title="The lowest structures", values=NAMES, caption=caption,
            empty="No evaluation has succeeded yet.",
        )  # fmt: skip

    def _name(self, one: Low) -> str:
        """The formula in a search over compositions, else the evaluation."""
        if self.composition is not None:
            return self.composition(one.atoms)
        if (hull := self.goal.hull) is None:
            return _origin(one)
        return hull.name(hull.shares(one.atoms))

    def _number(self, one: Low, rows: Sequence[int], model: AtomModel | None) -> int:
        key = (one.start, one.value, one.polished, 0 if model is None else model.count)
        if key not in self._numbers:
            crystal = one.atoms.pbc.all()
            if not one.polished and not crystal and self._is_complete(rows[one.start], model):
                return rows[one.start]
            atoms = conventional(one.atoms) if crystal else one.atoms
            values = {} if model is None else dict(model.values([atoms])[0])
            if not crystal and (force := force_lengths(one.atoms)) is not None:
                values = {"force": force, **values}
            energy = None if crystal else energy_of(one.atoms)
            label = f"{_origin(one)}, relaxed" if one.polished else _origin(one)
            self._numbers[key] = self.structures.add(atoms, label, values, energy)
        return self._numbers[key]

    def _is_complete(self, number: int, model: AtomModel | None) -> bool:
        """Does the structure of the evaluation carry all values?"""
        return model is None or "std" in self.structures.frames[number].get("values", {})

    def _facts(self, one: Low, low: Sequence[Low], quick: bool) -> list[tuple[str, str]]:
        letter = letter_of(self.goal)
        if self.goal.hull is not None or self.composition is not None:
            above = f"{fixed(1e3 * one.value, 1)} m{self.goal.unit}"
            facts = [(letter, above), ("from", _origin(one))]
        else:
            facts = [(letter, f"{fixed(one.value)} {self.goal.unit}")]
            gap = f"{fixed(one.value - low[0].value, plus=True)} {self.goal.unit}"
            facts.append(("gap", gap if one is not low[0] else "–"))
        if quick:
            return facts + _own_facts(one)
        key = (one.start, one.value, one.polished)
        if key not in self._cached_facts:  # symmetry is slow
            kind, symbol = symmetry(one.atoms)
            self._cached_facts[key] = _own_facts(one) + ([(kind, symbol)] if symbol else [])
        return facts + self._cached_facts[key]


def _own_facts(one: Low) -> list[tuple[str, str]]:
    facts = []
    if one.fmax is not None:
        facts.append(("fmax", f"{one.fmax:.3f} eV/Å"))
    state = "no" if not one.polished else "yes" if one.converged else "not converged"
    return [*facts, ("relaxed", state)]


def _origin(one: Low) -> str:
    if one.start < 0:
        return "given by --learn"
    return f"evaluation {one.start + 1}"
