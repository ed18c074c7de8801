"""Searches with the same seeds and other settings, compared after relaxing the lowest structures.

    python benchmarks/paired_searches.py --systems Ti3O6 LJ31 --variants former motif --seeds 3101 8

Variants are compared with `plain`, the settings without the generators `motif` and `alternating`.
The three lowest structures of a search are relaxed with the engine (BFGS to 0.03 eV/Å), because
unrelaxed energies of one minimum differ by up to 0.5 eV (Morse clusters: 1 eV). Rows are added to
results/paired_searches.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "landscapes")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE / "landscapes"), *sys.path[2:3]])

from common import RESULTS  # noqa: E402, I001  first: it sets one thread
import numpy as np  # noqa: E402
from ase import Atoms  # noqa: E402
from ase.optimize import BFGS  # noqa: E402
from systems import morse  # noqa: E402

from nugget.engines import make_calculator  # noqa: E402
from nugget.search import Search, make_config  # noqa: E402
from nugget.systems.system_settings import DEFAULT_GENERATORS  # noqa: E402

#: Formula, engine, evaluations.
SYSTEMS = {
    "Ti2O4": ("Ti2O4", "gfn1-xtb", 30),
    "Mg4O4": ("Mg4O4", "gfn1-xtb", 30),
    "Ti3O6": ("Ti3O6", "gfn1-xtb", 30),
    "Al4O6": ("Al4O6", "gfn1-xtb", 30),
    "Ti4O8": ("Ti4O8", "gfn1-xtb", 40),
    "Zn6O6": ("Zn6O6", "gfn1-xtb", 30),
    "Au20": ("Au20", "gfn1-xtb", 35),
    "Au13": ("Au13", "emt", 25),
    "M13": ("Au13", "systems:morse", 30),
    "LJ31": ("Au31", "lj", 30),
    "LJ38": ("Au38", "lj", 30),
    "LJ76": ("Au76", "lj", 10),
    "LJ98": ("Au98", "lj", 10),
}
PLAIN = {k: w for k, w in DEFAULT_GENERATORS.items() if k not in ("motif", "alternating")}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "plain": {"generators": PLAIN},
    "former": {"generators": PLAIN, "rules": 0},
    "motif": {"generators": {**PLAIN, "motif": 1.0}},
    "alternating": {"generators": {**PLAIN, "alternating": 2.0}},
}
RELAXED = 3  # structures of each search


def relaxed(atoms: Atoms, engine: str) -> float:
    atoms = atoms.copy()
    atoms.calc = morse() if engine == "systems:morse" else make_calculator(engine)
    BFGS(atoms, logfile=None, maxstep=0.1).run(fmax=0.03, steps=150)
    return float(atoms.get_potential_energy())


def searched(name: str, seed: int, variant: str) -> dict[str, Any]:
    formula, engine, budget = SYSTEMS[name]
    settings = {
        "system": {"formula": formula},
        "engine": {"name": engine, "verify": False},
        "search": {"budget": budget, "seed": seed, "polish": 0, **VARIANTS[variant]},
    }
    with tempfile.TemporaryDirectory() as folder:
        search = Search.create(make_config(settings), Path(folder) / "run")
        search.run()
        records = search.store.records()
    good = sorted((r for r in records if r.ok), key=lambda r: float(r.energy))
    return {
        "system": name, "seed": seed, "variant": variant,
        "energies": [float(r.energy) if r.ok else None for r in records],
        "relaxed": min(relaxed(r.atoms, engine) for r in good[:RELAXED]),
    }  # fmt: skip


def table(rows: list[dict[str, Any]], tolerance: float = 0.01) -> None:
    """Of every variant: pairs with `plain`, how many end lower or higher, and medians."""
    ends = {(r["system"], r["seed"], r["variant"]): r["relaxed"] for r in rows}
    for name, variant in sorted({(r["system"], r["variant"]) for r in rows}):
        seeds = [s for n, s, v in ends if (n, v) == (name, variant) and (n, s, "plain") in ends]
        if variant == "plain" or not seeds:
            continue
        here = np.array([ends[name, s, variant] for s in seeds])
        plain = np.array([ends[name, s, "plain"] for s in seeds])
        lower, higher = int(sum(here < plain - tolerance)), int(sum(here > plain + tolerance))
        print(
            f"{name:6s} {variant:12s} {len(seeds)} pairs, lower {lower}, higher {higher}, "
            f"medians {np.median(here):.3f} and {np.median(plain):.3f} (plain), "
            f"highest {here.max():.3f} and {plain.max():.3f} eV"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", default=["Ti3O6"], choices=SYSTEMS)
    parser.add_argument("--variants", nargs="+", default=["plain", "former"], choices=VARIANTS)
    parser.add_argument("--seeds", nargs=2, type=int, default=(3101, 8), help="first, number")
    arguments = parser.parse_args()
    path = RESULTS / "paired_searches.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    done = {(r["system"], r["seed"], r["variant"]) for r in rows}
    first, number = arguments.seeds
    for seed in range(first, first + number):
        for name in arguments.systems:
            for variant in arguments.variants:
                if (name, seed, variant) in done:
                    continue
                rows.append(searched(name, seed, variant))
                path.write_text(json.dumps(rows) + "\n")
                print(name, seed, variant, f"{rows[-1]['relaxed']:.4f}", flush=True)
    table(rows)


if __name__ == "__main__":
    main()
