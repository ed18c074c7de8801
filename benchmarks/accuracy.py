"""Errors and error bars of the default settings, on real and on made data.

    python benchmarks/accuracy.py gold --data DIR     (DIR holds au_clusters_dft.extxyz.gz)
    python benchmarks/accuracy.py sets --data DIR --made DIR2

`gold`: errors on DFT gold clusters for the paper's settings and all presets, over five splits: the
paper's (0–224 train, 250– test) and four random ones. `sets`: coverage, errors and rank correlation
of the defaults on five data sets, for structures of the trained kinds and of others (`data_sets.py`
makes four of them). docs/evidence/accuracy.md discusses the numbers.
"""

from __future__ import annotations

import argparse
import gzip
import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from ase.io import read
from data_sets import SETS, TRAINED, load_set

from nugget import CUR, RBF, SOAP, Potential, presets
from nugget.calibration import components, residuals, spearman

GOLD = ("Au",)
HERE = Path(__file__).parents[2] / "shared" / "data"
SEEDS = range(5)


def load(path: Path) -> list[Atoms]:
    """ASE reads a compressed extxyz a hundred times slower than its text from memory."""
    with gzip.open(path, "rt") as file:
        return list(read(io.StringIO(file.read()), ":", format="extxyz"))


def gold_split(images: list[Atoms], seed: int) -> tuple[list[Atoms], list[Atoms]]:
    """225 structures to train on and all others; seed 0 is the paper's split."""
    if seed == 0:
        return images[:225], images[250:]
    order = np.random.default_rng(seed).permutation(len(images))
    return [images[i] for i in order[:225]], [images[i] for i in order[225:]]


def defaults(train: list[Atoms], preset: str = "auto") -> Potential:
    """What `nugget fit` without options does."""
    species = sorted({symbol for atoms in train for symbol in set(atoms.symbols)})
    potential = presets.PRESETS[preset](species, train)
    return potential.fit(train, calibrate="loo", choose_noise=True)


def errors(potential: Potential, images: list[Atoms]) -> dict[str, float]:
    """Energies in eV/atom, forces in eV/Å; processor seconds per structure of both."""
    potential.predict(images[:2], uncertainty=False)  # compiles
    start = time.process_time()
    found = potential.predict(images, uncertainty=False)
    seconds = time.process_time() - start
    sizes = np.array([len(a) for a in images])
    e = (found.energy - [a.get_potential_energy() for a in images]) / sizes
    assert found.forces is not None
    f = np.concatenate(found.forces) - np.concatenate([a.get_forces() for a in images])
    return {
        "mae": float(np.abs(e).mean()),
        "rmse": float(np.sqrt((e**2).mean())),
        "force_mae": float(np.abs(f).mean()),
        "predict_ms": 1e3 * seconds / len(images),
    }


def one_gold_split(
    name: str, train: list[Atoms], tests: dict[str, list[Atoms]], seed: int
) -> dict[str, Any]:
    """Fit one model, and its errors on all test sets."""
    start = time.process_time()
    if name == "paper":
        potential = Potential(SOAP(GOLD), RBF(20.0), CUR(1000)).fit(train, use_forces=False)
    else:
        potential = defaults(train, name)
    result: dict[str, Any] = {"name": name, "seed": seed, "fit_s": time.process_time() - start}
    result["inducing"] = len(potential.fitted.inducing)
    for test, images in tests.items():
        result |= {f"{test}_{key}": value for key, value in errors(potential, images).items()}
    return result


def gold(
    data: Path, names: Sequence[str], count: int, seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Every model on every split; leaving out a size stands for sizes that are not in the data."""
    images, larger = load(data / "au_clusters_dft.extxyz.gz"), load(data / "au21_dft.extxyz.gz")
    results = []
    for seed in seeds:
        train, rest = gold_split(images, seed)
        tests = {"test": rest[:count], "au21": larger}
        for name in names:
            result = one_gold_split(name, train, tests, seed)
            for size in (12, 18):
                left = [a for a in train if len(a) != size]
                gone = {f"no{size}": [a for a in rest[:count] if len(a) == size]}
                more = one_gold_split(name, left, gone, seed)
                result |= {key: v for key, v in more.items() if key.startswith("no")}
            results.append(result)
            print(result, flush=True)
    columns = {
        "test": "test_mae", "Au21": "au21_mae", "Au12 left out": "no12_mae",
        "Au18 left out": "no18_mae", "force": "test_force_mae", "fit s": "fit_s",
        "E+F ms": "test_predict_ms",
    }  # fmt: skip
    rows = []
    for name in names:
        own = [r for r in results if r["name"] == name]
        cells = [_spread([_unit(k) * r[k] for r in own]) for k in columns.values()]
        rows.append([name, *cells])
    common.table("Gold: meV/atom, eV/Å; mean (range) over splits", ["model", *columns], rows)
    return results


def _unit(key: str) -> float:
    return 1e3 if key.endswith("_mae") and "force" not in key else 1.0


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3g} ({min(values):.3g}–{max(values):.3g})"


def made_split(name: str, data: Path, made: Path, seed: int) -> list[list[Atoms]]:
    """Training set, structures of the same kinds, structures of other kinds."""
    rng = np.random.default_rng(seed)
    if name == "gold":
        images = load(data / "au_clusters_dft.extxyz.gz")
        train, rest = gold_split(images, seed)
        larger = load(data / "au21_dft.extxyz.gz")
        return [train, rest[:300], [larger[i] for i in rng.permutation(len(larger))[:100]]]
    images = load_set(name, made)
    inside = [a for a in images if a.info["kind"] in TRAINED[name]]
    outside = [a for a in images if a.info["kind"] not in TRAINED[name]]
    order = rng.permutation(len(inside))
    return [[inside[i] for i in order[:200]], [inside[i] for i in order[200:]], outside]


def honesty(potential: Potential, images: list[Atoms]) -> dict[str, float]:
    """Shares within 1σ and 2σ, rms of error/σ, and errors, for energies and forces."""
    energy, force = residuals(potential, images), components(potential, images, "force")
    assert force is not None
    out = {}
    for name, part in (("energy", energy), ("force", force)):
        z = np.abs(part.y_true - part.y_pred) / part.y_std
        out[f"{name}_mae"] = float(np.mean(np.abs(part.y_true - part.y_pred)))
        out[f"{name}_1"], out[f"{name}_2"] = float(np.mean(z <= 1)), float(np.mean(z <= 2))
        out[f"{name}_rms"] = float(np.sqrt(np.mean(z**2)))
    return out


def sets(
    data: Path, made: Path, names: Sequence[str], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """The defaults on every set, several times."""
    results = []
    for name in names:
        for seed in seeds:
            train, inside, outside = made_split(name, data, made, seed)
            start = time.process_time()
            potential = defaults(train)
            one: dict[str, Any] = {"set": name, "seed": seed, "range": None}
            one["fit_s"] = time.process_time() - start
            one["range"] = (potential.choices or {}).get("range")
            one |= {f"in_{k}": v for k, v in honesty(potential, inside).items()}
            one |= {f"out_{k}": v for k, v in honesty(potential, outside).items()}
            both = residuals(potential, inside + outside)
            one["spearman"] = spearman(both.y_true, both.y_pred, both.y_std)
            # What it would be if errors were drawn from these very error bars.
            draws = np.random.default_rng(0).normal(size=(50, len(both.y_std))) * both.y_std
            one["spearman_ceiling"] = float(
                np.mean([spearman(both.y_pred + d, both.y_pred, both.y_std) for d in draws])
            )
            results.append(one)
            print(
                {k: round(v, 4) if isinstance(v, float) else v for k, v in one.items()}, flush=True
            )
    keys = [
        *(f"{where}_{kind}_{what}" for where in ("in", "out") for kind in ("energy", "force")
          for what in ("mae", "1", "2", "rms")),
        "spearman", "spearman_ceiling",
    ]  # fmt: skip
    rows = []
    for name in names:
        own = [r for r in results if r["set"] == name]
        rows.append([name, *(_spread([_unit(k) * r[k] for r in own]) for k in keys)])
    common.table("Defaults on five data sets", ["set", *keys], rows)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["gold", "sets"])
    parser.add_argument("--data", type=Path, default=HERE, help="directory of the DFT data")
    parser.add_argument("--made", type=Path, help="directory of the made data")
    parser.add_argument("--models", nargs="*", default=["paper", "quick", "balanced", "auto"])
    parser.add_argument("--sets", nargs="*", default=["gold", *SETS])
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--test", type=int, default=1000, help="number of test structures")
    options = parser.parse_args()
    if not (options.data / "au_clusters_dft.extxyz.gz").exists():
        print("accuracy: the DFT data are not here; give their directory with --data DIR")
        return
    if options.what == "gold":
        results = gold(options.data, options.models, options.test, options.seeds)
        common.save("accuracy", results)
    else:
        if options.made is None:
            parser.error("--made DIR: where the made data are, or shall be")
        common.save("accuracy_sets", sets(options.data, options.made, options.sets, options.seeds))


if __name__ == "__main__":
    main()
