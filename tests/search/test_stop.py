"""How sure a search is that the lowest structure is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from flights import settings

from nugget.report.digest import search_summary
from nugget.search import Search, make_config
from nugget.search.record import End, EndReason, EndStatus, Record
from nugget.search.stop import (
    BudgetUsed,
    Confidence,
    FailuresInARow,
    RediscoveryCounter,
    RunState,
    first_stop,
    short_key,
    stopping_rules,
    write_draws,
)


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


def test_no_estimate_where_predictions_do_not_rank_the_lowest_structures() -> None:
    """Five graphs within 0.4 eV; the predictions of the latter half are wrong by 0.1 or 0.2 eV."""
    places = [(0, 0, 0), (2.6, 0, 0), (5.2, 0, 0), (7.8, 0, 0), (10.4, 0, 0), (13.0, 0, 0)]
    chains = [Atoms(f"Au{6 - n}Cu{n}", places) for n in range(5)]  # five graphs by their elements

    def confidence(error: float) -> Confidence:
        made = RediscoveryCounter()
        for k in range(20):
            atoms = chains[k % 5].copy()
            energy = 0.1 * (k % 5)
            atoms.calc = SinglePointCalculator(atoms, energy=energy)
            known = short_key(chains[0])
            predicted = None if k < 10 else energy + error
            made.add(Record(k, atoms, "random", predicted=predicted, n_observed=k,
                            draws=f"{known}:0.0"))  # fmt: skip
        return made.confidence()

    assert confidence(0.1).probability is not None
    sure = confidence(0.2)
    assert sure.probability is None
    assert sure.no_estimate == (
        "the median error of predictions is 0.2 eV, and the 5 lowest structures differ by 0.4 eV"
    )


def test_what_counts() -> None:
    best = ("star", 1.0)
    made = RediscoveryCounter()
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
    assert made.confidence() == Confidence(0, 0, improving=True)
    for k in range(6, 9):
        made.add(record(k, "chain", 3.0, ("square", 0.9)))
        sure = made.confidence()
        # The star was the lowest for four evaluations, and so must be the square.
        assert (sure.probability is None) == (k < 8)
        assert sure.no_estimate == ("" if k == 8 else "the lowest structure was found recently")
    assert "rediscovered" in Confidence(0, 0).no_estimate


def test_what_was_learned_before_counts_from_the_first_evaluation() -> None:
    before = Record(-2, shape("star", 1.0), "learned")
    made = RediscoveryCounter.of([record(0, "chain", 3.0), record(1, "chain", 3.1)], [before])
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
    assert end.cause is EndReason.CONFIDENCE
    sure = [
        RediscoveryCounter.of(records[:n]).confidence().probability
        for n in range(1, len(records) + 1)
    ]
    assert sure[-1] is not None
    assert sure[-1] >= 0.75
    assert all(p is None or p < 0.75 for p in sure[:-1])  # neither before nor after
    assert len(records) < 60


def test_it_ends_at_once_when_it_is_resumed_and_goes_on_when_more_is_wanted(run: Path) -> None:
    search = Search.resume(run)
    before = len(search.store.records())
    result = search.run()
    assert result.evaluations == before
    report = search_summary(search, result)
    assert report["probability_lowest_found"] == result.confidence.probability
    assert report["met_independently"] == result.confidence.met
    assert search.run(budget=before + 1, stop_when=0.99).evaluations == before + 1
    assert Search.replay(run).same


def state(records: list[Record], **changed: Any) -> RunState:
    values = {"completed": len(records), "budget": 9, "reference_found": False}
    counter = RediscoveryCounter.of(records)
    return RunState(records, confidence=counter.confidence, **{**values, **changed})


FAILED = Record(1, Atoms("Au4", np.eye(4, 3)), "random", failure="nan", reason="no energy")


def test_the_first_rule_that_applies_decides() -> None:
    rules = stopping_rules(FailuresInARow("emt", 2, lambda: "Repair it."), 0.6, lambda: True)

    def cause(records: list[Record], **changed: Any) -> str | None:
        stop = first_stop(rules, state(records, **changed))
        return None if stop is None else stop.cause

    good = [record(0, "star", 1.0), record(1, "chain", 3.0)]
    assert cause(good) == "request"
    assert cause(good, budget=2) == "budget"
    assert cause(good, budget=2, reference_found=True) == "reference"
    sure = [*good, record(2, "chain", 3.1, *[("star", 1.0)] * 3)]
    assert cause(sure, budget=3) == "confidence"
    assert cause([*sure, FAILED, FAILED]) == "failures"
    assert cause([*sure, FAILED, FAILED], completed=0) == "request"  # resumed: tried once more
    assert first_stop(rules[:-1], state(good)) is None


def test_a_budget_without_success_is_a_failure() -> None:
    stop = BudgetUsed().check(state([FAILED, FAILED], budget=2))
    assert stop is not None
    assert (stop.cause, stop.status) == (EndReason.NO_SUCCESS, EndStatus.FAILED)
    assert stop.sentence == "no evaluation succeeded, the last with nan: no energy"


def test_ends_that_version_0_2_wrote() -> None:
    old = {"status": "finished", "reason": "the budget is used up", "evaluations": 3, "budget": 3}
    assert End.from_dict(old).cause is EndReason.BUDGET
    assert End.from_dict({**old, "status": "failed", "reason": "x"}).cause is EndReason.ERROR
    end = End(EndStatus.FOUND, "the reference was found", 2, 9, EndReason.REFERENCE)
    assert End.from_dict(end.to_dict()) == end
    assert str(end) == "found: the reference was found"
