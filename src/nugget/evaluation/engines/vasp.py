"""VASP, through ASE."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator
from ase.config import cfg

from nugget.evaluation.engines._base import Electrons, Engine, Options
from nugget.evaluation.engines._programs import find_command, needs_command

_VARIABLES, _PROGRAMS = ("ASE_VASP_COMMAND", "VASP_COMMAND"), ("vasp_gam", "vasp_std")


def vasp(**options: Any) -> Calculator:
    """PBE at the Γ point, Gaussian smearing of 0.1 eV, no large files."""
    command = find_command("vasp", options, _VARIABLES, _PROGRAMS)
    settings = {
        "xc": "pbe", "ismear": 0, "sigma": 0.1, "ediff": 1e-5, "nelm": 120, "gamma": True,
        "kpts": (1, 1, 1), "lwave": False, "lcharg": False,
    }  # fmt: skip
    module = import_module("ase.calculators.vasp")
    return module.Vasp(**{**settings, **options, "command": command})


def _unavailable(options: Options) -> str | None:
    if (reason := needs_command("vasp", _VARIABLES, _PROGRAMS)(options)) is not None:
        return reason
    if not (os.environ.get("VASP_PP_PATH") or cfg.parser.has_option("environment", "VASP_PP_PATH")):
        return "the environment variable VASP_PP_PATH (directory of potpaw_PBE) is not set"
    return None


def _electrons(options: Options, electrons: Electrons) -> dict[str, Any]:
    new = dict(options)
    if electrons.charge:
        new.setdefault("charge", electrons.charge)  # ASE makes NELECT of it
    if electrons.spin is not None:
        new = {"ispin": 2, "nupdown": electrons.spin - 1, **new}
    return new


ENGINES = (
    Engine(
        "vasp",
        "density-functional theory, plane waves (VASP, licensed); PBE at the Γ point",
        vasp,
        how_to_install="put vasp_std on PATH or set ASE_VASP_COMMAND='mpirun -n 8 vasp_std', and "
        "set VASP_PP_PATH to the directory that holds potpaw_PBE",
        unavailable=_unavailable,
        settings="command, xc, encut, kpts, ismear, sigma, setups and all INCAR keys of "
        "ase.calculators.vasp.Vasp",
        electrons=_electrons,
        magmoms=True,
        vacuum=6.0,
        code=("command",),
    ),
)
