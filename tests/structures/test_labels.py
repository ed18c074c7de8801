"""Stored results are used only for the very structure that they belong to."""

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.errors import NuggetError
from nugget.structures.labels import read_labels


def labelled() -> Atoms:
    atoms = Atoms("Au2", positions=[[0, 0, 0], [0, 0, 2.6]], cell=[8.0, 8.0, 8.0])
    atoms.calc = SinglePointCalculator(atoms, energy=-1.5, forces=np.ones((2, 3)))
    return atoms


def test_results_of_the_same_structure_are_read_and_not_shared():
    atoms = labelled()
    known = read_labels([atoms], None, False)[0]
    assert known.energy == -1.5
    known.forces[:] = 7.0
    assert np.all(atoms.calc.results["forces"] == 1.0)


@pytest.mark.parametrize(
    "change",
    [
        lambda atoms: atoms.positions.__iadd__(1e-9),
        lambda atoms: atoms.set_cell([8.0, 8.0, 8.1]),
        lambda atoms: atoms.set_pbc(True),
        lambda atoms: atoms.set_atomic_numbers([79, 47]),
        lambda atoms: atoms.set_initial_charges([1.0, 0.0]),
        lambda atoms: atoms.append("Au"),
    ],
    ids=["moved", "cell", "pbc", "element", "charge", "atom added"],
)
def test_results_of_another_structure_are_no_labels(change):
    atoms = labelled()
    change(atoms)
    with pytest.raises(NuggetError, match=r"Structure 0 .* has no energy"):
        read_labels([atoms], None, False)


def test_charges_that_were_there_all_along_do_no_harm():
    atoms = labelled()
    atoms.set_initial_charges([1.0, 0.0])
    atoms.calc = SinglePointCalculator(atoms, energy=-2.0)
    assert read_labels([atoms], False, False)[0].energy == -2.0
