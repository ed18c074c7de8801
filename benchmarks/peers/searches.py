"""Whole searches side by side: AGOX's GOFEE and replica exchange, and nugget, all with defaults.

    python benchmarks/peers/searches.py [--systems Au13 ...] [--first 3000] [--seeds 5]

Same engines, same seeds, same budget, same success: the bonds of the reference and, relaxed with
the engine, its energy within 0.05 eV. Every call of the engine is one evaluation, but those of
the relaxations that only judge. AGOX runs in its own environment (`make .venv-peers/.ready`) on
one processor and ends at --limit processor seconds, too. What is done stays in --out and is not
done again. Writes results/peers_searches.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "landscapes")]

import common  # noqa: E402  first: it sets one thread
import numpy as np  # noqa: E402
from ase import Atoms  # noqa: E402
from ase.io import read  # noqa: E402
from ase.optimize import BFGS  # noqa: E402
from protocol import ONE_THREAD, processor_seconds  # noqa: E402
from systems import SYSTEMS, reference_file, settings  # noqa: E402

SEARCHES = ("nugget", "gofee", "replica exchange")
TOLERANCE = 0.05  # eV
BOX = 20.0  # Å; AGOX's confinement is half as wide, as in its examples


def ours(name: str, seed: int, budget: int, folder: Path) -> dict[str, Any]:
    """One search with nugget's defaults, in this process and those that it starts."""
    from nugget.search import Search, make_config

    tree = settings(name, folder)
    tree["search"].update(seed=seed, budget=budget, reference=str(reference_file(name)))
    cpu, wall = processor_seconds(), time.perf_counter()
    search = Search.create(make_config(tree), folder / "run")
    result = search.run()
    spent = {"cpu": processor_seconds() - cpu, "wall": time.perf_counter() - wall}
    good = [r.energy for r in search.store.records() if r.ok]
    lowest = min([*good, *(one.energy for one in result.minima)])
    above = float(lowest - _lowest_reference(name))
    return {"found": result.found, "evaluations": result.evaluations, "above": above, **spent}


def theirs(
    name: str, algorithm: str, seed: int, budget: int, limit: float, python: Path, folder: Path
) -> dict[str, Any]:
    """One search with AGOX, and our judgement of what it evaluated."""
    system = SYSTEMS[name]
    cell = system.system.get("cell", (BOX, BOX, BOX))
    told = {
        "algorithm": algorithm,
        "formula": system.formula,
        "engine": system.engine,
        "cell": np.diag(cell).tolist(),
        "periodic": "cell" in system.system,
        "budget": budget,
        "limit": limit,
        "seed": seed,
        "out": str(folder.resolve()),
    }
    # Ray keeps its sockets in the present directory, and their paths must be short.
    with (folder / "log.txt").open("w") as log, tempfile.TemporaryDirectory() as short:
        subprocess.run(
            [python, HERE / "search_agox.py", json.dumps(told)],
            env={**os.environ, **ONE_THREAD},
            cwd=short,
            stdout=log,
            stderr=log,
            check=True,
        )
    return {**judged(name, read(folder / "evaluations.extxyz", ":")), "limit": limit}


def judged(name: str, images: list[Atoms]) -> dict[str, Any]:
    """When the reference was met; at the end the three lowest are relaxed, as nugget does."""
    from nugget.search.knowledge import is_found

    references = read(reference_file(name), ":")
    energies = [atoms.get_potential_energy() for atoms in images]
    lowest, met, at_the_end = min(energies), None, False
    for number, atoms in enumerate(images, 1):
        if is_found(atoms, references, None) and _is_lowest(name, atoms, references):
            met = number
            break
    else:
        for number in np.argsort(energies)[:3]:
            relaxed = _relaxed(name, images[number])
            lowest = min(lowest, relaxed.get_potential_energy())
            if is_found(relaxed, references, TOLERANCE):
                met, at_the_end = len(images), True
    end = images[(met or len(images)) - 1]
    return {
        "found": met is not None,
        "evaluations": met or len(images),
        "at_the_end": at_the_end,
        "above": 0.0 if met else float(lowest - _lowest_reference(name)),
        "cpu": end.info["cpu"],
        "wall": end.info["wall"],
    }


def _relaxed(name: str, atoms: Atoms) -> Atoms:
    from nugget.engines import make_calculator

    relaxed = atoms.copy()
    relaxed.calc = make_calculator(SYSTEMS[name].engine)
    BFGS(relaxed, logfile=None).run(fmax=0.02, steps=300)
    return relaxed


def _is_lowest(name: str, atoms: Atoms, references: list[Atoms]) -> bool:
    from nugget.search.knowledge import is_found

    return is_found(_relaxed(name, atoms), references, TOLERANCE)


def _lowest_reference(name: str) -> float:
    return float(min(a.get_potential_energy() for a in read(reference_file(name), ":")))


def table(rows: list[dict[str, Any]]) -> None:
    lines: list[list[object]] = []
    for name in dict.fromkeys(row["system"] for row in rows):
        for kind in SEARCHES:
            own = [r for r in rows if (r["system"], r["search"]) == (name, kind)]
            if not own:
                continue
            found = [r for r in own if r["found"]]
            hits = len(found)
            marks = [f"{r['evaluations']}{'*' * r.get('at_the_end', False)}" for r in found]
            lines.append(
                [
                    name,
                    kind,
                    f"{hits}/{len(own)}",
                    ", ".join(marks) or "–",
                    f"{np.median([r['evaluations'] for r in own]):.0f}",
                    f"{np.median([r['above'] for r in own]):.2f}",
                    *(_per_solution(own, clock, hits) for clock in ("cpu", "wall")),
                ]
            )
    head = [
        "system", "search", "found", "at", "evaluations, median", "best above, median, eV",
        "cpu hours per solution", "wall hours per solution",
    ]  # fmt: skip
    common.table("Whole searches (* by the relaxations at the end)", head, lines)


def _per_solution(rows: list[dict[str, Any]], clock: str, hits: int) -> str:
    """All hours spent, failures included, for each solution."""
    hours = sum(row[clock] for row in rows) / 3600
    return f"{hours / hits:.4f}" if hits else f"> {hours:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", default=["Au13", "Cu6Au7", "LJ13"])
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    parser.add_argument("--first", type=int, default=3000, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--limit", type=float, default=30.0, help="processor seconds, AGOX")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv-peers/bin/python")
    parser.add_argument("--done", action="store_true", help="no search; tables of what is there")
    parser.add_argument("--out", type=Path, default=Path("runs/peers"))
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(args.first, args.first + args.seeds):
        for name in args.systems:
            for kind in args.searches:
                folder = args.out / name / kind.replace(" ", "-") / f"seed{seed}"
                done = folder / "result.json"
                if args.done and not done.exists():
                    continue
                if not done.exists():
                    shutil.rmtree(folder, ignore_errors=True)  # broken off
                    folder.mkdir(parents=True)
                    if kind == "nugget":
                        row = ours(name, seed, args.budget, folder)
                    else:
                        row = theirs(name, kind, seed, args.budget, args.limit, args.python, folder)
                    done.write_text(json.dumps(row))
                row = {"system": name, "search": kind, "seed": seed}
                row.update(json.loads(done.read_text()))
                rows.append(row)
                print(json.dumps(row), flush=True)
    table(rows)
    common.save("peers_searches", {"budget": args.budget, "rows": rows})


if __name__ == "__main__":
    main()
