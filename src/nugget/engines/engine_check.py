"""The first check of an engine: are its energies repeatable, and do its forces belong to them?

The first structure is evaluated once more, and once with its atoms displaced. The change of the
energy must agree with the forces (trapezoid rule). Wrong units, a wrong sign, forces in another
order and energies that change from call to call are thereby found before anything is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols
from ase.units import Bohr, Hartree, Rydberg

from nugget.engines.engine import get_engine
from nugget.engines.engine_settings import EngineConfig
from nugget.engines.outcome import Outcome
from nugget.engines.plausibility import agree, change_and_work
from nugget.engines.queue import EvaluationQueue
from nugget.errors import NuggetError
from nugget.storage.database import changed_versions
from nugget.structures.geometry import free_mask

#: Evaluates one structure.
Evaluate = Callable[[Atoms], Outcome]

#: The same, in a fresh process if the second argument is true.
EvaluateAgain = Callable[[Atoms, bool], Outcome]

# Largest displacement of an atom, Å.
_STEP = 0.03

# Forces agree with energies if the misfit is below this share of the change of the energy, or below
# the floor (eV).
_SHARE, _FLOOR = 0.2, 2e-3

# Energies of one structure may scatter by this (eV/atom) before the engine is refused.
_SCATTER = 0.05

# Factors by which forces are wrong, and what they mean.
_UNITS = (
    (Hartree / Bohr, "they seem to be in Hartree/Bohr"),
    (Rydberg / Bohr, "they seem to be in Rydberg/Bohr"),
    (1.0 / Bohr, "they seem to be in eV/Bohr"),
    (Hartree, "they seem to be in Hartree/Å, or the energy is not in eV"),
    (-1.0, "they seem to be gradients"),
)


@dataclass(frozen=True)
class EngineReport:
    """The result of a first check."""

    noise: float | None  # difference of a repeated energy, eV; None if it could not be repeated
    misfit: float | None  # relative difference of forces and energies; None if not tested

    def __str__(self) -> str:
        forces = (
            "forces could not be compared with energies"
            if self.misfit is None
            else f"forces agree with energies to {100 * self.misfit:.1f} %"
        )
        repeated = (
            "the first structure could not be repeated"
            if self.noise is None
            else f"repeated energy differs by {1e3 * self.noise:.1f} meV"
        )
        return f"{forces}, {repeated}"


def displaced(atoms: Atoms, seed: int) -> Atoms:
    """A copy with its free atoms displaced, partly along the forces and partly at random."""
    rng = np.random.default_rng([seed, len(atoms)])
    free = free_mask(atoms)
    direction = rng.standard_normal(atoms.positions.shape)
    forces = np.where(free, atoms.calc.results["forces"], 0.0)
    if (largest := np.abs(forces).max()) > 0:
        direction = direction / np.abs(direction).max() + forces / largest
    direction = np.where(free, direction, 0.0)
    copy = atoms.copy()
    copy.calc = None
    copy.positions += _STEP * direction / max(np.linalg.norm(direction, axis=1).max(), 1e-300)
    return copy


def misfit(start: Atoms, end: Atoms, noise: float = 0.0) -> float | None:
    """Relative difference between the change of the energy and what the forces give.

    NuggetError if they disagree; None if the change is too small for a comparison.
    """
    change, work = change_and_work(start, end)
    expected = 0.5 * (work[0] + work[1])
    scale = max(abs(change), abs(expected))
    if scale < max(_FLOOR, 5 * noise):
        return None
    error = abs(change - expected)
    if error <= max(_SHARE * scale + 0.5 * abs(work[1] - work[0]), _FLOOR, 5 * noise):
        return error / scale
    raise NuggetError(_disagreement(change, expected))


def _disagreement(change: float, expected: float) -> str:
    end = "Nothing was learned from it; check the units and the order of the atoms."
    ratio = change / expected if expected else np.inf
    for factor, meaning in _UNITS:
        if abs(ratio / factor - 1.0) < 0.1:
            wrong = "have the wrong sign" if factor < 0 else f"are {ratio:.3g} times too small"
            return f"The engine's forces {wrong}: {meaning}. {end}"
    return (
        f"The engine's forces do not belong to its energies: moving the atoms by {_STEP} Å changed "
        f"the energy by {change:.3g} eV, where the forces give {expected:.3g} eV "
        f"(factor {ratio:.3g}). {end}"
    )


def settled_energy(answers: Iterable[Atoms], noise: float = 0.0) -> Atoms | None:
    """The first of several evaluations of one structure that agrees with another one."""
    images = list(answers)
    energies = [float(one.calc.results["energy"]) for one in images]
    for k, energy in enumerate(energies):
        others = energies[:k] + energies[k + 1 :]
        if any(agree(energy, other, len(images[k]), noise) for other in others):
            return images[k]
    return None


def _refuse_scatter(images: Sequence[Atoms]) -> None:
    """NuggetError if evaluations of one structure differ too much for noise."""
    energies = [float(one.calc.results["energy"]) for one in images]
    if max(energies) - min(energies) > _SCATTER * len(images[0]):
        raise NuggetError(
            f"The engine gave {', '.join(f'{e:.6g}' for e in energies)} eV for the same structure, "
            "so its energies cannot be compared; check its convergence and its start values."
        )


@dataclass(frozen=True, eq=False)
class FirstCheck:
    """The evaluations of a first check, and the result on which they agree.

    `repeated` are evaluations of the first structure, `moved` that with displaced atoms.
    """

    settled: Atoms
    repeated: list[Outcome]
    moved: Outcome | None = None

    def report(self) -> EngineReport:
        """A summary; NuggetError if forces and energies disagree."""
        last = self.repeated[-1]
        energy = float(self.settled.calc.results["energy"])
        noise = abs(last.energy - energy) if last.ok else None
        if self.moved is None or not self.moved.ok:
            return EngineReport(noise, None)
        return EngineReport(noise, misfit(self.settled, self.moved.atoms, noise or 0.0))


def first_check(first: Atoms, evaluate: EvaluateAgain, seed: int) -> FirstCheck:
    """Repeat the first evaluation, and evaluate it with displaced atoms.

    One of these results may be false, so that it is repeated in a fresh process before it counts.
    NuggetError if the engine cannot be used.
    """
    settled, repeated = first, [evaluate(first, False)]
    if repeated[0].ok and settled_energy([first, repeated[0].atoms]) is None:
        repeated.append(evaluate(first, True))
        answers = [first, *(one.atoms for one in repeated if one.ok)]
        agreed = settled_energy(answers)
        if agreed is None:
            _refuse_scatter(answers)
        settled = first if agreed is None else agreed
    check = FirstCheck(settled, repeated)
    if "forces" not in settled.calc.results:
        return check
    moved = displaced(settled, seed)
    check = replace(check, moved=evaluate(moved, False))
    try:
        check.report()
    except NuggetError:
        check = replace(check, moved=evaluate(moved, True))
        check.report()
    return check


def refuse_other_energies(
    atoms: Atoms, evaluate: EvaluateAgain, recorded: Mapping[str, str]
) -> None:
    """NuggetError if the engine gives another energy than that recorded for a structure.

    recorded : versions of packages at that time.
    """
    energy = float(atoms.calc.results["energy"])
    for fresh in (False, True):  # one result may be false
        again = evaluate(atoms, fresh)
        if not again.ok or agree(again.energy, energy, len(atoms)):
            return
    raise NuggetError(
        f"The engine gives {again.energy:.6f} eV for a structure that was recorded with "
        f"{energy:.6f} eV, so that new results cannot be mixed with the recorded ones "
        f"({changed_versions(recorded)}). Use the engine that gave the recorded ones, or write "
        "the new ones elsewhere."
    )


class CheckingQueue:
    """A queue of evaluations that checks the engine with its first success, and corrects that.

    With a recorded result, the engine must first reproduce that instead.
    """

    def __init__(
        self,
        queue: EvaluationQueue,
        engine: EngineConfig,
        directory: Path | None = None,
        known: Atoms | None = None,
        recorded: Mapping[str, str] | None = None,
    ) -> None:
        """`engine` and `directory` are those of `queue`; `recorded` are the versions of `known`."""
        self._queue, self.width = queue, queue.width
        self._engine, self._directory = engine, directory
        self._known, self._recorded = known, recorded or {}
        self.report: EngineReport | None = None  # None before the first success
        self._checked = not engine.verify

    def __len__(self) -> int:
        return len(self._queue)

    def submit(self, key: int, atoms: Atoms) -> None:
        if self._known is not None and not self._checked:
            with self._as_they_are() as evaluate:
                refuse_other_energies(self._known, evaluate, self._recorded)
            self._checked = True
        self._queue.submit(key, atoms)

    def next(self) -> tuple[int, Outcome]:
        key, outcome = self._queue.next()
        if outcome.ok and not self._checked:
            with self._as_they_are() as evaluate:
                check = first_check(outcome.atoms, evaluate, 0)
            self.report, self._checked = check.report(), True
            check.settled.info = dict(outcome.atoms.info)
            outcome = replace(outcome, atoms=check.settled)
        return key, outcome

    @contextmanager
    def _as_they_are(self) -> Iterator[EvaluateAgain]:
        """Evaluates structures without relaxing them."""
        if not self._engine.relax_steps:
            yield self._queue.evaluate
            return
        still = self._engine.model_copy(update={"relax_steps": 0})
        with EvaluationQueue(still, 1, directory=self._directory) as own:
            yield own.evaluate


def evaluates_single_atoms(config: EngineConfig) -> bool:
    """Whether isolated atoms are cheap: not for programs that fill a box with plane waves."""
    engine = get_engine(config.name)
    return engine.vacuum is None and config.vacuum is None


def isolated_atoms(
    config: EngineConfig, numbers: Iterable[int], evaluate: Evaluate
) -> tuple[list[Outcome], str]:
    """Evaluations of the isolated atoms of these elements, and a note if they are not available."""
    note = "energies are not bounded by isolated atoms"
    if not evaluates_single_atoms(config):
        return [], f"{note}, because {config.name} needs a box"
    if config.charge or config.spin is not None:
        return [], f"{note}, because charge and spin belong to the whole structure"
    outcomes = []
    for z in sorted(set(numbers)):
        outcomes.append(evaluate(Atoms([z])))
        if not outcomes[-1].ok:
            reason = " ".join(outcomes[-1].reason.split())[:120]
            return outcomes, f"{note}, because that of {chemical_symbols[z]} failed ({reason})"
    return outcomes, ""


def atomic_energies(images: Iterable[Atoms]) -> Mapping[int, float]:
    """Energies by atomic number, from evaluations of single atoms."""
    return {int(one.numbers[0]): float(one.calc.results["energy"]) for one in images}
