"""Errors after 20, 50 and 100 labels chosen by `nugget select`, at random, or as farthest points.

    python benchmarks/selection.py --data DIR [--set gold] [--first-seed 0] [--seeds 5] [--out FILE]

Every choice begins with the same ten random structures, to which a model is fitted (preset
`balanced`). With it, the others are chosen at once, in order. Errors are those of a fit of the same
kind, on structures outside of the pool, after the first 20, 50, 70 and 100 labels. `needed` is the
number of labels with which a choice reaches the error of 100 random labels. Curves
that FILE already has are not computed again.

Sets: gold (2000 of the DFT clusters in DIR/au_clusters_dft.extxyz.gz), copper (DIR/zuo_Cu_*), and
silicon (cells of several kinds with Tersoff's potential).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import common  # noqa: F401  (first: it sets one thread)
import numpy as np
from ase import Atoms
from data_sets import beta_tin, diamond, labelled, liquid, silicon, vacancy

from nugget import Potential
from nugget.dataset.selection import select
from nugget.presets import balanced
from nugget.structures.io import read_images

START, SIZES = 10, (20, 50, 70, 100)

METHODS: dict[str, dict[str, object]] = {
    "random": {},
    "farthest": {"method": "farthest"},
    "variance": {"method": "variance"},
    "variance with forces": {"method": "variance", "forces": True},
    "variance of forces": {"method": "variance", "by": "forces"},
    "variance of atoms": {"method": "variance", "by": "atoms"},
    "pivoted": {"method": "pivoted"},
}

Report = dict[str, dict[str, dict[str, Any]]]  # set, method, seed

Sets = Callable[[Path, int], tuple[list[Atoms], list[Atoms]]]


def gold(data: Path, seed: int) -> tuple[list[Atoms], list[Atoms]]:
    images = read_images(data / "au_clusters_dft.extxyz.gz")
    order = np.random.default_rng(seed).permutation(len(images))
    return [images[i] for i in order[:2000]], [images[i] for i in order[2000:2500]]


def copper(data: Path, seed: int) -> tuple[list[Atoms], list[Atoms]]:
    pool = read_images(data / "zuo_Cu_training.extxyz.gz")
    order = np.random.default_rng(seed).permutation(len(pool))
    return [pool[i] for i in order], read_images(data / "zuo_Cu_test.extxyz.gz")


@cache
def silicon_images() -> list[Atoms]:
    rng, calculator = np.random.default_rng(0), silicon()
    makers = [diamond] * 6 + [vacancy] * 2 + [liquid, beta_tin]
    images: list[Atoms] = []
    while len(images) < 2500:
        atoms = labelled(makers[len(images) % len(makers)], rng, calculator)
        if atoms is not None:
            images.append(atoms)
    return images


def silicon_cells(data: Path, seed: int) -> tuple[list[Atoms], list[Atoms]]:
    images = silicon_images()
    order = np.random.default_rng(seed).permutation(len(images))
    return [images[i] for i in order[:2000]], [images[i] for i in order[2000:]]


SETS: dict[str, Sets] = {"gold": gold, "copper": copper, "silicon": silicon_cells}


def fitted(pool: list[Atoms], chosen: list[int]) -> Potential:
    species = sorted(set(pool[0].symbols))
    potential = balanced(species, pool[:: max(len(pool) // 200, 1)])
    return potential.fit([pool[s] for s in chosen])


def errors(potential: Potential, test: list[Atoms]) -> list[float]:
    """Mean absolute errors of energies (meV/atom) and forces (meV/Å)."""
    predicted = potential.predict(test, uncertainty=False)
    sizes = np.array([len(atoms) for atoms in test])
    energy = predicted.energy - [atoms.get_potential_energy() for atoms in test]
    forces = np.concatenate(predicted.forces) - np.concatenate([a.get_forces() for a in test])
    return [1e3 * float(np.mean(np.abs(energy / sizes))), 1e3 * float(np.mean(np.abs(forces)))]


def order_of(pool: list[Atoms], method: str) -> tuple[list[int], float]:
    """A hundred structures in the order of their labels, and seconds spent with choosing."""
    chosen = list(range(START))  # the pool is in random order
    if method == "random":
        return list(range(SIZES[-1])), 0.0
    potential = fitted(pool, chosen)
    start = time.process_time()
    others = select(pool, SIZES[-1] - START, potential, **METHODS[method])  # type: ignore[arg-type]
    return chosen + others.indices, time.process_time() - start


def labels_for(target: float, curve: list[float]) -> float:
    """Labels at which a curve of errors falls to the target, by interpolation of logarithms."""
    lowest = np.minimum.accumulate(curve)
    if lowest[-1] > target:
        return float("nan")
    points = np.log(lowest)[::-1], np.log(SIZES)[::-1]
    return float(np.exp(np.interp(np.log(target), *points)))


def run(name: str, data: Path, seeds: range, methods: list[str], report: Report) -> Iterator[None]:
    """Add the missing curves of a set to the report, and yield after each."""
    curves = report.setdefault(name, {})
    for seed in seeds:
        missing = [m for m in methods if str(seed) not in curves.setdefault(m, {})]
        if not missing:
            continue
        pool, test = SETS[name](data, seed)
        for method in missing:
            chosen, seconds = order_of(pool, method)
            curve = [errors(fitted(pool, chosen[:size]), test) for size in SIZES]
            row = {"pool": len(pool), "test": len(test), "curve": curve, "seconds": seconds}
            curves[method][str(seed)] = row
            print(f"{name} seed {seed} {method:20s} {_shown(curve)}  {seconds:5.0f} s", flush=True)
            yield


def summarise(name: str, seeds: range, methods: list[str], report: Report) -> None:
    """Print mean curves and the labels needed for the error of 100 random ones."""
    means = {
        m: np.mean([report[name][m][str(seed)]["curve"] for seed in seeds], axis=0) for m in methods
    }
    for method, mean in means.items():
        goal = means["random"][-1]
        needed = [labels_for(goal[k], list(mean[:, k])) for k in (0, 1)]
        print(f"{name} mean {method:20s} {_shown(mean)}  needed {needed[0]:.0f}, {needed[1]:.0f}")


def _shown(curve: Iterable[Iterable[float]]) -> str:
    return "  ".join(f"{energy:6.2f} {force:5.1f}" for energy, force in curve)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--set", action="append", choices=SETS, dest="sets")
    parser.add_argument("--method", action="append", choices=METHODS, dest="methods")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("selection.json"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    methods = list(dict.fromkeys(["random", *(arguments.methods or ["farthest", "variance"])]))
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    report: Report = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    for name in arguments.sets or SETS:
        for _ in run(name, arguments.data, seeds, methods, report):
            arguments.out.write_text(json.dumps(report, indent=1) + "\n")
        summarise(name, seeds, methods, report)


if __name__ == "__main__":
    main()
