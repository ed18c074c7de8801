"""Error bars from what was left out: levels, shares, groups, and the guarantee of intervals."""

from __future__ import annotations

import numpy as np
import pytest
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster

from nugget import (
    RBF,
    SOAP,
    LabelNoise,
    NuggetError,
    PivotedCholesky,
    Posterior,
    Potential,
    ProjectedProcess,
)
from nugget.calibration import (
    CalibrationWarning,
    calibrate,
    calibrate_components,
    components,
    conformal_factor,
    residuals,
)
from nugget.calibration.leave_one_out import balance, fit_level, similar_structures
from nugget.calibration.metrics import interval_factor
from nugget.gp.cross_validation import LeftOut
from nugget.gp.labels import Labels
from nugget.gp.regression import SparseRegression
from nugget.potential.fitted import environment_points
from nugget.potential.validation import calibrate_groups, with_group_factors
from nugget.structures.batch import as_batch


def labelled(n: int, seed: int, rattle: float = 0.2):
    atoms = gold_cluster(n, seed, rattle)
    work = atoms.copy()
    work.calc = EMT()
    results = {"energy": work.get_potential_energy(), "forces": work.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


TRAIN = [labelled(7 + s % 3, s) for s in range(40)]
TEST = [labelled(7 + s % 3, s) for s in range(100, 160)]
LARGER = [labelled(14, s) for s in range(200, 220)]


@pytest.fixture(scope="module")
def potential() -> Potential:
    made = Potential(SOAP(("Au",), 5.0, 4, 3), RBF(15.0, 100.0), PivotedCholesky(1e-9, 150))
    return made.fit(TRAIN, calibrate="loo", choose_noise=True)


def shares(error: np.ndarray, std: np.ndarray) -> tuple[float, float]:
    return float(np.mean(np.abs(error) <= std)), float(np.mean(np.abs(error) <= 2 * std))


@pytest.mark.slow
def test_error_bars_hold_for_new_structures(potential: Potential) -> None:
    found = potential.predict(TEST)
    error = found.energy - [a.get_potential_energy() for a in TEST]
    one, two = shares(error, found.energy_uncertainty)
    assert 0.5 <= one <= 0.88
    assert two >= 0.85
    force = components(potential, TEST, "force")
    one, two = shares(force.y_true - force.y_pred, force.y_std)
    assert 0.55 <= one <= 0.82
    assert two >= 0.87


@pytest.mark.slow
def test_they_grow_for_other_structures(potential: Potential) -> None:
    alike, unlike = potential.predict(TEST), potential.predict(LARGER)
    per_atom = [
        found.energy_uncertainty / [len(a) for a in images]
        for found, images in ((alike, TEST), (unlike, LARGER))
    ]
    assert np.median(per_atom[1]) > np.median(per_atom[0])
    z = (unlike.energy - [a.get_potential_energy() for a in LARGER]) / unlike.energy_uncertainty
    assert np.sqrt(np.mean(z**2)) < 2.5


def test_what_was_found_is_kept(potential: Potential) -> None:
    kept, settings = potential.calibration, potential.fitted.uncertainty.settings
    assert kept["levels"]["energy"] == settings.energy
    assert kept["levels"]["force_floor"] == settings.force_floor
    assert len(kept["scores"]["energy"]) == len(TRAIN)
    assert kept["within"]["energy"][0] == np.mean(np.array(kept["scores"]["energy"]) <= 1)
    assert potential.choices["noise"] == potential.noise


def test_levels_of_a_made_up_error() -> None:
    """Errors with σ² = 4v + 0.25 are found again."""
    rng = np.random.default_rng(0)
    v = rng.exponential(size=20_000)
    residual = rng.normal(size=v.size) * np.sqrt(4 * v + 0.25)
    seen = LeftOut(residual, v)
    level = fit_level(seen, seen, np.ones(v.size))
    assert level.factor == pytest.approx(2.0, rel=0.05)
    assert level.floor == pytest.approx(0.5, rel=0.1)


def test_balance_of_gaussian_scores_is_one() -> None:
    z = np.abs(np.random.default_rng(0).normal(size=50_000))
    assert balance(z) == pytest.approx(1.0, abs=0.03)
    assert balance(2.0 * z) == pytest.approx(2.0, rel=0.03)


def test_groups_are_structures_that_resemble_each_other(potential: Potential) -> None:
    env = potential.descriptor.compute(potential.fitted.training.batch)
    groups = similar_structures(env.values, env.species, env.owner, 1, potential.seed)
    assert len(groups) == len(TRAIN)
    assert 2 <= len(np.unique(groups)) <= 8


@pytest.mark.parametrize("settings", [LabelNoise(), LabelNoise(members=30), ProjectedProcess()])
def test_other_uncertainties_hold_for_new_structures(settings) -> None:
    """Levels that are given by hand stay; those from leave-one-out cover new structures."""
    descriptor, kernel = SOAP(("Au",), 5.0, 4, 3), RBF(15.0, 100.0)
    own = Potential(descriptor, kernel, PivotedCholesky(1e-9, 150), uncertainty=settings)
    assert own.fit(TRAIN).uncertainty == settings
    own.fit(TRAIN, calibrate="loo", choose_noise=True)
    assert own.uncertainty != settings
    assert type(own.uncertainty) is type(settings)
    found = own.predict(TEST, forces_uncertainty=True)
    error = found.energy - [a.get_potential_energy() for a in TEST]
    one, two = shares(error, found.energy_uncertainty)
    assert 0.5 <= one <= 0.9
    assert two >= 0.85
    wrong = np.concatenate(found.forces) - np.concatenate([a.get_forces() for a in TEST])
    one, two = shares(wrong, np.concatenate(found.forces_uncertainty))
    assert 0.4 <= one <= 0.95
    assert two >= 0.75
    assert set(own.calibration["within"]) == {"energy", "force"}
    assert 0.55 <= own.calibration["within"]["energy"][0] <= 0.85


def test_levels_of_an_ensemble_are_those_of_refits() -> None:
    """σ of the ensemble without a structure, with the levels from leave-one-out, fits its error."""
    few = TRAIN[:12]
    own = Potential(SOAP(("Au",), 5.0, 3, 2), RBF(15.0, 100.0), PivotedCholesky(1e-6, 30))
    own.uncertainty = LabelNoise()
    own.fit(few, use_forces=False, calibrate="loo")
    scores = []
    state, levels = own.fitted, own.uncertainty
    for s, atoms in enumerate(few):
        rest = [image for k, image in enumerate(few) if k != s]
        batch = as_batch(rest)
        k_sum = state.inducing.forward(environment_points(own.descriptor.compute(batch))).k_sum
        energy = np.array([a.get_potential_energy() for a in rest])
        y = energy - state.mean_function.evaluate(batch).totals(batch)
        labels = Labels.energies(k_sum, y, own.noise, batch.sizes.astype(float))
        refit = SparseRegression.fit(state.inducing.gram, labels)
        ensemble = levels.fit(refit, np.random.default_rng(0))
        one = as_batch([atoms])
        row = state.inducing.forward(environment_points(own.descriptor.compute(one))).k_sum
        mean = state.mean_function.evaluate(one).totals(one) + row @ refit.alpha
        scores.append(abs(atoms.get_potential_energy() - mean[0]) / ensemble.std(row, one.sizes)[0])
    assert np.sort(scores) == pytest.approx(own.calibration["scores"]["energy"], rel=1e-3)


def test_calibration_needs_closed_forms_and_some_structures() -> None:
    by_atoms = ProjectedProcess("environments")
    plain = Potential(SOAP(("Au",)), RBF(20.0), uncertainty=by_atoms).fit(TRAIN[:8])
    with pytest.raises(NuggetError, match="validation set"):
        plain.calibrate_leave_one_out()
    few = Potential(SOAP(("Au",)), RBF(20.0), uncertainty=Posterior())
    with pytest.raises(NuggetError, match="too few"):
        few.fit(TRAIN[:3], calibrate="loo")
    with pytest.raises(NuggetError, match="'loo' or None"):
        few.fit(TRAIN[:3], calibrate="other")


def test_a_flat_calibration_is_refused(potential: Potential) -> None:
    """Errors that do not depend on σ must not make all error bars equal."""
    rng, own = np.random.default_rng(3), potential.copy()
    images = [a.copy() for a in (*TEST[:20], *LARGER)]
    before = own.without_domain().predict(images, forces=False)
    for s, atoms in enumerate(images):
        wrong = before.energy[s] + 0.05 * len(atoms) * rng.choice([-1.0, 1.0])
        atoms.calc = SinglePointCalculator(atoms, energy=float(wrong))
    with pytest.warns(CalibrationWarning, match="one factor"):
        result = calibrate(own, images, "nll", resamples=0)
    assert result.scale > 1.0
    assert own.calibration["method"] == "scale"
    after = own.without_domain().predict(images, forces=False)
    ratio = after.energy_uncertainty / before.energy_uncertainty
    assert ratio == pytest.approx(np.full(len(images), ratio[0]))


def test_groups_get_factors_of_their_own(potential: Potential) -> None:
    own, images = potential.copy(), [a.copy() for a in TEST]
    plain = own.predict(images, forces=False)
    for s, atoms in enumerate(images):
        atoms.info["group"] = "good" if s % 2 else "bad"
        size = (0.2 if s % 2 else 3.0) * plain.energy_uncertainty[s]
        energy = plain.energy[s] + size * (-1) ** (s // 2)
        atoms.calc = SinglePointCalculator(atoms, energy=float(energy))
    factors = calibrate_groups(own, images, "group")
    assert factors["bad"] > 2.0 > 0.5 > factors["good"]
    after = residuals(own, images)
    expected = np.array([factors[a.info["group"]] for a in images]) * plain.energy_uncertainty
    assert after.y_std * after.sizes == pytest.approx(expected)
    unnamed = own.predict(TEST, forces=False)
    assert with_group_factors(own, TEST, unnamed).energy_uncertainty == pytest.approx(
        plain.energy_uncertainty
    )
    with pytest.raises(NuggetError, match="No group"):
        calibrate_groups(own, images[:3], "group")


def test_a_validation_set_calibrates_energies_and_forces(potential: Potential) -> None:
    own = potential.copy()
    own.set_uncertainty(own.fitted.uncertainty.with_levels(energy=100.0, force=50.0))
    result = calibrate(own, TEST, resamples=0)
    assert set(result.levels) == {"energy", "energy_floor", "prior"}
    levels = calibrate_components(own, TEST, "force")
    assert levels is not None
    force = components(own.without_domain(), TEST, "force")
    assert 0.6 <= shares(force.y_true - force.y_pred, force.y_std)[0] <= 0.76
    assert own.calibration["scores"].keys() == {"energy", "force"}
    assert calibrate_components(own, TEST, "stress") is None


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_conformal_intervals_hold_their_promise(level: float) -> None:
    """On average over calibration sets, for heavy tails and few scores."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(4000):
        scores = np.abs(rng.standard_t(2, size=20))
        q = conformal_factor(scores[:-1], level)
        inside.append(scores[-1] <= q)
    assert level - 0.025 <= np.mean(inside) <= level + 1 / 20 + 0.025


def test_intervals_that_cannot_be_promised_are_refused() -> None:
    kept = {"scores": {"energy": [0.5, 1.0, 2.0]}}
    assert interval_factor(kept, "energy", 0.75) == 2.0
    with pytest.raises(NuggetError, match="the most is 75%"):
        interval_factor(kept, "energy", 0.9)
    with pytest.raises(NuggetError, match="no scores"):
        interval_factor(None, "energy", 0.5)
    with pytest.raises(NuggetError, match="between 0 and 1"):
        conformal_factor([1.0], 1.0)
