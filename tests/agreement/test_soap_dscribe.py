"""Our SOAP values against DScribe's."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from dscribe.descriptors import SOAP as Referee
from example_structures import species_of

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


@pytest.mark.parametrize("compression", ["mu1nu1", "mu2"])
@pytest.mark.parametrize(("n_max", "l_max"), [(3, 2), (5, 4)])
def test_compressed_features_are_those_of_dscribe(compression: str, n_max: int, l_max: int):
    rng = np.random.default_rng(4)
    cluster = Atoms("Cu4Pt3Au4", 1.9 * rng.normal(size=(11, 3)))
    crystal = bulk("Cu", cubic=True)
    crystal.symbols[1:3] = ["Pt", "Au"]
    crystal.rattle(0.1, seed=1)
    elements = ["Cu", "Pt", "Au"]
    ours = SOAP(elements, 5.0, n_max, l_max, compression=compression)
    for atoms in (cluster, crystal):
        theirs = Referee(
            species=elements, r_cut=5.0, n_max=n_max, l_max=l_max, sigma=1.0,
            weighting={"function": "poly", "r0": 5.0, "c": 1, "m": 2},
            periodic=bool(atoms.pbc.any()),
            compression={"mode": compression, "species_weighting": None},
        ).create(atoms)  # fmt: skip
        np.testing.assert_allclose(ours.compute(atoms).values, theirs, rtol=1e-6, atol=1e-6)


def test_compressed_features_grow_with_elements_as_they_should():
    counts = {
        mode: [
            SOAP(e, 5.0, compression=mode).n_features for e in (["H"], ["H", "C"], ["H", "C", "O"])
        ]
        for mode in ("off", "mu1nu1", "mu2")
    }
    assert counts == {"off": [18, 63, 135], "mu1nu1": [27, 54, 81], "mu2": [18, 18, 18]}
