"""Fast potentials of ASE: effective-medium theory and Lennard-Jones."""

from __future__ import annotations

from typing import Any

from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones

from nugget.engines.engine import Engine
from nugget.engines.options import plain
from nugget.errors import NuggetError


class ClusterLennardJones(LennardJones):
    """ASE's Lennard-Jones; without a cutoff it rejects periodic structures."""

    unlimited = False

    def calculate(self, atoms: Atoms | None = None, *wanted: Any, **more: Any) -> None:
        if self.unlimited and atoms is not None and atoms.pbc.any():
            raise NuggetError(
                "Lennard-Jones for periodic structures needs a cutoff; give the option rc."
            )
        super().calculate(atoms, *wanted, **more)


def lennard_jones(
    sigma: float = 2.5, epsilon: float = 1.0, rc: float | None = None, **options: Any
) -> Calculator:
    """Lennard-Jones between all pairs, unless a cutoff rc is given.

    Energies are in units of epsilon for any sigma, so that published minima of clusters apply.
    sigma = 2.5 Å gives bonds of 2.81 Å, which match the covalent radii of gold in generators and
    bond graphs. ASE shifts the potential by its value at rc, here a negligible 4e-18 epsilon.
    """
    cutoff = 1000.0 * sigma if rc is None else rc
    calculator = ClusterLennardJones(sigma=sigma, epsilon=epsilon, rc=cutoff, **options)
    calculator.unlimited = rc is None
    return calculator


ENGINES = (
    Engine(
        "emt",
        "effective-medium theory (ASE); Al Cu Ag Au Ni Pd Pt, for tests",
        EMT,
        settings="asap_cutoff",
        options=plain("asap_cutoff", bool),
        cheap=True,
    ),
    Engine(
        "lj",
        "Lennard-Jones, no cutoff (ASE); its minima are published",
        lennard_jones,
        settings="sigma (Å), epsilon (eV), rc (Å; needed for periodic structures), smooth",
        options={**plain("sigma epsilon rc ro", float), **plain("smooth", bool)},
        cheap=True,
    ),
)
