"""Tersoff's potential for silicon, carbon and silicon carbide (ASE's calculator)."""

from __future__ import annotations

from importlib import import_module
from itertools import product
from math import sqrt
from typing import Any

from ase import Atoms
from ase.calculators.calculator import Calculator

from nugget.engines.engine import Engine
from nugget.engines.options import plain
from nugget.errors import NuggetError

# J. Tersoff, Phys. Rev. B 39, 5566 (1989), Table I: A, B (eV), lambda, mu (1/Å), beta, n, c, d, h,
# R, S (Å), and chi of the pair Si-C.
_ELEMENTS: dict[str, dict[str, float]] = {
    "C": {
        "A": 1393.6, "B": 346.74, "lambda": 3.4879, "mu": 2.2119, "beta": 1.5724e-7, "n": 0.72751,
        "c": 3.8049e4, "d": 4.3484, "h": -0.57058, "R": 1.8, "S": 2.1,
    },
    "Si": {
        "A": 1830.8, "B": 471.18, "lambda": 2.4799, "mu": 1.7322, "beta": 1.1e-6, "n": 0.78734,
        "c": 1.0039e5, "d": 16.217, "h": -0.59825, "R": 2.7, "S": 3.0,
    },
}  # fmt: skip


_CHI = 0.9776


def _parameters(first: str, second: str, third: str) -> dict[str, float]:
    """Parameters of the bond first-second with the cutoff of the pair first-third, as in LAMMPS."""
    i, j, k = (_ELEMENTS[symbol] for symbol in (first, second, third))
    inner, outer = sqrt(i["R"] * k["R"]), sqrt(i["S"] * k["S"])
    return {
        "m": 3.0,
        "gamma": 1.0,
        "lambda3": 0.0,
        "c": i["c"],
        "d": i["d"],
        "h": i["h"],
        "n": i["n"],
        "beta": i["beta"],
        "lambda2": (i["mu"] + j["mu"]) / 2,
        "B": (1.0 if first == second else _CHI) * sqrt(i["B"] * j["B"]),
        "R": (inner + outer) / 2,
        "D": (outer - inner) / 2,
        "lambda1": (i["lambda"] + j["lambda"]) / 2,
        "A": sqrt(i["A"] * j["A"]),
    }


def tersoff(skin: float = 0.3) -> Calculator:
    """Tersoff (1989) for Si, C and SiC, with stress."""
    module = import_module("ase.calculators.tersoff")

    class SiliconCarbon(module.Tersoff):  # type: ignore[name-defined]
        def calculate(self, atoms: Atoms | None = None, *args: Any, **kwargs: Any) -> None:
            if atoms is not None and (others := sorted(set(atoms.symbols) - set(_ELEMENTS))):
                raise NuggetError(
                    f"this Tersoff potential supports Si and C, not {', '.join(others)}."
                )
            super().calculate(atoms, *args, **kwargs)

        def _calc_bij_d(self, zeta: float, beta: float, n: float) -> float:
            # For a bond without other neighbours ASE divides by zero, but does not use the result.
            return float(super()._calc_bij_d(zeta, beta, n)) if zeta > 0 else 0.0

    return SiliconCarbon(
        {
            key: module.TersoffParameters(**_parameters(*key))
            for key in product(_ELEMENTS, repeat=3)
        },
        skin=skin,
    )


ENGINES = (
    Engine(
        "tersoff",
        "Tersoff's potential of 1989 (ASE); Si, C and SiC",
        tersoff,
        "ase.calculators.tersoff",
        "pip install 'ase>=3.26'",
        settings="skin (Å)",
        options=plain("skin", float),
        cheap=True,
    ),
)
