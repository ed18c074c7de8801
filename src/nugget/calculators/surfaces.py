"""ASE calculators: the mean surface, and the lower confidence bound."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError
from nugget.potential.evaluate import MEAN, value_and_grad
from nugget.potential.prediction import voigt_stress
from nugget.potential.surface import Surface
from nugget.structures.batch import Batch, as_batch
from nugget.structures.io import PER_ATOM, PER_STRUCTURE, attach_uncertainties
from nugget.structures.neighbours import Verlet

if TYPE_CHECKING:
    from nugget.potential.potential import Potential

__all__ = ["LCBCalculator", "NuggetCalculator", "UncertaintyWarning", "attach_uncertainties"]

UNCERTAINTIES = (*PER_STRUCTURE, *PER_ATOM)
_OF_ATOMS = {"energies", *PER_ATOM}
_STATE = ("positions", "numbers", "cell", "pbc")  # what energies depend on


def _bytes(atoms: Atoms, name: str) -> bytes:
    if name == "cell":
        return bytes(atoms.cell.array)
    return bytes(atoms.pbc if name == "pbc" else atoms.arrays[name])


class UncertaintyWarning(UserWarning):
    """A prediction is less certain than the user asked for."""


class _Calculator(Calculator):
    """What both surfaces share: a list of pairs that is kept, and the warning."""

    nolabel = True

    def __init__(
        self,
        potential: Potential,
        warn_above: float | None,
        uncertainties: tuple[str, ...],
        skin: float,
    ) -> None:
        super().__init__()
        unknown = [name for name in uncertainties if name not in self.implemented_properties]
        if unknown:
            known = [name for name in UNCERTAINTIES if name in self.implemented_properties]
            raise NuggetError(f"There is no uncertainty {unknown[0]!r}; choose among {known}.")
        if warn_above is not None and not warn_above > 0:
            raise NuggetError(f"warn_above is {warn_above}; give eV/atom, or None for no warning.")
        _ = potential.fitted  # an error now rather than at the first step
        self.potential = potential
        self.warn_above = warn_above
        self.uncertainties = tuple(uncertainties)
        self.verlet = Verlet(potential.descriptor.cutoff, skin)
        self._warned = False
        self._kept: Atoms | None = None

    def check_state(self, atoms: Atoms, tol: float = 0.0) -> list[str]:
        """What has changed, to the last bit; ASE's comparison takes longer than a prediction."""
        if self.atoms is None:
            return list(all_changes)
        return [name for name in _STATE if _bytes(self.atoms, name) != _bytes(atoms, name)]

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: list[str] | None = None,
        system_changes: list[str] = all_changes,
    ) -> None:
        self._keep(atoms, system_changes)
        assert self.atoms is not None
        asked = {*(properties or ()), *self.uncertainties}
        if self.warn_above is not None:
            asked.add("energy_uncertainty")
        batch = as_batch(self.atoms)
        results = self._evaluate(batch, asked)
        if self.warn_above is not None:
            self._warn(results["energy_uncertainty"] / len(self.atoms))
        results["free_energy"] = results["energy"]
        # Merged: asking later for the uncertainty of the same structure keeps what is known.
        self.results = {**self.results, **results} if not system_changes else results

    def _keep(self, atoms: Atoms | None, system_changes: list[str]) -> None:
        """A copy of the atoms in `self.atoms`; where they only moved, the last copy moves too."""
        if atoms is None:
            return
        if self._kept is not None and system_changes == ["positions"]:
            self._kept.arrays["positions"][...] = atoms.arrays["positions"]
        else:
            self._kept = atoms.copy()
        self.atoms = self._kept

    def _evaluate(self, batch: Batch, asked: set[str]) -> dict[str, Any]:
        raise NotImplementedError

    def _warn(self, sigma: float) -> None:
        if self.warn_above is None or self._warned or sigma <= self.warn_above:
            return
        self._warned = True
        warnings.warn(
            f"The predicted energy is uncertain by {sigma:.3g} eV/atom, more than "
            f"{self.warn_above:.3g}: this structure is unlike the training set. "
            "(This calculator says so once.)",
            UncertaintyWarning,
            stacklevel=3,
        )


class NuggetCalculator(_Calculator):
    """The mean surface. Energy, forces and (where there is a volume) stress come together.

    Energies of single atoms are made when they are asked for.

    Parameters
    ----------
    potential : a fitted potential.
    warn_above : warn once when σ of the energy exceeds this many eV/atom; None: never.
    uncertainties : which of "energy_uncertainty" (eV, whole structure), "energies_uncertainty"
        (eV, each atom) and "forces_uncertainty" (eV/Å, each component) to have in `results`
        always; the others only when asked for by `calc.get_property(name, atoms)`.
    skin : in Å, how much further than the cutoff pairs are listed, so that the list lasts.
    """

    implemented_properties = [  # noqa: RUF012 (as in ASE)
        "energy", "free_energy", "energies", "forces", "stress", *UNCERTAINTIES,
    ]  # fmt: skip

    def __init__(
        self,
        potential: Potential,
        warn_above: float | None = None,
        uncertainties: tuple[str, ...] = ("energy_uncertainty",),
        skin: float = 0.5,
    ) -> None:
        super().__init__(potential, warn_above, uncertainties, skin)

    def _evaluate(self, batch: Batch, asked: set[str]) -> dict[str, Any]:
        found = value_and_grad(
            self.potential,
            batch,
            MEAN,
            std="energy_uncertainty" in asked,
            pairs=self.verlet.pairs(batch),
            keep_rows=not asked.isdisjoint(_OF_ATOMS),  # takes time: only when it is asked for
        )
        results: dict[str, Any] = {
            "energy": float(found.energy[0]),
            "forces": -found.gradients[0],
            **_stress(found.strains[0], batch),
        }
        if found.rows is not None:
            results["energies"] = found.local_energies()
        if found.std is not None:
            results["energy_uncertainty"] = float(found.std[0])
        if "energies_uncertainty" in asked:
            results["energies_uncertainty"] = found.local_std()
        if "forces_uncertainty" in asked:
            results["forces_uncertainty"] = found.forces_std()
        return results


class LCBCalculator(_Calculator):
    """The lower confidence bound E − κσ as an energy, with its forces and stress.

    For relaxing towards structures that are low or unknown; `results["energy_uncertainty"]` is σ.
    """

    implemented_properties = [  # noqa: RUF012 (as in ASE)
        "energy", "free_energy", "forces", "stress", "energy_uncertainty",
    ]  # fmt: skip

    def __init__(
        self,
        potential: Potential,
        kappa: float = 2.0,
        warn_above: float | None = None,
        skin: float = 0.5,
    ) -> None:
        super().__init__(potential, warn_above, ("energy_uncertainty",), skin)
        if not np.isfinite(kappa):
            raise NuggetError(f"kappa is {kappa}; give a finite number, such as 2.")
        self.kappa = float(kappa)

    def _evaluate(self, batch: Batch, asked: set[str]) -> dict[str, Any]:
        surface = Surface(self.potential, self.kappa)
        found = surface.evaluate(batch, self.verlet.pairs(batch), std=True)
        assert found.std is not None
        return {
            "energy": float(found.value[0]),
            "forces": -found.gradient,
            "energy_uncertainty": float(found.std[0]),
            **_stress(found.strain, batch),
        }


def _stress(strain: Floats, batch: Batch) -> dict[str, Floats]:
    """Stress in Voigt's order, if the cell has a volume to divide by."""
    if not batch.cells.any() or abs(np.linalg.det(batch.cells[0])) < 1e-9:
        return {}
    return {"stress": voigt_stress(strain, batch)[0]}
