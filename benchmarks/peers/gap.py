"""GAP and nugget's defaults on the same data: errors, training, prediction, memory.

    python benchmarks/peers/gap.py --python ENV/bin/python --data DIR --made DIR2

ENV holds quippy-ase (`pip install quippy-ase`). Gold: five splits, transfer to Au21, and two sizes
left out of the training set in turn. The made sets (silicon, Cu/Au, MgO; see data_sets.py) have
fewer splits. Both get the same files, one thread each, one after the other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import common  # noqa: E402
import numpy as np  # noqa: E402
from accuracy import defaults, errors, gold_split, load, made_split  # noqa: E402
from ase import Atoms  # noqa: E402
from ase.calculators.singlepoint import SinglePointCalculator  # noqa: E402
from ase.io import write  # noqa: E402

BOX = 40.0  # Å; GAP wants a cell, which is so large that images do not meet


def plain(atoms: Atoms) -> Atoms:
    """Energy and forces, and nothing else; a cluster in a box."""
    copy = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
    if not atoms.pbc.any():
        copy.set_cell([BOX] * 3)
        copy.center()
    copy.calc = SinglePointCalculator(
        copy, energy=atoms.get_potential_energy(), forces=atoms.get_forces()
    )
    return copy


def gap(python: Path, train: list[Atoms], tests: dict[str, list[Atoms]]) -> dict[str, Any]:
    """GAP, fitted and judged in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.xyz" for name in ("training", *tests)}
        for name, images in (("training", train), *tests.items()):
            write(files[name], [plain(atoms) for atoms in images], format="extxyz")
        out = Path(folder) / "out.json"
        command = [python, HERE / "worker_gap.py", files["training"], out]
        subprocess.run([*command, *(files[name] for name in tests)], check=True)
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def ours(train: list[Atoms], tests: dict[str, list[Atoms]]) -> dict[str, Any]:
    """nugget with its defaults."""
    start = time.process_time()
    potential = defaults(train)
    result: dict[str, Any] = {"fit_s": time.process_time() - start}
    result["range"] = (potential.choices or {}).get("range")
    result["fit_mb"] = common.peak_memory_mb()
    for name, images in tests.items():
        result[name] = errors(potential, images)
    return result


def matches(
    options: argparse.Namespace,
) -> list[tuple[str, int, list[Atoms], dict[str, list[Atoms]]]]:
    """Name, seed, training set and test sets of every comparison."""
    images = load(options.data / "au_clusters_dft.extxyz.gz")
    larger = load(options.data / "au21_dft.extxyz.gz")[:: options.thin]
    found = []
    for seed in options.seeds:
        train, rest = gold_split(images, seed)
        test = rest[: options.test]
        found.append(("gold", seed, train, {"test": test, "au21": larger}))
        for size in (12, 18) if seed in options.seeds[: options.leave] else ():
            left = [atoms for atoms in train if len(atoms) != size]
            gone = [atoms for atoms in test if len(atoms) == size]
            found.append((f"gold without Au{size}", seed, left, {"test": gone}))
    for name in options.sets:
        for seed in options.seeds[: options.leave]:
            train, inside, outside = made_split(name, options.data, options.made, seed)
            found.append((name, seed, train, {"test": inside, "others": outside}))
    return found


def table(results: Sequence[dict[str, Any]]) -> None:
    rows = []
    for name in dict.fromkeys(r["name"] for r in results):
        own = [r for r in results if r["name"] == name]
        for who in ("gap", "nugget"):
            cells = []
            for test in ("test", "au21", "others"):
                for key, unit in (("mae", 1e3), ("force_mae", 1.0)):
                    values = [unit * r[who][test][key] for r in own if test in r[who]]
                    cells.append(spread(values))
            cells += [spread([r[who][k] for r in own]) for k in ("fit_s", "fit_mb")]
            cells.append(spread([r[who]["test"]["predict_ms"] for r in own]))
            rows.append([name, who, *cells])
    head = ["test", "forces", "Au21", "forces", "other kinds", "forces", "fit s", "MB", "E+F ms"]
    common.table("meV/atom, eV/Å: mean (range) over splits", ["data", "", *head], rows)


def spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    return f"{np.mean(values):.3g} ({min(values):.3g}–{max(values):.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", type=Path, required=True, help="of the environment of GAP")
    parser.add_argument("--data", type=Path, required=True, help="directory of the DFT data")
    parser.add_argument("--made", type=Path, required=True, help="directory of the made data")
    parser.add_argument("--sets", nargs="*", default=["silicon", "copper-gold", "magnesia"])
    parser.add_argument("--seeds", nargs="*", type=int, default=list(range(5)))
    parser.add_argument(
        "--leave", type=int, default=3, help="splits for sizes left out, and for the made sets"
    )
    parser.add_argument("--test", type=int, default=1000, help="number of test structures")
    parser.add_argument("--thin", type=int, default=1, help="every so many of the Au21")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for name, seed, train, tests in matches(options):
        one = {"name": name, "seed": seed, "nugget": ours(train, tests)}
        one["gap"] = gap(options.python, train, tests)
        results.append(one)
        print(json.dumps(one), flush=True)
        common.save("peers_gap", results)
    table(results)


if __name__ == "__main__":
    main()
