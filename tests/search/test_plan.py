"""All calls of the engine are planned, and final relaxations keep to the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nugget.errors import NuggetError
from nugget.search import Search, make_config
from nugget.search.plan import CallPlan
from nugget.systems.system_settings import make_system


def settings(**search: object) -> dict[str, Any]:
    return {
        "system": {"formula": "Cu2Au4"},
        "engine": {"name": "emt"},
        "model": {"cutoff": 4.5, "n_max": 2, "l_max": 2},
        "search": {"budget": 6, "candidates": 3, "relax_steps": 10, "walkers": 0, **search},
    }


def plan_of(tree: dict[str, Any], budget: int) -> CallPlan:
    config = make_config(tree)
    return CallPlan.of(config, make_system(config.system, Path()), budget)


def test_a_plan_counts_all_purposes() -> None:
    plan = plan_of(settings(), 40)
    assert (plan.search, plan.checks, plan.polish, plan.total) == (40, 5, 90, 135)  # two elements
    text = "135 calls of the engine are planned: 40 for the search, 5 to check the engine"
    assert str(plan).startswith(text)
    assert plan.expected_time(30.0, 2).startswith("the engine took 30 s: about 10 min")
    assert plan_of(settings(polish_calls=7), 40).polish == 7
    assert plan_of(settings(), 200).polish == 200
    tree = settings(polish=0)
    tree["engine"]["verify"] = False
    assert plan_of(tree, 40) == CallPlan(40, 0, 0, 0)


def test_final_relaxations_keep_to_the_plan(tmp_path: Path) -> None:
    tree = settings(polish=3, polish_calls=8, final_fmax=1e-3)
    search = Search.create(make_config(tree), tmp_path / "run")
    result = search.run()
    steps = search.store.polish_steps()
    assert result.polish_evaluations == len(steps) == 8
    # The lowest structure is relaxed first.
    lowest = min(search.store.records(), key=lambda record: record.energy)
    assert [step.start for step in steps[:3]] == [lowest.iteration] * 3
    log = (tmp_path / "run" / "search.log").read_text()
    assert str(plan_of(tree, 6)) in log
    assert "the engine took" in log
    # A resumed search may relax further and to larger forces, but proposes the same.
    again = Search.resume(tmp_path / "run")
    again.change({"polish_calls": 60, "final_fmax": 0.1})
    final = again.run()
    assert final.polish_evaluations > 8
    assert all(one.relaxed.converged for one in final.minima)
    with pytest.raises(NuggetError, match="kappa"):
        again.change({"kappa": 3.0})
