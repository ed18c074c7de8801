"""ORCA, through ASE."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.engines.engine import Engine, find_command, needs_command, option_names
from nugget.engines.options import code, matching, plain

# PATH is not searched, since a screen reader is also called orca.
_VARIABLES, _PROGRAMS = ("ASE_ORCA_COMMAND", "ORCA_COMMAND"), ()


def orca(
    orcasimpleinput: str = "PBE def2-SVP", orcablocks: str = "%pal nprocs 1 end", **options: Any
) -> Calculator:
    """PBE in a def2-SVP basis, one process."""
    module = import_module("ase.calculators.orca")
    profile = module.OrcaProfile(find_command("orca", options, _VARIABLES, _PROGRAMS))
    options.pop("command", None)
    if "engrad" not in orcasimpleinput.lower():
        orcasimpleinput += " EnGrad"
    return module.ORCA(
        profile=profile, orcasimpleinput=orcasimpleinput, orcablocks=orcablocks, **options
    )


ENGINES = (
    Engine(
        "orca",
        "density-functional theory and wave functions for molecules (ORCA, free for academics)",
        orca,
        how_to_install="download it from the ORCA forum, and set ASE_ORCA_COMMAND to the full path "
        "of its program orca",
        unavailable=needs_command("orca", _VARIABLES, _PROGRAMS),
        settings="orcasimpleinput, orcablocks, command and others of ase.calculators.orca.ORCA",
        electrons=option_names("charge", "mult"),
        # Blocks (%method ProgExt "...") name programs; keywords have none of their signs.
        options={
            **code("command orcablocks"),
            **plain("orcasimpleinput", str, harmless=matching(r"[\w !()+\-*/,.:=^]*")),
            **plain("charge mult", int),
        },
    ),
)
