"""VASP, through ASE."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator
from ase.config import cfg

from nugget.engines.engine import Electrons, Engine, find_command, needs_command
from nugget.engines.options import Option, Options, code, plain, writes

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
        new.setdefault("charge", electrons.charge)  # ASE converts it to NELECT
    if electrons.spin is not None:
        new = {"ispin": 2, "nupdown": electrons.spin - 1, **new}
    return new


def _options() -> dict[str, Option]:
    """All INCAR keys that ASE knows, by its own lists of types."""
    lists = import_module("ase.calculators.vasp.create_input")
    kinds: dict[str, tuple[type, ...]] = {
        "float": (float,), "exp": (float,), "string": (str,), "int": (int, float),
        "bool": (bool,), "list_int": (list,), "list_bool": (list,), "list_float": (list,),
        "special": (str, bool),
    }  # fmt: skip
    incar = {
        key: option
        for kind, types in kinds.items()
        for key, option in plain(" ".join(getattr(lists, f"{kind}_keys")), *types).items()
    }
    return {
        **incar,
        **plain("xc pp", str),
        **plain("setups", str, dict),
        **plain("kpts", list, float, dict),
        **plain("gamma reciprocal", bool, list),
        **plain("charge", float),
        **plain("ldau_luj", dict),
        **code("command"),
        **writes("txt"),
    }


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
        options=_options,
    ),
)
