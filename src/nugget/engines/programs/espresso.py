"""Quantum ESPRESSO, through ASE."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ase import Atoms
from ase.calculators.calculator import Calculator

from nugget.engines.engine import (
    Electrons,
    Engine,
    configured,
    find_command,
    merged,
    needs_command,
)
from nugget.engines.options import Options, code, matching, plain
from nugget.errors import NuggetError

_VARIABLES, _PROGRAMS = ("ASE_ESPRESSO_COMMAND",), ("pw.x",)

_PSEUDO = ("ESPRESSO_PSEUDO",)


def espresso(pseudopotentials: dict[str, str] | None = None, **options: Any) -> Calculator:
    """PBE-like defaults at the Γ point: 50 and 400 Ry cutoffs, Gaussian smearing of 0.01 Ry."""
    if not pseudopotentials:
        raise NuggetError(
            "espresso needs the option pseudopotentials, one file per element, as "
            '{Au = "Au_ONCV_PBE-1.0.oncvpsp.upf"}.'
        )
    files = pseudopotentials
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

    class Espresso(module.Espresso):  # type: ignore[name-defined]
        def calculate(self, atoms: Atoms | None = None, *args: Any, **kwargs: Any) -> None:
            if missing := sorted(set(() if atoms is None else atoms.symbols) - set(files)):
                raise NuggetError(
                    f"espresso has no pseudopotential for {', '.join(missing)}; add its file to "
                    "engine.options.pseudopotentials."
                )
            super().calculate(atoms, *args, **kwargs)

    return Espresso(
        profile=profile,
        pseudopotentials=pseudopotentials,
        input_data=merged(data, options.get("input_data", {})),
        **rest,
    )


def _check_namelists(options: Options) -> None:
    """Refuse namelists and bare keys that pw.x does not have; ASE would drop them."""
    keys = import_module("ase.io.espresso_namelist.keys").ALL_KEYS["pw"]
    known = {key.lower(): name for name, section in keys.items() for key in (name, *section)}
    for name, value in options.get("input_data", {}).items():
        nested = isinstance(value, Mapping)
        if name.lower().split("(")[0] in (keys if nested else known):
            continue
        near = difflib.get_close_matches(name.lower(), keys if nested else known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(keys)}."
        what = "namelist" if nested else "key"
        raise NuggetError(f"engine 'espresso': pw.x has no {what} {name!r} (input_data); {hint}")


# Keys of the namelist control that name places where pw.x writes.
_PLACES = ("outdir", "wfcdir", "prefix")


def _stays_in_scratch(data: Any) -> bool:
    """Whether input_data names no place to write, and nothing that ends a quoted text."""
    if isinstance(data, Mapping):
        return all(
            matching(r"[\w%(),]+")(key) and key.lower() not in _PLACES and _stays_in_scratch(value)
            for key, value in data.items()
        )
    return not isinstance(data, str) or not set(data) & set("'\"\\")


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
    """The error message in espresso.pwo: no convergence, or the text between lines of %."""
    try:
        text = (directory / "espresso.pwo").read_text(errors="replace")
    except OSError:
        return None
    if (match := re.search(r"convergence NOT achieved.*", text)) is not None:
        return True, f"pw.x: {match[0].split(':')[0].strip()}"
    if (match := re.search(r"^ *%{20,}\n(.*?)\n *%{20,}", text, re.DOTALL | re.MULTILINE)) is None:
        return None
    return False, f"pw.x: {' '.join(match[1].split())}"


ENGINES = (
    Engine(
        "espresso",
        "density-functional theory, plane waves (Quantum ESPRESSO)",
        espresso,
        how_to_install="conda install -c conda-forge qe (or apt-get install quantum-espresso "
        "quantum-espresso-data), and set ESPRESSO_PSEUDO to the directory of the pseudopotentials",
        unavailable=_unavailable,
        settings="pseudopotentials (needed), pseudo_dir, command, kpts, input_data and others of "
        "ase.calculators.espresso.Espresso",
        electrons=_electrons,
        magmoms=True,
        vacuum=6.0,
        options={
            **code("command"),
            **plain("pseudopotentials", dict),
            **plain("pseudo_dir", str),
            **plain("kpts", list, dict),
            **plain("koffset", list),
            **plain("kspacing", float),
            **plain("input_data", dict, harmless=_stays_in_scratch),
        },
        check=_check_namelists,
        explain=_explain,
    ),
)
