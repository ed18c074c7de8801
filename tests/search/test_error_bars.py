"""Error bars of searches: the first ones by the forces, later ones by the errors made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nugget.calibration import OnlineScale
from nugget.errors import NuggetError
from nugget.search import Search, make_config
from nugget.search.error_bars import ErrorBars


def test_a_factor_begins_with_its_start() -> None:
    online = OnlineScale(prior_weight=5.0, start=4.0)
    assert online.scale == 4.0
    rng = np.random.default_rng(0)
    for _ in range(50):
        online = online.update(0.0, 1.0, float(rng.normal()))
    assert 0.8 < online.scale < 1.5  # forgets the start
    assert OnlineScale.from_dict(online.to_dict()) == online
    plain = OnlineScale(prior_weight=0.0, robust=False, z=(1.0, 1.0, 1.0, 5.0))
    assert plain.scale == pytest.approx(np.sqrt(7.0))
    assert OnlineScale.from_dict(plain.to_dict()) == plain
    with pytest.raises(NuggetError, match="start"):
        OnlineScale(start=0.0)


def test_what_is_promised_is_doubted() -> None:
    bars = ErrorBars(calibrate=True)
    assert bars.shown(predicted=-1.0, std=0.3, best=-6.0) == 1.0
    assert np.isclose(0.3 * bars.shown(predicted=-6.4, std=0.3, best=-6.0), 0.5)
    assert bars.shown(predicted=-6.4, std=0.3, best=np.inf) == 1.0
    assert ErrorBars(calibrate=False).shown(-99.0, 0.3, 0.0) == 1.0
    assert ErrorBars(calibrate=True, crystal=True).shown(-99.0, 0.3, 0.0) == 1.0


def test_a_kept_promise_does_not_widen_the_others() -> None:
    """Errors as large as the promise say nothing of predictions that promise nothing."""
    bars = ErrorBars(calibrate=True)
    for sign in (-1.0, 1.0) * 10:
        bars = bars.met(predicted=-20.0, std=0.5, energy=-20.0 + 10.0 * sign, best=-10.0)
    assert bars.bold > 5.0
    assert 0.5 < bars.scale < 1.5


@pytest.mark.parametrize("size", [0.3, 5.0])
def test_shown_error_bars_follow_the_errors(size: float) -> None:
    rng = np.random.default_rng(3)
    bars, z = ErrorBars(calibrate=True), []
    for _ in range(60):
        error = size * float(rng.normal())
        z.append(error / (0.5 * bars.shown(0.0, 0.5, best=0.0)))
        bars = bars.met(0.0, 0.5, error, best=0.0)
    assert 0.6 < np.sqrt(np.mean(np.square(z[20:]))) < 1.7


@pytest.mark.parametrize("usual", [0.5, 2.0, 0.0])
def test_the_first_factor_is_the_force_left_by_the_baseline(tmp_path: Path, usual: float) -> None:
    tree = {
        "system": {"formula": "Au6"},
        "engine": {"name": "emt"},
        "model": {"baseline": "none"},
        "search": {"budget": 5, "initial": 4, "candidates": 3, "polish": 0, "usual_force": usual},
    }
    search = Search.create(make_config(tree), tmp_path / "run")
    search.run()
    records = search.store.records()
    squares = [(r.atoms.calc.results["forces"] ** 2).sum(axis=1).mean() for r in records[:4]]
    factor = 1.0 if not usual else float(np.sqrt(np.mean(squares))) / usual
    first = records[4]
    assert first.predicted is not None
    assert first.std is not None
    promise = max(min(r.energy for r in records[:4]) - first.predicted, 0.0)
    assert first.scale == pytest.approx(np.hypot(factor, promise / first.std))
