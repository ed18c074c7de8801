"""GPAW: density-functional theory in Python."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.engines.engine import Engine, option_names
from nugget.engines.options import plain, writes


def gpaw(**options: Any) -> Calculator:
    """PBE in a dzp basis of atomic orbitals, 0.25 Å grid, Fermi width 0.1 eV.

    Densities are mixed more slowly than by default, because searches evaluate clusters with
    stretched bonds, in which charge sloshing prevents convergence.
    """
    settings: dict[str, Any] = {
        "mode": "lcao",
        "basis": "dzp",
        "xc": "PBE",
        "h": 0.25,
        "occupations": {"name": "fermi-dirac", "width": 0.1},
        "mixer": {"backend": "pulay", "beta": 0.1, "nmaxold": 5, "weight": 50.0},
        "txt": "gpaw.txt",  # in the scratch directory, kept when the calculation fails
    }
    return import_module("gpaw").GPAW(**{**settings, **options})


ENGINES = (
    Engine(
        "gpaw",
        "density-functional theory, PBE (GPAW, LCAO dzp); about 20 s for Au20",
        gpaw,
        "gpaw",
        "apt-get install libxc-dev libopenblas-dev libfftw3-dev, then "
        "pip install gpaw==25.7.0 gpaw-data (see the page on GPAW for other versions)",
        settings="mode, basis, xc, h, kpts, occupations and others of gpaw.GPAW",
        options={
            **plain("mode basis xc setups occupations mixer eigensolver poissonsolver", str, dict),
            **plain("symmetry", str, dict),
            **plain("kpts", dict, list),
            **plain("gpts", list),
            **plain("convergence", dict),
            **plain("h charge", float),
            **plain("nbands", int, str),
            **plain("maxiter", int),
            **plain("spinpol hund random", bool),
            **writes("txt"),
        },
        electrons=option_names("charge", None),
        magmoms=True,
        vacuum=4.0,
    ),
)
