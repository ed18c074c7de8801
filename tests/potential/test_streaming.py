"""Streamed fits: the same model as with all rows at once, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from nugget import CUR, SOAP, LabelNoise, NuggetError, Posterior, Potential


def crystals(count: int) -> list:
    rng, images = np.random.default_rng(0), []
    for k in range(count):
        atoms = bulk("Cu", cubic=True).repeat((1 + k % 2, 1, 1))
        atoms.symbols = rng.choice(["Cu", "Au"], len(atoms))
        atoms.rattle(0.1, rng=rng)
        atoms.calc = EMT()
        results = {
            "energy": atoms.get_potential_energy(),
            "forces": atoms.get_forces(),
            "stress": atoms.get_stress(),
        }
        atoms.calc = SinglePointCalculator(atoms, **results)
        images.append(atoms)
    return images


IMAGES = crystals(30)


def potential(uncertainty=None) -> Potential:
    return Potential(SOAP(["Cu", "Au"], 4.0), inducing=CUR(40), uncertainty=uncertainty)


@pytest.mark.parametrize("uncertainty", [Posterior(), LabelNoise()])
@pytest.mark.parametrize("stress", [False, True])
def test_a_streamed_fit_is_the_fit(monkeypatch: pytest.MonkeyPatch, uncertainty, stress: bool):
    monkeypatch.setattr("nugget.potential.fitting._STREAMED_ROWS", 100)
    done = []
    whole = potential(uncertainty).fit(IMAGES, use_stress=stress, calibrate=None)
    pieces = potential(uncertainty).fit(
        IMAGES, use_stress=stress, stream=True, progress=lambda k, n: done.append((k, n))
    )
    several = potential(uncertainty).fit(IMAGES, use_stress=stress, stream=True, threads=2)
    assert done[-1] == (30, 30)
    np.testing.assert_array_equal(whole.fitted.inducing.z, pieces.fitted.inducing.z)
    a, b = whole.predict(IMAGES[:5], stress=True), pieces.predict(IMAGES[:5], stress=True)
    np.testing.assert_allclose(a.energy, b.energy, atol=1e-7)
    np.testing.assert_allclose(a.stress, b.stress, atol=1e-8)
    np.testing.assert_allclose(a.energy_uncertainty, b.energy_uncertainty, rtol=1e-4)
    np.testing.assert_array_equal(pieces.fitted.regression.alpha, several.fitted.regression.alpha)
    whole.update(IMAGES[:1], use_stress=stress)
    pieces.update(IMAGES[:1], use_stress=stress)  # makes the rows again
    a, b = whole.predict(IMAGES[:5]), pieces.predict(IMAGES[:5])
    np.testing.assert_allclose(a.energy, b.energy, atol=1e-6)


def test_a_streamed_model_is_saved_and_loaded(tmp_path):
    pot = potential(Posterior()).fit(IMAGES, stream=True)
    pot.save(tmp_path / "m")
    again = Potential.load(tmp_path / "m")
    a, b = pot.predict(IMAGES[:3]), again.predict(IMAGES[:3])
    np.testing.assert_array_equal(a.energy, b.energy)
    np.testing.assert_array_equal(a.energy_uncertainty, b.energy_uncertainty)


def test_what_needs_all_rows_is_refused():
    with pytest.raises(NuggetError, match="drops its label rows"):
        potential(LabelNoise(members=10)).fit(IMAGES, stream=True)
    with pytest.raises(NuggetError, match="no leave-one-out residuals"):
        potential(Posterior()).fit(IMAGES, stream=True, calibrate="loo")
    with pytest.raises(NuggetError, match="too few to stream"):
        Potential(SOAP(["Cu", "Au"], 4.0), inducing=CUR(40), uncertainty=Posterior()).fit(
            IMAGES, use_forces=False, stream=True
        )
