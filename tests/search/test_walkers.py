"""Walkers live on from one evaluation to the next, and a search with them replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase import Atoms

from nugget.errors import NuggetError
from nugget.generators import make_generator
from nugget.search import Search, make_config
from nugget.search.walkers import Walkers, _accepts, _exchange, walk_always
from nugget.systems import PlacedAtoms


def config(**search: Any) -> Any:
    small = {"budget": 8, "candidates": 4, "relax_steps": 20, "initial": 3, "polish": 0}
    return make_config(
        {
            "system": {"formula": "Au6"},
            "engine": {"name": "emt"},
            "model": {"cutoff": 5.0},
            "search": {**small, "walkers": 3, "walk": "always", **search},
        }
    )


def test_resumed_and_replayed_to_the_last_bit(tmp_path: Path) -> None:
    whole = Search.create(config(), tmp_path / "whole")
    whole.run()
    parts = Search.create(config(), tmp_path / "parts")
    parts.run(budget=5)
    Search.resume(tmp_path / "parts").run(budget=8)
    for a, b in zip(whole.store.records(), parts.store.records(), strict=True):
        assert np.array_equal(a.atoms.positions, b.atoms.positions)
        assert (a.walkers is None) == (a.iteration < 3)
        assert a.walkers is None or np.array_equal(a.walkers, b.walkers)
        assert a.walkers is None or a.walkers.shape[1:] == (6, 3)
    assert Search.replay(tmp_path / "parts").same


def test_in_flight_too(tmp_path: Path) -> None:
    Search.create(config(in_flight=3), tmp_path / "run").run()
    assert Search.replay(tmp_path / "run").same


@pytest.mark.slow
def test_they_walk_when_nothing_promises_to_be_lower(tmp_path: Path) -> None:
    search = Search.create(config(walk="exploring", budget=30, candidates=10), tmp_path / "run")
    search.run()
    records = search.store.records()
    assert {record.purpose for record in records} == {"start", "improve", "explore"}
    for record in records:
        assert (record.walkers is not None) == (record.purpose == "explore")
    assert Search.replay(tmp_path / "run").same


def test_always_where_evaluations_are_dear() -> None:
    system = {"formula": "Au6"}
    for name, always in (("emt", False), ("gfn1-xtb", False), ("gpaw", True), ("my:engine", True)):
        assert walk_always(make_config({"system": system, "engine": {"name": name}})) is always
    for walk, always in (("always", True), ("exploring", False)):
        assert walk_always(config(walk=walk)) is always
    assert not walk_always(config(walk="always", walkers=0))


def test_without_moves_nobody_walks(tmp_path: Path) -> None:
    """Generators that need no parents only."""
    search = Search.create(config(generators={"random_cluster": 1.0}), tmp_path / "run")
    search.run()
    assert all(record.generator == "random_cluster" for record in search.store.records())
    assert Search.replay(tmp_path / "run").same


def spread(images: list[Atoms]) -> tuple[np.ndarray, np.ndarray]:
    """A score: compact structures are low."""
    size = np.array([atoms.positions.std() for atoms in images])
    return size, size


def test_cold_walkers_go_down() -> None:
    def is_known(atoms: Atoms, _: float) -> bool:
        return bool(atoms.positions.std() < 1.0)

    problem = PlacedAtoms.cluster("Au6")
    moves = [make_generator(name) for name in ("rattle", "surface_move")]
    walkers = Walkers(problem, moves, lambda images: images, spread, is_known, 4, 15)
    rng = np.random.default_rng(1)
    make = make_generator("random_placement")
    fresh = [atoms for _ in range(8) if isinstance(atoms := make(rng, problem), Atoms)]
    walk = walkers.walk(rng, None, fresh)
    assert walk.positions.shape == (4, 6, 3)
    assert walk.positions[0].std() < spread(fresh)[0].min()
    assert walk.positions.std(axis=(1, 2)).min() >= 1.0  # what is known is no place to stand
    later = walkers.walk(rng, walk.positions, fresh)
    assert later.positions[0].std() <= walk.positions[0].std() + 0.05
    assert {atoms.info["generator"] for atoms in later.visited} == {"walkers"}


def test_rules_of_acceptance_and_exchange() -> None:
    assert _accepts(0.99, -0.1, 0.1)
    assert _accepts(0.3, 0.1, 0.1)  # exp(-1) = 0.37
    assert not _accepts(0.4, 0.1, 0.1)
    here, scores = [Atoms("Au"), Atoms("Cu")], np.array([2.0, 1.0])
    _exchange(np.random.default_rng(0), here, scores, np.array([0.1, 1.0]))
    assert [str(atoms.symbols) for atoms in here] == ["Cu", "Au"]  # the lower one gets cold
    assert scores.tolist() == [1.0, 2.0]


def test_crystals_have_none() -> None:
    with pytest.raises(NuggetError, match="walkers"):
        make_config({"system": {"formula": "Si", "kind": "crystal"}, "search": {"walkers": 3}})
