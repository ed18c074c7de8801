"""CP2K, through ASE."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.engines.engine import (
    Electrons,
    Engine,
    find_command,
    needs_command,
    option_names,
)
from nugget.engines.options import Options, code, plain

_VARIABLES = ("ASE_CP2K_COMMAND",)

_PROGRAMS = ("cp2k_shell.psmp", "cp2k_shell.ssmp", "cp2k_shell", "cp2k.psmp", "cp2k.ssmp")


def cp2k(**options: Any) -> Calculator:
    """PBE with ASE's basis and pseudopotentials (DZVP-MOLOPT-SR-GTH, GTH-PBE)."""
    command = find_command("cp2k", options, _VARIABLES, _PROGRAMS) or ""
    if command in _PROGRAMS and "shell" not in command:
        command += " -s"
    module = import_module("ase.calculators.cp2k")
    return module.CP2K(**{"xc": "PBE", **options, "command": command})


def _electrons(options: Options, electrons: Electrons) -> dict[str, Any]:
    new = option_names("charge", "multiplicity")(options, electrons)
    if (electrons.spin or 1) > 1:
        new.setdefault("uks", True)
    return new


ENGINES = (
    Engine(
        "cp2k",
        "density-functional theory, Gaussians and plane waves (CP2K)",
        cp2k,
        how_to_install="conda install -c conda-forge cp2k (or apt-get install cp2k), or set "
        "ASE_CP2K_COMMAND='mpirun -n 8 cp2k.psmp -s'",
        unavailable=needs_command("cp2k", _VARIABLES, _PROGRAMS),
        settings="basis_set, pseudo_potential, cutoff (eV), inp, uks, command and others of "
        "ase.calculators.cp2k.CP2K",
        electrons=_electrons,
        magmoms=True,
        vacuum=6.0,
        # Sections of input (inp) may name any file.
        options={
            **code("command inp"),
            **plain("basis_set pseudo_potential basis_set_file potential_file xc", str),
            **plain("force_eval_method poisson_solver print_level", str),
            **plain("cutoff", float),
            **plain("charge max_scf multiplicity", int),
            **plain("uks stress_tensor", bool),
        },
    ),
)
