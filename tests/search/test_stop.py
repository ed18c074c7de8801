"""How sure a search is that the lowest structure is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from flights import settings

from nugget.cli._search import report_of
from nugget.search import Search, make_config
from nugget.search.stop import Confidence, Meetings, short_key, write_draws
from nugget.search.store import Record


def shape(kind: str, energy: float) -> Atoms:
    """Four atoms in a chain, a star or a square: three bond graphs."""
    places = {
        "chain": [(0, 0, 0), (2.6, 0, 0), (5.2, 0, 0), (7.8, 0, 0)],
        "star": [(0, 0, 0), (2.6, 0, 0), (-1.3, 2.25, 0), (-1.3, -2.25, 0)],
        "square": [(0, 0, 0), (2.6, 0, 0), (0, 2.6, 0), (2.6, 2.6, 0)],
    }
    atoms = Atoms("Au4", places[kind])
    atoms.calc = SinglePointCalculator(atoms, energy=energy)
    return atoms


KEYS = {kind: short_key(shape(kind, 0.0)) for kind in ("chain", "star", "square")}


def record(k: int, kind: str, energy: float, *draws: tuple[str, float]) -> Record:
    text = " ".join(f"{KEYS[name]}:{value!r}" for name, value in draws)
    return Record(k, shape(kind, energy), "random", draws=text)


def test_the_rule_of_succession() -> None:
    assert Confidence(0, 3).probability is None
    assert Confidence(18, 0).probability == pytest.approx(0.95)
    assert Confidence(9, 9).probability == pytest.approx(0.5)
    # The mean of a Beta(k + 1, u + 1) distribution, by numbers.
    x = np.linspace(0, 1, 200001)
    weight = x**7 * (1 - x) ** 2
    assert Confidence(7, 2).probability == pytest.approx((x * weight).sum() / weight.sum(), 1e-6)


def test_what_counts() -> None:
    best = ("star", 1.0)
    made = Meetings()
    made.add(record(0, "chain", 3.0))
    made.add(record(1, "star", 1.0, best))  # before it was known: an evaluation, no meeting
    assert made.confidence() == Confidence(0, 0)
    made.add(record(2, "chain", 3.1, best, best, ("square", 0.5)))
    assert made.confidence() == Confidence(2, 1)
    made.add(record(3, "chain", 3.2, ("square", 0.4), ("square", 1.5), best))
    assert made.confidence() == Confidence(1, 1)  # the latter half alone, each graph once
    made.add(record(4, "square", 2.0))  # it was predicted too low
    assert made.confidence() == Confidence(1, 0)
    made.add(record(5, "square", 0.9))  # a new best: all begins anew
    assert made.confidence() == Confidence(0, 0)


def test_what_was_learned_before_counts_from_the_first_evaluation() -> None:
    before = Record(-2, shape("star", 1.0), "learned")
    made = Meetings.of([record(0, "chain", 3.0), record(1, "chain", 3.1)], [before])
    made.add(record(2, "chain", 3.2, ("star", 1.0)))
    assert made.confidence() == Confidence(1, 0)


def test_draws_that_can_never_count_are_left_out() -> None:
    images = [shape(kind, 0.0) for kind in ("chain", "star", "square")]
    words = write_draws(images, np.array([5.0, 5.0, 0.1]), 1.0, {KEYS["chain"]})
    assert words == [f"{KEYS['chain']}:5.0", f"{KEYS['square']}:0.1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that goes on until it is fairly sure, long before its budget."""
    directory = tmp_path_factory.mktemp("stop") / "run"
    tree = settings(1, budget=60, stop_when=0.75, explore=2)
    tree["system"]["formula"] = "Au4"
    Search.create(make_config(tree), directory).run()
    return directory


def test_a_search_stops_when_it_is_sure(run: Path) -> None:
    search = Search.resume(run)
    records, end = search.store.records(), search.store.end()
    assert end is not None
    assert end.status == "finished"
    assert "stop_when" in end.reason
    sure = [Meetings.of(records[:n]).confidence().probability for n in range(1, len(records) + 1)]
    assert sure[-1] is not None
    assert sure[-1] >= 0.75
    assert all(p is None or p < 0.75 for p in sure[:-1])  # neither before nor after
    assert len(records) < 60


def test_it_ends_at_once_when_it_is_resumed_and_goes_on_when_more_is_wanted(run: Path) -> None:
    search = Search.resume(run)
    before = len(search.store.records())
    result = search.run()
    assert result.evaluations == before
    report = report_of(search, result)
    assert report["probability_lowest_found"] == result.confidence.probability
    assert report["met_independently"] == result.confidence.met
    assert search.run(budget=before + 1, stop_when=0.99).evaluations == before + 1
    assert Search.replay(run).same
