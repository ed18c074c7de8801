"""How often a search finds the ground state: many seeds, Wilson intervals, energies or forces.

    python benchmarks/success.py --case Au20 --seeds 20 --processes 2 --out runs/success

Each search lives in its own directory and is continued if it was interrupted. Variants are settings
on top of the paper's (energies only, no exploring; `landscapes/` has the defaults of today).
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from ase.io import read

from nugget.campaign import wilson

REFERENCES = Path(__file__).parent / "references"


@dataclass(frozen=True)
class Case:
    """A system with a known answer."""

    formula: str
    engine: str
    budget: int
    reference: str  # file in references/
    tolerance: float  # eV above the reference's energy that still counts
    system: dict[str, Any] = field(default_factory=dict)


CASES = {
    "LJ13": Case("Au13", "lj", 60, "lj13.extxyz", 0.2),
    "LJ19": Case("Au19", "lj", 100, "lj19.extxyz", 0.3),
    "EMT-Au13": Case("Au13", "emt", 60, "emt-au13.extxyz", 0.03),
    "Au10": Case("Au10", "gfn1-xtb", 100, "gfn1-au10.extxyz", 0.1),
    # The graph alone decides: no other structure of Au20 shares the tetrahedron's.
    "Au20": Case("Au20", "gfn1-xtb", 150, "gfn1-au20.extxyz", 2.0),
}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "energies": {},
    "forces": {"model": {"use_forces": True}},
    "kappa=0": {"search": {"kappa": 0.0}},
    "kappa=4": {"search": {"kappa": 4.0}},
    "no symmetric": {"search": {"generators": {"symmetric": 0.0}}},
    "random only": {"search": {"generators": "random"}},
    "repulsion": {"model": {"baseline": "repulsion"}},
    "n 6, l 4": {"model": {"n_max": 6, "l_max": 4}},
    "uncalibrated": {"search": {"calibrate": False}},
    "10 candidates": {"search": {"candidates": 10}},
    "force noise 0.1": {"model": {"use_forces": True, "force_noise": 0.1}},
    "thompson": {"search": {"acquisition": "thompson"}},
    "projected": {"model": {"uncertainty": "projected-process"}},
}


def settings(case: Case, variant: str, seed: int) -> dict[str, Any]:
    from nugget.systems.system_settings import DEFAULT_GENERATORS

    tree: dict[str, Any] = {
        "system": {"formula": case.formula, **case.system},
        "engine": {"name": case.engine},
        "model": {"use_forces": False, "n_max": 3, "l_max": 2, "force_noise": 0.5},
        "search": {"budget": case.budget, "seed": seed, "explore": 0},
    }
    for section, values in VARIANTS[variant].items():
        for key, value in values.items():
            if key == "generators":
                only = {"random_cluster": 1.0, "random_placement": 1.0, "rattle": 1.0}
                value = only if value == "random" else {**DEFAULT_GENERATORS, **value}
            tree[section][key] = value
    return tree


def solved(atoms: Atoms, reference: Atoms, tolerance: float) -> bool:
    """The reference's bond graph at about its energy, or an energy even lower."""
    from nugget.structures.identity import same_graph

    above = atoms.get_potential_energy() - reference.get_potential_energy()
    return above < -tolerance or (above < tolerance and same_graph(atoms, reference))


def one(job: tuple[str, str, int, str, float | None]) -> dict[str, Any]:
    """One search, from where it stands; stops when the reference is found."""
    from nugget.search import Search, make_config

    name, variant, seed, out, tolerance = job
    case = CASES[name]
    tolerance = case.tolerance if tolerance is None else tolerance
    reference = read(REFERENCES / case.reference)
    directory = Path(out) / name / variant.replace(" ", "-") / f"seed{seed}"
    if (directory / "config.toml").exists():
        search = Search.resume(directory)
    else:
        search = Search.create(make_config(settings(case, variant, seed)), directory)
    known = [r for r in search.store.records() if r.ok]
    hits = [r.iteration + 1 for r in known if solved(r.atoms, reference, tolerance)]

    def watch(status: Any) -> None:
        record = status.record
        if record is not None and record.ok and solved(record.atoms, reference, tolerance):
            hits.append(status.evaluations)
            search.stop()

    if not hits:
        search.run(watch)
    records = search.store.records()
    return {
        "case": name,
        "variant": variant,
        "seed": seed,
        "found": min(hits) if hits else None,
        "evaluations": len(records),
        "best_above_reference": min(r.energy for r in records if r.ok)
        - reference.get_potential_energy(),
        "engine_seconds": sum(r.engine_seconds for r in records),
        "surrogate_seconds": sum(r.surrogate_seconds for r in records),
        "failures": sum(not r.ok for r in records),
    }


def summary(rows: list[dict[str, Any]]) -> list[list[object]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["case"], row["variant"]), []).append(row)
    table = []
    for (case, variant), members in groups.items():
        found = [m["found"] for m in members if m["found"] is not None]
        low, high = wilson(len(found), len(members))
        steps = sum(m["evaluations"] for m in members)
        table.append(
            [
                case,
                variant,
                f"{len(found)}/{len(members)}",
                f"{100 * len(found) / len(members):.0f} % ({100 * low:.0f} to {100 * high:.0f})",
                float(np.median(found)) if found else "",
                max(found) if found else "",
                1e3 * sum(m["surrogate_seconds"] for m in members) / steps,
                1e3 * sum(m["engine_seconds"] for m in members) / steps,
            ]
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="LJ13", help=f"comma-separated: {', '.join(CASES)}")
    parser.add_argument("--variant", default="forces;energies", help="; ".join(VARIANTS))
    parser.add_argument("--seeds", type=int, default=3, help="searches of each kind")
    parser.add_argument("--tolerance", type=float, help="eV from the reference that still count")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", default="runs/success")
    parser.add_argument("--name", default="success", help="results/NAME.json")
    args = parser.parse_args()
    jobs = [
        (case, variant, seed, args.out, args.tolerance)
        for case in args.case.split(",")
        for seed in range(args.seeds)
        for variant in args.variant.split(";")
    ]
    rows = []
    with ProcessPoolExecutor(args.processes) as pool:
        for row in pool.map(one, jobs):
            rows.append(row)
            print(
                f"{row['case']:9} {row['variant']:14} seed {row['seed']:3d}: found {row['found']}, "
                f"best {row['best_above_reference']:+.3f} eV",
                flush=True,
            )
    common.table(
        "Success within the budget (Wilson 95 %)",
        ["case", "variant", "found", "share", "median", "latest", "surrogate ms", "engine ms"],
        summary(rows),
    )
    common.save(args.name, rows)


if __name__ == "__main__":
    main()
