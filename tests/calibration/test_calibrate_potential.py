"""Calibrating a potential: honest afterwards, nothing refitted, everything kept in the file."""

import warnings

import numpy as np
import pytest
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster

from nugget import SOAP, LabelNoise, Potential, ProjectedProcess
from nugget.calibration import (
    CalibrationWarning,
    calibrate,
    calibration_error,
    crps,
    fit_levels,
    nll,
    residuals,
)
from nugget.errors import NuggetError

OBJECTIVES = {"calibration_error": calibration_error, "nll": nll, "crps": crps}
UNCERTAINTIES = {
    "exact": LabelNoise(),
    "sampled": LabelNoise(members=12),
    "structures": ProjectedProcess("structures"),
    "environments": ProjectedProcess("environments"),
}


def labelled(n, seed):
    atoms = gold_cluster(n, seed)
    work = atoms.copy()
    work.calc = EMT()
    atoms.calc = SinglePointCalculator(
        atoms, energy=work.get_potential_energy(), forces=work.get_forces()
    )
    return atoms


TRAIN = [labelled(6 + s % 4, s) for s in range(20)]
VALIDATION = [labelled(6 + s % 4, 100 + s) for s in range(25)]


def fitted(uncertainty, forces=False):
    return Potential(SOAP(("Au",), cutoff=5.0), uncertainty=uncertainty, domain=False).fit(
        TRAIN, forces
    )


def quietly(potential, images, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return calibrate(potential, images, *args, **options)


@pytest.mark.parametrize("forces", [False, True])
@pytest.mark.parametrize("kind", UNCERTAINTIES)
def test_calibrated_on_its_own_data(kind, forces):
    """The reported value is the metric of the calibrated model, and the mean is untouched."""
    potential = fitted(UNCERTAINTIES[kind], forces)
    before, start = residuals(potential, VALIDATION), potential.fitted.regression
    for objective, metric in OBJECTIVES.items():
        found = quietly(potential, VALIDATION, objective, resamples=0)
        after = residuals(potential, VALIDATION)
        data = (after.y_true, after.y_pred, after.y_std)
        assert found.value == pytest.approx(metric(*data), abs=1e-9)
        for factor in (0.5, 0.8, 1.25, 2.0):
            tie = 1 / len(VALIDATION) ** 2  # what the search may trade for likelihood
            worse = metric(data[0], data[1], factor * data[2])
            assert worse >= found.value - (tie if objective == "calibration_error" else 1e-9)
    assert np.array_equal(after.y_pred, before.y_pred)
    assert potential.fitted.regression is start
    if kind in ("exact", "sampled"):
        assert set(found.levels) == {"label", "prior"} | ({"force"} if forces else set())
        assert potential.uncertainty.label == found.levels["label"]
        assert potential.uncertainty.members == UNCERTAINTIES[kind].members
    else:
        assert potential.fitted.uncertainty.scale == found.scale


def test_levels_scale_and_repetition():
    """A second calibration replaces the first; one factor leaves ratios of σ as they were."""
    potential = fitted(LabelNoise())
    before = residuals(potential, VALIDATION).y_std
    found = quietly(potential, VALIDATION, "nll", method="scale", resamples=0)
    after = residuals(potential, VALIDATION).y_std
    np.testing.assert_allclose(after, found.scale * before, rtol=1e-9)
    assert potential.uncertainty == LabelNoise()
    again = quietly(potential, VALIDATION, "nll", method="scale", resamples=0)
    assert again.scale == pytest.approx(found.scale, rel=1e-9)
    levels = quietly(potential, VALIDATION, "nll", resamples=0)
    fresh = quietly(fitted(LabelNoise(0.3, 0.2)), VALIDATION, "nll", resamples=0)
    assert levels.levels == fresh.levels
    assert potential.fitted.uncertainty.scale == 1.0


@pytest.mark.parametrize("kind", ["exact", "structures"])
def test_wrong_scale_is_recovered_within_its_interval(kind):
    """Labels drawn from the model's own σ times 3."""
    potential = fitted(UNCERTAINTIES[kind])
    images = [gold_cluster(6 + s % 4, 300 + s) for s in range(150)]
    found = potential.predict(images, forces=False)
    rng = np.random.default_rng(0)
    for s, atoms in enumerate(images):
        energy = found.energy[s] + 3 * found.energy_uncertainty[s] * rng.normal()
        atoms.calc = SinglePointCalculator(atoms, energy=energy)
    result = calibrate(potential, images, "nll", method="scale", resamples=60)
    low, high = result.interval["scale"]
    assert low < 3 < high
    assert result.scale == pytest.approx(3, rel=0.2)
    metrics = residuals(potential, images).summary()
    assert metrics.coverage_1 == pytest.approx(0.683, abs=0.1)


def test_prior_level_is_not_left_to_chance():
    """σ_p that validation cannot see becomes the labels' distance from the prior."""
    potential = fitted(LabelNoise(prior=7.0))
    regression = potential.fitted.regression
    rms = np.sqrt(np.mean((regression.y / regression.count) ** 2))
    for images in (TRAIN, VALIDATION):
        found = quietly(potential, images, resamples=0)
        assert rms / 3.001 <= found.levels["prior"] <= 3.001 * rms
        # What is given up by that is little: less than the best that any σ_p can do, and a bit.
        free = quietly(potential, images, bounds={"prior": (1e-5, 10.0)}, resamples=0)
        assert found.value <= free.value + 0.2
    # Errors so large that σ_p cannot be felt beside them.
    for atoms in (shifted := [atoms.copy() for atoms in VALIDATION]):
        energy = potential.predict([atoms], forces=False).energy[0] + 10 * (-1) ** len(atoms)
        atoms.calc = SinglePointCalculator(atoms, energy=energy)
    assert quietly(potential, shifted, resamples=0).levels["prior"] == rms


def test_stored_in_the_model_file_and_kept_by_updates(tmp_path):
    potential = fitted(LabelNoise())
    found = calibrate(potential, VALIDATION, "nll")
    assert potential.calibration["normalisation"] == "per atom"
    assert found.to_dict().items() <= potential.calibration.items()
    low, high = found.interval["label"]
    assert low <= found.levels["label"] <= high
    potential.save(tmp_path / "au.model")
    loaded = Potential.load(tmp_path / "au.model")
    assert loaded.calibration == potential.calibration
    a, b = (residuals(p, VALIDATION).y_std for p in (potential, loaded))
    assert np.array_equal(a, b)
    potential.update(VALIDATION[:2])
    assert potential.uncertainty.label == found.levels["label"]


def test_same_result_every_time():
    one, two = (quietly(fitted(LabelNoise(members=12)), VALIDATION) for _ in range(2))
    assert one == two


def test_gram_agrees_with_pieces_and_with_its_own_sigma():
    rng = np.random.default_rng(5)
    unit = rng.normal(size=(30, 2, 6))
    gram = np.einsum("naq,nbq->nab", unit, unit)
    y = rng.normal(size=30)
    zero = np.zeros(30)
    names = ("label", "prior")

    def sigma(levels):
        s = np.array([levels[name] for name in names])
        return np.sqrt(np.einsum("a,nab,b->n", s, gram, s))

    found = fit_levels(y, zero, gram, names=names, objective="nll")
    assert found.value == pytest.approx(nll(y, zero, sigma(found.levels)), abs=1e-12)
    for name in names:
        for factor in (0.97, 1.03):
            beside = {**found.levels, name: factor * found.levels[name]}
            assert nll(y, zero, sigma(beside)) >= found.value
    with pytest.raises(NuggetError, match="30, 2, 2"):
        fit_levels(y, zero, gram[:20], names=names)


def test_bad_input_is_named():
    potential = fitted(LabelNoise())
    settings = potential.uncertainty
    bare = [*VALIDATION[:2], gold_cluster(7, 1)]
    with pytest.raises(NuggetError, match="Structure 2"):
        calibrate(potential, bare)
    with pytest.raises(NuggetError, match="no structures"):
        calibrate(potential, [])
    with pytest.raises(NuggetError, match="method"):
        calibrate(potential, VALIDATION, method="guess")
    with pytest.raises(NuggetError, match="objective"):
        calibrate(potential, VALIDATION, "likelihood")
    with pytest.raises(NuggetError, match="only 'scale'"):
        calibrate(potential, VALIDATION, method="scale", bounds={"label": (1, 2)})
    assert potential.uncertainty == settings
    assert potential.calibration is None
    with pytest.warns(CalibrationWarning, match="5 structures only"):
        calibrate(potential, VALIDATION[:5])
    with pytest.raises(NuggetError, match="not been fitted"):
        calibrate(Potential(SOAP(("Au",))), VALIDATION)
