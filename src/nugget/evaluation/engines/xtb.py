"""Tight binding with tblite: GFN1-xTB and GFN2-xTB."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.errors import NuggetError
from nugget.evaluation.engines._base import Engine, option_names
from nugget.evaluation.engines._repeated import Repeated


def xtb(
    method: str,
    /,
    electronic_temperature: float = 1500.0,
    verbosity: int = 0,
    supercell: float = 0.0,
    **options: Any,
) -> Calculator:
    """tblite, silent. 1500 K of electronic temperature keep metal clusters converging.

    Set OMP_NUM_THREADS=1 before tblite is imported: two threads are many times slower than one.
    Evaluations in their own process (`nugget.evaluation.evaluator`) see to it. tblite knows one k
    point: with `supercell`, crystals are evaluated in cells at least so thick (Å).
    """
    if "method" in options:
        raise NuggetError("tblite's method is the name of the engine: gfn1-xtb or gfn2-xtb.")
    tblite = import_module("tblite.ase")
    made: Calculator = tblite.TBLite(
        method=method,
        electronic_temperature=electronic_temperature,
        verbosity=verbosity,
        **options,
    )
    return Repeated(made, supercell) if supercell > 0 else made


def _engine(name: str, method: str, description: str) -> Engine:
    return Engine(
        name,
        description,
        partial(xtb, method),
        "tblite",
        "pip install tblite",
        settings="electronic_temperature (K), supercell (Å, for crystals), accuracy, "
        "max_iterations, spin_polarization, solvation and others of tblite.ase.TBLite",
        electrons=option_names("charge", "multiplicity"),
        magmoms=True,
        one_k_point="supercell",
        cheap=True,
        forgetful={"cache_api": False},  # else it starts from the charges of the last structure
    )


ENGINES = (
    _engine(
        "gfn1-xtb",
        "GFN1-xTB",
        "GFN1-xTB tight binding (tblite); good for metals, 0.1 to 0.5 s for 10 to 20 atoms",
    ),
    _engine(
        "gfn2-xtb",
        "GFN2-xTB",
        "GFN2-xTB tight binding (tblite); for molecules; often does not converge on gold",
    ),
)
