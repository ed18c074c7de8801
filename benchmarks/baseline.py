"""What a cheaper engine is worth as a baseline: evaluations of the dear one until it is found.

    python benchmarks/baseline.py --pairs "Au8 emt>gfn1" --seeds 10 --first 100 -j 2 --out DIR

A pair is a cheap and a dear engine on one system. The baseline is the cheap engine itself, or a
model of it, fitted to one search with it. The reference is the lowest structure of long searches
with the dear engine, half of them with the baseline. Prints evaluations of the dear engine until
the reference is found (bonds, and the energy within 0.05 eV after polishing; a search without
success counts with its budget), with and without the baseline, paired by seed. Writes
results/baseline.json.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import numpy as np
from ase.io import read, write


@dataclass(frozen=True)
class Pair:
    """What is searched, with what, and what is known before."""

    formula: str
    cheap: str
    dear: str
    model: bool  # a model of the cheap engine instead of the engine
    budget: int = 60


PAIRS = {
    "Au8 emt>gfn1": Pair("Au8", "emt", "gfn1-xtb", model=False),
    "Au8 gfn1>emt": Pair("Au8", "gfn1-xtb", "emt", model=True),
    "Mg4O4 gfn1>gfn2": Pair("Mg4O4", "gfn1-xtb", "gfn2-xtb", model=True),
    "Si3O6 gfn1>gfn2": Pair("Si3O6", "gfn1-xtb", "gfn2-xtb", model=True),
    "C8 gfn1>gfn2": Pair("C8", "gfn1-xtb", "gfn2-xtb", model=True),
}
#: What goes with a baseline that knows the system; chosen on seeds 0 to 4.
KNOWING: dict[str, Any] = {"prior_noise": 0.03}


def settings(pair: Pair, engine: str, seed: int, budget: int, candidates: int) -> dict[str, Any]:
    return {
        "system": {"formula": pair.formula},
        "engine": {"name": engine},
        "model": {},
        "search": {"budget": budget, "seed": seed, "candidates": candidates},
    }


def run(directory: Path, tree: dict[str, Any]) -> Any:
    """A search, from where it stands."""
    from nugget.search import Search, make_config

    if (directory / "config.toml").exists():
        return Search.resume(directory).run()
    return Search.create(make_config(tree), directory).run()


def baseline(pair: Pair, folder: Path, candidates: int) -> str:
    """The setting model.baseline; a model is fitted to what a search with the cheap engine saw."""
    if not pair.model:
        return f"engine:{pair.cheap}"
    file = folder / "cheap.model"
    if not file.exists():
        from nugget.potential import presets
        from nugget.search.knowledge import read_labelled
        from nugget.search.loop import Search

        tree = settings(pair, pair.cheap, 0, 80, candidates)
        tree["model"]["use_forces"] = True
        run(folder / "cheap", tree)
        images = read_labelled(folder / "cheap", Search.resume(folder / "cheap").config)
        species = sorted(set(images[0].get_chemical_symbols()))
        made = presets.balanced(species, images)
        made.fit(images, use_forces=True, choose_noise=True).save(file)
    return str(file)


def one(job: tuple[str, bool, int, str, int]) -> dict[str, Any]:
    """One search for the reference."""
    name, knowing, seed, out, candidates = job
    pair, folder = PAIRS[name], Path(out) / name.replace(" ", "-").replace(">", "-")
    tree = settings(pair, pair.dear, seed, pair.budget, candidates)
    tree["search"]["reference"] = str(folder / "reference.extxyz")
    if knowing:
        tree["model"] = {"baseline": baseline(pair, folder, candidates), **KNOWING}
    result = run(folder / ("with" if knowing else "without") / f"seed{seed}", tree)
    return {
        "pair": name, "knowing": knowing, "seed": seed, "found": result.found,
        "evaluations": result.evaluations,
        "best": min(one.energy for one in result.minima) if result.minima else None,
    }  # fmt: skip


def prepare(job: tuple[str, str, int]) -> None:
    """The baseline and the reference of a pair."""
    name, out, candidates = job
    pair, folder = PAIRS[name], Path(out) / name.replace(" ", "-").replace(">", "-")
    known = baseline(pair, folder, candidates)
    if (folder / "reference.extxyz").exists():
        return
    for seed in (900, 901):
        tree = settings(pair, pair.dear, seed, pair.budget, candidates)
        if seed % 2:
            tree["model"] = {"baseline": known, **KNOWING}
        run(folder / f"long{seed}", tree)
    found = [read(folder / f"long{seed}" / "best.extxyz") for seed in (900, 901)]
    print(name, "long searches:", [round(a.get_potential_energy(), 4) for a in found], flush=True)
    write(folder / "reference.extxyz", min(found, key=lambda atoms: atoms.get_potential_energy()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", nargs="*", default=list(PAIRS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--candidates", type=int, default=30)
    parser.add_argument("--out", default="runs/baseline")
    parser.add_argument("-j", type=int, default=1)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.j) as pool:
        list(pool.map(prepare, [(name, options.out, options.candidates) for name in options.pairs]))
        jobs = [
            (name, knowing, seed, options.out, options.candidates)
            for seed in seeds
            for name in options.pairs
            for knowing in (True, False)
        ]
        rows = list(pool.map(one, jobs))
    table, summary = [], []
    for name in options.pairs:
        count = {
            knowing: [row for row in rows if row["pair"] == name and row["knowing"] == knowing]
            for knowing in (True, False)
        }
        used = {k: np.array([row["evaluations"] for row in v], float) for k, v in count.items()}
        ratio = float(np.exp(np.mean(np.log(used[True] / used[False]))))
        found = {k: sum(row["found"] for row in v) for k, v in count.items()}
        middle = {k: float(np.median(v)) for k, v in used.items()}
        table.append(
            [name, f"{found[False]}/{len(seeds)}", middle[False], f"{found[True]}/{len(seeds)}",
             middle[True], f"{ratio:.2f}"]
        )  # fmt: skip
        summary.append({"pair": name, "ratio": ratio, "rows": count[True] + count[False]})
    head = ["pair", "found without", "median", "found with", "median", "ratio (geometric mean)"]
    common.table("Evaluations of the dear engine", head, table)
    common.save("baseline", {"options": vars(options), "pairs": summary})


if __name__ == "__main__":
    main()
