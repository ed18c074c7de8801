"""Is the lowest structure found when a search says so? Calibration of `search.stop_when`.

    python benchmarks/stop_when.py --seeds 10 --first 100 -j 2 --out DIR

Searches run to the end of their budgets. After every evaluation the estimate is compared with the
truth: is the best structure so far, polished with the engine, the lowest that any search found (or
the published one)? Prints, for ranges of the estimate, the share that was right, and for each
search where `--stop-when 0.95` would have ended it. Writes results/stop_when.json.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import common
import in_process
import numpy as np

from nugget.engines.engine import make_calculator
from nugget.search.stop import RediscoveryCounter

SYSTEMS: dict[str, tuple[str, str, int, float | None]] = {
    "LJ13": ("Au13", "lj", 40, -44.326801),
    "Au13": ("Au13", "emt", 40, None),
    "Au9": ("Au9", "emt", 40, None),
    "LJ26": ("Au26", "lj", 60, -108.315616),
}
BINS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
SAME = 0.02  # eV


def one(job: tuple[str, int, str, int]) -> dict[str, Any]:
    """One search; the estimates after each evaluation and the polished best at that time."""
    name, seed, out, candidates = job
    formula, engine, budget, _ = SYSTEMS[name]
    file = Path(out) / f"{name}-{seed}.json"
    if file.exists():
        return dict(json.loads(file.read_text()))
    calculator = make_calculator(engine)
    tree = {
        "system": {"formula": formula},
        "engine": {"name": engine},
        "search": {"budget": budget, "seed": seed, "candidates": candidates},
    }
    counter, lowest, relaxed = RediscoveryCounter(), np.inf, np.inf
    rows = []
    for record in in_process.search(tree, calculator):
        counter.add(record)
        if record.ok and record.energy < lowest:
            lowest = record.energy
            relaxed = in_process.polished(record.atoms, calculator).get_potential_energy()
        sure = counter.confidence()
        rows.append([sure.probability, sure.met, sure.lower, float(relaxed)])
    done = {"system": name, "seed": seed, "rows": rows}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(done))
    return done


def summarise(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Right or wrong, by ranges of the estimate and at the first estimate of 0.95 or more."""
    known = SYSTEMS[name][3]
    lowest = min(row[3] for run in runs for row in run["rows"])
    lowest = lowest if known is None else known
    said = [
        (row[0], row[3] < lowest + SAME)
        for run in runs
        for row in run["rows"]
        if row[0] is not None
    ]
    table = []
    for low, high in pairwise(BINS):
        inside = [right for p, right in said if low <= p < high]
        table.append([low, high, len(inside), float(np.mean(inside)) if inside else None])
    stops, found = [], []
    for run in runs:
        sure = [k for k, row in enumerate(run["rows"]) if (row[0] or 0.0) >= 0.95]
        right = [k for k, row in enumerate(run["rows"]) if row[3] < lowest + SAME]
        stops.append([sure[0] + 1, run["rows"][sure[0]][3] < lowest + SAME] if sure else None)
        found.append(right[0] + 1 if right else None)
    return {"system": name, "lowest": lowest, "table": table, "stops": stops, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--candidates", type=int, default=30)
    parser.add_argument("--out", default="runs/stop_when")
    parser.add_argument("-j", type=int, default=1)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    jobs = [(s, k, options.out, options.candidates) for k in seeds for s in options.systems]
    with ProcessPoolExecutor(options.j) as pool:
        runs = list(pool.map(one, jobs))
    results = []
    for name in options.systems:
        found = summarise(name, [run for run in runs if run["system"] == name])
        results.append(found)
        stops = [s for s in found["stops"] if s is not None]
        right = sum(s[1] for s in stops)
        print(f"{name}: lowest {found['lowest']:.4f} eV, found at {found['found']}")
        print(f"  said 95 %: {len(stops)} of {options.seeds}, right {right}, at {stops}")
        for low, high, count, share in found["table"]:
            if count:
                print(f"  {low:.2f} to {high:.2f}: {count:4d} estimates, {share:.0%} right")
    common.save(
        "stop_when",
        {"options": {k: v for k, v in vars(options).items() if k != "out"}, "systems": results},
    )


if __name__ == "__main__":
    main()
