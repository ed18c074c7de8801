"""PySCF: forces against differences of energies, and iterations that do not converge at once."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.units import Hartree

from nugget.engines.engine import get_engine

pytest.importorskip("pyscf", reason="PySCF is not installed")


def engine(**options):
    return get_engine("pyscf").calculator(method="hf", basis="3-21g", **options)


def test_forces_are_the_slope_of_the_energy():
    atoms = molecule("H2O")
    atoms.rattle(0.05, seed=0)
    atoms.calc = engine()
    force, energies = atoms.get_forces()[1, 2], []
    for step in (0.005, -0.005):
        moved = atoms.copy()
        moved.positions[1, 2] += step
        moved.calc = engine()
        energies.append(moved.get_potential_energy())
    assert force == pytest.approx((energies[1] - energies[0]) / 0.01, abs=2e-3)


def test_an_interrupted_iteration_is_converged_with_second_order_steps():
    atoms = Atoms("CNH", positions=[[0, 0, 0], [1.2, 0, 0], [0.3, 1.1, 0]])
    atoms.calc = engine()
    few = atoms.copy()
    few.calc = engine(max_cycle=6)  # too few for the first attempt
    assert few.get_potential_energy() == pytest.approx(atoms.get_potential_energy(), abs=1e-5)
    assert np.allclose(few.get_forces(), atoms.get_forces(), atol=1e-3)


def test_a_field_that_does_not_converge_is_an_error_with_its_energy():
    few = molecule("H2O")
    few.calc = engine(max_cycle=1)
    with pytest.raises(Exception, match=r"SCF not converged, last energy -7\d\.\d+ Hartree"):
        few.get_potential_energy()


def test_an_open_shell_does_not_stay_in_an_unstable_solution():
    """CN at 1.5 Å: the default guess leads to a solution 2.3 eV above a stable one."""
    from pyscf import gto, scf

    atoms = Atoms("CN", positions=[[0, 0, 0], [0, 0, 1.5]])
    atoms.calc = engine(multiplicity=2)
    places = list(zip("CN", atoms.positions.tolist(), strict=True))
    field = scf.UHF(gto.M(atom=places, basis="3-21g", spin=1, verbose=0)).run(conv_tol=1e-9)
    assert field.converged
    assert atoms.get_potential_energy() < field.e_tot * Hartree - 1.0
    energies = []
    for step in (0.005, -0.005):
        moved = Atoms("CN", positions=[[0, 0, 0], [0, 0, 1.5 + step]])
        moved.calc = engine(multiplicity=2)
        energies.append(moved.get_potential_energy())
    assert -atoms.get_forces()[1, 2] == pytest.approx((energies[0] - energies[1]) / 0.01, abs=5e-3)
