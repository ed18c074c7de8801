"""Error bars of searches start from the forces and follow the errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.calibration import OnlineScale
from nugget.descriptors.soap import SOAP
from nugget.errors import NuggetError
from nugget.gp.uncertainty import LabelNoise
from nugget.potential.potential import Potential
from nugget.search import Search, make_config
from nugget.search.error_bars import REFERENCE_RMS_FORCE, ErrorBars
from nugget.search.surrogate import with_projected


def test_a_factor_begins_with_its_start() -> None:
    online = OnlineScale(prior_weight=5.0, start=4.0)
    assert online.scale == 4.0
    rng = np.random.default_rng(0)
    for _ in range(50):
        online = online.update(0.0, 1.0, float(rng.normal()))
    assert 0.8 < online.scale < 1.5  # forgets the start
    plain = OnlineScale(prior_weight=0.0, robust=False, z=(1.0, 1.0, 1.0, 5.0))
    assert plain.scale == pytest.approx(np.sqrt(7.0))
    with pytest.raises(NuggetError, match="start"):
        OnlineScale(start=0.0)


def test_a_predicted_gain_widens_the_error_bar() -> None:
    bars = ErrorBars(calibrate=True)
    assert bars.displayed(predicted=-1.0, std=0.3, best=-6.0) == 1.0
    assert np.isclose(0.3 * bars.displayed(predicted=-6.4, std=0.3, best=-6.0), 0.5)
    assert bars.displayed(predicted=-6.4, std=0.3, best=np.inf) == 1.0
    assert ErrorBars(calibrate=False).displayed(-99.0, 0.3, 0.0) == 1.0
    assert ErrorBars(calibrate=True, crystal=True).displayed(-99.0, 0.3, 0.0) == 1.0


def test_errors_of_predicted_gains_do_not_widen_the_others() -> None:
    """Errors as large as the predicted gain do not change the factor of other predictions."""
    bars = ErrorBars(calibrate=True)
    for sign in (-1.0, 1.0) * 10:
        bars = bars.updated(predicted=-20.0, std=0.5, energy=-20.0 + 10.0 * sign, best=-10.0)
    assert bars.acquisition_scale > 5.0
    assert 0.5 < bars.scale < 1.5


@pytest.mark.parametrize("size", [0.3, 5.0])
def test_shown_error_bars_follow_the_errors(size: float) -> None:
    rng = np.random.default_rng(3)
    bars, z = ErrorBars(calibrate=True), []
    for _ in range(60):
        error = size * float(rng.normal())
        z.append(error / (0.5 * bars.displayed(0.0, 0.5, best=0.0)))
        bars = bars.updated(0.0, 0.5, error, best=0.0)
    assert 0.6 < np.sqrt(np.mean(np.square(z[20:]))) < 1.7


def test_the_first_factor_is_the_force_left_by_the_baseline(tmp_path: Path) -> None:
    tree = {
        "system": {"formula": "Au6"},
        "engine": {"name": "emt"},
        "model": {"baseline": "none"},
        "search": {"budget": 5, "initial": 4, "candidates": 3, "polish": 0},
    }
    search = Search.create(make_config(tree), tmp_path / "run")
    search.run()
    records = search.store.records()
    squares = [(r.atoms.calc.results["forces"] ** 2).sum(axis=1).mean() for r in records[:4]]
    factor = float(np.sqrt(np.mean(squares))) / REFERENCE_RMS_FORCE
    first = records[4]
    assert first.predicted is not None
    assert first.std is not None
    gain = max(min(r.energy for r in records[:4]) - first.predicted, 0.0)
    learner = search.learner()
    for record in records[:4]:
        learner.learn(record)
    std = with_projected(learner.potential, first.proposed, first.std)
    assert std > 1.01 * first.std
    assert first.scale * first.std == pytest.approx(np.hypot(factor * std, gain))


def test_the_projected_process_knows_structures_far_from_all_data(tmp_path: Path) -> None:
    """A dimer at half the bond length, where the spread of the ensemble is small."""
    images = []
    for distance in (2.4, 2.6, 2.9):
        atoms = Atoms("Au2", [(0, 0, 0), (distance, 0, 0)])
        energy, forces = 10 * (distance - 2.6) ** 2, 20 * (distance - 2.6)
        results = {"energy": energy, "forces": np.array([[forces, 0, 0], [-forces, 0, 0]])}
        atoms.calc = SinglePointCalculator(atoms, **results)
        images.append(atoms)
    uncertainty = LabelNoise(0.02, 0.1, 0.1)
    potential = Potential(SOAP(("Au",)), uncertainty=uncertainty, domain=False).fit(images)
    near, far = (Atoms("Au2", [(0, 0, 0), (d, 0, 0)]) for d in (2.61, 1.3))
    inside, outside = potential.predict([near, far], forces=False).energy_uncertainty
    assert with_projected(potential, near, inside) < 1.5 * inside
    assert with_projected(potential, far, outside) > 3 * outside
