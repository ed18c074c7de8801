"""ASE calculators of the mean energy and of the lower confidence bound."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.potential.domain import DomainValues
from nugget.potential.evaluate import MEAN, value_and_grad
from nugget.potential.fitted import Fitted
from nugget.potential.surface import Surface
from nugget.structures.batch import Batch, as_batch
from nugget.structures.io import PER_ATOM, PER_STRUCTURE
from nugget.structures.labels import voigt
from nugget.structures.neighbours import Verlet

UNCERTAINTIES = (*PER_STRUCTURE, *PER_ATOM)

_OF_ATOMS = {"energies", "energies_uncertainty", "forces_uncertainty"}

_STATE = ("positions", "numbers", "cell", "pbc")  # the arguments of an energy


def _bytes(atoms: Atoms, name: str) -> bytes:
    if name == "cell":
        return bytes(atoms.cell.array)
    return bytes(atoms.pbc if name == "pbc" else atoms.arrays[name])


class UncertaintyWarning(UserWarning):
    """The uncertainty of a prediction exceeds the limit that the user set."""


class OutsideError(NuggetError):
    """The uncertainty of a prediction exceeds the limit at which the user wants to stop."""


def outside_sentence(
    atoms: Atoms, where: str, sigma: float, limit: float, outside: Floats | None
) -> str:
    """A sentence about an uncertain structure and its most unusual atom."""
    text = f"{where}: the energy is uncertain by {sigma:.3g} eV/atom, more than {limit:.3g}"
    if outside is None or not outside.any():
        return f"{text}."
    worst = int(np.argmax(outside))
    return (
        f"{text}; atom {worst} ({atoms.symbols[worst]}) is farthest outside the training domain "
        f"({outside[worst]:.2f} on a scale from 0 to 1)."
    )


class _Calculator(Calculator):
    """Base class with a Verlet list, exact change detection and the uncertainty warning."""

    nolabel = True

    def __init__(
        self,
        potential: Fitted,
        warn_above: float | None,
        stop_above: float | None,
        uncertainties: tuple[str, ...],
        skin: float,
    ) -> None:
        super().__init__()
        unknown = [name for name in uncertainties if name not in self.implemented_properties]
        if unknown:
            choices = [name for name in UNCERTAINTIES if name in self.implemented_properties]
            raise NuggetError(f"There is no uncertainty {unknown[0]!r}; choose among {choices}.")
        for name, limit in (("warn_above", warn_above), ("stop_above", stop_above)):
            if limit is not None and not limit > 0:
                raise NuggetError(f"{name} is {limit}; give eV/atom, or None for no limit.")
        self.potential = potential
        self.warn_above, self.stop_above = warn_above, stop_above
        self.evaluations = 0
        self.uncertainties = tuple(uncertainties)
        self.verlet = Verlet(potential.fitted.descriptor.cutoff, skin)
        self._above = False
        self._kept: Atoms | None = None

    def check_state(self, atoms: Atoms, tol: float = 0.0) -> list[str]:
        """Changes to the last bit; ASE's own comparison takes longer than a prediction."""
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
        limited = self.warn_above is not None or self.stop_above is not None
        if limited:
            asked.add("energy_uncertainty")
        batch = as_batch(self.atoms)
        results = self._evaluate(batch, asked)
        self.evaluations += 1
        if limited:
            self._check(results)
        results["free_energy"] = results["energy"]
        # A later request for another property of the same structure adds to the results.
        self.results = {**self.results, **results} if not system_changes else results

    def _keep(self, atoms: Atoms | None, system_changes: list[str]) -> None:
        """Copy the atoms to `self.atoms`, or only their positions if nothing else changed."""
        if atoms is None:
            return
        if self._kept is not None and system_changes == ["positions"]:
            self._kept.arrays["positions"][...] = atoms.arrays["positions"]
        else:
            self._kept = atoms.copy()
        self.atoms = self._kept

    def _evaluate(self, batch: Batch, asked: set[str]) -> dict[str, Any]:
        raise NotImplementedError

    def _check(self, results: dict[str, Any]) -> None:
        """Stop above one limit; warn above another, once until σ has been below it again."""
        assert self.atoms is not None
        sigma, outside = (
            results["energy_uncertainty"] / len(self.atoms),
            results.get("outside_atoms"),
        )
        where = f"Evaluation {self.evaluations}"
        if self.stop_above is not None and sigma > self.stop_above:
            raise OutsideError(outside_sentence(self.atoms, where, sigma, self.stop_above, outside))
        above = self.warn_above is not None and sigma > self.warn_above
        if self.warn_above is not None and above and not self._above:
            sentence = outside_sentence(self.atoms, where, sigma, self.warn_above, outside)
            warnings.warn(sentence, UncertaintyWarning, stacklevel=3)
        self._above = above


class NuggetCalculator(_Calculator):
    """The mean energy, with forces and (for cells with a volume) stress.

    Energies of single atoms are computed on request. The calculator follows a potential that
    learns further structures.

    Parameters
    ----------
    potential : a fitted potential.
    warn_above : warn when σ of the energy rises above this many eV/atom, and again after it has
        been below; None: never. The warning names the evaluation and the most unusual atom.
    stop_above : raise `OutsideError` when σ of the energy exceeds this many eV/atom.
    uncertainties : which of "energy_uncertainty" (eV, whole structure), "energies_uncertainty"
        (eV, each atom) and "forces_uncertainty" (eV/Å, each component) to compute in every
        call; the others are computed by `calc.get_property(name, atoms)`. Where σ is computed,
        "outside" and "outside_atoms" say how far structure and atoms are outside the training
        domain, from 0 to 1.
    skin : extra range of the Verlet list beyond the cutoff, Å.
    """

    implemented_properties = [  # noqa: RUF012 (as in ASE)
        "energy", "free_energy", "energies", "forces", "stress", *UNCERTAINTIES,
    ]  # fmt: skip

    def __init__(
        self,
        potential: Fitted,
        warn_above: float | None = None,
        uncertainties: tuple[str, ...] = ("energy_uncertainty",),
        skin: float = 0.5,
        stop_above: float | None = None,
    ) -> None:
        super().__init__(potential, warn_above, stop_above, uncertainties, skin)

    def _evaluate(self, batch: Batch, asked: set[str]) -> dict[str, Any]:
        values = value_and_grad(
            self.potential.fitted,
            batch,
            MEAN,
            std=not asked.isdisjoint(UNCERTAINTIES),
            pairs=self.verlet.pairs(batch),
            keep_rows=not asked.isdisjoint(_OF_ATOMS),  # slower: on request only
        )
        results: dict[str, Any] = {
            "energy": float(values.energy[0]),
            "forces": -values.gradients[0],
            **_stress(values.strains[0, 0], batch),
        }
        if values.rows is not None:
            results["energies"] = values.local_energies()
        if values.std is not None:
            results["energy_uncertainty"] = float(values.std[0])
        results |= domain_results(values.domain)
        if "energies_uncertainty" in asked:
            results["energies_uncertainty"] = values.local_std()
        if "forces_uncertainty" in asked:
            results["forces_uncertainty"] = values.forces_std()
        return results


class LCBCalculator(_Calculator):
    """The lower confidence bound E − κσ as an energy, with its forces and stress.

    Its minima have a low predicted energy or a high uncertainty; `results["energy_uncertainty"]`
    is σ without the part σ_out of the training domain. `domain_penalty` times σ_out is added to the
    energy (see `potential.surface`).
    """

    implemented_properties = [  # noqa: RUF012 (as in ASE)
        "energy", "free_energy", "forces", "stress", "energy_uncertainty", "outside",
        "outside_atoms",
    ]  # fmt: skip

    def __init__(
        self,
        potential: Fitted,
        kappa: float = 2.0,
        warn_above: float | None = None,
        skin: float = 0.5,
        stop_above: float | None = None,
        domain_penalty: float = 0.0,
    ) -> None:
        super().__init__(potential, warn_above, stop_above, ("energy_uncertainty",), skin)
        if not np.isfinite(kappa):
            raise NuggetError(f"kappa is {kappa}; give a finite number, such as 2.")
        self.kappa, self.domain_penalty = float(kappa), float(domain_penalty)

    def _evaluate(self, batch: Batch, asked: set[str]) -> dict[str, Any]:
        state, pairs = self.potential.fitted, self.verlet.pairs(batch)
        surface = Surface(state, self.kappa, domain_penalty=self.domain_penalty)
        values = surface.evaluate(batch, pairs, std=True)
        assert values.std is not None
        domain = None if state.domain is None else state.domain.evaluate(batch, pairs)
        return {
            "energy": float(values.value[0]),
            "forces": -values.gradient,
            "energy_uncertainty": float(values.std[0]),
            **domain_results(domain),
            **_stress(values.strain[0], batch),
        }


def domain_results(domain: DomainValues | None) -> dict[str, Any]:
    """How far one structure and its atoms are outside the training domain, if there is one."""
    if domain is None:
        return {}
    return {"outside": float(domain.outside[0]), "outside_atoms": domain.outside_atoms}


def _stress(strain: Floats, batch: Batch) -> dict[str, Floats]:
    """Stress of one structure in Voigt order, if the cell has a volume."""
    if not batch.cells.any():
        return {}
    volume = abs(np.linalg.det(batch.cells[0]))
    return {} if volume < 1e-9 else {"stress": voigt(strain) / volume}
