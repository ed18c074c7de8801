"""When nothing promises to be lower, an evaluation is spent on what is unlike the known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nugget.search import Search, make_config
from nugget.search.record import Record


def searched(folder: Path, **search: object) -> list[Record]:
    """A search of a small landscape, which is soon known."""
    config = make_config(
        {
            "system": {"formula": "Au5"},
            "engine": {"name": "emt"},
            "model": {"cutoff": 5.0},
            "search": {
                "budget": 16, "candidates": 5, "relax_steps": 40, "initial": 3, "polish": 0,
                **search,
            },
        }
    )  # fmt: skip
    running = Search.create(config, folder)
    running.run()
    assert Search.replay(folder).same
    return running.store.records()


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return searched(tmp_path_factory.mktemp("explored") / "run", explore=2)


def test_every_evaluation_has_its_purpose(explored: list[Record]) -> None:
    assert {record.purpose for record in explored[:3]} == {"start"}
    assert {record.purpose for record in explored[3:]} == {"improve", "explore"}


def test_improvement_is_promised_or_not(explored: list[Record]) -> None:
    """E − κσ of what is to improve lies below the best so far; nothing did when exploring."""
    for k, record in enumerate(explored[3:], 3):
        best = min(r.energy for r in explored[:k])
        assert record.acquisition is not None
        if record.purpose == "improve":  # then the acquisition is E − κσ
            assert record.acquisition < best


def test_exploring_goes_where_the_model_knows_less(explored: list[Record]) -> None:
    later = explored[8:]
    bars = {
        purpose: [r.std for r in later if r.purpose == purpose]
        for purpose in ("improve", "explore")
    }
    assert np.median(bars["explore"]) > np.median(bars["improve"] or [0.0])


@pytest.mark.parametrize("choice", [{"explore": 0}, {"kappa": 0.0}])
def test_never_if_it_is_not_wanted(tmp_path: Path, choice: dict[str, float]) -> None:
    records = searched(tmp_path / "run", budget=10, **choice)
    assert "explore" not in {record.purpose for record in records}
