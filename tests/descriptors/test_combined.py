"""Descriptors made of others: unit length, and several side by side."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from example_structures import SYSTEMS, species_of

from nugget.descriptors.base import Descriptor
from nugget.descriptors.combined import Joined, UnitLength
from nugget.descriptors.soap import SOAP
from nugget.errors import NuggetError
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs

STEP = 1e-4


def descriptors(species: list[str]) -> list[Descriptor]:
    short, long = SOAP(tuple(species), 3.5, 3, 2), SOAP(tuple(species), 5.0, 2, 3)
    return [UnitLength(short), Joined((long, UnitLength(short)))]


def strained(atoms: Atoms, strain: np.ndarray) -> Atoms:
    out = atoms.copy()
    out.set_cell(atoms.cell @ (np.eye(3) + strain).T, scale_atoms=False)
    out.positions = atoms.positions @ (np.eye(3) + strain).T
    return out


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("which", [0, 1])
def test_pullback_is_the_derivative(name: str, which: int) -> None:
    images = SYSTEMS[name]
    descriptor = descriptors(species_of(images))[which]
    env = descriptor.compute(images)
    rng = np.random.default_rng(0)
    cotangent = rng.normal(size=env.values.shape)
    scale = np.abs(cotangent * env.values).sum()
    by_positions, by_strain = env.pullback_strain(cotangent)
    start = 0
    for s, atoms in enumerate(images):
        end = start + len(atoms)
        weights = cotangent[start:end]

        def value(moved: Atoms, weights: np.ndarray = weights) -> float:
            return float(np.sum(weights * descriptor.compute([moved]).values))

        along = rng.normal(size=(len(atoms), 3))
        up, down = atoms.copy(), atoms.copy()
        up.positions += STEP * along
        down.positions -= STEP * along
        numeric = (value(up) - value(down)) / (2 * STEP)
        assert numeric == pytest.approx(np.sum(by_positions[start:end] * along), abs=1e-6 * scale)
        strain = rng.normal(size=(3, 3))
        up, down = (strained(atoms, sign * STEP * strain) for sign in (1, -1))
        numeric = (value(up) - value(down)) / (2 * STEP)
        assert numeric == pytest.approx(np.sum(by_strain[s] * strain), abs=1e-6 * scale)
        start = end


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("which", [0, 1])
def test_jacobian_agrees_with_pullback(name: str, which: int) -> None:
    images = SYSTEMS[name]
    env = descriptors(species_of(images))[which].compute(images)
    cotangent = np.random.default_rng(1).normal(size=env.values.shape)
    j = env.jacobian()
    along = np.einsum("pf,pcf->pc", cotangent[j.centre], j.values)
    gradient = np.zeros((len(env.values), 3))
    np.add.at(gradient, j.neighbour, along)
    np.subtract.at(gradient, j.centre, along)
    expected = env.pullback(cotangent)
    np.testing.assert_allclose(gradient, expected, atol=1e-10 * np.abs(expected).max())


def test_unit_length_has_unit_length() -> None:
    values = UnitLength(SOAP(("Au",))).compute(SYSTEMS["Au20"]).values
    np.testing.assert_allclose(np.linalg.norm(values, axis=1), 1.0, rtol=1e-14)


def test_joined_features_stand_side_by_side() -> None:
    parts = (SOAP(("Au",), 4.0), SOAP(("Au",), 6.0, 2, 1))
    joined = Joined(parts)
    expected = np.hstack([part.compute(SYSTEMS["Au20"]).values for part in parts])
    np.testing.assert_array_equal(joined.compute(SYSTEMS["Au20"]).values, expected)
    assert joined.n_features == expected.shape[1]
    assert joined.cutoff == 6.0


def test_joined_takes_the_pairs_of_a_verlet_list() -> None:
    batch = as_batch(SYSTEMS["slab"])
    descriptor = descriptors(species_of(SYSTEMS["slab"]))[1]
    far = find_pairs(batch, descriptor.cutoff + 0.7)
    np.testing.assert_allclose(
        descriptor.compute(batch, far).values, descriptor.compute(batch).values, rtol=1e-12
    )


def test_joined_needs_the_same_species() -> None:
    with pytest.raises(NuggetError, match="same species"):
        Joined((SOAP(("Au",)), SOAP(("Cu",))))
