"""Quantum ESPRESSO, through ASE."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.errors import NuggetError
from nugget.evaluation.engines._base import Electrons, Engine, Options
from nugget.evaluation.engines._programs import configured, find_command, merged, needs_command

_VARIABLES, _PROGRAMS = ("ASE_ESPRESSO_COMMAND",), ("pw.x",)
_PSEUDO = ("ESPRESSO_PSEUDO",)


def espresso(pseudopotentials: dict[str, str] | None = None, **options: Any) -> Calculator:
    """PBE-like defaults at the Γ point: 50 and 400 Ry cutoffs, Gaussian smearing of 0.01 Ry."""
    if not pseudopotentials:
        raise NuggetError(
            "espresso needs the option pseudopotentials, one file per element, as "
            '{Au = "Au_ONCV_PBE-1.0.oncvpsp.upf"}.'
        )
    module = import_module("ase.calculators.espresso")
    profile = module.EspressoProfile(
        find_command("espresso", options, _VARIABLES, _PROGRAMS),
        configured("espresso", "pseudo_dir", options, _PSEUDO),
    )
    data = {
        "control": {"tprnfor": True, "tstress": True},
        "system": {
            "ecutwfc": 50, "ecutrho": 400, "occupations": "smearing", "smearing": "gaussian",
            "degauss": 0.01,
        },
        "electrons": {"conv_thr": 1e-7, "electron_maxstep": 200},
    }  # fmt: skip
    rest = {k: v for k, v in options.items() if k not in ("command", "pseudo_dir", "input_data")}
    return module.Espresso(
        profile=profile,
        pseudopotentials=pseudopotentials,
        input_data=merged(data, options.get("input_data", {})),
        **rest,
    )


def _unavailable(options: Options) -> str | None:
    if (reason := needs_command("espresso", _VARIABLES, _PROGRAMS)(options)) is not None:
        return reason
    if configured("espresso", "pseudo_dir", options, _PSEUDO) is None:
        return "no directory of pseudopotentials (option pseudo_dir or ESPRESSO_PSEUDO)"
    return None


def _electrons(options: Options, electrons: Electrons) -> dict[str, Any]:
    system: dict[str, Any] = {"tot_charge": electrons.charge} if electrons.charge else {}
    if electrons.spin is not None:
        system |= {"nspin": 2, "tot_magnetization": electrons.spin - 1}
    return {
        **options,
        "input_data": merged({"system": system}, options.get("input_data", {})),
    }


def _explain(directory: Path) -> tuple[bool, str] | None:
    """From espresso.pwo: convergence was not achieved, or what stands between lines of %."""
    try:
        text = (directory / "espresso.pwo").read_text(errors="replace")
    except OSError:
        return None
    if (found := re.search(r"convergence NOT achieved.*", text)) is not None:
        return True, f"pw.x: {found[0].split(':')[0].strip()}"
    if (found := re.search(r"^ *%{20,}\n(.*?)\n *%{20,}", text, re.DOTALL | re.MULTILINE)) is None:
        return None
    return False, f"pw.x: {' '.join(found[1].split())}"


ENGINES = (
    Engine(
        "espresso",
        "density-functional theory, plane waves (Quantum ESPRESSO)",
        espresso,
        how_to_install="conda install -c conda-forge qe (or apt-get install quantum-espresso), and "
        "set ESPRESSO_PSEUDO to the directory of the pseudopotentials",
        unavailable=_unavailable,
        settings="pseudopotentials (needed), pseudo_dir, command, kpts, input_data and others of "
        "ase.calculators.espresso.Espresso",
        electrons=_electrons,
        magmoms=True,
        vacuum=6.0,
        code=("command",),
        explain=_explain,
    ),
)
