"""Models that evaluate many structures in one call, and the installed foundation models."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, molecule
from example_structures import alloy_slab, gold_cluster, salt_cell

from nugget.engines.batched import BatchedModel, directed_edges, evaluate, hash_of_state, in_cells
from nugget.engines.engine import Electrons, get_engine, make_calculator
from nugget.engines.engine_settings import engine_code
from nugget.errors import NuggetError
from nugget.structures.batch import as_batch

# Foundation models whose weights are part of their packages.
INCLUDED = {"sevennet": "sevenn", "chgnet": "chgnet"}
ALL = ("sevennet", "chgnet", "mattersim", "mace", "orb", "fairchem", "ani")


@pytest.fixture(scope="module", params=list(INCLUDED))
def model(request: pytest.FixtureRequest) -> BatchedModel:
    name = request.param
    pytest.importorskip(INCLUDED[name], reason=f"{INCLUDED[name]} is not installed")
    return get_engine(name).batched_model()


def examples() -> list[Atoms]:
    """A mixed slab, a cell smaller than the cutoff, a cluster."""
    return [alloy_slab(), salt_cell(), Atoms("Ti2O4", gold_cluster(6, 3, 0.3).positions * 0.7)]


def test_values_are_those_of_single_structures(model: BatchedModel) -> None:
    batch = as_batch(examples())
    values = evaluate(model, batch)
    for s in range(len(batch)):
        alone = evaluate(model, batch.part(s, s + 1))
        rows = slice(batch.offsets[s], batch.offsets[s + 1])
        assert values.energies[s] == pytest.approx(alone.energies[0], abs=1e-8)
        np.testing.assert_allclose(values.forces[rows], alone.forces, atol=1e-8)
        np.testing.assert_allclose(values.strain[s], alone.strain[0], atol=1e-5)


def test_the_same_batch_has_the_same_bits(model: BatchedModel) -> None:
    batch = as_batch(examples())
    for one, two in zip(evaluate(model, batch), evaluate(model, batch), strict=True):
        assert np.array_equal(one, two)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_derivatives_are_those_of_differences(model: BatchedModel, number: int) -> None:
    atoms, h = examples()[number], 1e-4
    values = evaluate(model, as_batch(atoms))

    def energy(copy: Atoms) -> float:
        return float(evaluate(model, as_batch(copy)).energies[0])

    moved = [atoms.copy(), atoms.copy()]
    moved[0].positions[1, 2] += h
    moved[1].positions[1, 2] -= h
    slope = (energy(moved[0]) - energy(moved[1])) / (2 * h)
    assert -values.forces[1, 2] == pytest.approx(slope, abs=1e-5)
    strained = []
    for step in (h, -h):
        f = np.eye(3)
        f[0, 1] = f[1, 0] = step
        copy = atoms.copy()
        copy.cell, copy.positions = copy.cell.array @ f, copy.positions @ f
        strained.append(energy(copy))
    # The volume that CHGNet divides by is in single precision.
    slope = (strained[0] - strained[1]) / (2 * h)
    assert 2 * values.strain[0, 0, 1] == pytest.approx(slope, abs=1e-3, rel=1e-4)


@pytest.mark.parametrize("name", INCLUDED)
def test_the_calculator_has_the_values_of_the_package(name: str) -> None:
    pytest.importorskip(INCLUDED[name], reason=f"{INCLUDED[name]} is not installed")
    atoms = bulk("Cu", cubic=True)
    atoms.rattle(0.1, seed=1)
    other = atoms.copy()
    if name == "sevennet":
        from sevenn.calculator import SevenNetCalculator

        other.calc = SevenNetCalculator("7net-0", device="cpu")
    else:
        from chgnet.model.dynamics import CHGNetCalculator

        other.calc = CHGNetCalculator(use_device="cpu")
    atoms.calc = make_calculator(name)
    assert atoms.get_potential_energy() == pytest.approx(other.get_potential_energy(), abs=1e-4)
    np.testing.assert_allclose(atoms.get_forces(), other.get_forces(), atol=1e-4)
    np.testing.assert_allclose(atoms.get_stress(), other.get_stress(), atol=1e-4)


@pytest.mark.parametrize("name", INCLUDED)
def test_bad_input_is_one_sentence(name: str) -> None:
    pytest.importorskip(INCLUDED[name], reason=f"{INCLUDED[name]} is not installed")
    engine = get_engine(name)
    with pytest.raises(NuggetError, match="device 'nowhere' cannot be used"):
        engine.batched_model(device="nowhere")
    with pytest.raises(NuggetError, match="choose 'double' or 'single'"):
        engine.batched_model(precision="half")
    with pytest.raises(NuggetError, match="must be at least 1"):
        engine.batched_model(threads=0)
    with pytest.raises(NuggetError, match="takes no charge"):
        engine.calculator(Electrons(charge=1))


def test_ani_describes_molecules() -> None:
    pytest.importorskip("torchani", reason="torchani is not installed")
    model = get_engine("ani").batched_model()
    batch = as_batch([molecule("H2O"), molecule("CH3OH")])
    values = evaluate(model, batch)
    alone = evaluate(model, batch.part(1, 2))
    assert values.energies[1] == pytest.approx(alone.energies[0], abs=1e-8)
    # Water of ωB97X/6-31G*, on which the model was trained, is at about −76.4 Hartree.
    assert values.energies[0] / 27.2114 == pytest.approx(-76.4, abs=0.1)
    with pytest.raises(NuggetError, match="ANI describes molecules"):
        model.evaluate(as_batch(salt_cell()))


@pytest.mark.parametrize("name", ALL)
def test_files_of_weights_need_trust(name: str) -> None:
    option = "weights" if name in ("orb", "fairchem") else "model"
    assert engine_code(name, {option: "dir/my.pth"}) == [f"{name}:{option}=dir/my.pth"]
    assert engine_code(name, {"device": "cpu", "threads": 2}) == [] or name == "mace"


@pytest.mark.parametrize("name", ALL)
def test_a_missing_package_is_one_sentence(name: str) -> None:
    engine = get_engine(name)
    if engine.installed():
        pytest.skip("it is installed")
    with pytest.raises(NuggetError, match=r"is not installed: .* To install it: pip install"):
        engine.calculator()


# Without PyTorch.


def test_cells_leave_a_gap_where_structures_are_not_periodic() -> None:
    images = [gold_cluster(8, 1), alloy_slab(), salt_cell()]
    batch = as_batch(images)
    inside = in_cells(batch, 5.0)
    assert inside.pbc.all()
    here, there = directed_edges(batch, 5.0), directed_edges(inside, 5.0)
    assert len(here.source) == len(there.source)
    order_here = np.lexsort(np.round(here.vector.T, 6))
    order_there = np.lexsort(np.round(there.vector.T, 6))
    np.testing.assert_allclose(here.vector[order_here], there.vector[order_there], atol=1e-9)
    assert np.array_equal(inside.cells[2], images[2].cell.array)


def test_edges_have_both_directions() -> None:
    edges = directed_edges(as_batch(salt_cell()), 5.0)
    np.testing.assert_allclose(edges.vector.sum(axis=0), 0.0, atol=1e-9)
    assert (np.linalg.norm(edges.vector, axis=1) < 5.0).all()
    assert np.array_equal(np.bincount(edges.source), np.bincount(edges.target))


def test_the_calculator_of_a_batched_model() -> None:
    slab = alloy_slab()
    slab.pbc = True
    slab.calc = make_calculator("pair-model", depth=0.2)
    values = get_engine("pair-model").batched_model(depth=0.2).evaluate(as_batch(slab))
    assert slab.get_potential_energy() == values.energies[0]
    stress = slab.get_stress(voigt=False) * slab.get_volume()
    np.testing.assert_allclose(stress, values.strain[0], atol=1e-12)
    with pytest.raises(NuggetError, match="does not take options"):
        get_engine("pair-model").batched_model(width=1.0)
    with pytest.raises(NuggetError, match="one structure at a time"):
        get_engine("emt").batched_model()


def test_the_hash_follows_the_weights() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    one, two = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    assert hash_of_state(one.state_dict()) == hash_of_state(one.state_dict())
    assert hash_of_state(one.state_dict()) != hash_of_state(two.state_dict())
