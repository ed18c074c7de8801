"""Can this energy be true? Engines sometimes converge to nonsense and do not notice.

The rule errs on the side of keeping: it speaks up only when a number is out of all proportion to
the distances between the atoms, to the other evaluations and to what the model expects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from ase import Atoms
from ase.data import covalent_radii

from nugget.evaluation.outcome import Outcome

#: Says of a structure with results why they cannot be true, or None.
Judge = Callable[[Atoms], str | None]

# Largest force in eV/Å that is believed at distances of _CLOSE covalent bond lengths or more. Walls
# of pair potentials rise like d^-13: closer atoms may feel forces larger by (_CLOSE/d)^14.
_FORCE, _CLOSE, _WALL = 5000.0, 0.75, 14
# From so many evaluations on, forces are compared with the largest of them.
_ENOUGH, _FORCE_FLOOR, _FORCE_FACTOR = 5, 200.0, 20.0
# An energy that lies this far outside all others is not believed: in eV/atom (no bond is worth as
# much; less when there are many others), and in units of the spread of the others.
_MANY, _ENERGY_FEW, _ENERGY_MANY, _SPREADS = 10, 15.0, 5.0, 5.0
# Others with forces above this (eV/Å) were squeezed: any drop in energy from there is believed.
_SQUEEZED = 50.0
# The model's word: such errors are ordinary, in standard deviations and in eV/atom.
_STDS, _ORDINARY = 30.0, 1.0


def doubt(
    atoms: Atoms,
    energies: Sequence[float],
    forces: Sequence[float],
    expected: tuple[float, float] | None = None,
) -> str | None:
    """Why the results of `atoms` cannot be true, in a few words; None if they can.

    energies, forces : energy per atom (eV) and largest force (eV/Å) of earlier evaluations of the
        same elements.
    expected : energy of this structure according to the model, and its standard deviation, eV.
    """
    results = atoms.calc.results
    energy = float(results["energy"]) / len(atoms)
    largest = float(np.linalg.norm(results["forces"], axis=1).max())
    wall = (_CLOSE / min(closest(atoms), _CLOSE)) ** _WALL
    if largest > (limit := _force_limit(forces) * wall):
        return f"a force of {largest:,.0f} eV/Å, where {limit:,.0f} is the most to be expected"
    if expected is not None:
        error = abs(energy - expected[0] / len(atoms))
        if error <= max(_STDS * expected[1] / len(atoms), _ORDINARY):
            return None
    calm = [e for e, f in zip(energies, forces, strict=True) if f < _SQUEEZED]
    return _energy_doubt(energy, calm, may_be_high=wall > 1.0)


def _force_limit(forces: Sequence[float]) -> float:
    """Of structures without close atoms."""
    if len(forces) < _ENOUGH:
        return max(_FORCE, 10.0 * max(forces, default=0.0))
    return max(_FORCE_FLOOR, _FORCE_FACTOR * max(forces))


def _energy_doubt(energy: float, others: Sequence[float], may_be_high: bool) -> str | None:
    """Against the energies of others, all per atom."""
    if not others:
        return None
    least = _ENERGY_FEW if len(others) < _MANY else _ENERGY_MANY
    low, middle, high = np.min(others), np.median(others), np.max(others)
    if energy < low - max(least, _SPREADS * (middle - low)):
        return f"{energy:,.1f} eV per atom, where the lowest of {len(others)} is {low:,.1f}"
    # A high one is believed while there are few: one of those may be false itself.
    if may_be_high or len(others) < _ENOUGH:
        return None
    if energy > high + max(_ENERGY_FEW, _SPREADS * (high - low)):
        return f"{energy:,.1f} eV per atom, where the highest of {len(others)} is {high:,.1f}"
    return None


def closest(atoms: Atoms) -> float:
    """The shortest distance, in units of the sum of the two covalent radii."""
    from nugget.structures.batch import as_batch
    from nugget.structures.neighbours import find_pairs

    radii = covalent_radii[atoms.numbers]
    batch = as_batch([atoms])
    pairs = find_pairs(batch, 2.1 * float(radii.max()))
    return float(np.min(pairs.distances(batch) / (radii[pairs.i] + radii[pairs.j]), initial=np.inf))


def settle(first: Outcome, second: Outcome, judge: Judge) -> Outcome:
    """What becomes of a doubtful evaluation after its repetition in a fresh process.

    A plausible repetition is taken. Otherwise both are recorded as one failure, "implausible".
    """
    seconds = first.seconds + second.seconds
    attempts = first.attempts + second.attempts
    reason = judge(first.atoms)
    if second.ok:
        again = judge(second.atoms)
        if again is None:
            return replace(second, seconds=seconds, attempts=attempts)
        repeated = f"{second.energy:.6g} eV"
    else:
        repeated = f"{second.failure}: {second.reason}"
    bare = first.atoms.copy()
    bare.info = dict(first.atoms.info)
    return Outcome(
        bare,
        "implausible",
        f"{first.energy:.6g} eV with {reason}; repeated in a fresh process: {repeated}"[:500],
        seconds,
        attempts,
    )
