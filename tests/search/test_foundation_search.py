"""Searches with a batched engine as mean function."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flights import settings

from nugget.errors import NuggetError
from nugget.potential.mean_functions.foundation import FoundationMean
from nugget.search import Search, make_config
from nugget.search.surrogate import baseline_code, baseline_engine, make_baseline


def tree(baseline: str, **search: object) -> dict[str, object]:
    config = settings(1, budget=6, candidates=4, **search)
    config["model"]["baseline"] = baseline
    return config


def test_engines_are_named_with_and_without_prefix() -> None:
    for name in ("pair-model", "engine:pair-model"):
        model = make_config(tree(name)).model
        assert baseline_engine(model) == "pair-model"
        assert make_baseline(model, Path()) == [FoundationMean("pair-model")]
    assert baseline_engine(make_config(tree("pair-well")).model) is None
    assert baseline_engine(make_config(tree("none")).model) is None
    config = make_config(tree("sevennet"))
    config.model.baseline_options["model"] = "my.pth"
    assert baseline_code(config) == ["sevennet:model=my.pth"]


def test_a_search_resumes_and_replays_to_the_same_bits(tmp_path: Path) -> None:
    config = make_config(tree("pair-model"))
    Search.create(config, tmp_path / "whole").run()
    Search.create(config, tmp_path / "broken").run(budget=4)
    Search.resume(tmp_path / "broken").run()
    one, two = (Search.resume(tmp_path / d).store.records() for d in ("whole", "broken"))
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert np.array_equal(a.atoms.positions, b.atoms.positions)
        assert a.predicted == b.predicted
    assert Search.replay(tmp_path / "whole").same


def test_a_mean_function_that_fails_names_the_cause(tmp_path: Path) -> None:
    config = tree("pair-model")
    config["system"]["formula"] = "Al6"
    with pytest.raises(NuggetError, match=r"gives no energy .*knows copper and gold only"):
        Search.create(make_config(config), tmp_path / "run")


@pytest.mark.parametrize("name", ["sevennet", "chgnet"])
def test_searches_with_foundation_models(name: str, tmp_path: Path) -> None:
    package = {"sevennet": "sevenn"}.get(name, name)
    pytest.importorskip(package, reason=f"{package} is not installed")
    config = tree(name, relax_steps=5, initial=2)
    config["system"]["formula"] = "Cu4"
    config["search"].update(budget=3, candidates=2, explore=1)
    config["model"]["baseline_options"] = {"precision": "single"}
    Search.create(make_config(config), tmp_path / "run").run()
    assert Search.replay(tmp_path / "run").same
