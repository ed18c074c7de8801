"""Unit-length features: values, both roads back, and the potential on top of them."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from hypothesis import given, settings
from hypothesis import strategies as st

from nugget import RBF, SOAP, NuggetError, PivotedCholesky, Potential
from nugget.descriptors.normalized import NormalizedSOAP, UnitEnvironments

STEP = 1e-4


def _soap(images: list[Atoms]) -> NormalizedSOAP:
    species = sorted({s for atoms in images for s in atoms.get_chemical_symbols()})
    return NormalizedSOAP(tuple(species), 5.0, 4, 3)


def _difference(function, atoms: Atoms, atom: int, axis: int):  # type: ignore[no-untyped-def]
    values = []
    for sign in (1, -1):
        moved = atoms.copy()
        moved.positions[atom, axis] += sign * STEP
        values.append(function(moved))
    return (values[0] - values[1]) / (2 * STEP)


def test_values_are_those_of_soap_at_unit_length(system: list[Atoms]) -> None:
    soap = _soap(system)
    plain = SOAP(soap.species, 5.0, 4, 3).compute(system).values
    found = soap.compute(system).values
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(found * np.linalg.norm(plain, axis=1)[:, None], plain, rtol=1e-12)


def test_pullback_agrees_with_differences(system: list[Atoms]) -> None:
    soap, atoms = _soap(system), system[0]
    env = soap.compute([atoms])
    grad = np.random.default_rng(0).normal(size=(2, *env.values.shape))
    found = env.pullback(grad)
    scale = np.abs(found).max()
    for axis in range(3):
        wanted = _difference(lambda a: soap.compute([a]).values, atoms, 0, axis)
        for k in range(2):
            assert found[k, 0, axis] == pytest.approx(np.sum(wanted * grad[k]), abs=1e-6 * scale)
    np.testing.assert_allclose(env.pullback(grad[1]), found[1], atol=1e-12 * scale)


def test_jacobian_is_the_same_derivative_as_the_pullback(system: list[Atoms]) -> None:
    env = _soap(system).compute(system)
    grad = np.random.default_rng(1).normal(size=env.values.shape)
    jacobian = env.jacobian()
    flow = np.einsum("pcf,pf->pc", jacobian.values, grad[jacobian.centre])
    found = np.zeros_like(env.batch.positions)
    np.add.at(found, jacobian.neighbour, flow)
    np.add.at(found, jacobian.centre, -flow)
    wanted = env.pullback(grad)
    np.testing.assert_allclose(found, wanted, atol=1e-9 * np.abs(wanted).max())


def test_select_keeps_each_structure_as_it_is_alone(system: list[Atoms]) -> None:
    soap = _soap(system)
    images = [*system, system[0].copy()]
    images[-1].rattle(0.1, seed=3)
    env = soap.compute(images)
    last = len(images) - 1
    part, alone = env.select(np.array([last])), soap.compute([images[last]])
    assert isinstance(part, UnitEnvironments)
    grad = np.random.default_rng(2).normal(size=alone.values.shape)
    np.testing.assert_allclose(part.values, alone.values, atol=1e-12)
    np.testing.assert_allclose(part.pullback(grad), alone.pullback(grad), atol=1e-9)


def test_an_isolated_atom_has_features() -> None:
    env = NormalizedSOAP(("Au",)).compute([Atoms("Au")])
    assert np.linalg.norm(env.values[0]) == pytest.approx(1.0)
    assert np.all(env.pullback(np.ones_like(env.values)) == 0.0)


def test_a_gradient_of_the_wrong_shape_is_refused() -> None:
    env = NormalizedSOAP(("Au",)).compute([Atoms("Au2", positions=[[0, 0, 0], [0, 0, 2.7]])])
    with pytest.raises(NuggetError, match="does not fit"):
        env.pullback(np.ones((2, 3)))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_gradient_along_the_features_moves_nothing(seed: int) -> None:
    """|u| = 1 whatever the atoms do, so Σ u·du = 0."""
    rng = np.random.default_rng(seed)
    corners = [[0, 0, 0], [2.8, 0, 0], [0, 2.8, 0], [0, 0, 2.8], [2.8, 2.8, 2.8]]
    atoms = Atoms("Au5", positions=corners + rng.normal(0, 0.3, (5, 3)))
    env = NormalizedSOAP(("Au",), 7.0).compute([atoms])
    sideways = np.abs(env.pullback(rng.normal(size=env.values.shape))).max()
    assert np.abs(env.pullback(env.values)).max() <= 1e-10 * max(sideways, 1.0)


def test_a_potential_on_unit_features_has_the_forces_of_its_energy() -> None:
    rng = np.random.default_rng(5)
    images = []
    for _ in range(6):
        grid = 2.8 * np.stack(np.meshgrid(*[np.arange(2)] * 3), -1).reshape(-1, 3)
        atoms = Atoms("Au8", positions=grid + rng.normal(0, 0.2, (8, 3)))
        labels = {"energy": float(rng.normal()), "forces": rng.normal(0, 0.5, (8, 3))}
        atoms.calc = SinglePointCalculator(atoms, **labels)
        images.append(atoms)
    soap = NormalizedSOAP(("Au",), 6.0, 5, 3)
    pot = Potential(soap, RBF(0.4, 100.0), PivotedCholesky(1e-8, 60)).fit(images)
    probe = images[0].copy()
    probe.rattle(0.05, seed=1)
    found = pot.predict(probe, uncertainty_gradient=True)
    assert found.forces is not None
    assert found.uncertainty_gradient is not None
    for axis in range(3):
        slope = _difference(lambda a: pot.predict(a).energy[0], probe, 2, axis)
        assert found.forces[0][2, axis] == pytest.approx(-slope, abs=1e-5)
        slope = _difference(lambda a: pot.predict(a).energy_uncertainty[0], probe, 2, axis)
        assert found.uncertainty_gradient[0][2, axis] == pytest.approx(slope, abs=1e-5)
