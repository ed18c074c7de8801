"""Point groups of well-known structures, turned and shaken a little."""

import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.cluster import Icosahedron, Octahedron

from nugget.structures.symmetry import point_group


def square() -> Atoms:
    return Atoms("Au4", [[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]] * np.array(2.0))


CASES = {
    "Oh": Octahedron("Au", 2),
    "Ih": Icosahedron("Cu", 2),
    "Td": molecule("CH4"),
    "C2v": molecule("H2O"),
    "C3v": molecule("NH3"),
    "D6h": molecule("C6H6"),
    "D3h": molecule("BF3"),
    "D4h": square(),
}


@pytest.mark.parametrize("name", CASES)
def test_known_groups(name):
    rng = np.random.default_rng(0)
    atoms = CASES[name].copy()
    atoms.rotate(rng.uniform(20, 160), rng.normal(size=3))
    atoms.positions += rng.normal(0, 0.01, (len(atoms), 3)) + 5.0
    assert point_group(atoms) == name


def test_no_symmetry():
    rng = np.random.default_rng(1)
    assert point_group(Atoms("Au7", 3 * rng.normal(size=(7, 3)))) == "C1"
