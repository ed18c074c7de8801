"""What the checks of an engine cost a search: evaluations and processor time.

    python benchmarks/check_cost.py [SYSTEM ...] [--searches 3] [--budget 20 150] [--seed 7300]

The processor time that is spent inside the checks is measured where they are called, so that no
difference of two long times is needed and other work on the machine does not matter:

- own: processor time of the search's process inside the checks, and altogether;
- processes: processor time of the processes that were started for a check alone (the lowest
  structure is evaluated in a fresh one), and of all engine processes.

Further evaluations in the engine's running process are counted as evaluations. Writes
results/check_cost.json.
"""

from __future__ import annotations

import argparse
import functools
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

from nugget.engines.plausibility import PlausibilityCheck
from nugget.search.checks import Checker
from nugget.search.loop import Run
from nugget.search.record import CheckKind
from nugget.search.search import Search
from nugget.search.search_settings import make_config

SYSTEMS = {"Au13": ("emt", "Au13"), "LJ13": ("lj", "Ar13"), "Au8 GFN1": ("gfn1-xtb", "Au8")}

# All ways into the checks. Plausibility is judged even if engine.verify is false.
ENTRIES: tuple[tuple[type, str], ...] = (
    (Checker, "isolated"), (Checker, "before_the_first"), (Checker, "after_an_evaluation"),
    (Checker, "at_a_resume"), (Checker, "judge_again"), (PlausibilityCheck, "__call__"),
    (Run, "_reported"),
)  # fmt: skip


def children() -> float:
    """Processor time of all processes that were started and have ended, s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Meter:
    """Adds up the processor time inside functions; calls within calls count once."""

    def __init__(self) -> None:
        self.own = self.processes = 0.0
        self.depth = 0

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def measured(*arguments: Any, **options: Any) -> Any:
            own, processes = time.process_time(), children()
            self.depth += 1
            try:
                return function(*arguments, **options)
            finally:
                self.depth -= 1
                if self.depth == 0:
                    self.own += time.process_time() - own
                    self.processes += children() - processes

        return measured


def one(name: str, budget: int, seed: int, directory: Path, meter: Meter) -> dict[str, Any]:
    """One search: processor time of the checks and of everything, and evaluations."""
    engine, formula = SYSTEMS[name]
    tree = {"system": {"formula": formula}, "engine": {"name": engine},
            "search": {"budget": budget, "seed": seed}}  # fmt: skip
    meter.own = meter.processes = 0.0
    own, processes = time.process_time(), children()
    run = Search.create(make_config(tree), directory)
    result = run.run()
    own, processes = time.process_time() - own, children() - processes
    checks = run.store.checks()
    atoms = sum(c.evaluations for c in checks if c.kind is CheckKind.ATOM)
    return {
        "seed": seed, "evaluations": result.evaluations + result.polish_evaluations,
        "checks": sum(c.evaluations for c in checks) - atoms, "atoms": atoms,
        "own": own, "own in checks": meter.own,
        "processes": processes, "processes of checks": meter.processes,
    }  # fmt: skip


def row(name: str, budget: int, searches: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums over the searches of one system; shares in per cent."""
    keys = ("own", "own in checks", "processes", "processes of checks")
    total = {key: sum(one[key] for one in searches) for key in keys}
    checks = total["own in checks"] + total["processes of checks"]
    return {
        "system": name, "budget": budget, "searches": len(searches),
        "evaluations": [one["evaluations"] for one in searches],
        "checks": [one["checks"] for one in searches],
        "atoms": [one["atoms"] for one in searches],
        **{f"{key}, s": round(value, 3) for key, value in total.items()},
        "share of own time, %": round(100 * total["own in checks"] / total["own"], 2),
        "share of all, %": round(100 * checks / (total["own"] + total["processes"]), 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--searches", type=int, default=3)
    parser.add_argument("--budget", type=int, nargs="+", default=[20, 150])
    parser.add_argument("--seed", type=int, default=7300)
    arguments = parser.parse_args()
    meter = Meter()
    for owner, entry in ENTRIES:
        setattr(owner, entry, meter(getattr(owner, entry)))
    table, rows = [], []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        one("Au13", 5, 0, place / "warm", meter)
        for budget in arguments.budget:
            for name in arguments.systems:
                searches = []
                for k in range(arguments.searches):
                    here = place / f"{name}-{budget}-{k}".replace(" ", "")
                    searches.append(one(name, budget, arguments.seed + k, here, meter))
                    print(name, budget, searches[-1], flush=True)
                table.append(row(name, budget, searches))
                rows += [{"system": name, "budget": budget, **search} for search in searches]
                print(table[-1], flush=True)
                common.save("check_cost", {"table": table, "searches": rows})


if __name__ == "__main__":
    main()
