"""Tight binding with tblite: GFN1-xTB and GFN2-xTB.

The self-consistent field (SCF) of tblite sometimes ends in a false solution without an error:
oxides of titanium may be hundreds of eV too low, with forces of 500 eV/Å and more. Such results,
and fields that do not converge, are calculated again at a higher electronic temperature and, from
the charges of that, at the requested one. What remains false is reported as unconverged.
"""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import CalculationFailed, Calculator, all_changes
from ase.units import Hartree, kB

from nugget.engines.engine import Engine, option_names
from nugget.engines.options import plain
from nugget.engines.plausibility import BINDING, closest, wall
from nugget.engines.wrappers import Repeated
from nugget.errors import NuggetError

_KELVIN = kB / Hartree

#: Electronic temperature (K) at which the SCF converges more easily.
_HOT = 5000.0

#: Largest plausible force (eV/Å) of tight binding between atoms that are not closer than usual.
_FORCE = 300.0


@cache
def isolated_atom(method: str, temperature: float, number: int) -> float:
    """Energy of one atom, eV; nan if the SCF does not converge."""
    atom = Atoms([number])
    tblite = import_module("tblite.ase")
    atom.calc = tblite.TBLite(method=method, electronic_temperature=temperature, verbosity=0)
    try:
        return float(atom.get_potential_energy())
    except CalculationFailed:
        return float("nan")


@cache
def _checked_class() -> type[Calculator]:
    """TBLite with a check of its solutions; a function because tblite is imported when needed."""

    class CheckedTBLite(import_module("tblite.ase").TBLite):  # type: ignore[misc]
        """TBLite that tries to leave false solutions, see the module's docstring."""

        def calculate(
            self,
            atoms: Atoms | None = None,
            properties: list[str] | None = None,
            system_changes: list[str] = all_changes,
        ) -> None:
            problem = self._attempt(atoms, properties, system_changes)
            if problem is not None and self._reconverge():
                problem = self._problem()
            if problem is not None:
                self._xtb = self._res = None  # the next structure does not start from these charges
                self.results.clear()
                raise CalculationFailed(problem)

        def _attempt(
            self, atoms: Atoms | None, properties: list[str] | None, changes: list[str]
        ) -> str | None:
            try:
                super().calculate(atoms, properties, changes)
            except CalculationFailed as error:
                return str(error)
            return self._problem()

        def _reconverge(self) -> bool:
            """From the charges at a higher temperature; False if the SCF does not converge."""
            requested = self.parameters.electronic_temperature
            if requested >= _HOT:
                return False
            self._xtb = self._res = None
            # Not `set`, which resets the calculator: the parameters end as they were.
            for temperature in (_HOT, requested):
                self.parameters.electronic_temperature = temperature
                if self._xtb is not None:
                    self._xtb.set("temperature", temperature * _KELVIN)
                try:
                    super().calculate(self.atoms, ["energy"], [])
                except CalculationFailed:
                    return False
                finally:
                    self.parameters.electronic_temperature = requested
            return True

        def _problem(self) -> str | None:
            """Why the solution is false, None if it is plausible."""
            force = float(np.linalg.norm(self.results["forces"], axis=1).max())
            if force > _FORCE * wall(closest(self.atoms)):
                return f"SCF converged to a false solution with a force of {force:,.0f} eV/Å"
            if self.parameters.xtb_config is None:
                at = (self.parameters.method, self.parameters.electronic_temperature)
                apart = sum(isolated_atom(*at, int(z)) for z in self.atoms.numbers)
                bound = (apart - self.results["energy"]) / len(self.atoms)
                if bound > BINDING:
                    return (
                        f"SCF converged to a false solution, {bound:,.0f} eV per atom below the "
                        "isolated atoms"
                    )
            return None

    return CheckedTBLite


def xtb(
    method: str,
    /,
    electronic_temperature: float = 1500.0,
    verbosity: int = 0,
    supercell: float = 0.0,
    **options: Any,
) -> Calculator:
    """tblite without output; an electronic temperature of 1500 K helps metal clusters converge.

    Set OMP_NUM_THREADS=1 before tblite is imported, since two threads are many times slower than
    one; `nugget.engines.runner` does so. tblite has a single k point; with `supercell`, crystals
    are evaluated in cells of at least this thickness (Å).
    """
    if "method" in options:
        raise NuggetError("tblite's method is the name of the engine: gfn1-xtb or gfn2-xtb.")
    calculator = _checked_class()(
        method=method,
        electronic_temperature=electronic_temperature,
        verbosity=verbosity,
        **options,
    )
    return Repeated(calculator, supercell) if supercell > 0 else calculator


def _engine(name: str, method: str, description: str) -> Engine:
    return Engine(
        name,
        description,
        partial(xtb, method),
        "tblite",
        "pip install tblite",
        settings="electronic_temperature (K), supercell (Å, for crystals), accuracy, "
        "max_iterations, spin_polarization, solvation and others of tblite.ase.TBLite",
        options={
            **plain("electronic_temperature supercell accuracy mixer_damping", float),
            **plain("spin_polarization", float),
            **plain("max_iterations mixer_memory verbosity charge multiplicity", int),
            **plain("guess mixer method", str),
            **plain("solvation electric_field annealing", list),
            **plain("cache_api", bool),
        },
        electrons=option_names("charge", "multiplicity"),
        magmoms=True,
        one_k_point="supercell",
        cheap=True,
        forgetful={
            "cache_api": False
        },  # otherwise it starts from the charges of the last structure
    )


ENGINES = (
    _engine(
        "gfn1-xtb",
        "GFN1-xTB",
        "GFN1-xTB tight binding (tblite); good for metals, 0.1 to 0.5 s for 10 to 20 atoms",
    ),
    _engine(
        "gfn2-xtb",
        "GFN2-xTB",
        "GFN2-xTB tight binding (tblite); for molecules; often does not converge on gold",
    ),
)
