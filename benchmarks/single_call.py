"""One Au20: energy, forces and σ by `predict`, the LCB, the ASE calculator; old and new code.

    python benchmarks/single_call.py [--other DIR/src]

K = 10, m = 1000, SOAP (3, 2) with 6 Å, one thread, processor time. With `--other`, the sources of
another version (`git archive COMMIT | tar -x -C DIR`) are measured in turns with these.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import common  # first: it sets one thread
from limits import TRAINING, fitted, systems

CALLS, ROUNDS = 20, 200


def microseconds() -> dict[str, float]:
    """Median of one call of each kind, in this process."""
    images, soap = systems(quick=True)["Au20 (3,2)"]
    pot = fitted(images[:TRAINING], soap, 10)
    one = images[TRAINING : TRAINING + 1]
    lcb, moving = pot.lcb(2.0), one[0].copy()
    moving.calc = pot.calculator()

    def step() -> None:
        moving.positions[0, 0] += 1e-7
        moving.get_forces()

    work = {"predict": lambda: pot.predict(one[0]), "lcb": lambda: lcb(one), "ase": step}
    found = {}
    for name, call in work.items():
        call()
        times = []
        for _ in range(ROUNDS):
            start = time.process_time()
            for _ in range(CALLS):
                call()
            times.append((time.process_time() - start) / CALLS)
        found[name] = 1e6 * median(times)
    return found


def asked(source: Path | None) -> dict[str, float]:
    """The same in a process of its own, with the sources of another version if there are."""
    path = {} if source is None else {"PYTHONPATH": str(source.absolute())}
    command = [sys.executable, __file__, "--print"]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, **path}
    )
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--other", type=Path, help="folder `src` of another version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--print", action="store_true", help="one process: print and end")
    chosen = parser.parse_args()
    if chosen.print:
        print(json.dumps(microseconds()))
        return
    versions: dict[str, Path | None] = {"this": None}
    if chosen.other is not None:
        versions = {"other": chosen.other, **versions}
    rounds = [
        {name: asked(source) for name, source in versions.items()} for _ in range(chosen.rounds)
    ]
    results: dict[str, dict[str, float]] = {
        kind: {name: median(one[name][kind] for one in rounds) for name in versions}
        for kind in rounds[0]["this"]
    }
    for kind, row in results.items():
        if "other" in row:
            row["ratio"] = median(one["this"][kind] / one["other"][kind] for one in rounds)
    rows = [[kind, *row.values()] for kind, row in results.items()]
    common.table("One Au20, µs", ["call", *results["predict"]], rows)
    common.save("single_call", results)


if __name__ == "__main__":
    main()
