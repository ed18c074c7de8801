"""What the checks of an engine cost a search: evaluations and processor time.

    python benchmarks/check_cost.py [SYSTEM ...] [--turns 3] [--budget 20] [--seed 7300]

Each system is searched with and without `engine.verify`, in turns and with equal seeds; both
searches propose the same structures. The processor time of the search's own process is compared,
and that of its engine processes. Writes results/check_cost.json.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import numpy as np

from nugget.search.record import CheckKind
from nugget.search.search import Search
from nugget.search.search_settings import make_config

SYSTEMS = {"Au13": ("emt", "Au13"), "LJ13": ("lj", "Ar13"), "Au8 GFN1": ("gfn1-xtb", "Au8")}


def children() -> float:
    """Processor time of all processes that were started and have ended, s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def one(name: str, verify: bool, budget: int, seed: int, directory: Path) -> dict[str, Any]:
    """One search: its own and its engine's processor time, and its evaluations."""
    engine, formula = SYSTEMS[name]
    search = {"budget": budget, "seed": seed}
    tree = {"system": {"formula": formula}, "engine": {"name": engine, "verify": verify},
            "search": search}  # fmt: skip
    own, others = time.process_time(), children()
    run = Search.create(make_config(tree), directory)
    result = run.run()
    own, others = time.process_time() - own, children() - others
    checks = [c for c in run.store.checks() if c.kind is not CheckKind.ATOM]
    return {
        "own": own, "engine": others, "evaluations": result.evaluations,
        "polish": result.polish_evaluations, "checks": sum(c.evaluations for c in checks),
        "positions": [r.atoms.positions.tolist() for r in run.store.records()],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--budget", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7300)
    arguments = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        one("Au13", True, 5, 0, place / "warm")
        for name in arguments.systems:
            pairs = []
            for turn in range(arguments.turns):
                order = (True, False) if turn % 2 else (False, True)
                seed = arguments.seed + turn
                here = {v: place / f"{name}{turn}{v}".replace(" ", "") for v in order}
                pair = {v: one(name, v, arguments.budget, seed, here[v]) for v in order}
                assert pair[True].pop("positions") == pair[False].pop("positions")
                pairs.append(pair)
                print(name, turn, pair, flush=True)
            ratios = [pair[True]["own"] / pair[False]["own"] for pair in pairs]
            sums = {v: sum(pair[v]["own"] for pair in pairs) for v in (True, False)}
            table.append({
                "system": name, "searches": len(pairs),
                "checks": [pair[True]["checks"] for pair in pairs],
                "evaluations": [p[False]["evaluations"] + p[False]["polish"] for p in pairs],
                "own time, s": round(sums[False], 2),
                "ratio": round(sums[True] / sums[False], 4),
                "median ratio": round(float(np.median(ratios)), 4),
                "engine processes": round(
                    sum(p[True]["engine"] for p in pairs) / sum(p[False]["engine"] for p in pairs),
                    3),
            })  # fmt: skip
            print(table[-1], flush=True)
    common.save("check_cost", {"budget": arguments.budget, "table": table})


if __name__ == "__main__":
    main()
