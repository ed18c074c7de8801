"""Errors over error bars, evaluations 6 to 40, of searches that are there already.

    python benchmarks/error_bars.py runs/landscapes/*/default/seed* --name error_bars

A search does not depend on the error bars that it shows (`nugget.search.error_bars`). So they are
made again from its records with the present rules. Writes results/NAME.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import common  # first: it sets one thread
import numpy as np

from nugget.search import Search
from nugget.search.store import Store


def errors_over_bars(directory: Path) -> list[float]:
    """(E − E_predicted)/error bar of the evaluations 6 to 40 that had a prediction."""
    search = Search(Store.open(directory))
    records, learner = search.store.records(), search.learner()
    z = []
    for record in records:
        if not learner.potential.is_fitted:
            learner.learn(record)
            best = learner.best_energy
            bars, count = learner.bars, len(learner.good)
            continue
        if not record.ok:
            continue
        if record.predicted is not None and record.std:
            bar = record.std * bars.displayed(record.predicted, record.std, best)
            if count < 40:
                z.append((record.energy - record.predicted) / bar)
            bars = bars.updated(record.predicted, record.std, record.energy, best)
        best, count = min(best, record.energy), count + 1
    return z


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--name", default="error_bars")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for directory in args.directories:
        if not (directory / "search.db").exists():
            continue
        config = Store(directory).config()
        z = np.array(errors_over_bars(directory))
        if len(z):
            rows.append(
                {
                    "formula": config.system.formula,
                    "kind": config.system.kind,
                    "engine": config.engine.name,
                    "seed": config.search.seed,
                    "count": len(z),
                    "rms": float(np.sqrt(np.mean(z**2))),
                    "median": float(np.median(np.abs(z))),
                    "within 1": float(np.mean(np.abs(z) <= 1)),
                    "within 2": float(np.mean(np.abs(z) <= 2)),
                }
            )
    header = ["formula", "kind", "engine", "seed", "count", "rms", "median", "within 1", "within 2"]
    table = [[f"{v:.2f}" if isinstance(v, float) else v for v in row.values()] for row in rows]
    common.table("Error over error bar, evaluations 6 to 40", header, table)
    common.save(args.name, {"rows": rows})


if __name__ == "__main__":
    main()
