"""Our SOAP values against DScribe's."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from dscribe.descriptors import SOAP as Referee
from systems import species_of

from nugget import SOAP


@pytest.mark.parametrize("basis", [(3, 2), (6, 4), (8, 6), (9, 9)])
def test_values_agree_with_dscribe(system: list[Atoms], basis: tuple[int, int]) -> None:
    n_max, l_max = basis
    species = species_of(system)
    referee = Referee(
        species=species,
        r_cut=6.0,
        n_max=n_max,
        l_max=l_max,
        sigma=1.0,
        weighting={"function": "poly", "r0": 6.0, "c": 1, "m": 2},
        periodic=bool(system[0].pbc.any()),
    )
    expected = np.concatenate([referee.create(atoms) for atoms in system])
    values = SOAP(species, 6.0, n_max, l_max).compute(system).values
    assert values.shape == expected.shape
    assert np.linalg.norm(values - expected) <= 1e-8 * np.linalg.norm(expected)


def test_other_widths_and_cutoffs_agree_too() -> None:
    atoms = Atoms("Au4", positions=[[0, 0, 0], [2.5, 0, 0], [0, 2.7, 0.3], [1.1, 1.2, 2.0]])
    for cutoff, sigma in [(4.0, 0.3), (8.0, 0.5), (5.0, 1.7)]:
        referee = Referee(
            species=["Au"],
            r_cut=cutoff,
            n_max=6,
            l_max=4,
            sigma=sigma,
            weighting={"function": "poly", "r0": cutoff, "c": 1, "m": 2},
        )
        expected = referee.create(atoms)
        values = SOAP(["Au"], cutoff, 6, 4, sigma).compute(atoms).values
        assert np.linalg.norm(values - expected) <= 1e-8 * np.linalg.norm(expected)
