"""A search that resumes from a checkpoint of its model makes bit-identical proposals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nugget.search import checkpoint, loop
from nugget.search.learner import Learner
from nugget.search.search import Search
from nugget.search.search_settings import make_config

SETTINGS = {
    "system": {"formula": "Au6"},
    "engine": {"name": "emt"},
    "search": {"budget": 13, "candidates": 4, "walkers": 0, "polish": 0},
    "model": {"cutoff": 4.5, "n_max": 2, "l_max": 2},
}


def test_checkpoints_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "EVERY", 4)
    config = make_config(SETTINGS)
    straight = Search.create(config, tmp_path / "straight")
    straight.run()
    resumed = Search.create(config, tmp_path / "resumed")
    resumed.run(budget=10)
    trained = []
    train = Learner._train
    monkeypatch.setattr(
        Learner, "_train", lambda self, *new: (trained.append(new), train(self, *new))
    )
    Search.resume(tmp_path / "resumed").run()
    assert len(trained) == 4  # evaluations 9 to 12, not all of them
    a, b = straight.store.records(), resumed.store.records()
    assert [one.energy for one in a] == [one.energy for one in b]
    for name in ("predicted", "std", "scale", "acquisition"):
        assert [getattr(one, name) for one in a] == [getattr(one, name) for one in b]
    # A finished search trains nothing, and a checkpoint of another search is ignored.
    trained.clear()
    Search.resume(tmp_path / "resumed").run()
    assert not trained
    other = make_config({**SETTINGS, "search": {**SETTINGS["search"], "seed": 3}})
    search = Search.create(other, tmp_path / "other")
    search.run(budget=9)
    for name in (checkpoint.MODEL, checkpoint.ROWS, checkpoint.STATE):
        (tmp_path / "other" / name).write_bytes((tmp_path / "resumed" / name).read_bytes())
    learner = search.learner()
    for record in search.store.records():
        learner.learn(record)
    assert checkpoint.restore_checkpoint(tmp_path / "other", learner) == 0
    assert np.isfinite(learner.best_energy)
