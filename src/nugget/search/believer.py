"""A model that believes itself about structures whose evaluations are still under way."""

from __future__ import annotations

from collections.abc import Sequence

from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.potential.potential import Potential


def believing(potential: Potential, pending: Sequence[Atoms]) -> Potential:
    """A copy that has learned the pending structures with the energies that it predicts.

    The "kriging believer" (Ginsbourger et al. 2010): a label equal to the mean leaves the mean as
    it is but takes σ away there, so E − κσ rises at and around what is pending and the next
    proposal goes elsewhere. A label at the bound E − κσ itself would pull the mean down with σ and
    so push nothing away. New inducing points, which fantasies bring as data would, move the mean a
    little. No forces: the mean's would take away far more σ than one energy does.
    """
    energy = potential.predict(pending, forces=False, uncertainty=False).energy
    fantasies = [atoms.copy() for atoms in pending]
    for atoms, e in zip(fantasies, energy, strict=True):
        atoms.calc = SinglePointCalculator(atoms, energy=float(e))
    return potential.copy().update(fantasies, False, use_stress=False)
