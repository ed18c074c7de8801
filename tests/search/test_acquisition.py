"""Acquisitions against their formulas, and how settings choose one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from systems import gold_cluster

from nugget import SOAP, LabelNoise, Potential, ProjectedProcess, registry
from nugget.errors import NuggetError
from nugget.evaluation.engines import make_calculator
from nugget.search import Search, make_config
from nugget.search.acquisition import choose_acquisition, make_acquisition
from nugget.search.acquisition.expected_improvement import log_improvement
from nugget.search.config import SearchConfig

ENERGY = np.array([-3.0, -2.5, -3.2, -1.0])
STD = np.array([0.1, 0.8, 0.0, 2.0])


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
        made("lcb", kappa=1.5).score(ENERGY, STD, 0.0), ENERGY - 1.5 * STD
    )


def test_expected_improvement_is_the_integral():
    """ln of ∫ max(best − E, 0) N(E; mean, σ) dE on a fine grid; without σ, what is certain."""
    best = -2.9
    score = made("ei").score(ENERGY, STD, best)
    x = np.linspace(-30, 30, 600_001)
    for k, (mean, std) in enumerate(zip(ENERGY, STD, strict=True)):
        gain = max(best - mean, 0.0)
        if std > 0:
            density = np.exp(-0.5 * ((x - mean) / std) ** 2) / np.sqrt(2 * np.pi) / std
            gain = np.trapezoid(np.maximum(best - x, 0.0) * density, x)
        assert np.exp(-score[k]) == pytest.approx(gain, abs=1e-7)
    worse = made("ei").score(np.array([1.0, 2.0]), np.zeros(2), best)
    assert worse[0] < worse[1]  # the energy decides between hopeless ones


def test_improvement_that_no_number_can_hold() -> None:
    """Far from the best: the series φ(z)/z² (1 − 3/z² + 15/z⁴), no jump where the formulas meet."""
    z = np.array([20.0, 100.0, 3e4])
    series = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - 2 * np.log(z) + np.log1p(-3 / z**2 + 15 / z**4)
    assert log_improvement(z, np.ones(3), 0.0) == pytest.approx(series, rel=1e-7)
    around = log_improvement(np.linspace(0.9, 1.1, 2001), np.ones(2001), 0.0)
    assert np.abs(np.diff(around, 2)).max() < 1e-7
    ends = log_improvement(np.array([9999.9, 10000.1]), np.ones(2), 0.0)
    assert ends[0] - ends[1] == pytest.approx(0.2 * 1e4, rel=1e-3)
    assert log_improvement(np.array([1.0]), np.array([2.0]), 0.0) == pytest.approx(
        np.log(2.0) + log_improvement(np.array([0.5]), np.array([1.0]), 0.0)
    )


def test_thompson_relaxes_on_members_that_scatter_by_std(potential: Potential):
    """Surfaces of many draws have the mean E and the standard deviation scale·σ."""
    image = gold_cluster(7, 30)
    rng, thompson = np.random.default_rng(0), made("thompson")
    draws = [thompson.surface(potential, 1.7, rng, 0.0)([image])[0][0] for _ in range(400)]
    found = potential.predict([image])
    sigma = 1.7 * found.energy_uncertainty[0]
    assert np.mean(draws) == pytest.approx(found.energy[0], abs=4 * sigma / 20)
    assert np.std(draws) == pytest.approx(sigma, rel=0.15)
    np.testing.assert_array_equal(thompson.score(ENERGY, STD, 0.0), ENERGY)


@pytest.mark.parametrize("name", ["lcb", "ei"])
def test_candidates_relax_on_the_scaled_bound(potential: Potential, name: str):
    image = gold_cluster(7, 31)
    surface = made(name, kappa=3.0).surface(potential, 0.5, np.random.default_rng(0), 0.0)
    np.testing.assert_array_equal(surface([image])[0], potential.lcb(1.5)([image])[0])


def test_auto_depends_on_the_width_and_on_members():
    def name(members: bool, **search: Any) -> str:
        return choose_acquisition(SearchConfig(**search), members).name

    assert name(True) == name(False) == name(False, in_flight=3) == "lcb"
    assert name(True, in_flight=3) == "thompson"
    assert name(True, in_flight=3, acquisition="ei") == "ei"
    with pytest.raises(NuggetError, match="'thompson' needs a committee"):
        name(False, acquisition="thompson")


def test_kappa_and_options_reach_the_class():
    search = SearchConfig(acquisition="lcb", kappa=3.5)
    assert make_acquisition(search, "lcb").kappa == 3.5  # type: ignore[attr-defined]
    assert make_acquisition(search, "thompson").name == "thompson"  # it takes no kappa


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"search": {"acquisition": "lbc"}}, "There is no acquisition 'lbc'; did you mean 'lcb'?"),
        (
            {"search": {"acquisition": "thompson", "acquisition_options": {"n": 3}}},
            "'thompson': got an unexpected keyword argument 'n'; it takes no options",
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
