"""Quick potentials that come with ASE: effective-medium theory and Lennard-Jones."""

from __future__ import annotations

from typing import Any

from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones

from nugget.errors import NuggetError
from nugget.evaluation.engines._base import Engine


class ClusterLennardJones(LennardJones):
    """ASE's Lennard-Jones, refusing periodic structures when no cutoff was chosen."""

    unlimited = False

    def calculate(self, atoms: Atoms | None = None, *wanted: Any, **more: Any) -> None:
        if self.unlimited and atoms is not None and atoms.pbc.any():
            raise NuggetError(
                "Lennard-Jones without cutoff cannot do periodic structures; give the option rc."
            )
        super().calculate(atoms, *wanted, **more)


def lennard_jones(
    sigma: float = 2.5, epsilon: float = 1.0, rc: float | None = None, **options: Any
) -> Calculator:
    """Lennard-Jones with every pair counted, unless a cutoff rc is given.

    Energies are in units of epsilon whatever sigma is: the published minima of clusters hold.
    sigma = 2.5 Å makes bonds of 2.81 Å, so that gold's covalent radii fit for generators and bond
    graphs. ASE lifts the potential by its value at rc: 4e-18 epsilon at 1000 sigma, so none.
    """
    reach = 1000.0 * sigma if rc is None else rc
    calculator = ClusterLennardJones(sigma=sigma, epsilon=epsilon, rc=reach, **options)
    calculator.unlimited = rc is None
    return calculator


ENGINES = (
    Engine(
        "emt",
        "effective-medium theory (ASE); Al Cu Ag Au Ni Pd Pt, for tests",
        EMT,
        settings="asap_cutoff",
        cheap=True,
    ),
    Engine(
        "lj",
        "Lennard-Jones, no cutoff (ASE); its minima are published",
        lennard_jones,
        settings="sigma (Å), epsilon (eV), rc (Å; needed for periodic structures), smooth",
        cheap=True,
    ),
)
