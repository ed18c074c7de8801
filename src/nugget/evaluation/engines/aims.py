"""FHI-aims, through ASE."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.evaluation.engines._base import Electrons, Engine, Options
from nugget.evaluation.engines._programs import configured, find_command, needs_command

_VARIABLES, _PROGRAMS = ("ASE_AIMS_COMMAND", "AIMS_COMMAND"), ("aims.x", "aims")
_SPECIES = ("AIMS_SPECIES_DIR",)


def _species(options: Options) -> str | None:
    return options.get("species_dir") or configured(
        "aims", "default_species_directory", {}, _SPECIES
    )


def aims(**options: Any) -> Calculator:
    """PBE with scalar relativity (atomic ZORA) and forces."""
    module = import_module("ase.calculators.aims")
    profile = module.AimsProfile(
        find_command("aims", options, _VARIABLES, _PROGRAMS), _species(options)
    )
    options.pop("command", None)
    settings = {
        "xc": "pbe", "relativistic": "atomic_zora scalar", "compute_forces": True,
        "species_dir": _species(options),
    }  # fmt: skip
    return module.Aims(profile=profile, **{**settings, **options})


def _unavailable(options: Options) -> str | None:
    if (reason := needs_command("aims", _VARIABLES, _PROGRAMS)(options)) is not None:
        return reason
    if _species(options) is None:
        return "no directory of species defaults (option species_dir or AIMS_SPECIES_DIR)"
    return None


def _electrons(options: Options, electrons: Electrons) -> dict[str, Any]:
    new = dict(options)
    if electrons.charge:
        new.setdefault("charge", electrons.charge)
    if electrons.spin is not None:
        new = {"spin": "collinear", "fixed_spin_moment": electrons.spin - 1, **new}
    return new


ENGINES = (
    Engine(
        "aims",
        "density-functional theory, all electrons (FHI-aims, licensed)",
        aims,
        how_to_install="put aims.x on PATH or set ASE_AIMS_COMMAND='mpirun -n 8 aims.x', and set "
        "AIMS_SPECIES_DIR to one of its species_defaults",
        unavailable=_unavailable,
        settings="species_dir, xc, k_grid, relativistic, command and all control.in keys of "
        "ase.calculators.aims.Aims",
        electrons=_electrons,
        magmoms=True,
        code=("command",),
    ),
)
