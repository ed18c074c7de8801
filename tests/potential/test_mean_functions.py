from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from example_structures import SYSTEMS, alloy_slab, gold_cluster

from nugget.errors import NuggetError
from nugget.potential.mean_functions.base import (
    MeanFunction,
    SpeciesEnergies,
    SumMeanFunction,
    mean_function_from_settings,
    mean_function_settings,
)
from nugget.potential.mean_functions.from_models import CalculatorMean
from nugget.potential.mean_functions.pair_terms import PairWell, Repulsion
from nugget.structures.batch import as_batch

PRIORS: list[MeanFunction] = [
    Repulsion(reach=1.2),
    PairWell(),
    SumMeanFunction((Repulsion(reach=1.3), PairWell(depth=0.2))),
]


def total(prior: MeanFunction, atoms: Atoms) -> float:
    return float(prior.evaluate(as_batch(atoms)).energies.sum())


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("name", ["Au20", "slab", "NaCl"])
def test_derivatives_are_those_of_differences(prior: MeanFunction, name: str) -> None:
    atoms = SYSTEMS[name][0]
    found = prior.evaluate(as_batch(atoms))
    h = 1e-5
    for i, axis in [(0, 0), (1, 2)]:
        values = []
        for step in (h, -h):
            moved = atoms.copy()
            moved.positions[i, axis] += step
            values.append(total(prior, moved))
        slope = (values[0] - values[1]) / (2 * h)
        scale = np.abs(found.gradient).max()
        assert found.gradient[i, axis] == pytest.approx(slope, abs=1e-6 * scale)
    values = []
    for step in (h, -h):
        strain = np.eye(3)
        strain[0, 1] += step
        bent = atoms.copy()
        bent.cell = bent.cell.array @ strain.T
        bent.positions = bent.positions @ strain.T
        values.append(total(prior, bent))
    slope = (values[0] - values[1]) / (2 * h)
    assert found.strain[0, 0, 1] == pytest.approx(slope, abs=1e-6 * np.abs(found.strain).max())


@pytest.mark.parametrize("distance", [0.0, 1e-9, 1e-3, 0.1, 0.5, 1.0, 1.5, 2.0])
def test_repulsion_always_pushes_apart(distance: float) -> None:
    batch = as_batch(Atoms("Au2", positions=[[0, 0, 0], [distance, 0, 0]]))
    found = Repulsion().evaluate(batch)
    assert np.isfinite(found.gradient).all()
    assert found.gradient[1, 0] < 0 < found.gradient[0, 0]
    assert total(Repulsion(), Atoms("Au2", positions=[[0, 0, 0], [2.5, 0, 0]])) == 0.0


def test_species_energies_by_least_squares() -> None:
    images = [Atoms("Au3Cu"), Atoms("AuCu2"), Atoms("Cu4"), Atoms("Au2")]
    for k, atoms in enumerate(images):
        atoms.positions = np.arange(3 * len(atoms)).reshape(-1, 3) * 3.0 + k
    batch = as_batch(images)
    truth = {"Au": -108.3, "Cu": 2.5}
    energies = np.array([sum(truth[s] for s in atoms.symbols) for atoms in images])
    prior = SpeciesEnergies().fit(batch, energies)
    assert dict(prior.energies) == pytest.approx(truth)
    assert prior.fit(batch, energies * 2) is prior  # fitted once, then it stays
    with pytest.raises(NuggetError, match="no training structure contains C"):
        prior.evaluate(as_batch([images[0], Atoms("C")]))


def test_one_composition_is_no_problem() -> None:
    images = [gold_cluster(6, s) for s in range(3)]
    prior = SpeciesEnergies().fit(as_batch(images), np.array([-6.0, -12.0, -9.0]))
    assert dict(prior.energies)["Au"] == pytest.approx(-1.5)


def test_calculator_prior_is_the_calculator() -> None:
    images = [gold_cluster(6, 1), alloy_slab()]
    found = CalculatorMean("emt").evaluate(as_batch(images))
    for s, atoms in enumerate(images):
        atoms = atoms.copy()
        atoms.calc = EMT()
        rows = slice(*as_batch(images).offsets[s : s + 2])
        assert found.energies[rows].sum() == pytest.approx(atoms.get_potential_energy())
        np.testing.assert_allclose(found.gradient[rows], -atoms.get_forces(), atol=1e-10)


def test_sum_fits_what_is_left_over() -> None:
    images = [gold_cluster(6, s) for s in range(4)]
    batch = as_batch(images)
    well = PairWell()
    energies = np.array([total(well, atoms) - 3.0 * len(atoms) for atoms in images])
    prior = SumMeanFunction((SpeciesEnergies(), well)).fit(batch, energies)
    found = np.add.reduceat(prior.evaluate(batch).energies, batch.offsets[:-1])
    np.testing.assert_allclose(found, energies)


@pytest.mark.parametrize(
    "prior", [*PRIORS, SpeciesEnergies(), SpeciesEnergies((("Au", 1.5),)), CalculatorMean("emt")]
)
def test_settings_come_back(prior: MeanFunction) -> None:
    assert mean_function_from_settings(mean_function_settings(prior)) == prior
