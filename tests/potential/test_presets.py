"""Named settings, and the rule for the length scale."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from nugget import SOAP, NuggetError, Potential
from nugget.potential.mean_functions.bond_order import BondOrder
from nugget.potential.mean_functions.second_moment import SecondMoment
from nugget.presets import CANDIDATES, PRESETS, length_scale
from nugget.structures.batch import as_batch


def _clusters(symbols: str = "Au6", count: int = 4) -> list[Atoms]:
    rng = np.random.default_rng(0)
    corners = 2.8 * np.array([[i, j, k] for i in range(3) for j in range(2) for k in range(1)])
    return [Atoms(symbols, positions=corners + rng.normal(0, 0.2, (6, 3))) for _ in range(count)]


def test_length_scale_is_twice_the_median_distance() -> None:
    images, soap = _clusters(), SOAP(("Au",))
    x = soap.compute(images).values
    distances = [np.linalg.norm(a - b) for i, a in enumerate(x) for b in x[:i]]
    assert length_scale(soap, images) == pytest.approx(2 * np.median(distances), rel=1e-6)
    assert length_scale(soap, images, 3.0) == pytest.approx(1.5 * length_scale(soap, images))


def test_length_scale_compares_equal_elements_only() -> None:
    images, soap = _clusters("Au3Cu3"), SOAP(("Au", "Cu"))
    env = soap.compute(images)
    distances = []
    for element in (0, 1):
        x = env.values[env.species == element]
        distances += [np.linalg.norm(a - b) for i, a in enumerate(x) for b in x[:i]]
    assert length_scale(soap, images) == pytest.approx(2 * np.median(distances), rel=1e-6)


@pytest.mark.parametrize("images", [[Atoms("Au")], [Atoms("Au"), Atoms("Au")]])
def test_environments_that_are_all_alike_are_refused(images: list[Atoms]) -> None:
    with pytest.raises(NuggetError, match="all alike"):
        length_scale(SOAP(("Au",)), images)


@pytest.mark.parametrize("name", ["quick", "balanced"])
def test_a_preset_takes_its_length_scale_from_images(name: str) -> None:
    images = _clusters()
    fixed, measured = PRESETS[name](["Au"]), PRESETS[name](["Au"], images)
    assert fixed.descriptor == measured.descriptor
    assert measured.kernel.length_scale == length_scale(measured.descriptor, images)
    assert measured.kernel.length_scale != fixed.kernel.length_scale
    assert measured.kernel.amplitude == fixed.kernel.amplitude


def test_two_ranges_have_a_length_scale_each() -> None:
    images = _clusters()
    made = PRESETS["accurate"](["Au"], images)
    short, long = made.descriptor.parts
    assert (short.cutoff, long.cutoff) == (5.0, 10.0)
    assert made.kernel.parts[0].length_scale == length_scale(short, images, 2.0)
    assert made.kernel.parts[1].length_scale == length_scale(long, images, 1.0)
    assert made.kernel.widths == made.descriptor.widths


def _labelled(images: list[Atoms]) -> list[Atoms]:
    for atoms in images:
        work = atoms.copy()
        work.calc = EMT()
        results = {"energy": work.get_potential_energy(), "forces": work.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **results)
    return images


def test_auto_takes_the_range_with_the_smallest_errors() -> None:
    images = _labelled(_clusters("Au4Cu2", 12))
    told: list[str] = []
    made = PRESETS["auto"](["Au", "Cu"], images, tell=told.append)
    found = made.choices["left_out_mae"]
    assert list(found) == told
    assert {name.partition(",")[0] for name in found} <= set(CANDIDATES)
    assert any("σ" in name for name in found) or made.choices["range"] == "5 Å + 10 Å"
    errors = {name: energy * force for name, (energy, force) in found.items()}
    assert made.choices["range"] == min(errors, key=errors.__getitem__)
    single = PRESETS["auto"](["Au", "Cu"], images, single=True)
    assert all("+" not in name for name in single.choices["left_out_mae"])


def test_auto_needs_images() -> None:
    with pytest.raises(NuggetError, match="labelled images"):
        PRESETS["auto"](["Au"])


def test_more_elements_have_a_smaller_basis() -> None:
    features = [PRESETS["balanced"](s).descriptor.n_features for s in (["Au"], ["Au", "Cu", "Ag"])]
    assert features[1] < 3 * features[0]


def _crystals(seed: int, count: int) -> list[Atoms]:
    rng = np.random.default_rng(seed)
    images = []
    for _ in range(count):
        atoms = bulk("Cu", "fcc", a=3.6 * rng.uniform(0.97, 1.03), cubic=True) * (2, 1, 1)
        atoms.positions += rng.normal(0.0, 0.1, atoms.positions.shape)
        images.append(atoms)
    return _labelled(images)


def _uses_second_moment(potential: Potential) -> bool:
    return any(isinstance(part, SecondMoment) for part in potential.prior.parts)


def test_auto_adds_a_second_moment_mean_function_where_it_explains_forces() -> None:
    """A model of a crystal then describes compressed and expanded cells."""
    images = _crystals(0, 14)
    potential = PRESETS["auto"](["Cu"], images)
    assert _uses_second_moment(potential)
    assert any(name.endswith("no second-moment") for name in potential.choices["left_out_mae"])
    plain = PRESETS["auto"](["Cu"], images, cohesion=False)
    assert not _uses_second_moment(plain)
    assert not _uses_second_moment(PRESETS["auto"](["Cu"], images, use_forces=False))
    far = _labelled([bulk("Cu", "fcc", a=x * 3.6, cubic=True) for x in (0.85, 0.92, 1.1, 1.2)])
    wanted = np.array([atoms.get_potential_energy() for atoms in far])
    errors = [
        np.abs(one.fit(images).predict(far).energy - wanted).mean() for one in (potential, plain)
    ]
    assert errors[0] < 0.5 * errors[1]


def test_auto_adds_bond_orders_where_angles_matter() -> None:
    """Silicon as published by P. Erhart and K. Albe (2005), with a longer range."""
    pair, angle = (3.24, 2.222, 1.57, 1.4760, 4.1), (0.09253, 1.13681, 0.63397, 0.335)
    truth = BondOrder((("Si", "Si", *pair),), (("Si", *angle),))
    rng, images = np.random.default_rng(0), []
    for _ in range(14):
        atoms = bulk("Si", "diamond", a=5.43 * rng.uniform(0.97, 1.03), cubic=True)
        atoms.positions += rng.normal(0.0, 0.12, atoms.positions.shape)
        values = truth.evaluate(as_batch(atoms))
        results = {"energy": float(values.energies.sum()), "forces": -values.gradient}
        atoms.calc = SinglePointCalculator(atoms, **results)
        images.append(atoms)
    potential = PRESETS["auto"](["Si"], images)
    assert any(isinstance(part, BondOrder) for part in potential.prior.parts)
    assert not _uses_second_moment(potential)
    tried = potential.choices["left_out_mae"]
    assert {"4 Å", "4 Å, bond-order"} <= set(tried)


def test_auto_adds_no_second_moment_where_it_explains_little() -> None:
    """Random forces."""
    images = _clusters("Au6", 12)
    rng = np.random.default_rng(1)
    for atoms in images:
        forces = rng.normal(size=(6, 3))
        forces -= forces.mean(axis=0)
        atoms.calc = SinglePointCalculator(atoms, energy=float(rng.normal()), forces=forces)
    assert not _uses_second_moment(PRESETS["auto"](["Au"], images))
