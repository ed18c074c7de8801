"""The sum of kernels, against its definition and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from example_structures import alloy_slab, gold_cluster

from nugget import registry
from nugget.descriptors.combined import Joined, UnitLength
from nugget.descriptors.soap import SOAP
from nugget.errors import NuggetError
from nugget.gp.inducing import PivotedCholesky
from nugget.gp.kernels import RBF, Inducing
from nugget.gp.kernels.sum_kernel import SumInducing, SumKernel
from nugget.gp.points import Points
from nugget.gp.uncertainty import ProjectedProcess
from nugget.potential.gradient_check import check_gradients
from nugget.potential.potential import Potential

WIDTHS = (3, 2)
KERNEL = SumKernel((RBF(1.5, 2.0), RBF(0.7, 0.5)), WIDTHS)


def points(groups: int, seed: int = 0) -> Points:
    rng = np.random.default_rng(seed)
    return Points(rng.normal(size=(9, 5)), np.array([0, 4, 9]), rng.integers(groups, size=9))


def plain(x: np.ndarray, gx: np.ndarray, z: np.ndarray, gz: np.ndarray) -> np.ndarray:
    a = RBF(1.5, 2.0).matrix(x[:, :3], gx, z[:, :3], gz)
    return a + RBF(0.7, 0.5).matrix(x[:, 3:], gx, z[:, 3:], gz)


@pytest.mark.parametrize("groups", [1, 2])
def test_rows_are_the_sums_of_the_parts(groups: int) -> None:
    p = points(groups)
    z, gz = p.x[::2] + 0.1, p.group[::2]
    expected = plain(p.x, p.group, z, gz)
    rows = KERNEL.inducing(z, gz).forward(p)
    np.testing.assert_allclose(rows.k, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(rows.k_sum, np.add.reduceat(expected, [0, 4]), rtol=1e-12)
    np.testing.assert_allclose(
        KERNEL.inducing(z, gz).gram, plain(z, gz, z, gz), rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(KERNEL.matrix(p.x, p.group, z, gz), expected, atol=1e-14)
    np.testing.assert_array_equal(KERNEL.diagonal(p.x), 2.5)


@pytest.mark.parametrize("groups", [1, 2])
def test_all_groups_at_once_are_the_blocks_one_by_one(groups: int) -> None:
    p, rng = points(groups), np.random.default_rng(2)
    inducing = KERNEL.inducing(p.x[::2] + 0.1, p.group[::2])
    assert isinstance(inducing, SumInducing)
    m, coefficients = len(inducing), np.array([[1.0, 0.0], [1.0, -2.0]])
    columns = rng.normal(size=(3, m)), rng.normal(size=3)
    args = p, np.array([4, 5]), rng.normal(size=m), coefficients, columns
    for a, b in zip(
        inducing.value_and_grad(*args), Inducing.value_and_grad(inducing, *args), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("groups", [1, 2])
def test_vjp_is_the_derivative(groups: int) -> None:
    p = points(groups)
    z, gz = p.x[::2] + 0.1, p.group[::2]
    rng = np.random.default_rng(1)
    weights, along = rng.normal(size=(2, len(z))), rng.normal(size=p.x.shape)

    def value(x: np.ndarray) -> float:
        return float(
            np.sum(weights * KERNEL.inducing(z, gz).forward(Points(x, p.offsets, p.group)).k_sum)
        )

    numeric = (value(p.x + 1e-5 * along) - value(p.x - 1e-5 * along)) / 2e-5
    found = np.sum(KERNEL.inducing(z, gz).forward(p).vjp(weights) * along)
    assert numeric == pytest.approx(found, rel=1e-7)
    own = KERNEL.self_sum(p)

    def own_value(x: np.ndarray) -> float:
        return float(weights[:, 0] @ KERNEL.self_sum(Points(x, p.offsets, p.group)).value)

    numeric = (own_value(p.x + 1e-5 * along) - own_value(p.x - 1e-5 * along)) / 2e-5
    assert numeric == pytest.approx(np.sum(own.vjp(weights[:, 0]) * along), rel=1e-7)


def test_settings_come_back() -> None:
    settings = registry.settings_of("kernel", KERNEL)
    assert settings["parts"][1] == {"name": "RBF", "length_scale": 0.7, "amplitude": 0.5}
    assert registry.from_settings("kernel", settings) == KERNEL
    descriptor = Joined((SOAP(("Au",)), UnitLength(SOAP(("Au",), 8.0))))
    assert registry.from_settings("descriptor", registry.settings_of("descriptor", descriptor)) == (
        descriptor
    )


def test_widths_must_fit() -> None:
    with pytest.raises(NuggetError, match="widths"):
        SumKernel((RBF(), RBF()), (3,))
    with pytest.raises(NuggetError, match="takes 5 features"):
        KERNEL.inducing(np.zeros((2, 4)), np.zeros(2, dtype=int))


@pytest.mark.parametrize("uncertainty", [None, ProjectedProcess()])
def test_a_potential_of_two_ranges(uncertainty: ProjectedProcess | None) -> None:
    """Forces, stress and the gradient of σ are derivatives; two elements, periodic and not."""
    from ase.calculators.emt import EMT
    from ase.calculators.singlepoint import SinglePointCalculator

    images = [alloy_slab(seed) for seed in range(3)] + [gold_cluster(8, seed) for seed in range(3)]
    for atoms in images:
        work = atoms.copy()
        work.calc = EMT()
        energy, forces = work.get_potential_energy(), work.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    species = ("Cu", "Au")
    descriptor = Joined((SOAP(species, 4.0), UnitLength(SOAP(species, 6.0, 2, 2))))
    kernel = SumKernel((RBF(20.0, 10.0), RBF(0.3, 1.0)), descriptor.widths)
    potential = Potential(
        descriptor, kernel, PivotedCholesky(1e-6, 60), uncertainty=uncertainty
    ).fit(images)
    trained = potential.predict(images)
    assert trained.forces is not None
    error = np.concatenate(trained.forces) - np.concatenate([a.get_forces() for a in images])
    assert np.abs(error).mean() < 0.1
    for atoms in (alloy_slab(7), gold_cluster(9, 5)):
        for check in check_gradients(potential, [atoms]):
            assert check.passed, check
