"""Reject implausible results: engines sometimes converge to nonsense without an error.

The limits are wide. A result is rejected only if it is out of proportion to the distances between
the atoms, to earlier evaluations and to the prediction of the model. A rejected evaluation is
repeated once in a fresh process (`settle`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from ase import Atoms
from ase.data import covalent_radii

from nugget.engines.outcome import Failure, Outcome
from nugget.structures.batch import as_batch
from nugget.structures.geometry import largest_force
from nugget.structures.neighbours import find_pairs

#: Why the results of a structure are implausible, None if they are plausible.
Judge = Callable[[Atoms], str | None]


class Doubt(str):
    """A reason for a repetition only: a result that is repeated is accepted."""

    __slots__ = ()


# Largest plausible force in eV/Å at distances of _CLOSE covalent bond lengths or more. Pair
# repulsions rise like d^-13, so that closer atoms may have forces larger by (_CLOSE/d)^14.
_FORCE, _CLOSE, _WALL = 5000.0, 0.75, 14

# From this number of evaluations on, forces are compared with the largest of them.
_ENOUGH, _FORCE_FLOOR, _FORCE_FACTOR = 5, 200.0, 20.0

# An energy so far outside of all others is implausible: in eV/atom (larger than any bond energy;
# less when there are many others), and in units of the spread of the others.
_MANY, _ENERGY_FEW, _ENERGY_MANY, _SPREADS = 10, 15.0, 5.0, 5.0

# Structures with forces above this (eV/Å) were compressed: any lower energy is plausible then.
_SQUEEZED = 50.0

#: No structure binds more strongly than this, relative to its isolated atoms, in eV per atom. The
#: largest cohesive energies are about 9 eV per atom.
BINDING = 15.0

# Structures whose atoms differ by less than this (Å) are neighbours: the difference of their
# energies must agree with their forces, within _MISFIT times the change of the work of the forces
# and within _MISFIT_FLOOR, eV.
_NEIGHBOUR, _MISFIT, _MISFIT_FLOOR = 0.3, 1.0, 0.3

# The lowest energies are doubtful if the next one is higher by this, in eV/atom and in units of the
# spread of the others.
_GAP, _GAP_SPREADS = 0.5, 3.0

# Two evaluations of one structure agree within this, eV and eV/atom, and this factor of the noise.
_SAME, _SAME_PER_ATOM, _NOISES = 0.02, 0.002, 5.0

# Errors of the model up to this are ordinary, in standard deviations and in eV/atom.
_STDS, _ORDINARY = 30.0, 1.0


@dataclass(frozen=True)
class PlausibilityCheck:
    """A `Judge` that compares results with earlier evaluations and with a model.

    earlier : evaluated structures with which a structure is compared; those without forces are
        skipped.
    predict : energy of a structure according to the model and its standard deviation, in eV; None
        without a model.
    isolated : energies of isolated atoms by atomic number, eV; empty if they are not available.
    """

    earlier: Callable[[Atoms], Iterable[Atoms]]
    predict: Callable[[Atoms], tuple[float, float] | None] = lambda atoms: None
    isolated: Callable[[], Mapping[int, float]] = dict

    def __call__(self, atoms: Atoms) -> str | None:
        if (reason := overbound(atoms, self.isolated())) is not None:
            return reason
        others = [other for other in self.earlier(atoms) if "forces" in other.calc.results]
        return self._compared(atoms, others) or contradiction(atoms, others)

    def _compared(self, atoms: Atoms, others: Sequence[Atoms]) -> str | None:
        energies = [float(other.calc.results["energy"]) / len(other) for other in others]
        forces = [largest_force(other) for other in others]
        reason = implausibility(atoms, energies, forces)
        if reason is None or (expected := self.predict(atoms)) is None:
            return reason
        return implausibility(atoms, energies, forces, expected)


def implausibility(
    atoms: Atoms,
    energies: Sequence[float],
    forces: Sequence[float],
    expected: tuple[float, float] | None = None,
) -> str | None:
    """Why the results of `atoms` are implausible, in a few words; None if they are plausible.

    energies, forces : energy per atom (eV) and largest force (eV/Å, `largest_force`) of earlier
        evaluations of the same elements.
    expected : energy of this structure according to the model, and its standard deviation, eV.
    """
    energy = float(atoms.calc.results["energy"]) / len(atoms)
    largest = largest_force(atoms)
    factor = wall(closest(atoms))
    if largest > (limit := _force_limit(forces) * factor):
        reason = f"a force of {largest:,.0f} eV/Å, where at most {limit:,.0f} is plausible"
        # A false solution is dangerous where it looks stable; potentials with steep walls have
        # large forces at high energies.
        return Doubt(reason) if energies and energy >= np.median(energies) else reason
    if expected is not None:
        error = abs(energy - expected[0] / len(atoms))
        if error <= max(_STDS * expected[1] / len(atoms), _ORDINARY):
            return None
    relaxed = [e for e, f in zip(energies, forces, strict=True) if f < _SQUEEZED]
    return _implausible_energy(energy, relaxed, may_be_high=factor > 1.0)


def overbound(atoms: Atoms, isolated: Mapping[int, float]) -> str | None:
    """Whether a structure binds more strongly than any material; None if it does not."""
    if not all(int(z) in isolated for z in atoms.numbers):
        return None
    apart = sum(isolated[int(z)] for z in atoms.numbers)
    binding = (apart - float(atoms.calc.results["energy"])) / len(atoms)
    if binding > BINDING:
        return f"{binding:,.0f} eV per atom below the isolated atoms"
    return None


def contradiction(atoms: Atoms, others: Sequence[Atoms]) -> Doubt | None:
    """Whether the nearest neighbour's energy contradicts the forces on both (trapezoid rule)."""
    moves = [(float(np.abs(atoms.positions - other.positions).max()), other)
             for other in others if _same_frame(atoms, other)]  # fmt: skip
    distance, other = min(moves, key=lambda pair: pair[0], default=(np.inf, atoms))
    if distance > _NEIGHBOUR:
        return None
    change, work = change_and_work(other, atoms)
    allowed = max(_MISFIT * abs(work[1] - work[0]) + 0.1 * max(map(abs, work)), _MISFIT_FLOOR)
    expected = 0.5 * (work[0] + work[1])
    if abs(change - expected) <= allowed:
        return None
    return Doubt(
        f"an energy that differs by {change:.3g} eV from that of a neighbouring structure, where "
        f"the forces give {expected:.3g}"
    )


def _same_frame(a: Atoms, b: Atoms) -> bool:
    return np.array_equal(a.numbers, b.numbers) and np.array_equal(a.cell.array, b.cell.array)


def change_and_work(start: Atoms, end: Atoms) -> tuple[float, tuple[float, float]]:
    """Change of the energy, and what the forces at the start and at the end give for it."""
    a, b = start.calc.results, end.calc.results
    move = end.positions - start.positions
    work = (-float(np.sum(a["forces"] * move)), -float(np.sum(b["forces"] * move)))
    return float(b["energy"]) - float(a["energy"]), work


def agree(a: float, b: float, n_atoms: int, noise: float = 0.0) -> bool:
    """Whether two energies of one structure agree; `noise` is the engine's, if it is known."""
    return abs(a - b) <= max(_SAME, _SAME_PER_ATOM * n_atoms, _NOISES * noise)


def doubtful(energies: Sequence[float], confirmed: Sequence[float] = ()) -> bool:
    """Whether the lowest energies (per atom) are so far below the majority that they may be false.

    At least five are needed; up to half of them may be false. Energies near or above `confirmed`
    ones, which the engine has repeated, are not doubtful.
    """
    e = np.sort(energies)
    if len(e) < _ENOUGH or e[0] > min(confirmed, default=np.inf) - _GAP:
        return False
    return any(
        e[k] - e[k - 1] > max(_GAP, _GAP_SPREADS * (np.median(e[k:]) - e[k]))
        for k in range(1, (len(e) + 1) // 2)
    )


def relaxed(images: Sequence[Atoms]) -> list[Atoms]:
    """Those that are not compressed: any lower energy is plausible after compressed ones."""
    return [one for one in images if largest_force(one) < _SQUEEZED]


def implausibly_low(atoms: Atoms, others: Sequence[Atoms]) -> str | None:
    """Whether an energy that an engine repeats is still too low for the majority of the others."""
    energies = np.sort([float(one.calc.results["energy"]) / len(one) for one in relaxed(others)])
    majority = energies[len(energies) // 2 :]
    energy = float(atoms.calc.results["energy"]) / len(atoms)
    if len(energies) < _ENOUGH - 1:
        return None
    if energy < majority[0] - max(_ENERGY_FEW, _SPREADS * (majority[-1] - majority[0])):
        return (
            f"{energy:,.1f} eV per atom, where the median of {len(energies)} is {majority[0]:,.1f}"
        )
    return None


def _force_limit(forces: Sequence[float]) -> float:
    """For structures without close atoms."""
    if len(forces) < _ENOUGH:
        return max(_FORCE, 10.0 * max(forces, default=0.0))
    return max(_FORCE_FLOOR, _FORCE_FACTOR * max(forces))


def _implausible_energy(energy: float, others: Sequence[float], may_be_high: bool) -> str | None:
    """Compared with the energies of others, all per atom."""
    if not others:
        return None
    least = _ENERGY_FEW if len(others) < _MANY else _ENERGY_MANY
    low, middle, high = np.min(others), np.median(others), np.max(others)
    if energy < low - max(least, _SPREADS * (middle - low)):
        return f"{energy:,.1f} eV per atom, where the lowest of {len(others)} is {low:,.1f}"
    # A high energy is accepted while there are few others, since one of them may be wrong itself.
    if may_be_high or len(others) < _ENOUGH:
        return None
    if energy > high + max(_ENERGY_FEW, _SPREADS * (high - low)):
        return Doubt(
            f"{energy:,.1f} eV per atom, where the highest of {len(others)} is {high:,.1f}"
        )
    return None


def closest(atoms: Atoms) -> float:
    """The shortest distance, in units of the sum of the two covalent radii."""
    radii = covalent_radii[atoms.numbers]
    batch = as_batch([atoms])
    pairs = find_pairs(batch, 2.1 * float(radii.max()))
    return float(np.min(pairs.distances(batch) / (radii[pairs.i] + radii[pairs.j]), initial=np.inf))


def wall(distance: float) -> float:
    """Factor of plausible forces where the shortest distance is this (`closest`)."""
    return float((_CLOSE / min(distance, _CLOSE)) ** _WALL)


def settle(first: Outcome, second: Outcome, judge: Judge) -> Outcome:
    """The outcome of an implausible evaluation and its repetition in a fresh process.

    A plausible repetition is accepted, and so is a doubtful one that agrees with the first
    evaluation; otherwise both become one failure, "implausible".
    """
    seconds = first.seconds + second.seconds
    attempts = first.attempts + second.attempts
    reason = judge(first.atoms)
    if second.ok:
        again = judge(second.atoms)
        same = agree(first.energy, second.energy, len(first.atoms))
        if again is None or (isinstance(again, Doubt) and same):
            return replace(second, seconds=seconds, attempts=attempts)
        repeated = f"{second.energy:.6g} eV"
    else:
        repeated = f"{second.failure}: {second.reason}"
    bare = first.atoms.copy()
    bare.info = dict(first.atoms.info)
    return Outcome(
        bare,
        Failure.IMPLAUSIBLE,
        f"{first.energy:.6g} eV with {reason}; repeated in a fresh process: {repeated}"[:500],
        seconds,
        attempts,
    )
