"""Acquisitions against their formulas, and how settings choose one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from example_structures import gold_cluster

from nugget import SOAP, LabelNoise, Potential, ProjectedProcess, registry
from nugget.engines.engine import make_calculator
from nugget.errors import NuggetError
from nugget.search import Search, make_config
from nugget.search.acquisition import (
    AcquisitionContext,
    LowerConfidenceBound,
    choose_acquisition,
    log_expected_improvement,
    make_acquisition,
)
from nugget.search.search_settings import SearchConfig

ENERGY = np.array([-3.0, -2.5, -3.2, -1.0])
STD = np.array([0.1, 0.8, 0.0, 2.0])


def at(best: float, scale: float = 1.0, evaluations: int = 10) -> AcquisitionContext:
    return AcquisitionContext(evaluations, 100, best, scale, max(scale, 1.0))


def made(name: str, **options: Any) -> Any:
    return registry.make("acquisition", name, **options)


@pytest.fixture(scope="module")
def potential() -> Potential:
    images = [gold_cluster(6, seed) for seed in range(8)]
    for atoms in images:
        atoms.calc = make_calculator("emt")
        atoms.get_potential_energy()
    return Potential(SOAP(("Au",), 4.0), uncertainty=LabelNoise(0.02, 0.1, 0.1)).fit(images)


def test_bound():
    np.testing.assert_array_equal(
        made("lcb", kappa=1.5).score(ENERGY, STD, at(0.0)), ENERGY - 1.5 * STD
    )


def test_expected_improvement_is_the_integral():
    """ln of ∫ max(best − E, 0) N(E; mean, σ) dE on a fine grid; without σ, what is certain."""
    best = -2.9
    score = made("ei").score(ENERGY, STD, at(best))
    x = np.linspace(-30, 30, 600_001)
    for k, (mean, std) in enumerate(zip(ENERGY, STD, strict=True)):
        gain = max(best - mean, 0.0)
        if std > 0:
            density = np.exp(-0.5 * ((x - mean) / std) ** 2) / np.sqrt(2 * np.pi) / std
            gain = np.trapezoid(np.maximum(best - x, 0.0) * density, x)
        assert np.exp(-score[k]) == pytest.approx(gain, abs=1e-7)
    worse = made("ei").score(np.array([1.0, 2.0]), np.zeros(2), at(best))
    assert worse[0] < worse[1]  # the energy decides between hopeless ones


def test_improvement_that_no_number_can_hold() -> None:
    """Far from the best: the series φ(z)/z² (1 − 3/z² + 15/z⁴), no jump where the formulas meet."""
    z = np.array([20.0, 100.0, 3e4])
    series = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - 2 * np.log(z) + np.log1p(-3 / z**2 + 15 / z**4)
    assert log_expected_improvement(z, np.ones(3), 0.0) == pytest.approx(series, rel=1e-7)
    around = log_expected_improvement(np.linspace(0.9, 1.1, 2001), np.ones(2001), 0.0)
    assert np.abs(np.diff(around, 2)).max() < 1e-7
    ends = log_expected_improvement(np.array([9999.9, 10000.1]), np.ones(2), 0.0)
    assert ends[0] - ends[1] == pytest.approx(0.2 * 1e4, rel=1e-3)
    assert log_expected_improvement(np.array([1.0]), np.array([2.0]), 0.0) == pytest.approx(
        np.log(2.0) + log_expected_improvement(np.array([0.5]), np.array([1.0]), 0.0)
    )


def test_thompson_relaxes_on_members_that_scatter_by_std(potential: Potential):
    """Surfaces of many draws have the mean E and the standard deviation scale·σ."""
    image = gold_cluster(7, 30)
    rng, thompson = np.random.default_rng(0), made("thompson")
    draws = [thompson.surface(potential, rng, at(0.0, 1.7))([image])[0][0] for _ in range(400)]
    found = potential.without_domain().predict([image])  # surfaces leave the domain out
    sigma = 1.7 * found.energy_uncertainty[0]
    assert np.mean(draws) == pytest.approx(found.energy[0], abs=4 * sigma / 20)
    assert np.std(draws) == pytest.approx(sigma, rel=0.15)
    np.testing.assert_array_equal(thompson.score(ENERGY, STD, at(0.0)), ENERGY)


@pytest.mark.parametrize("name", ["lcb", "ei"])
def test_candidates_relax_on_the_scaled_bound(potential: Potential, name: str):
    image = gold_cluster(7, 31)
    surface = made(name, kappa=3.0).surface(potential, np.random.default_rng(0), at(0.0, 0.5))
    np.testing.assert_array_equal(surface([image])[0], potential.lcb(1.5)([image])[0])


def test_auto_depends_on_the_width_and_on_members():
    def name(members: bool, **search: Any) -> str:
        return choose_acquisition(SearchConfig(**search), members).name

    assert name(True) == name(False) == name(False, in_flight=3) == "lcb"
    assert name(True, in_flight=3) == "thompson"
    assert name(True, in_flight=3, acquisition="ei") == "ei"
    with pytest.raises(NuggetError, match="'thompson' needs an ensemble"):
        name(False, acquisition="thompson")


def test_kappa_and_options_reach_the_class():
    search = SearchConfig(acquisition="lcb", kappa=3.5)
    assert make_acquisition(search, "lcb").kappa == 3.5
    assert make_acquisition(search, "thompson").kappa == 3.5  # decides what is worthwhile
    own = SearchConfig(acquisition="lcb", acquisition_options={"kappa": 1.5})
    assert make_acquisition(own, "lcb").kappa == 1.5


@pytest.mark.parametrize("name", registry.names("acquisition"))
def test_the_acquisition_decides_when_to_explore(name: str):
    """E − κσ must beat the best by the least gain; without κ there is no exploration."""
    one, context = made(name, kappa=2.0), at(-3.0)
    assert one.kappa_at(context) <= 2.0
    assert made(name, kappa=0.0).explores(context) is False
    assert one.is_worthwhile(-3.5, 0.0, 0.02, context)
    assert not one.is_worthwhile(-3.01, 0.0, 0.02, context)
    explored = one.explore_score(ENERGY, STD, context)
    np.testing.assert_array_equal(explored, -log_expected_improvement(ENERGY, STD, -3.0))


@dataclass(frozen=True)
class Falling(LowerConfidenceBound):
    """κ falls to zero in the first half of the budget: a schedule is one method."""

    name: ClassVar[str] = "falling"

    def kappa_at(self, context: AcquisitionContext) -> float:
        return self.kappa * max(0.0, 1.0 - 2 * context.evaluations / context.budget)


def test_a_schedule_is_one_method(potential: Potential):
    falling, image = Falling(kappa=4.0), gold_cluster(7, 31)
    early, late = at(0.0, evaluations=25), at(0.0, evaluations=60)
    np.testing.assert_array_equal(falling.score(ENERGY, STD, early), ENERGY - 2.0 * STD)
    np.testing.assert_array_equal(falling.score(ENERGY, STD, late), ENERGY)
    surface = falling.surface(potential, np.random.default_rng(0), early)
    np.testing.assert_array_equal(surface([image])[0], potential.lcb(2.0)([image])[0])
    assert falling.explores(early)
    assert not falling.explores(late)


def test_a_schedule_of_another_package_in_a_search(tmp_path: Path):
    """The κ that was used is recorded, and the search replays."""
    config = make_config(
        {
            "system": {"formula": "Au4"},
            "engine": {"name": "emt"},
            "model": {"cutoff": 5.0},
            "search": {
                "acquisition": "greedy-after", "acquisition_options": {"after": 0.5}, "budget": 8,
                "initial": 3, "candidates": 3, "relax_steps": 10, "polish": 0, "walkers": 0,
            },
        }
    )  # fmt: skip
    search = Search.create(config, tmp_path / "run")
    search.run()
    kappas = [record.kappa for record in search.store.records()]
    assert kappas == [2.0, 2.0, 2.0, 0.5, 0.0, 0.0, 0.0, 0.0]
    assert Search.replay(tmp_path / "run").same


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"search": {"acquisition": "lbc"}}, "There is no acquisition 'lbc'; did you mean 'lcb'?"),
        (
            {"search": {"acquisition": "thompson", "acquisition_options": {"n": 3}}},
            "'thompson': got an unexpected keyword argument 'n'; it takes kappa",
        ),
        ({"search": {"generator_options": {"rattle": {"x": 1}}}}, "x"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(
    tmp_path: Path, settings: dict[str, Any], hint: str
):
    config = make_config({"system": {"formula": "Au5"}, "engine": {"name": "emt"}, **settings})
    with pytest.raises(NuggetError) as error:
        Search.create(config, tmp_path / "run")
    assert hint in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_committee_is_needed_for_thompson(potential: Potential):
    assert potential.fitted.uncertainty.has_members
    other = Potential(SOAP(("Au",), 4.0), uncertainty=ProjectedProcess())
    images = [gold_cluster(5, seed) for seed in range(3)]
    for atoms in images:
        atoms.calc = make_calculator("emt")
        atoms.get_potential_energy()
    assert not other.fit(images).fitted.uncertainty.has_members
