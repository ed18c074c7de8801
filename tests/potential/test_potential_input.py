"""What a potential says to bad or scanty structures, and how it goes on."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from test_potential import KINDS, TESTED, fitted

from nugget import SOAP, NuggetError, Potential


def bare(atoms: Atoms, **results: object) -> Atoms:
    atoms = atoms.copy()
    if results:
        atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def test_bad_labels_are_named() -> None:
    good = KINDS["cluster"][0]
    pot = Potential(SOAP(["Au"], 5.0))
    with pytest.raises(NuggetError, match=r"Structure 1 \(Au8\) has no energy"):
        pot.fit([good, bare(good)])
    with pytest.raises(NuggetError, match="Structure 1: the energy label is not finite"):
        pot.fit([good, bare(good, energy=np.nan)])
    with pytest.raises(NuggetError, match="Structure 1: the forces label is not finite"):
        pot.fit([good, bare(good, energy=0.0, forces=np.full((8, 3), np.inf))])
    with pytest.raises(NuggetError, match="Structure 0 has no forces"):
        pot.fit([bare(good, energy=1.0)], use_forces=True)
    with pytest.raises(NuggetError, match="has no stress"):
        pot.fit([good], use_stress=True)
    with pytest.raises(NuggetError, match="no structures"):
        pot.fit([])
    with pytest.raises(NuggetError, match="has not been fitted"):
        pot.predict(good)
    with pytest.raises(NuggetError, match=r"element Cu is not among \['Au'\]"):
        pot.fit([*KINDS["cluster"], KINDS["slab"][0]])
    pot.fit(KINDS["cluster"])
    with pytest.raises(NuggetError, match="Structure 0 has no cell volume"):
        pot.predict(good, stress=True)


def test_an_element_unseen_in_training_is_named() -> None:
    pot = Potential(SOAP(["Cu", "Au"], 5.0)).fit(KINDS["cluster"])
    with pytest.raises(NuggetError, match="no training structure contains Cu"):
        pot.predict(Atoms("AuCu", positions=[[0, 0, 0], [2.5, 0, 0]]))


def test_one_structure_and_identical_structures_are_enough() -> None:
    one = KINDS["cluster"][0]
    for images in ([one], [one, one, one]):
        pot = Potential(SOAP(["Au"], 5.0)).fit(images, use_forces=False)
        found = pot.predict(one)
        assert found.energy[0] == pytest.approx(one.get_potential_energy(), abs=1e-6)
        assert np.isfinite(found.energy_uncertainty[0])


def test_a_walk_goes_on_when_two_atoms_meet() -> None:
    pot = fitted("cluster")
    good, bad = TESTED["cluster"], TESTED["cluster"].copy()
    walk = pot.lcb(1.0).start([good, bad, good])
    positions = np.concatenate([good.positions, bad.positions, good.positions])
    positions[9] = positions[8] + [0.01, 0.0, 0.0]
    values, gradients = walk(positions, np.arange(3))
    assert np.isnan(values[1])
    np.testing.assert_allclose(values[[0, 2]], pot.lcb(1.0)([good])[0][0], rtol=1e-10)
    assert np.isfinite(gradients[:8]).all()
    bad.positions[1] = bad.positions[0] + [0.01, 0.0, 0.0]
    with pytest.raises(NuggetError, match="Å apart"):
        pot.lcb(1.0)([good, bad])


def test_a_message_about_a_large_batch_counts_from_its_beginning(monkeypatch):
    pot = Potential(SOAP(["Au"], 4.0)).fit(KINDS["cluster"])
    monkeypatch.setattr("nugget.potential.fitted._PART", 1)  # one structure at a time
    images = [atoms.copy() for atoms in KINDS["cluster"]]
    images[2].positions[1] = images[2].positions[0]
    with pytest.raises(NuggetError, match="Structure 2: atoms 0 and 1"):
        pot.predict(images)
    with pytest.raises(NuggetError, match="Structure 2: atoms 0 and 1"):
        pot.lcb(1.0)(images)
