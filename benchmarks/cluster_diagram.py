"""Oxides of a small copper cluster (GFN1-xTB) in oxygen: one search against one per composition.

    python benchmarks/cluster_diagram.py --seed 100 --budget 60 --out cluster_diagram.json

The search over all numbers of O atoms has the chemical potential of O2 gas at 300 to 1200 K and
1e-12 to 1 bar. The independent searches share its number of evaluations. Both diagrams are
compared at all chemical potentials.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from nugget.search.search import Search
from nugget.search.search_settings import make_config
from nugget.systems.grand_canonical import VariedAtoms
from nugget.systems.grand_potential import Envelope, GrandPotential, grid
from nugget.systems.system_settings import make_goal, make_system

GAS = {"temperature": "300:1200", "partial_pressures": "O2=1e-12:1"}


def envelope(empty: Envelope, lowest: dict[str, float]) -> Envelope:
    """The envelope of energies by numbers of O atoms."""
    for count, energy in lowest.items():
        empty = empty.including((int(count),), energy)
    return empty


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vary", default="Cu:3,O:0-3")
    parser.add_argument("--engine", default="gfn1-xtb")
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    engine = {"name": options.engine}
    result: dict[str, Any] = {"vary": options.vary, "engine": options.engine, "seed": options.seed}
    with threadpool_limits(1), tempfile.TemporaryDirectory() as place:
        begun = time.process_time()
        settings = {
            "system": {"vary": options.vary, **GAS}, "engine": engine,
            "search": {"seed": options.seed, "budget": options.budget},
        }  # fmt: skip
        search = Search.create(make_config(settings), Path(place) / "all")
        together = search.run()
        diagram = together.diagram
        assert diagram is not None
        result["together"] = {
            "evaluations": together.evaluations, "polish": together.polish_evaluations,
            "seconds": time.process_time() - begun, "diagram": diagram.data(),
            "lowest": {str(p.counts["O"]): p.energy for p in diagram.phases},
        }  # fmt: skip
        print(json.dumps(result["together"]), flush=True)
        system = make_system(search.config.system, Path())
        assert isinstance(system, VariedAtoms)
        lowest, evaluations, polish, begun = dict[str, float](), 0, 0, time.process_time()
        for counts in system.members:
            name = system.name_of(counts)
            alone = Search.create(
                make_config({
                    "system": {"formula": name}, "engine": engine,
                    "search": {"seed": options.seed + 1,
                               "budget": options.budget // len(system.members)},
                }),
                Path(place) / name,
            ).run()  # fmt: skip
            assert alone.lowest is not None
            evaluations, polish = (
                evaluations + alone.evaluations, polish + alone.polish_evaluations
            )  # fmt: skip
            lowest[str(counts[system.varied.index("O")])] = alone.lowest.energy
        result["separate"] = {
            "evaluations": evaluations, "polish": polish, "lowest": lowest,
            "seconds": time.process_time() - begun,
        }  # fmt: skip
        goal = make_goal(search.config.system)
    assert isinstance(goal, GrandPotential)
    both = [envelope(goal.envelope, result[key]["lowest"]) for key in ("together", "separate")]
    delta = grid(list(zip(goal.envelope.lowest, goal.envelope.highest, strict=True)))[1]
    omega = [
        np.min([one.omega(c, e, delta) for c, e in one.points.items()], axis=0) for one in both
    ]
    difference = omega[0] - omega[1]
    result["comparison"] = {
        "phases": [[c[0] for c in one.vertices()] for one in both],
        "highest_above": float(difference.max()), "lowest_below": float(difference.min()),
    }  # fmt: skip
    print(json.dumps({k: v for k, v in result.items() if k != "together"}))
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
