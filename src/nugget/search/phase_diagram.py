"""The phase diagram of a search with varying numbers of atoms, and how certain it is.

Energies of relaxed phases come from the engine, and their differences are taken as exact. The
uncertainty is that of structures which were not evaluated and might be lower. They are represented
by a pool of candidates of all compositions, relaxed on the mean of the surrogate: evaluations that
were not relaxed with the engine, and new structures. Each joint draw of their energies from the
posterior gives a diagram, and the share of the draws in which a phase is stable is its P(stable).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.io import write

from nugget.numerics.arrays import Floats
from nugget.potential.evaluate import NO_GRADIENT, value_and_grad
from nugget.potential.potential import Potential
from nugget.relax.relaxation import Relaxed
from nugget.search.acquisition import log_expected_improvement
from nugget.search.learner import Learner
from nugget.search.polish import Minimum
from nugget.search.record import Record
from nugget.storage.files import replacing, write_atomically
from nugget.structures.batch import as_batch
from nugget.systems.goal import Goal
from nugget.systems.grand_canonical import VariedAtoms, reservoirs_of
from nugget.systems.grand_potential import (
    SAME,
    Counts,
    Envelope,
    GrandPotential,
    appears,
    crossing,
    formation,
    grid,
    intervals,
    limits,
    neighbours,
    stable_on,
)
from nugget.systems.reservoirs import Reservoirs, delta_function

DIAGRAM, PHASES, SUGGESTIONS = "phase_diagram.json", "phases.extxyz", "suggestions.extxyz"
FIGURE = "phase_diagram.png"

#: Rounds of candidates for the pool, candidates that are kept per composition, and draws.
_ROUNDS, _KEPT, _DRAWS = 4, 6, 2000

#: Calculations that are suggested.
_SUGGESTED = 3

#: Lowest unrelaxed evaluations of each composition that are relaxed on the surrogate.
_UNRELAXED = 2

_LEVEL = (0.05, 0.95)  # quantiles of the stated intervals

_STREAM = 1 << 32  # part of the seed, larger than the number of any proposal

_RELAX = "relax"  # the generator of evaluations that are relaxed on the surrogate

_TEMPERATURES, _PRESSURES = 46, 41  # grid of a diagram over temperature and pressure


@dataclass(frozen=True)
class DiagramPhase:
    """The lowest structure of one composition."""

    formula: str  # placed atoms
    counts: dict[str, int]  # placed atoms of each element
    energy: float  # eV, engine
    above: float  # eV of Ω above the envelope at the most favourable μ; 0: stable
    stable: bool
    probability: float | None  # that this composition is stable somewhere in the range
    range: dict[str, tuple[float, float]] | None  # Δμ between which it is stable, eV
    start: int  # the evaluation that it is or was relaxed from; negative: from before the search
    relaxed: bool  # with the engine, and converged


@dataclass(frozen=True)
class Boundary:
    """Two stable phases coexist where Σ Δμ_i atoms_i = energy.

    With one chemical potential, `position` is that Δμ; `low` and `high` bound the Δμ at which the
    stable number of atoms rises above that of the first phase, in 90 % of the draws. With several,
    they bound the energy.
    """

    phases: tuple[str, str]
    atoms: dict[str, int]  # of the second phase beyond the first
    energy: float
    position: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Suggestion:
    """A calculation that is expected to change the diagram."""

    formula: str
    action: str  # "relax" an evaluation, or "evaluate" a new structure
    start: int  # the evaluation to relax; −1: new
    predicted: float  # eV
    std: float  # eV, calibrated
    gain: float  # eV: expected lowering of Ω at the most favourable μ


@dataclass(frozen=True, eq=False)
class PhaseDiagram:
    """The result of a search with varying numbers of atoms."""

    elements: tuple[str, ...]
    ranges: dict[str, tuple[float, float]]  # of Δμ, eV
    reservoirs: dict[str, str]
    references: dict[str, float]  # energies of the reservoirs per atom, eV
    phases: tuple[DiagramPhase, ...]
    boundaries: tuple[Boundary, ...]
    suggestions: tuple[Suggestion, ...]
    draws: str  # "joint", "independent" or "none"
    unevaluated: dict[str, float]  # P(stable) of compositions without an evaluation
    conditions: dict[str, Any] | None = None  # map over temperature and pressure
    structures: tuple[Atoms, ...] = field(default=(), repr=False)  # of the phases
    suggested: tuple[Atoms, ...] = field(default=(), repr=False)

    @property
    def stable(self) -> list[DiagramPhase]:
        return [phase for phase in self.phases if phase.stable]

    def data(self) -> dict[str, Any]:
        """As plain data, for phase_diagram.json."""
        return {
            "unit": "eV",
            "elements": list(self.elements),
            "chemical_potential": self.ranges,
            "reservoirs": self.reservoirs,
            "reference_energies": self.references,
            "stable": [phase.formula for phase in self.stable],
            "phases": [asdict(phase) for phase in self.phases],
            "boundaries": [asdict(one) for one in self.boundaries],
            "suggestions": [asdict(one) for one in self.suggestions],
            "draws": self.draws,
            "unevaluated": self.unevaluated,
            "conditions": self.conditions,
        }


# Which structures decide the diagram.


@dataclass(frozen=True, eq=False)
class _Lowest:
    """The lowest known structure of a composition."""

    energy: float
    atoms: Atoms
    start: int
    relaxed: bool  # with the engine, and converged
    polished: bool  # relaxed with the engine, converged or not


def envelope_of(goal: GrandPotential, evaluated: Iterable[tuple[Atoms, float]]) -> Envelope:
    """The envelope of these structures alone."""
    envelope = replace(goal.envelope, points={}, _at={})
    for atoms, energy in evaluated:
        envelope = envelope.including(envelope.counts(atoms), energy)
    return envelope


def below_relaxed_envelope(
    goal: Goal, records: Sequence[Record], starts: Sequence[Record], relaxed: Sequence[Relaxed]
) -> list[Record]:
    """The lowest evaluation of each composition below the envelope of the relaxed phases.

    Only relaxed phases decide a diagram. Evaluations among `starts` are not repeated.
    """
    if not isinstance(goal, GrandPotential):
        return []
    done = [(one.atoms, one.energy) for one in relaxed if np.isfinite(one.energy)]
    envelope = envelope_of(goal, done)
    lowest: dict[Counts, Record] = {}
    for record in sorted((one for one in records if one.ok), key=lambda one: one.energy):
        lowest.setdefault(envelope.counts(record.atoms), record)
    return [
        record
        for counts, record in lowest.items()
        if (not done or record.energy < envelope.at(counts) - SAME) and record not in starts
    ]


def stable_starts(goal: Goal, minima: Sequence[Minimum]) -> set[int]:
    """The evaluations from which stable phases were relaxed."""
    if not isinstance(goal, GrandPotential) or not minima:
        return set()
    envelope = envelope_of(goal, [(one.atoms, one.energy) for one in minima])
    stable = envelope.vertices()
    return {
        one.start
        for one in minima
        if (counts := envelope.counts(one.atoms)) in stable
        and one.energy <= envelope.points[counts] + SAME
    }


# The pool of candidates that were not evaluated, and draws of their energies.


@dataclass(frozen=True, eq=False)
class _Pool:
    """Structures relaxed on the mean of the surrogate, with joint deviations of their energies."""

    images: list[Atoms]
    starts: list[int]  # the evaluation that was relaxed; −1: a new structure
    mean: Floats  # (p,)
    std: Floats  # (p,) calibrated
    deviations: Floats | None  # (p, q) calibrated; None if only σ is available

    @property
    def kind(self) -> str:
        if not self.images:
            return "none"
        return "independent" if self.deviations is None else "joint"

    def draws(self, rng: np.random.Generator, number: int) -> Floats:
        """Energies (number, p)."""
        if self.deviations is None:
            return np.asarray(self.mean + self.std * rng.standard_normal((number, len(self.mean))))
        z = rng.standard_normal((number, self.deviations.shape[1]))
        return np.asarray(self.mean + z @ self.deviations.T)


def _make_pool(
    learner: Learner, minima: Sequence[Minimum], envelope: Envelope, rng: np.random.Generator
) -> _Pool:
    """Candidates that are not known, the most promising of each composition."""
    if not learner.potential.is_fitted:
        return _Pool([], [], np.zeros(0), np.zeros(0), None)
    potential = learner.potential.copy()
    converged = [one.relaxed.atoms for one in minima if one.start >= 0]
    if converged:
        potential = potential.update(converged)
    surface = potential.lcb(0.0)
    parents = [record.atoms for record in learner.all_known]
    start: list[Atoms] = _unrelaxed(learner, minima)
    for k in range(_ROUNDS):
        start += learner.candidates(rng, parents if k % 2 == 0 else [])
    images = learner.relaxed(start, surface)
    if not images:
        return _Pool([], [], np.zeros(0), np.zeros(0), None)
    mean, std, deviations = joint_deviations(potential, images)
    scale = learner.bars.scale  # as in the error bars of the search
    chosen = _promising(learner.goal, images, mean, scale * std, envelope, minima)
    return _Pool(
        [images[k] for k in chosen],
        [_origin(images[k]) for k in chosen],
        mean[chosen],
        scale * std[chosen],
        None if deviations is None else scale * deviations[chosen],
    )


def _unrelaxed(learner: Learner, minima: Sequence[Minimum]) -> list[Atoms]:
    """The lowest evaluations of each composition that were not relaxed with the engine."""
    relaxed = {one.start for one in minima if one.relaxed.converged}
    taken: dict[str, int] = {}
    chosen = []
    for record in sorted(learner.all_known, key=learner.value):
        name = record.atoms.get_chemical_formula()
        if record.iteration not in relaxed and taken.get(name, 0) < _UNRELAXED:
            taken[name] = taken.get(name, 0) + 1
            atoms = record.atoms.copy()
            atoms.calc = None
            # `relax` keeps the name of the generator only.
            atoms.info = {"generator": f"{_RELAX} {record.iteration}"}
            chosen.append(atoms)
    return chosen


def _origin(atoms: Atoms) -> int:
    """The evaluation that a structure of the pool was relaxed from; −1 for new structures."""
    word, _, number = str(atoms.info["generator"]).partition(" ")
    return int(number) if word == _RELAX else -1


def _promising(
    goal: Goal, images: Sequence[Atoms], mean: Floats, std: Floats, envelope: Envelope,
    minima: Sequence[Minimum],
) -> list[int]:  # fmt: skip
    """Distinct candidates of each composition with the lowest E − 2σ, without relaxed minima."""
    memory = goal.memory()
    for one in minima:
        if one.relaxed.converged:
            memory.add(one.atoms, one.energy)
    kept: dict[Counts, int] = {}
    chosen = []
    for k in np.argsort(mean - 2.0 * std, kind="stable"):
        counts = envelope.counts(images[k])
        if not np.isfinite(mean[k]) or kept.get(counts, 0) == _KEPT:
            continue
        if memory.find(images[k], float(mean[k]), predicted=True) is None:
            memory.add(images[k], float(mean[k]))
            kept[counts] = kept.get(counts, 0) + 1
            chosen.append(int(k))
    return chosen


def joint_deviations(
    potential: Potential, images: Sequence[Atoms]
) -> tuple[Floats, Floats, Floats | None]:
    """Mean, σ and deviations δ (structures, q) with covariance δ δᵀ, eV.

    Deviations are None for an uncertainty that has no such form (a projected process).
    """
    state = potential.fitted
    batch = as_batch(list(images))
    values = value_and_grad(state, batch, NO_GRADIENT)
    assert values.std is not None and values.rows is not None  # noqa: PT018
    columns = None if state.widened.uses_prior_variance else state.widened.columns
    if columns is None:
        return values.energy, values.std, None
    weights, shifts = columns
    deviations = values.rows.k_sum @ weights.T + np.multiply.outer(batch.sizes, shifts)
    return values.energy, values.std, np.asarray(deviations)


# The diagram.


def make_diagram(learner: Learner, minima: Sequence[Minimum]) -> PhaseDiagram | None:
    """The diagram after the final relaxations; None for other systems and without results.

    If nothing was relaxed (search.polish = 0), the evaluations decide, and all phases are marked as
    unrelaxed.
    """
    goal, problem = learner.goal, learner.problem
    if not isinstance(goal, GrandPotential) or not learner.all_known:
        return None
    lowest = _lowest(goal.envelope, learner.all_known, minima)
    deciding = {c: one for c, one in lowest.items() if one.polished} or lowest
    envelope = envelope_of(goal, [(one.atoms, one.energy) for one in deciding.values()])
    rng = np.random.default_rng([learner.config.search.seed, len(learner.records), _STREAM])
    pool = _make_pool(learner, minima, envelope, rng)
    assert isinstance(problem, VariedAtoms)
    names = {c: problem.name_of(problem.placed(one.atoms)) for c, one in lowest.items()}
    drawn = _draw(envelope, lowest, pool, rng)
    reservoirs = reservoirs_of(learner.config.system)
    phases = _phases(envelope, lowest, problem, drawn)
    suggestions, suggested = _suggestions(envelope, pool, problem)
    ranges = dict(zip(envelope.symbols, limits(envelope), strict=True))
    return PhaseDiagram(
        reservoirs.elements,
        ranges,
        {one.element: str(one) for one in reservoirs.reservoirs},
        dict(zip(reservoirs.elements, reservoirs.references.tolist(), strict=True)),
        phases,
        _boundaries(envelope, names, drawn),
        suggestions,
        pool.kind,
        _unevaluated(pool, lowest, envelope, problem, drawn),
        conditions_map(reservoirs, envelope, names),
        tuple(lowest[c].atoms for c in sorted(lowest)),
        suggested,
    )


def _lowest(
    envelope: Envelope, records: Sequence[Record], minima: Sequence[Minimum]
) -> dict[Counts, _Lowest]:
    """The lowest structure of each composition; of equal energies, the relaxed one."""
    candidates = [
        *(_Lowest(m.energy, m.relaxed.atoms, m.start, m.relaxed.converged, True) for m in minima),
        *(_Lowest(r.energy, r.atoms, r.iteration, False, False) for r in records),
    ]
    lowest: dict[Counts, _Lowest] = {}
    for one in candidates:
        counts = envelope.counts(one.atoms)
        if counts not in lowest or one.energy < lowest[counts].energy - SAME:
            lowest[counts] = one
    return dict(sorted(lowest.items()))


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Energies of all compositions, relative to the reservoirs, in all draws (draws, C)."""

    compositions: list[Counts]
    energies: Floats
    probability: dict[Counts, float]


def _draw(
    envelope: Envelope, lowest: Mapping[Counts, _Lowest], pool: _Pool, rng: np.random.Generator
) -> _Drawn | None:
    """Diagrams from joint draws: a candidate replaces the lowest structure if it is lower."""
    if not pool.images:
        return None
    own = [envelope.counts(atoms) for atoms in pool.images]
    compositions = sorted({*lowest, *own})
    draws = pool.draws(rng, _DRAWS)
    energies = np.full((_DRAWS, len(compositions)), np.inf)
    for k, counts in enumerate(compositions):
        if counts in lowest:
            energies[:, k] = lowest[counts].energy
        columns = [j for j, c in enumerate(own) if c == counts]
        if columns:
            energies[:, k] = np.minimum(energies[:, k], draws[:, columns].min(axis=1))
    energies = formation(envelope, compositions, energies)
    numbers = np.array(compositions)
    if numbers.shape[1] == 1:
        lower, upper = intervals(numbers[:, 0], energies, envelope.lowest[0], envelope.highest[0])
        share = (upper > lower).mean(axis=0)
    else:
        points = grid(limits(envelope))[1]
        share = appears(stable_on(points, numbers, energies), len(numbers)).mean(axis=0)
    return _Drawn(compositions, energies, dict(zip(compositions, share.tolist(), strict=True)))


def _phases(
    envelope: Envelope, lowest: Mapping[Counts, _Lowest], problem: VariedAtoms,
    drawn: _Drawn | None,
) -> tuple[DiagramPhase, ...]:  # fmt: skip
    stable = envelope.vertices()
    where = _regions(envelope, stable)
    phases = []
    for counts, one in lowest.items():
        placed = problem.placed(one.atoms)
        probability = None if drawn is None else drawn.probability[counts]
        phases.append(
            DiagramPhase(
                problem.name_of(placed), dict(zip(problem.varied, placed, strict=True)), one.energy,
                max(one.energy - envelope.at(counts), 0.0), counts in stable, probability,
                where.get(counts), one.start, one.relaxed,
            )
        )  # fmt: skip
    return tuple(phases)


def _unevaluated(
    pool: _Pool, lowest: Mapping[Counts, _Lowest], envelope: Envelope, problem: VariedAtoms,
    drawn: _Drawn | None,
) -> dict[str, float]:  # fmt: skip
    """P(stable) of compositions without an evaluation."""
    if drawn is None:
        return {}
    return {
        problem.name_of(problem.placed(atoms)): drawn.probability[counts]
        for atoms in pool.images
        if (counts := envelope.counts(atoms)) not in lowest
    }


def _regions(
    envelope: Envelope, stable: Sequence[Counts]
) -> dict[Counts, dict[str, tuple[float, float]]]:
    """The bounding box of the Δμ at which each stable composition is the lowest."""
    counts, ranges = np.array(stable), limits(envelope)
    energies = np.array([envelope.points[c] for c in stable])
    energies = formation(envelope, stable, energies)
    if counts.shape[1] == 1:
        lower, upper = intervals(counts[:, 0], energies, *ranges[0])
        boxes = [[(float(a), float(b))] for a, b in zip(lower, upper, strict=True)]
    else:
        points = grid(ranges)[1]
        best = stable_on(points, counts, energies[None])[0]
        boxes = [_box(points[best == k]) for k in range(len(stable))]
    return {
        c: dict(zip(envelope.symbols, box, strict=True))
        for c, box in zip(stable, boxes, strict=True)
        if box
    }


def _box(points: Floats) -> list[tuple[float, float]]:
    if not len(points):
        return []  # the region lies between points of the grid
    return list(zip(points.min(axis=0).tolist(), points.max(axis=0).tolist(), strict=True))


def _boundaries(
    envelope: Envelope, names: Mapping[Counts, str], drawn: _Drawn | None
) -> tuple[Boundary, ...]:
    stable = envelope.vertices()
    counts, ranges = np.array(stable), limits(envelope)
    energies = formation(envelope, stable, np.array([envelope.points[c] for c in stable]))
    if counts.shape[1] == 1:
        pairs = [(k, k + 1) for k in range(len(stable) - 1)]
    else:
        axes, points = grid(ranges)
        pairs = neighbours(stable_on(points, counts, energies[None])[0], axes)
    boundaries = []
    for a, b in pairs:
        more, energy = counts[b] - counts[a], float(energies[b] - energies[a])
        position = energy / float(more[0]) if len(more) == 1 else None
        low = high = None
        if drawn is not None:
            low, high = _interval(drawn, stable[a], stable[b], ranges)
        atoms = {s: int(n) for s, n in zip(envelope.symbols, more, strict=True) if n}
        boundaries.append(
            Boundary((names[stable[a]], names[stable[b]]), atoms, energy, position, low, high)
        )
    return tuple(boundaries)


def _interval(
    drawn: _Drawn, first: Counts, second: Counts, ranges: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Quantiles of the position of a boundary, or of the energy difference of two phases."""
    if len(first) == 1:
        counts = np.array(drawn.compositions)[:, 0]
        values = crossing(counts, drawn.energies, first[0], *ranges[0])
    else:
        a, b = (drawn.compositions.index(c) for c in (first, second))
        values = drawn.energies[:, b] - drawn.energies[:, a]
    low, high = np.quantile(values, _LEVEL)
    return float(low), float(high)


def _suggestions(
    envelope: Envelope, pool: _Pool, problem: VariedAtoms
) -> tuple[tuple[Suggestion, ...], tuple[Atoms, ...]]:
    """The candidates with the largest expected gain in Ω at their most favourable μ."""
    if not pool.images:
        return (), ()
    above = np.array(
        [m - envelope.at(envelope.counts(a)) for m, a in zip(pool.mean, pool.images, strict=True)]
    )
    gains = np.exp(log_expected_improvement(above, pool.std, 0.0))
    best = np.argsort(-gains, kind="stable")[:_SUGGESTED]
    suggestions, structures = [], []
    for k in best:
        atoms, start = pool.images[k], pool.starts[k]
        action = "relax" if start != -1 else "evaluate"
        name, mean, std = problem.name_of(problem.placed(atoms)), pool.mean[k], pool.std[k]
        numbers = (float(value) for value in (mean, std, gains[k]))
        suggestions.append(Suggestion(name, action, start, *numbers))
        bare = atoms.copy()
        bare.info = {"formula": name, "predicted": mean, "std": std, "expected_gain": gains[k]}
        structures.append(bare)
    return tuple(suggestions), tuple(structures)


def conditions_map(
    reservoirs: Reservoirs, envelope: Envelope, names: Mapping[Counts, str]
) -> dict[str, Any] | None:
    """The stable phase over temperature and the pressure of one gas, if gases supply all atoms.

    Other gases have the geometric mean of their pressures.
    """
    delta, conditions = delta_function(reservoirs), reservoirs.conditions
    if delta is None or conditions is None:
        return None
    gas = (conditions.varied or list(conditions.pressures))[0]
    middle = {n: float(np.sqrt(low * high)) for n, (low, high) in conditions.pressures.items()}
    temperatures = np.linspace(*conditions.temperature, _TEMPERATURES)
    pressures = np.geomspace(*conditions.pressures[gas], _PRESSURES)
    stable = [
        [
            names[envelope.stable_at(delta(float(t), {**middle, gas: float(p)}))[0]]
            for t in temperatures
        ]
        for p in pressures
    ]
    return {
        "gas": gas,
        "other_pressures": {name: p for name, p in middle.items() if name != gas},
        "temperatures": temperatures.tolist(),
        "pressures": pressures.tolist(),
        "stable": stable,
    }


def write_diagram(directory: Path, diagram: PhaseDiagram | None) -> None:
    """Write phase_diagram.json, the phases and the suggested structures."""
    if diagram is None:
        return
    images = []
    for phase, atoms in zip(diagram.phases, diagram.structures, strict=True):
        one = atoms.copy()
        one.calc = atoms.calc
        one.info = {"formula": phase.formula, "stable": phase.stable, "relaxed": phase.relaxed}
        images.append(one)
    for name, structures in ((PHASES, images), (SUGGESTIONS, list(diagram.suggested))):
        if structures:
            with replacing(directory / name) as partial:
                write(partial, structures, format="extxyz")
    write_atomically(directory / DIAGRAM, json.dumps(diagram.data(), indent=1) + "\n")
