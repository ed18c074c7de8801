"""Cations and anions alternate, by distances between all pairs of atoms."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.data import covalent_radii
from scipy.spatial.distance import cdist

from nugget.generators import make_generator, suits
from nugget.generators.alternating import LIKE, NEAR
from nugget.systems import PlacedAtoms

FORMULAS = ("Ti4O8", "Al4O6", "Mg6O6", "Na8Cl8", "MgAl2O4")


def checked(atoms: Atoms) -> None:
    """Every ion has a neighbour of the other sign; those of its own sign are far."""
    anion = np.isin(atoms.symbols, ["O", "Cl"])
    radii = covalent_radii[atoms.numbers]
    distances = cdist(atoms.positions, atoms.positions)
    np.fill_diagonal(distances, np.inf)
    sums = radii[:, None] + radii
    unlike = anion[:, None] != anion
    assert np.where(unlike, distances / sums, np.inf).min(axis=1).max() <= 1.3
    assert (distances / sums)[unlike].min() >= NEAR - 1e-9
    apart = LIKE * (radii[anion].mean() + radii[~anion].mean())
    # Pairs of different cations use the radius of the ion that was placed last.
    assert distances[~unlike].min() >= 0.8 * apart


@pytest.mark.parametrize("formula", FORMULAS)
def test_ions_alternate(formula):
    system, rng = PlacedAtoms.cluster(formula), np.random.default_rng(0)
    for _ in range(10):
        made = make_generator("alternating")(rng, system)
        assert isinstance(made, Atoms)
        checked(made)


def test_only_systems_of_cations_and_anions_are_suited():
    alternating = make_generator("alternating")
    for formula in ("Au20", "Cu5Au8", "S8", "C4H4O2"):
        assert not suits(alternating, PlacedAtoms.cluster(formula))
