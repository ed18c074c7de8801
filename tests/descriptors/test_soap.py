from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from example_structures import SYSTEMS, gold_cluster, species_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from nugget import SOAP
from nugget.errors import NuggetError

BASES = [(3, 2), (6, 4), (8, 6), (9, 9)]
MIXED = [atoms for images in SYSTEMS.values() for atoms in images]


def moved(atoms: Atoms, i: int, axis: int, step: float) -> Atoms:
    new = atoms.copy()
    new.positions[i, axis] += step
    return new


def strained(atoms: Atoms, a: int, b: int, step: float) -> Atoms:
    new = atoms.copy()
    deformation = np.eye(3)
    deformation[a, b] += step
    new.cell = new.cell.array @ deformation.T
    new.positions = new.positions @ deformation.T
    return new


@pytest.mark.parametrize("basis", [*BASES[:-1], pytest.param(BASES[-1], marks=pytest.mark.slow)])
def test_gradients_are_those_of_central_differences(system: list[Atoms], basis) -> None:
    soap = SOAP(species_of(system), 6.0, *basis)
    env = soap.compute(system)
    rng = np.random.default_rng(0)
    grad = rng.normal(size=env.values.shape) / np.abs(env.values).max()
    positions, strain = env.pullback_strain(grad)

    def value(first: Atoms) -> float:
        return float((soap.compute([first, *system[1:]]).values * grad).sum())

    h = 1e-4
    for i in rng.choice(len(system[0]), min(4, len(system[0])), replace=False):
        for axis in range(3):
            up, down = (value(moved(system[0], i, axis, s * h)) for s in (1, -1))
            assert (up - down) / (2 * h) == pytest.approx(
                positions[i, axis], abs=1e-6 * np.abs(positions).max()
            )
    for a, b in [(0, 0), (1, 1), (2, 2), (0, 1), (1, 0), (2, 1)]:
        up, down = (value(strained(system[0], a, b, s * h)) for s in (1, -1))
        assert (up - down) / (2 * h) == pytest.approx(
            strain[0, a, b], abs=1e-6 * np.abs(strain).max()
        )


def test_several_gradients_at_a_time_equal_one_by_one(system: list[Atoms]) -> None:
    env = SOAP(species_of(system), 5.0, 4, 3).compute(system)
    grads = np.random.default_rng(1).normal(size=(3, *env.values.shape))
    together = env.pullback(grads)
    for k in range(3):
        np.testing.assert_allclose(together[k], env.pullback(grads[k]), rtol=1e-12, atol=1e-10)


def test_jacobian_contracts_to_the_pullback(system: list[Atoms]) -> None:
    env = SOAP(species_of(system), 6.0, 4, 3).compute(system)
    grad = np.random.default_rng(1).normal(size=env.values.shape)
    jacobian = env.jacobian()
    per_pair = np.einsum("pcf,pf->pc", jacobian.values, grad[jacobian.centre])
    total = np.zeros((len(grad), 3))
    np.add.at(total, jacobian.neighbour, per_pair)
    np.add.at(total, jacobian.centre, -per_pair)
    strain = np.zeros((len(system), 3, 3))
    np.add.at(
        strain, env.owner[jacobian.centre], per_pair[:, :, None] * jacobian.vector[:, None, :]
    )
    expected, expected_strain = env.pullback_strain(grad)
    np.testing.assert_allclose(total, expected, atol=1e-10 * np.abs(expected).max())
    np.testing.assert_allclose(strain, expected_strain, atol=1e-10 * np.abs(expected_strain).max())


@pytest.mark.parametrize("cutoff", [3.0, 5.0, 5.5, 7.3])
def test_jacobian_has_whole_rows_only_when_atoms_sit_at_the_cutoff(cutoff: float) -> None:
    soap, rng = SOAP(["Au"], cutoff), np.random.default_rng(0)
    for _ in range(100):  # distances that round to the cutoff from both sides
        direction = rng.normal(size=3)
        at_cutoff = direction * (cutoff / np.linalg.norm(direction))
        at_cutoff = np.nextafter(at_cutoff, rng.choice([0.0, 99.0], 3))
        env = soap.compute(Atoms("Au3", positions=[[0, 0, 0], at_cutoff, [1.9, 0, 0]]))
        found = env.jacobian()
        grad = rng.normal(size=env.values.shape)
        per_pair = np.einsum("pcf,pf->pc", found.values, grad[found.centre])
        total = np.zeros((3, 3))
        np.add.at(total, found.neighbour, per_pair)
        np.add.at(total, found.centre, -per_pair)
        expected = env.pullback(grad)
        np.testing.assert_allclose(total, expected, atol=1e-10 * np.abs(expected).max())
        distances = np.linalg.norm(
            env.batch.positions[found.neighbour] - env.batch.positions[found.centre], axis=1
        )
        np.testing.assert_allclose(np.linalg.norm(found.vector, axis=1), distances, rtol=1e-12)


def test_a_batch_equals_its_members() -> None:
    soap = SOAP(species_of(MIXED), 5.0)
    together = soap.compute(MIXED)
    grad = np.random.default_rng(0).normal(size=together.values.shape)
    back = together.batch.split(together.pullback(grad))
    for s, atoms in enumerate(MIXED):
        rows = together.owner == s
        alone = soap.compute(atoms)
        np.testing.assert_array_equal(together.values[rows], alone.values)
        np.testing.assert_array_equal(back[s], alone.pullback(grad[rows]))


@settings(max_examples=20, deadline=None)
@given(
    which=st.sampled_from(sorted(SYSTEMS)),
    seed=st.integers(0, 2**32 - 1),
    basis=st.sampled_from([(3, 2), (6, 4)]),
)
def test_invariances(which: str, seed: int, basis: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    atoms = SYSTEMS[which][0].copy()
    atoms.positions += rng.normal(0, 0.05, atoms.positions.shape)
    soap = SOAP(species_of([atoms]), 6.0, *basis)
    values = soap.compute(atoms).values
    scale = np.abs(values).max()

    shifted = atoms.copy()
    shifted.positions += rng.uniform(-20, 20, 3)
    np.testing.assert_allclose(soap.compute(shifted).values, values, atol=1e-9 * scale)

    turned = atoms.copy()
    rotation = Rotation.random(None, rng).as_matrix()  # SciPy renamed the second
    turned.positions = turned.positions @ rotation.T
    turned.cell = turned.cell.array @ rotation.T
    np.testing.assert_allclose(soap.compute(turned).values, values, atol=1e-9 * scale)

    order = rng.permutation(len(atoms))
    np.testing.assert_allclose(soap.compute(atoms[order]).values, values[order], atol=1e-10 * scale)

    if atoms.pbc.any():
        wrapped = atoms.copy()
        wrapped.wrap()
        np.testing.assert_allclose(soap.compute(wrapped).values, values, atol=1e-9 * scale)
    else:
        twin = atoms.copy()
        twin.positions += [40.0, 0.0, 0.0]
        both = soap.compute(atoms + twin).values
        np.testing.assert_allclose(both, np.concatenate([values, values]), atol=1e-9 * scale)


def test_a_supercell_repeats_the_features() -> None:
    cell = SYSTEMS["NaCl"][0]
    soap = SOAP(["Na", "Cl"], 6.0)
    values = soap.compute(cell).values
    repeated = soap.compute(cell.repeat((2, 1, 3))).values
    np.testing.assert_allclose(repeated, np.tile(values, (6, 1)), rtol=1e-10, atol=1e-10)


def test_an_isolated_atom_has_features_and_no_force() -> None:
    env = SOAP(["Au"]).compute(Atoms("Au"))
    assert np.abs(env.values).max() > 0.1
    np.testing.assert_array_equal(env.pullback(np.ones_like(env.values)), 0.0)


def test_features_go_smoothly_to_the_cutoff() -> None:
    soap = SOAP(["Au"], 4.0)
    grad = np.ones((2, soap.n_features))
    force = [
        soap.compute(Atoms("Au2", positions=[[0, 0, 0], [0, 0, r]])).pullback(grad)[1, 2]
        for r in (3.5, 3.9, 3.99, 3.999, 4.0, 4.001)
    ]
    assert np.all(np.diff(np.abs(force)) <= 0)
    assert abs(force[3]) < 1e-6 * abs(force[0])
    assert force[4] == force[5] == 0.0


def test_bad_input_is_named_with_a_remedy() -> None:
    good = gold_cluster(6, 0)
    soap = SOAP(["Au"])
    with pytest.raises(NuggetError, match=r"Structure 1, atom 0: element C is not among \['Au'\]"):
        soap.compute([good, Atoms("C")])
    close = good.copy()
    close.positions[4] = close.positions[1] + [0.05, 0, 0]
    with pytest.raises(NuggetError, match=r"Structure 1: atoms 1 and 4 are 0\.05 Å apart"):
        soap.compute([good, close])
    with pytest.raises(NuggetError, match="no structures"):
        soap.compute([])
    with pytest.raises(NuggetError, match="does not fit"):
        soap.compute(good).pullback(np.zeros((6, 5)))


def test_atoms_on_top_of_each_other_leave_the_rest_of_a_batch_alone() -> None:
    good = gold_cluster(6, 0)
    close = good.copy()
    close.positions[4] = close.positions[1]
    soap = SOAP(["Au"])
    env = soap.compute([good, close, good], strict=False)
    assert env.coincident.tolist() == [1]
    grad = np.random.default_rng(0).normal(size=env.values.shape)
    back = env.batch.split(env.pullback(grad))
    assert all(np.isfinite(g).all() for g in back)
    alone = soap.compute(good)
    assert not alone.has_coincident
    for s in (0, 2):
        rows = env.owner == s
        np.testing.assert_array_equal(env.values[rows], alone.values)
        np.testing.assert_array_equal(back[s], alone.pullback(grad[rows]))


@pytest.mark.parametrize(
    "bad",
    [
        {"n_max": 0},
        {"n_max": 2.5},
        {"l_max": -1},
        {"l_max": 99},
        {"cutoff": 0.5},
        {"cutoff": float("nan")},
        {"sigma": 0.0},
        {"species": ["Xx"]},
        {"species": []},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(NuggetError, match=next(iter(bad))):
        SOAP(**{"species": ["Au"], **bad})
