"""Searches with an engine that gives a false energy once.

    python benchmarks/false_energies.py [SYSTEM ...] [--seed 500] [--out DIR]

Every search gets one energy that is too low by 1, 20, 150 or 1000 eV, at evaluation 1, 2, 5 or 15
or in the final relaxation. At its end every number is compared with the true energy of the same
structure:

- reported: is the lowest energy of the summary and of best.extxyz true?
- refused: evaluations that count as failed although the engine itself gives them an energy;
- left: evaluations whose false energy was not corrected. The search learned from them.

A search whose results were corrected or rejected is replayed, and must give all bits again. Ti4O8
has smaller budgets, except for false energies at evaluation 15.

Prints one line a search and a table, and writes results/false_energies.json. Finished searches are
kept in DIR and are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import common

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])

import numpy as np  # noqa: E402
from ase.build import fcc111  # noqa: E402
from ase.constraints import FixAtoms  # noqa: E402
from ase.io import read  # noqa: E402
from faulty_engines import structure_hash  # noqa: E402

from nugget.engines.plausibility import agree  # noqa: E402
from nugget.report.digest import search_summary  # noqa: E402
from nugget.search.record import CheckKind, energy_of  # noqa: E402
from nugget.search.search import Search  # noqa: E402
from nugget.search.search_settings import make_config  # noqa: E402

SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "Au6": ("emt", {"formula": "Au6"}),
    "Au13": ("emt", {"formula": "Au13"}),
    "LJ13": ("lj", {"formula": "Au13"}),
    "Morse": ("morse", {"formula": "Au8"}),
    "adsorbate": ("emt", {"formula": "Cu2", "kind": "surface", "height": 4.0}),
    "Ti4O8": ("gfn1-xtb", {"formula": "Ti4O8"}),
}
BUDGET, POLISH = 16, "polish"
EVALUATIONS: tuple[int | str, ...] = (1, 2, 5, 15, POLISH)
SHIFTS = (-1.0, -20.0, -150.0, -1000.0)
SEARCH = {"candidates": 4, "walkers": 0, "explore": 1, "polish": 1, "relax_steps": 20}
MODEL = {"cutoff": 4.5, "n_max": 2, "l_max": 2}


def budget_of(system: str, evaluation: int | str) -> int:
    """Evaluations of a search."""
    return 7 if system == "Ti4O8" and evaluation != 15 else BUDGET


def call_of(evaluation: int | str, budget: int) -> int:
    """The engine's call for more than one atom; calls 2 and 3 are those of the first check."""
    if evaluation == POLISH:
        return budget + 2 + 3
    return int(evaluation) if evaluation == 1 else int(evaluation) + 2


def true_energies(directory: Path) -> dict[str, float]:
    """The engine's own energies of all structures that it evaluated."""
    lines = (directory / "count.true").read_text().splitlines()
    return {key: float(energy) for key, energy in map(str.split, lines)}


def one(
    name: str, evaluation: int | str, shift: float, seed: int, directory: Path
) -> dict[str, Any]:
    """One search, and what is false in it."""
    inner, system = SYSTEMS[name]
    directory.mkdir(parents=True)
    if system.get("kind") == "surface":
        slab = fcc111("Cu", (2, 2, 2), vacuum=7.0)
        slab.set_constraint(FixAtoms(mask=[atom.tag > 1 for atom in slab]))
        slab.write(directory / "slab.traj")
        system = {**system, "template": str(directory / "slab.traj")}
    budget = budget_of(name, evaluation)
    options = {"counter": str(directory / "count"), "at": [call_of(evaluation, budget)],
               "shift": shift, "inner": inner}  # fmt: skip
    engine = {"name": "faulty_engines:lying", "options": options}
    tree = {"system": system, "engine": engine, "model": MODEL,
            "search": {**SEARCH, "budget": budget, "seed": seed}}  # fmt: skip
    start = time.perf_counter()
    search = Search.create(make_config(tree), directory / "run")
    result = search.run()
    seconds = time.perf_counter() - start
    best = read(directory / "run" / "best.extxyz")
    energies = true_energies(directory)
    lowest = result.best if result.lowest is None else result.lowest.relaxed
    assert lowest is not None
    assert np.allclose(lowest.atoms.positions, best.positions, atol=1e-7)  # the digits of the file
    true = energies.get(structure_hash(lowest.atoms))
    summary = search_summary(search, result)["best_energy"]
    reported = (
        true is not None
        and agree(energy_of(best), true, len(best))
        and abs(summary - energy_of(best)) < 1e-6
    )
    refused, left, failed = [], [], 0
    evaluated = [*search.store.records(), *search.store.polish_steps()]
    for record in evaluated:
        energy = energies.get(structure_hash(record.atoms))
        if not record.ok:
            failed += 1
            refused += [record.reason] * (energy is not None)
        elif energy is None or not agree(energy_of(record.atoms), energy, len(record.atoms)):
            left.append(energy_of(record.atoms) - (energy or 0.0))
    checks = [c for c in search.store.checks() if c.kind is not CheckKind.ATOM]
    changes = [c.kind.value for c in checks if c.changes]
    return {
        "system": name, "evaluation": evaluation, "shift": shift, "seed": seed,
        "reported": reported, "refused": refused, "left": left, "failed": failed,
        "evaluations": len(evaluated), "checks": sum(c.evaluations for c in checks),
        "verdicts": changes,
        "replay": not changes or Search.replay(directory / "run", trust=True).same,
        "seconds": seconds,
    }  # fmt: skip


def _place(case: tuple[int, Any]) -> int:
    system, number = divmod(case[0], len(EVALUATIONS) * len(SHIFTS))
    return (7 * number + 3 * system) % (len(EVALUATIONS) * len(SHIFTS))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--seed", type=int, default=500, help="of the first search")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "false_energies")
    arguments = parser.parse_args()
    rows = []
    # A mixed order, so that a run that is interrupted covers all systems, evaluations and shifts.
    cases = enumerate(product(SYSTEMS, EVALUATIONS, SHIFTS))
    for number, (name, evaluation, shift) in sorted(cases, key=_place):
        if name not in arguments.systems:
            continue
        directory = arguments.out / f"{name}_{evaluation}_{-shift:.0f}_{arguments.seed + number}"
        file = directory / "result.json"
        if not file.exists():
            row = one(name, evaluation, shift, arguments.seed + number, directory)
            file.write_text(json.dumps(row))
        row = json.loads(file.read_text())
        print(json.dumps(row), flush=True)
        rows.append(row)
    table = []
    for name in arguments.systems:
        mine = [row for row in rows if row["system"] == name]
        table.append({
            "system": name,
            "searches": len(mine),
            "false best": sum(not row["reported"] for row in mine),
            "true refused": sum(len(row["refused"]) for row in mine),
            "false left": sum(len(row["left"]) for row in mine),
            "failures": sum(row["failed"] for row in mine),
            "evaluations": sum(row["evaluations"] for row in mine),
            "checks a search": round(sum(row["checks"] for row in mine) / max(len(mine), 1), 2),
            "replays differ": sum(not row["replay"] for row in mine),
        })  # fmt: skip
    common.save("false_energies", {"table": table, "searches": rows})
    for row in table:
        print(row)


if __name__ == "__main__":
    main()
