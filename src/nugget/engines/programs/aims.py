"""FHI-aims, through ASE."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.engines.engine import (
    Electrons,
    Engine,
    configured,
    find_command,
    needs_command,
)
from nugget.engines.options import Options, code, plain

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
        options={
            **code("command"),
            **plain("species_dir xc relativistic spin occupation_type mixer", str),
            **plain("adjust_scf collect_eigenvectors override_relativity", str, bool),
            **plain("KS_method hybrid_xc_coeff vdw_correction_hirshfeld tier", str, int, float),
            **plain("charge fixed_spin_moment default_initial_moment", float, str),
            **plain("charge_mix_param prec_mix_param preconditioner", float, str),
            **plain("sc_accuracy_rho sc_accuracy_eev sc_accuracy_etot sc_accuracy_forces", float),
            **plain("sc_iter_limit n_max_pulay ini_linear_mixing empty_states", int),
            **plain("k_grid k_offset", list),
            **plain("compute_forces compute_analytical_stress many_body_dispersion", bool, str),
        },
    ),
)
