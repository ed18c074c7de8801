"""The labels that the surrogate of a search is trained on.

Two kinds of results are not learned as they are.

**High energies.** One structure with two atoms on a steep wall has an energy of 10⁴ eV and forces
of 10⁵ eV/Å. A model that extrapolates them predicts minima at −10⁴ eV nearby. Energies above a
threshold c are therefore compressed,

    g(E) = c + w x/(1 + x) with x = (E − c)/w,    F' = g'(E) F = F/(1 + x)²,

which preserves the order of structures, the direction of forces and all stationary points, and
which never exceeds c + w. c and w follow from the median and the lowest energy per atom of the
evaluations. (A logarithm is too weak: a search for a Morse cluster of 13 atoms still met
predictions of −400 eV.)

**Rejected results.** An evaluation that was rejected as implausible, or that failed because of the
structure, has no energy. Without a label the model keeps its prediction there, and the search
proposes the same region again. The structure is labelled with the median energy of the
evaluations, or with its prediction if that is higher. The label has a large noise, because the
true energy is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.engines.outcome import Failure
from nugget.potential.training import Noise
from nugget.search.record import Record, energy_of
from nugget.structures.identity import reduced_formula
from nugget.structures.labels import ENERGY_NOISE
from nugget.systems.goal import Goal

#: The threshold c lies this many times the distance of the median from the lowest energy above the
#: median, and w is this many times that distance, which counts as at least this many eV/atom.
SPREADS, WIDTH, LEAST_SPREAD = 3.0, 2.0, 0.5

#: Noise of the label of a rejected structure, as a share of the distance of the median from the
#: lowest energy. An engine that fails for compact Au6 failed in 22 of 75 evaluations instead of 41;
#: the mean of the lowest energies was 4.63 instead of 4.57 eV (three seeds). With the noise of
#: other labels it failed in 17, and the mean was 4.87 eV. Each failure in a row after the third
#: halves the noise.
NOISE_SHARE, TOLERATED = 0.3, 2

# Failures that the structure causes. An error that the engine raised, or a time limit, may have
# other causes; it counts if the evaluation before it failed as well.
_OF_THE_STRUCTURE = frozenset({Failure.IMPLAUSIBLE, Failure.UNCONVERGED, Failure.NAN})
_OF_THE_STRUCTURE_IF_REPEATED = frozenset({Failure.EXCEPTION, Failure.TIMEOUT})


def teaches(record: Record, failures: int) -> bool:
    """Whether an evaluation that failed tells something about its structure.

    `failures` is the number of failures immediately before it.
    """
    if record.ok:
        return False
    failure = Failure(record.failure)
    return failure in _OF_THE_STRUCTURE or (
        failures > 0 and failure in _OF_THE_STRUCTURE_IF_REPEATED
    )


def failures_before(records: Sequence[Record]) -> int:
    """The number of failures immediately before the last record."""
    return next((k for k, one in enumerate(reversed(records[:-1])) if one.ok), len(records) - 1)


@dataclass(frozen=True, eq=False)
class _Rejected:
    """A rejected structure, and how much was known when it was rejected."""

    record: Record
    failures: int  # immediately before it
    evaluated: int  # structures of the training set at the time


class TrainingSet:
    """Labelled structures of a search in the order in which it learned them.

    With `plain` labels, as in searches of earlier versions, results are learned as they are and
    rejected structures are ignored.
    """

    def __init__(self, goal: Goal, plain: bool, images: Sequence[Atoms] = ()) -> None:
        self.goal, self.plain = goal, plain
        self._evaluated: list[Atoms] = list(images)
        self._rejected: list[_Rejected] = []

    def __len__(self) -> int:
        """The number of evaluations, without rejected structures."""
        return len(self._evaluated)

    def copy(self) -> TrainingSet:
        """A training set of its own with the same structures."""
        other = TrainingSet(self.goal, self.plain, self._evaluated)
        other._rejected = list(self._rejected)
        return other

    def add(self, atoms: Atoms) -> Atoms:
        """Add an evaluation; the structure with the labels to learn now."""
        self._evaluated.append(atoms)
        return self._compressed(atoms)

    def reject(self, record: Record, failures: int = 0) -> Atoms | None:
        """Add a rejected structure; the structure with its label, None if there is none yet.

        `failures` is the number of failures immediately before it.
        """
        if self.plain:
            return None
        self._rejected.append(_Rejected(record, failures, len(self._evaluated)))
        return self._labelled(self._rejected[-1])

    def images(self) -> list[Atoms]:
        """All structures with their labels as of now, rejected ones last."""
        labelled = [self._labelled(one) for one in self._rejected]
        return [
            *(self._compressed(atoms) for atoms in self._evaluated),
            *(atoms for atoms in labelled if atoms is not None),
        ]

    def digest(self) -> str:
        """Identifies the evaluations and the rejected structures."""
        hashed = sha256()
        for atoms in self._evaluated:
            hashed.update(np.ascontiguousarray(atoms.positions).tobytes())
            hashed.update(np.float64(energy_of(atoms)).tobytes())
        for one in self._rejected:
            hashed.update(f"{one.evaluated}:{one.record.iteration}".encode())
        return hashed.hexdigest()

    def _levels(self, atoms: Atoms) -> tuple[float, float] | None:
        """Median of evaluations of this composition and its distance from the lowest, eV/atom.

        Structures that were learned before the search may have other compositions.
        """
        formula = reduced_formula(atoms)
        others = [
            one
            for one in self._evaluated
            if self.goal.comparable(atoms, one) and reduced_formula(one) == formula
        ]
        if not others:
            return None
        energies = [energy_of(one) / len(one) for one in others]
        middle = float(np.median(energies))
        return middle, middle - min(energies)

    def _compressed(self, atoms: Atoms) -> Atoms:
        """The structure, with compressed results if its energy is far above the others."""
        levels = None if self.plain else self._levels(atoms)
        if levels is None:
            return atoms
        middle, spread = levels[0], max(levels[1], LEAST_SPREAD)
        threshold, width = middle + SPREADS * spread, WIDTH * spread
        excess = energy_of(atoms) / len(atoms) - threshold
        if excess <= 0.0:
            return atoms
        share = 1.0 / (1.0 + excess / width)
        energy, slope = len(atoms) * (threshold + excess * share), share**2
        results = {
            name: slope * np.asarray(value)
            for name, value in atoms.calc.results.items()
            if name in ("forces", "stress")
        }
        compressed = atoms.copy()
        compressed.calc = SinglePointCalculator(compressed, energy=energy, **results)
        return compressed

    def _labelled(self, rejected: _Rejected) -> Atoms | None:
        """A rejected structure with its label; None while nothing is comparable to it."""
        record = rejected.record
        levels = self._levels(record.atoms)
        if levels is None:
            return None
        middle, spread = levels
        atoms = record.atoms.copy()
        energy = len(atoms) * middle
        if record.predicted is not None:
            energy = max(energy, record.predicted)
        noise = NOISE_SHARE * spread * 0.5 ** max(rejected.failures - TOLERATED, 0)
        atoms.info = {ENERGY_NOISE: max(noise, Noise.energy)}
        atoms.calc = SinglePointCalculator(atoms, energy=energy)
        return atoms
