"""ASE calculators: the mean surface, and the lower confidence bound."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes
from numpy.typing import NDArray

from nugget.errors import NuggetError
from nugget.potential.surface import Surface
from nugget.structures.batch import Batch, as_batch
from nugget.structures.io import PER_ATOM, PER_STRUCTURE, attach_uncertainties
from nugget.structures.labels import VOIGT
from nugget.structures.neighbours import Verlet

if TYPE_CHECKING:
    from nugget.potential.potential import Potential

__all__ = ["LCBCalculator", "NuggetCalculator", "UncertaintyWarning", "attach_uncertainties"]

Floats = NDArray[np.float64]

UNCERTAINTIES = (*PER_STRUCTURE, *PER_ATOM)


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

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: list[str] | None = None,
        system_changes: list[str] = all_changes,
    ) -> None:
        super().calculate(atoms, properties, system_changes)
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
        pot, fit = self.potential, self.potential.fitted
        alpha = fit.regression.alpha
        env, prior = pot.describe(batch, self.verlet.pairs(batch))
        rows = pot.rows(env)
        gradient, strain = env.pullback_strain(rows.pullback(alpha))
        if prior.gradient is not None:
            gradient += prior.gradient
        if prior.strain is not None:
            strain += prior.strain
        results: dict[str, Any] = {
            "energy": float(rows.kappa[0] @ alpha + prior.energies.sum()),
            "energies": rows.k @ alpha + prior.energies,
            "forces": -gradient,
            **_stress(strain, batch),
        }
        if "energy_uncertainty" in asked:
            results["energy_uncertainty"] = float(pot.sigma(env, rows)[0])
        if "energies_uncertainty" in asked:
            results["energies_uncertainty"] = fit.uncertainty.local(rows.k)
        if "forces_uncertainty" in asked:
            assert self.atoms is not None
            found = pot.predict([self.atoms], False, False, forces_uncertainty=True)
            assert found.forces_uncertainty is not None
            results["forces_uncertainty"] = found.forces_uncertainty[0]
        return results


class LCBCalculator(_Calculator):
    """The lower confidence bound E − κσ as an energy, with its forces and stress.

    For walking towards structures that are low or unknown; `results["energy_uncertainty"]` is σ.
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
        pairs = self.verlet.pairs(batch)
        found = Surface(self.potential, self.kappa).evaluate(batch, pairs)
        sigma = found.sigma
        if sigma is None:  # κ = 0: the surface is the mean, and had no need of σ
            env, _ = self.potential.describe(batch, pairs)
            sigma = self.potential.sigma(env, self.potential.rows(env))
        return {
            "energy": float(found.value[0]),
            "forces": -found.gradient,
            "energy_uncertainty": float(sigma[0]),
            **_stress(found.strain, batch),
        }


def _stress(strain: Floats, batch: Batch) -> dict[str, Floats]:
    """Stress in Voigt's order, if the cell has a volume to divide by."""
    volume = abs(np.linalg.det(batch.cells[0]))
    if volume < 1e-9:
        return {}
    virial = 0.5 * (strain[0] + strain[0].T)
    return {"stress": np.array([virial[a, b] for a, b in VOIGT]) / volume}
