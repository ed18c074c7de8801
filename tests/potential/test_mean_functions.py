from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import SYSTEMS, alloy_slab, gold_cluster

from nugget.errors import NuggetError
from nugget.potential.mean_functions.base import (
    MeanFunction,
    SpeciesEnergies,
    SumMeanFunction,
    mean_function_from_settings,
    mean_function_settings,
)
from nugget.potential.mean_functions.bond_order import BondOrder
from nugget.potential.mean_functions.fitted_form import unexplained
from nugget.potential.mean_functions.from_models import CalculatorMean
from nugget.potential.mean_functions.pair_terms import PairWell, Repulsion
from nugget.potential.mean_functions.second_moment import SecondMoment
from nugget.potential.training import Training
from nugget.structures.batch import as_batch

PRIORS: list[MeanFunction] = [
    Repulsion(reach=1.2),
    PairWell(),
    SumMeanFunction((Repulsion(reach=1.3), PairWell(depth=0.2))),
    SecondMoment((("Au", "Au", 0.2, 1.8, 10.2, 4.0, 2.9),), cutoff=6.3),
    BondOrder((("Au", "Cl", 2.0, 2.4, 1.5, 1.3, 4.1),), (("Au", 0.2, 0.9, 0.8, -0.2),)),
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


# A and ξ (eV), p and q of F. Cleri and V. Rosato, Phys. Rev. B 48, 22 (1993), table II.
CLERI_ROSATO = {
    "Cu": (0.0855, 1.224, 10.960, 2.278, 3.615, 3.544),
    "Au": (0.2061, 1.790, 10.229, 4.036, 4.079, 3.779),
}


@pytest.mark.parametrize("symbol", CLERI_ROSATO)
def test_second_moment_has_the_published_cohesive_energies(symbol: str) -> None:
    """Up to the fifth shell, as published; the end of the range is farther away."""
    *numbers, a, cohesive = CLERI_ROSATO[symbol]
    mean = SecondMoment(((symbol, symbol, *numbers, a / np.sqrt(2.0)),), cutoff=3.0 * a)
    assert total(mean, bulk(symbol, "fcc", a=a)) == pytest.approx(-cohesive, rel=0.005)
    energies = [total(mean, bulk(symbol, "fcc", a=x * a)) for x in (0.98, 1.0, 1.02)]
    assert energies[1] < min(energies[0], energies[2])


def test_second_moment_is_its_formula() -> None:
    """Two different atoms within the part of the range where f_c is 1, and lone atoms."""
    mean = SecondMoment((("Au", "Cu", 0.3, 1.5, 9.0, 2.5, 2.7),), cutoff=6.0)
    r = 2.4
    dimer = Atoms("CuAu", positions=[[0, 0, 0], [0, r, 0]])
    x = r / 2.7 - 1.0
    # The root of the square is finite at zero, which changes energies by √1e-6 eV at most.
    expected = 2.0 * (0.3 * np.exp(-9.0 * x) - 1.5 * np.exp(-2.5 * x))
    assert total(mean, dimer) == pytest.approx(expected, abs=2.1e-3)
    assert total(mean, Atoms("Cu")) == 0.0
    assert total(SecondMoment(), Atoms("CO", positions=[[0, 0, 0], [7, 0, 0]])) == 0.0


def test_second_moment_keeps_cells_and_elements_apart() -> None:
    cell = bulk("Cu", "fcc", a=3.6, cubic=True)
    mean = SecondMoment()
    assert total(mean, cell * (2, 1, 3)) == pytest.approx(6.0 * total(mean, cell))
    assert total(mean, bulk("Au", "fcc", a=4.08)) < total(mean, bulk("Ag", "fcc", a=4.08)) < -2.0


def labelled(truth: MeanFunction, cells: Iterable[Atoms], seed: int, size: float) -> list[Atoms]:
    """Displaced atoms with energies and forces of `truth`."""
    rng, images = np.random.default_rng(seed), []
    for cell in cells:
        atoms = cell.copy()
        atoms.set_cell(atoms.cell * rng.uniform(0.96, 1.04), scale_atoms=True)
        atoms.positions += rng.normal(0.0, size, atoms.positions.shape)
        values = truth.evaluate(as_batch(atoms))
        energy = float(values.energies.sum()) - 7.0 * len(atoms)
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=-values.gradient)
        images.append(atoms)
    return images


def second_moment_data(number: int, seed: int) -> list[Atoms]:
    """Cells with labels of a second-moment potential that is not the universal one."""
    truth = SecondMoment((("Cu", "Cu", 0.12, 1.4, 9.5, 2.4, 2.58),), cutoff=5.2)
    cell = bulk("Cu", "fcc", a=3.6, cubic=True) * (2, 1, 1)
    return labelled(truth, [cell] * number, seed, 0.12)


def test_second_moment_is_fitted_to_forces() -> None:
    """The fit describes other structures of the same potential, and compressed ones."""
    mean = SecondMoment.fitted_to(Training.read(second_moment_data(12, 0), True, False))
    others = Training.read(second_moment_data(6, 1), True, False)
    assert unexplained(mean, others) < 0.1
    assert unexplained(SecondMoment(), others) > 0.15
    squeezed, relaxed = bulk("Cu", "fcc", a=0.85 * 3.6), bulk("Cu", "fcc", a=3.6)
    truth = SecondMoment((("Cu", "Cu", 0.12, 1.4, 9.5, 2.4, 2.58),), cutoff=5.2)
    wanted = total(truth, squeezed) - total(truth, relaxed)
    assert total(mean, squeezed) - total(mean, relaxed) == pytest.approx(wanted, rel=0.3)


# D, r₀, S, β; γ, c, d, h of P. Erhart and K. Albe, Phys. Rev. B 71, 035211 (2005), Si-I.
ERHART_ALBE = (3.24, 2.222, 1.57, 1.4760), (0.09253, 1.13681, 0.63397, 0.335)


def test_bond_order_has_the_published_cohesive_energy() -> None:
    """The range ends just beyond the second shell, and f_c is 1 at the first one."""
    pair, angle = ERHART_ALBE
    mean = BondOrder((("Si", "Si", *pair, 3.92),), (("Si", *angle),))
    assert total(mean, bulk("Si", "diamond", a=5.429)) / 2 == pytest.approx(-4.63, rel=0.01)


def test_bond_order_is_its_formula() -> None:
    """A bent molecule of two elements within the part of the range where f_c is 1."""
    s, beta, depth, r0, r, angle = 1.5, 1.7, 4.0, 1.6, 1.7, np.deg2rad(104.0)
    gamma, c, d, h = 0.3, 1.2, 0.7, 0.4
    mean = BondOrder(
        (("Si", "H", depth, r0, s, beta, 3.0), ("H", "H", 1.0, 0.7, 2.0, 2.0, 1.0)),
        (("Si", gamma, c, d, h), ("H", 0.1, 1.0, 1.0, 0.0)),
    )
    ends = [[r, 0, 0], [r * np.cos(angle), r * np.sin(angle), 0]]
    atoms = Atoms("SiH2", positions=[[0, 0, 0], *ends])
    g = gamma * (1 + (c / d) ** 2 - c**2 / (d**2 + (h + np.cos(angle)) ** 2))
    x = beta * (r - r0)
    repulsive = depth / (s - 1) * np.exp(-np.sqrt(2 * s) * x)
    attractive = s * depth / (s - 1) * np.exp(-np.sqrt(2 / s) * x)
    # One bond order from the middle, which has two neighbours, and one from the end.
    expected = 2 * (repulsive - 0.5 * (1 / np.sqrt(1 + g) + 1) * attractive)
    assert total(mean, atoms) == pytest.approx(expected)


def test_bond_order_keeps_cells_and_elements_apart() -> None:
    crystal = bulk("GaAs", "zincblende", a=5.65, cubic=True)
    mean = BondOrder()
    assert total(mean, crystal * (2, 1, 3)) == pytest.approx(6.0 * total(mean, crystal))
    assert total(mean, bulk("C", "diamond", a=3.57)) < total(mean, bulk("Si", "diamond", a=5.43))
    assert total(mean, Atoms("CO", positions=[[0, 0, 0], [7, 0, 0]])) == 0.0


def bond_order() -> BondOrder:
    """A bond-order potential that is not the universal one."""
    pair, angle = ERHART_ALBE
    return BondOrder((("Si", "Si", *pair, 4.0),), (("Si", *angle),))


def cell(scale: float) -> Atoms:
    return bulk("Si", "diamond", a=5.43 * scale, cubic=True)


def bond_order_data(number: int, seed: int) -> list[Atoms]:
    return labelled(bond_order(), [cell(1.0)] * number, seed, 0.15)


def test_bond_order_is_fitted_to_forces() -> None:
    """The fit describes other structures of the same potential, and a vacancy."""
    mean = BondOrder.fitted_to(Training.read(bond_order_data(12, 0), True, False))
    others = Training.read(bond_order_data(6, 1), True, False)
    assert unexplained(mean, others) < 0.1
    assert unexplained(BondOrder(), others) > 0.2
    vacancy = bulk("Si", "diamond", a=5.43, cubic=True)
    del vacancy[0]
    truth = bond_order()
    missing = [total(one, vacancy) - 7 / 8 * total(one, cell(1.0)) for one in (mean, truth)]
    assert missing[0] == pytest.approx(missing[1], rel=0.3)
