"""Errors on real DFT data: the paper's settings, forces, richer descriptors, the presets.

    python benchmarks/accuracy.py --data DIR      (DIR holds au_clusters_dft.extxyz.gz)

The settings of the presets were chosen by cross-validation within the 225 training structures;
docs/accuracy.md discusses the numbers and says how often the test set was seen.
"""

from __future__ import annotations

import argparse
import gzip
import io
import time
from pathlib import Path

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from ase.io import read

from nugget import CUR, RBF, SOAP, PivotedCholesky, Potential, presets

GOLD = ("Au",)
HERE = Path(__file__).parents[2] / "shared" / "data"
# Name, potential, whether forces are learnt.
Case = tuple[str, Potential, bool]


def load(path: Path) -> list[Atoms]:
    """ASE reads a compressed extxyz a hundred times slower than its text from memory."""
    with gzip.open(path, "rt") as file:
        return read(io.StringIO(file.read()), ":", format="extxyz")


def cases() -> list[Case]:
    def soap(n_max: int, l_max: int, cutoff: float = 6.0) -> SOAP:
        return SOAP(GOLD, cutoff, n_max, l_max)

    points = PivotedCholesky(1e-7, 500)
    return [
        ("paper: energies only (3,2)", Potential(soap(3, 2), RBF(20.0), CUR(1000)), False),
        ("forces (3,2) l=20", Potential(soap(3, 2), RBF(20.0), points), True),
        ("forces (8,6) l=20", Potential(soap(8, 6), RBF(20.0), points), True),
        (
            "forces (8,6) l=32 θ₀=100",
            Potential(soap(8, 6), RBF(32.0, 100.0), PivotedCholesky(1e-9, 700)),
            True,
        ),
        (
            "forces (8,6) cutoff 7 l=50 θ₀=100",
            Potential(soap(8, 6, 7.0), RBF(50.0, 100.0), PivotedCholesky(1e-9, 1000)),
            True,
        ),
        ("presets.quick", presets.quick(GOLD), True),
        ("presets.balanced", presets.balanced(GOLD), True),
        ("presets.accurate", presets.accurate(GOLD), True),
    ]


def errors(potential: Potential, images: list[Atoms]) -> dict[str, float]:
    """Energies in eV/atom, forces in eV/Å; seconds per structure of energy and forces."""
    potential.predict(images[:2], uncertainty=False)  # compiles
    start = time.perf_counter()
    found = potential.predict(images, uncertainty=False)
    seconds = time.perf_counter() - start
    sizes = np.array([len(a) for a in images])
    e = (found.energy - [a.get_potential_energy() for a in images]) / sizes
    assert found.forces is not None
    f = np.concatenate(found.forces) - np.concatenate([a.get_forces() for a in images])
    return {
        "mae": float(np.abs(e).mean()),
        "rmse": float(np.sqrt((e**2).mean())),
        "mae_without_offset": float(np.abs(e - np.median(e)).mean()),
        "force_mae": float(np.abs(f).mean()),
        "predict_ms": 1e3 * seconds / len(images),
    }


def full_size(data: Path, count: int | None) -> list[dict[str, object]]:
    images, larger = load(data / "au_clusters_dft.extxyz.gz"), load(data / "au21_dft.extxyz.gz")
    train, test = images[:225], images[250:][:count]
    results: list[dict[str, object]] = []
    for name, potential, forces in cases():
        potential.fit(train[:2], use_forces=forces)  # compiles
        start = time.perf_counter()
        potential.fit(train, use_forces=forces)
        fit_s = time.perf_counter() - start
        one: dict[str, object] = {"name": name, "fit_s": fit_s}
        one |= {"inducing": len(potential.fitted.inducing), **errors(potential, test)}
        one |= {f"au21_{key}": value for key, value in errors(potential, larger).items()}
        results.append(one)
    columns = {
        "model": "name", "MAE": "mae", "RMSE": "rmse", "force MAE": "force_mae",
        "Au21 MAE": "au21_mae", "Au21 MAE, no offset": "au21_mae_without_offset",
        "m": "inducing", "fit s": "fit_s", "E+F ms/structure": "predict_ms",
    }  # fmt: skip
    common.table(
        f"225 training structures, {len(test)} test structures (eV/atom, eV/Å)",
        list(columns),
        [[one[key] for key in columns.values()] for one in results],
    )
    return results


def small_sets(data: Path) -> list[dict[str, object]]:
    """The regime of a search: few structures, with forces; mean of three training sets."""
    images = load(data / "au_clusters_dft.extxyz.gz")
    pool, test = images[:225], images[250:1250]
    l20 = PivotedCholesky(1e-7, 500)
    models = {
        "(3,2) l=20": Potential(SOAP(GOLD), RBF(20.0), l20),
        "(8,6) l=20": Potential(SOAP(GOLD, 6.0, 8, 6), RBF(20.0), l20),
        **{f"presets.{name}": make(GOLD) for name, make in presets.PRESETS.items()},
    }
    rows, results = [], []
    for name, potential in models.items():
        row: list[object] = [name]
        for n in (25, 50, 100):
            draws = [np.random.default_rng(seed).permutation(225)[:n] for seed in range(3)]
            found = [errors(potential.fit([pool[i] for i in draw]), test) for draw in draws]
            mae = float(np.mean([f["mae"] for f in found]))
            force = float(np.mean([f["force_mae"] for f in found]))
            row.append(f"{mae:.4f} / {force:.3f}")
            results.append({"name": name, "structures": n, "mae": mae, "force_mae": force})
        rows.append(row)
    common.table("Few structures, with forces: MAE / force MAE", ["model", "25", "50", "100"], rows)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE, help="directory of the DFT data")
    parser.add_argument("--test", type=int, default=None, help="number of test structures (all)")
    options = parser.parse_args()
    if not (options.data / "au_clusters_dft.extxyz.gz").exists():
        print("accuracy: the DFT data are not here; give their directory with --data DIR")
        return
    results = {"full": full_size(options.data, options.test), "small": small_sets(options.data)}
    common.save("accuracy", results)


if __name__ == "__main__":
    main()
