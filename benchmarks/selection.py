"""Errors after 20, 50 and 100 labels chosen by `nugget select`, at random, or as farthest points.

    python benchmarks/selection.py --data DIR [--set gold] [--seeds 5] [--out FILE]

Every choice begins with the same ten random structures. At 10, 20 and 50 labels a model is fitted
to what has been labelled (preset `balanced`, noise levels by cross-validation), and the next ones
are chosen with it. Errors are those of a fit of the same kind on structures outside of the pool.
`needed` is the number of labels with which a choice reaches the error of 100 random labels.

Sets: gold (2000 of the DFT clusters in DIR/au_clusters_dft.extxyz.gz), copper (DIR/zuo_Cu_*), and
silicon (cells of several kinds with Tersoff's potential).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import common  # noqa: F401  (first: it sets one thread)
import numpy as np
from ase import Atoms
from data_sets import beta_tin, diamond, labelled, liquid, silicon, vacancy

from nugget import Potential
from nugget.dataset.selection import select
from nugget.presets import balanced
from nugget.structures.io import read_images

START, ROUNDS, SIZES = 10, (20, 50, 100), (20, 35, 50, 70, 100)

METHODS: dict[str, dict[str, object]] = {
    "random": {},
    "farthest": {"method": "farthest"},
    "variance": {"method": "variance"},
    "variance with forces": {"method": "variance", "forces": True},
    "variance of forces": {"method": "variance", "by": "forces"},
}

Sets = Callable[[Path, int], tuple[list[Atoms], list[Atoms]]]


def gold(data: Path, seed: int) -> tuple[list[Atoms], list[Atoms]]:
    images = read_images(data / "au_clusters_dft.extxyz.gz")
    order = np.random.default_rng(seed).permutation(len(images))
    return [images[i] for i in order[:2000]], [images[i] for i in order[2000:2500]]


def copper(data: Path, seed: int) -> tuple[list[Atoms], list[Atoms]]:
    pool = read_images(data / "zuo_Cu_training.extxyz.gz")
    order = np.random.default_rng(seed).permutation(len(pool))
    return [pool[i] for i in order], read_images(data / "zuo_Cu_test.extxyz.gz")


def silicon_cells(data: Path, seed: int) -> tuple[list[Atoms], list[Atoms]]:
    rng, calculator = np.random.default_rng(seed), silicon()
    makers = [diamond] * 6 + [vacancy] * 2 + [liquid, beta_tin]
    images: list[Atoms] = []
    while len(images) < 1200:
        atoms = labelled(makers[len(images) % len(makers)], rng, calculator)
        if atoms is not None:
            images.append(atoms)
    order = rng.permutation(len(images))
    return [images[i] for i in order[:1000]], [images[i] for i in order[1000:]]


SETS: dict[str, Sets] = {"gold": gold, "copper": copper, "silicon": silicon_cells}


def fitted(pool: list[Atoms], chosen: list[int]) -> Potential:
    species = sorted(set(pool[0].symbols))
    potential = balanced(species, pool[:: max(len(pool) // 200, 1)])
    return potential.fit([pool[s] for s in chosen], choose_noise=True)


def errors(potential: Potential, test: list[Atoms]) -> list[float]:
    """Mean absolute errors of energies (meV/atom) and forces (meV/Å)."""
    predicted = potential.predict(test, uncertainty=False)
    sizes = np.array([len(atoms) for atoms in test])
    energy = predicted.energy - [atoms.get_potential_energy() for atoms in test]
    forces = np.concatenate(predicted.forces) - np.concatenate([a.get_forces() for a in test])
    return [1e3 * float(np.mean(np.abs(energy / sizes))), 1e3 * float(np.mean(np.abs(forces)))]


def order_of(pool: list[Atoms], method: str) -> tuple[list[int], float]:
    """A hundred structures in the order of their labels, and seconds spent with choosing."""
    if method == "random":
        return list(range(ROUNDS[-1])), 0.0  # the pool is in random order
    chosen, seconds = list(range(START)), 0.0
    for size in ROUNDS:
        potential = fitted(pool, chosen)
        start = time.perf_counter()
        found = select(pool, size - len(chosen), potential, **METHODS[method])  # type: ignore[arg-type]
        seconds += time.perf_counter() - start
        chosen += found.indices
    return chosen, seconds


def labels_for(target: float, curve: list[float]) -> float:
    """Labels at which a curve of errors falls to the target, by interpolation of logarithms."""
    lowest = np.minimum.accumulate(curve)
    if lowest[-1] > target:
        return float("nan")
    points = np.log(lowest)[::-1], np.log(SIZES)[::-1]
    return float(np.exp(np.interp(np.log(target), *points)))


def run(name: str, data: Path, seeds: int, methods: list[str]) -> dict[str, object]:
    rows: dict[str, list[list[list[float]]]] = {method: [] for method in methods}
    times: dict[str, list[float]] = {method: [] for method in methods}
    for seed in range(seeds):
        pool, test = SETS[name](data, seed)
        for method in methods:
            chosen, seconds = order_of(pool, method)
            curve = [errors(fitted(pool, chosen[:size]), test) for size in SIZES]
            rows[method].append(curve)
            times[method].append(seconds)
            shown = "  ".join(f"{e:6.2f} {f:5.1f}" for e, f in curve)
            print(f"{name} seed {seed} {method:20s} {shown}  {seconds:5.0f} s", flush=True)
    report: dict[str, object] = {"structures": len(pool), "sizes": SIZES, "seeds": seeds}
    for method in methods:
        mean = np.mean(rows[method], axis=0)
        goal = np.mean(rows["random"], axis=0)[-1]
        needed = [labels_for(goal[k], list(mean[:, k])) for k in (0, 1)]
        report[method] = {
            "energy_mae": mean[:, 0].tolist(),
            "force_mae": mean[:, 1].tolist(),
            "needed": [None if np.isnan(n) else n for n in needed],
            "seconds": float(np.mean(times[method])),
            "curves": rows[method],
        }
        told = "  ".join(f"{e:6.2f} {f:5.1f}" for e, f in mean)
        print(f"{name} mean   {method:20s} {told}  needed {needed[0]:.0f}, {needed[1]:.0f}")
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--set", action="append", choices=SETS, dest="sets")
    parser.add_argument("--method", action="append", choices=METHODS, dest="methods")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("selection.json"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    wanted = arguments.methods or ["farthest", "variance"]
    methods = ["random", *(method for method in wanted if method != "random")]
    report = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    for name in arguments.sets or SETS:
        report[name] = run(
            name, arguments.data, arguments.seeds, list(dict.fromkeys(["random", *methods]))
        )
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
