"""Crystal searches: how many evaluations until the known structure is found.

    python benchmarks/crystals.py --systems Si SiC LJ Cu3Au MgO --seeds 100 110 --out crystals.json
    python benchmarks/crystals.py --pressure

Every search is that of `nugget search --crystal` with its defaults, but engines run in this process
(no child processes). `found` is the number of the evaluation that is the reference, if need be
after a relaxation with the engine, whose evaluations are listed apart. Seeds 0 to 9 were used to
choose the defaults, 200 to 209 to judge them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.io import read
from ase.spacegroup import crystal
from ase.units import GPa
from threadpoolctl import threadpool_limits

from nugget.engines.task import Task, run_task
from nugget.relax.engine_relaxation import CellRelaxation
from nugget.search.knowledge import is_found
from nugget.search.learner import Learner
from nugget.search.loop import complete, make_pending
from nugget.search.polish import lowest_distinct
from nugget.search.search_settings import make_config
from nugget.structures.symmetry import space_group_of
from nugget.systems.crystal import CRYSTAL_GENERATORS
from nugget.systems.system_settings import make_system

REFERENCES = Path(__file__).parent / "references"
LJ = {"sigma": 2.5, "epsilon": 1.0, "rc": 7.5, "smooth": True}


def l12() -> Atoms:
    sites = [(0, 0.5, 0.5), (0, 0, 0)]
    return crystal(["Cu", "Au"], sites, spacegroup=221, cellpar=[3.8] * 3 + [90] * 3)


# Formula, units, engine, its options, and the references before relaxation.
SYSTEMS: dict[str, tuple[str, Any, str, dict[str, Any], Callable[[], list[Atoms]]]] = {
    "Si": ("Si", 8, "tersoff", {}, lambda: [bulk("Si", "diamond", a=5.43)]),
    "SiC": ("SiC", 4, "tersoff", {}, lambda: [bulk("SiC", "zincblende", a=4.36)]),
    "LJ": (
        "Au", "4-8", "lj", LJ,
        lambda: [bulk("Au", "fcc", a=3.9), bulk("Au", "hcp", a=2.77, c=4.52)],
    ),
    "Cu3Au-4": ("Cu3Au", 1, "emt", {}, lambda: [l12()]),
    "Cu3Au-8": ("Cu3Au", 2, "emt", {}, lambda: [l12()]),
    # The three lowest of all decorations of fcc cells, within 0.9 meV/atom: Cmcm, Cmmm and C2/m.
    "Cu2Au-6": ("Cu2Au", 2, "emt", {}, lambda: read(REFERENCES / "emt-cu2au.extxyz", ":")),
    "MgO": ("MgO", 4, "gfn1-xtb", {}, lambda: [bulk("MgO", "rocksalt", a=4.2)]),
}  # fmt: skip


def evaluate(task: Task, atoms: Atoms) -> Atoms | None:
    outcome = run_task(task, atoms)
    return outcome.atoms if outcome.ok else None


def relax_with(task: Task, atoms: Atoms, fmax: float, pressure: float = 0.0) -> CellRelaxation:
    run = CellRelaxation(atoms, fmax, 150, pressure)
    if atoms.calc is not None:
        run.observe(atoms)
    while not run.done:
        run.observe(evaluate(task, run.propose()))
    return run


def search(
    name: str, seed: int, budget: int, groups: bool, changes: dict[str, Any]
) -> dict[str, Any]:
    """One search; when its reference was found, and what it cost."""
    formula, units, engine, options, starts = SYSTEMS[name]
    weights = {k: w for k, w in CRYSTAL_GENERATORS.items() if groups or k != "space_group"}
    settings: dict[str, Any] = {
        "system": {"formula": formula, "kind": "crystal", "units": units},
        "engine": {"name": engine, "options": options},
        "search": {"seed": seed, "generators": weights},
    }
    for key, value in changes.items():
        section, option = key.split(".", 1)
        settings.setdefault(section, {})[option] = value
    config = make_config(settings)
    task = Task(name=engine, options=options, stress=True)
    references = [relax_with(task, atoms, 0.005).result().atoms for atoms in starts()]
    learner = Learner(config, make_system(config.system, Path()))
    goal, tolerance = learner.goal, config.search.reference_tolerance
    near, extra, found = goal.memory(), 0, None
    begun, seconds, best = time.process_time(), 0.0, []
    for k in range(budget):
        proposal = learner.propose(k)
        if proposal is None:
            break
        outcome = run_task(task, proposal.atoms)
        record = complete(make_pending(k, k, proposal, 2.0), k, outcome)
        seconds += outcome.seconds
        learner.learn(record)
        if not record.ok:
            continue
        best.append(learner.value(learner.best) if learner.best else None)
        if is_found(record.atoms, references, None, goal) and record.atoms not in near:
            near.add(record.atoms)
            run = relax_with(task, record.atoms, 0.05)
            extra += run.evaluations - 1
            if is_found(run.result().atoms, references, tolerance, goal):
                found = k + 1
                break
    goals = [goal.value(one, one.get_potential_energy()) for one in references]
    return {
        "system": name, "seed": seed, "groups": groups, "found": found, "extra": extra,
        "generator": proposal.generator if found and proposal else None,
        "above": (min(best) - min(goals)) if best else None,
        "seconds": time.process_time() - begun, "engine_seconds": seconds,
    }  # fmt: skip


def pressure_series(pressures: Sequence[int], seed: int, budget: int) -> list[dict[str, Any]]:
    """Enthalpies of silicon with Tersoff: diamond and a denser rival, from searches and by hand."""
    rows = []
    task = Task(name="tersoff", stress=True)
    rivals = {
        "diamond": bulk("Si", "diamond", a=5.43),
        "beta-tin": crystal("Si", [(0, 0, 0)], spacegroup=141, cellpar=[4.9, 4.9, 2.6, 90, 90, 90],
                            primitive_cell=True),
        "bcc": bulk("Si", "bcc", a=3.1), "sc": bulk("Si", "sc", a=2.55),
        "fcc": bulk("Si", "fcc", a=4.0), "hcp": bulk("Si", "hcp", a=2.8, c=4.6),
    }  # fmt: skip
    for gpa in pressures:
        by_hand = {}
        for name, atoms in rivals.items():
            end = relax_with(task, atoms, 0.005, gpa * GPa).result()
            volume = end.atoms.get_volume()
            by_hand[name] = (end.energy + gpa * GPa * volume) / len(end.atoms)
        settings: dict[str, Any] = {
            "system": {"formula": "Si", "kind": "crystal", "units": "1-4", "pressure": gpa},
            "engine": {"name": "tersoff"},
            "search": {"seed": seed},
        }
        config = make_config(settings)
        learner = Learner(config, make_system(config.system, Path()))
        for k in range(budget):
            proposal = learner.propose(k)
            if proposal is None:
                break
            learner.learn(
                complete(make_pending(k, k, proposal, 2.0), k, run_task(task, proposal.atoms))
            )
        ends = [
            relax_with(task, record.atoms, 0.01, gpa * GPa).result()
            for record in lowest_distinct(learner.records, 3, learner.goal)
        ]
        end = min(ends, key=lambda one: learner.goal.value(one.atoms, one.energy))
        row = {
            "GPa": gpa, "seed": seed, "budget": budget, "by_hand": by_hand,
            "lowest_by_hand": min(by_hand, key=by_hand.__getitem__),
            "search": (end.energy + gpa * GPa * end.atoms.get_volume()) / len(end.atoms),
            "space_group": space_group_of(end.atoms),
        }  # fmt: skip
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> None:
    print("| system | space-group starts | found | evaluations to solution | relaxing |")
    print("|---|---|---|---|---|")
    for name in dict.fromkeys(row["system"] for row in rows):
        for groups in (True, False):
            mine = [r for r in rows if r["system"] == name and r["groups"] == groups]
            if not mine:
                continue
            when = sorted(r["found"] for r in mine if r["found"])
            shown = f"median {np.median(when):g}, {when[0]} to {when[-1]}" if when else "–"
            extra = np.mean([r["extra"] for r in mine])
            print(
                f"| {name} | {'yes' if groups else 'no'} | {len(when)} of {len(mine)} | {shown} | "
                f"{extra:.0f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 5), metavar=("FIRST", "END"))
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--groups", choices=("yes", "no", "both"), default="both")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--pressure", action="store_true")
    parser.add_argument("--pressures", nargs="+", type=int, default=(0, 5, 10, 20, 30, 50))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    changes = {}
    for text in args.set:
        key, _, value = text.partition("=")
        changes[key] = json.loads(value)
    found: Any
    with threadpool_limits(1):
        if args.pressure:
            found = []
            for seed in range(*args.seeds):
                found += pressure_series(args.pressures, seed, args.budget)
        else:
            found = []
            for groups in {"yes": [True], "no": [False], "both": [True, False]}[args.groups]:
                for name in args.systems:
                    for seed in range(*args.seeds):
                        row = search(name, seed, args.budget, groups, changes)
                        found.append(row)
                        print(json.dumps(row), flush=True)
            table(found)
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
