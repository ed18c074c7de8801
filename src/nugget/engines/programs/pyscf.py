"""PySCF: Hartree-Fock and density-functional theory for molecules."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from ase import Atoms
from ase.calculators.calculator import CalculationFailed, Calculator, all_changes
from ase.units import Bohr, Hartree

from nugget.engines.engine import Engine, option_names
from nugget.engines.options import bare_name, code, matching, plain
from nugget.errors import NuggetError

_TOLERANCE = 1e-9  # Hartree; gradients are then accurate to about 1e-4 eV/Å
_SHIFT, _DAMP = 0.3, 0.3  # Hartree, share of the density before: of iterations that oscillate
_ROUNDS = 4  # orbitals are rotated out of an unstable solution at most this often


class PySCF(Calculator):
    """Energies and forces of molecules; restricted for singlets, unrestricted otherwise.

    method : `hf`, or the name of an exchange-correlation functional, as `pbe` or `b3lyp`.
    basis : name of a basis set.
    multiplicity : 2S + 1; None for the lowest possible one.

    Every calculation starts from the same guess, so that it does not depend on earlier ones. If the
    field does not converge, second-order steps follow. If they do not converge either, both are
    repeated from superposed atomic densities with shifted levels and damping.

    Open shells often have several solutions. One that is not a minimum with respect to rotations of
    its orbitals is left for the lower one, because forces and energies of neighbouring structures
    would otherwise jump.
    """

    implemented_properties = ["energy", "forces"]  # noqa: RUF012 (as in ASE)

    def __init__(
        self,
        method: str = "pbe",
        basis: str = "def2-svp",
        charge: int = 0,
        multiplicity: int | None = None,
        max_cycle: int = 100,
        conv_tol: float = _TOLERANCE,
        verbose: int = 0,
    ) -> None:
        super().__init__()
        self.method, self.basis, self.charge, self.multiplicity = (
            method,
            basis,
            charge,
            multiplicity,
        )
        self.max_cycle, self.conv_tol, self.verbose = max_cycle, conv_tol, verbose

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: list[str] | None = None,
        system_changes: list[str] = all_changes,
    ) -> None:
        super().calculate(atoms, properties, system_changes)
        assert self.atoms is not None
        field = self.converged_field(self.atoms)
        gradient = field.nuc_grad_method().kernel()
        self.results["energy"] = float(field.e_tot) * Hartree
        self.results["forces"] = -gradient * Hartree / Bohr

    def converged_field(self, atoms: Atoms) -> Any:
        """The converged self-consistent field of PySCF."""
        if atoms.pbc.any():
            raise NuggetError("The engine pyscf takes molecules only; the structure is periodic.")
        _one_thread()
        gto = import_module("pyscf.gto")
        electrons = int(atoms.numbers.sum()) - self.charge
        multiplicity = self.multiplicity or 1 + electrons % 2
        molecule = gto.M(
            atom=list(zip(atoms.get_chemical_symbols(), atoms.positions.tolist(), strict=True)),
            unit="Angstrom", basis=bare_name("pyscf", "basis", self.basis),
            charge=self.charge, spin=multiplicity - 1,
            verbose=self.verbose, symmetry=False,
        )  # fmt: skip
        for attempt in range(2):
            field = self._field(molecule, multiplicity == 1)
            field.max_cycle, field.conv_tol = self.max_cycle, self.conv_tol
            if attempt:
                field.init_guess, field.level_shift, field.damp = "atom", _SHIFT, _DAMP
            field.kernel()
            if not field.converged:
                field = field.newton()
                field.kernel(field.mo_coeff, field.mo_occ)
            if field.converged:
                return field if multiplicity == 1 else _stable(field)
        raise CalculationFailed(f"SCF not converged, last energy {field.e_tot:.4f} Hartree")

    def _field(self, molecule: Any, closed_shell: bool) -> Any:
        if self.method.lower() == "hf":
            scf = import_module("pyscf.scf")
            return scf.RHF(molecule) if closed_shell else scf.UHF(molecule)
        dft = import_module("pyscf.dft")
        field = dft.RKS(molecule) if closed_shell else dft.UKS(molecule)
        field.xc = self.method
        return field


def _stable(field: Any) -> Any:
    """The field, or the next lower one that is stable against rotations of its orbitals."""
    for _ in range(_ROUNDS):
        orbitals, _, stable, _ = field.stability(return_status=True)
        if stable:
            break
        lower = field.newton()
        lower.kernel(orbitals, field.mo_occ)
        if not lower.converged or lower.e_tot > field.e_tot:
            break
        field = lower
    return field


@cache
def _one_thread() -> None:
    """Engines use one thread; with more, sums would depend on their order."""
    import_module("pyscf.lib").num_threads(1)


ENGINES = (
    Engine(
        "pyscf",
        "Hartree-Fock and density-functional theory for molecules (PySCF, PBE/def2-SVP)",
        PySCF,
        "pyscf",
        "pip install pyscf",
        settings="method (hf, or a functional), basis, charge, multiplicity, max_cycle, conv_tol",
        # PySCF evaluates expressions in the file of a basis set.
        options={
            **code("basis", harmless=matching(r"[\w +*(),.@-]+")),
            **plain("method", str),
            **plain("charge multiplicity max_cycle verbose", int),
            **plain("conv_tol", float),
        },
        electrons=option_names("charge", "multiplicity"),
    ),
)
