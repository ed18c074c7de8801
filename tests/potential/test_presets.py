"""Named settings, and the rule for the length scale."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from nugget import SOAP, NuggetError
from nugget.presets import CANDIDATES, PRESETS, length_scale


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
