"""Foundation models on DFT data: alone, corrected, and compared with a model without them.

    python benchmarks/foundation.py --data DIR --cases Li:20,Cu:20 [--means chgnet,sevennet]
    python benchmarks/foundation.py --data DIR --cases Li:20:bulk [--seed 0]

DIR holds zuo_ELEMENT_training.extxyz.gz and zuo_ELEMENT_test.extxyz.gz, and for Au
au_clusters_dft.extxyz.gz and au21_dft.extxyz.gz. A case is a set, a number of training structures
(drawn at random) and, optionally, `bulk`: then the model is trained on bulk structures only and
tested on vacancies and surfaces (clusters of gold: trained on Au10 and Au12, tested on Au18 and
Au21). Every case fits three potentials as `nugget fit --preset balanced --mean NAME` does: without
the foundation model (weight 0), with it (weight 1), and with the weight that is chosen. Results are
appended to results/foundation.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from nugget import Potential, set_threads
from nugget.cli._fit import Settings, make_potential
from nugget.potential.mean_choice import fit_with_mean
from nugget.potential.mean_functions.base import MeanFunction, SpeciesEnergies
from nugget.potential.mean_functions.foundation import FoundationMean
from nugget.potential.training import TrainingData
from nugget.structures.batch import as_batch
from nugget.structures.io import read_images

RESULTS = Path(__file__).parent / "results" / "foundation.json"

# Å: a gap between layers of atoms that only a surface has.
_GAP = 6.0


def read(data: Path, name: str) -> tuple[list[Atoms], list[Atoms]]:
    """Training and test structures."""
    if name == "Au":
        images = read_images(data / "au_clusters_dft.extxyz.gz")
        return images[:225], images[250:330]
    return tuple(  # type: ignore[return-value]
        read_images(data / f"zuo_{name}_{part}.extxyz.gz") for part in ("training", "test")
    )


def is_bulk(atoms: Atoms) -> bool:
    """Whether a periodic structure has no vacuum, and the number of atoms of a full supercell."""
    full = (1, 2, 4, 8, 16, 32, 54, 64, 108, 128)
    for axis in range(3):
        places = np.sort(atoms.get_scaled_positions()[:, axis])
        gaps = np.diff([*places, places[0] + 1.0])
        if gaps.max() * atoms.cell.lengths()[axis] > _GAP:
            return False
    return len(atoms) in full


def select(data: Path, name: str, number: int, outside: bool, seed: int) -> tuple[Any, Any]:
    """Training and test structures of a case."""
    train, test = read(data, name)
    rng = np.random.default_rng(seed)
    if outside and name == "Au":
        train = [atoms for atoms in train if len(atoms) <= 12]
        au21 = read_images(data / "au21_dft.extxyz.gz")[:30]
        test = [atoms for atoms in test if len(atoms) == 18][:30] + au21
    elif outside:
        test = [atoms for atoms in [*train, *test] if not is_bulk(atoms)]
        train = [atoms for atoms in train if is_bulk(atoms)]
        test = [test[i] for i in np.sort(rng.permutation(len(test))[:40])]
    order = rng.permutation(len(train))[:number]
    return [train[i] for i in np.sort(order)], test


def errors(potential: Potential, images: list[Atoms]) -> dict[str, float]:
    """Test errors (meV/atom, eV/Å), rms of error/σ, and shares within 1σ and 2σ."""
    values = potential.predict(images)
    sizes = np.array([len(atoms) for atoms in images])
    energy = values.energy - np.array([atoms.get_potential_energy() for atoms in images])
    forces = [f - atoms.get_forces() for f, atoms in zip(values.forces, images, strict=True)]
    z = energy / values.energy_uncertainty
    return {
        "energy": 1e3 * float(np.mean(np.abs(energy) / sizes)),
        "force": float(np.mean(np.abs(np.concatenate(forces)))),
        "rms_z": float(np.sqrt(np.mean(z**2))),
        "within_1": float(np.mean(np.abs(z) <= 1)),
        "within_2": float(np.mean(np.abs(z) <= 2)),
    }


def alone(mean: FoundationMean, train: list[Atoms], test: list[Atoms]) -> dict[str, float]:
    """Test errors of the foundation model with energies per element fitted to the training set."""
    batch, other = as_batch(train), as_batch(test)
    labels = np.array([atoms.get_potential_energy() for atoms in train])
    offsets = SpeciesEnergies().fit(batch, labels - mean.evaluate_singly(batch).totals(batch))
    values = mean.evaluate_singly(other)
    energy = values.totals(other) + offsets.evaluate(other).totals(other)
    energy -= [atoms.get_potential_energy() for atoms in test]
    force = values.gradient + np.concatenate([atoms.get_forces() for atoms in test])
    return {
        "energy": 1e3 * float(np.mean(np.abs(energy) / other.sizes)),
        "force": float(np.mean(np.abs(force))),
    }


def run(data: Path, case: str, name: str, seed: int) -> dict[str, Any]:
    element, number, *kind = case.split(":")
    train, test = select(data, element, int(number), bool(kind), seed)
    training = TrainingData.read(train, None, False)
    settings = Settings("balanced", [element])
    fitted: dict[float, Potential] = {}

    def fit(more: MeanFunction | None) -> Potential:
        own = Settings("balanced", [element], engine_mean=more)
        potential = make_potential(own, train, training, None, lambda text: None)
        potential.fit_data(
            training, calibrate="loo", choose_noise=True, choose_points=settings.points_are_free
        )
        fitted[getattr(more, "weight", 0.0)] = potential
        return potential

    start = time.process_time()
    mean = FoundationMean(name)
    _, choice = fit_with_mean(name, mean, fit, training)
    seconds = time.process_time() - start
    tested = {weight: errors(potential, test) for weight, potential in fitted.items()}
    return {
        "case": case, "mean": name, "seed": seed, "train": len(train), "test": len(test),
        "processor_s": round(seconds, 1), "weight": choice.weight,
        "alone": alone(mean, train, test), "without": tested[0.0], "corrected": tested[1.0],
        "chosen": tested[choice.weight], "choice": choice.record(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cases", required=True)
    parser.add_argument("--means", default="chgnet,sevennet")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    set_threads(1)
    for case in options.cases.split(","):
        for name in options.means.split(","):
            row = run(options.data, case, name, options.seed)
            rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
            keys = ("case", "mean", "seed")
            rows = [one for one in rows if any(one[k] != row[k] for k in keys)] + [row]
            RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
            print_row(row)


def print_row(row: dict[str, Any]) -> None:
    """One line of the table: meV/atom and eV/Å, with the rms of error/σ."""
    texts = [f"{row['case']:10} {row['mean']:9} w {row['weight']:<4g}"]
    for name in ("alone", "corrected", "without", "chosen"):
        one = row[name]
        z = f" z {one['rms_z']:.2f}" if "rms_z" in one else ""
        texts.append(f"{name} {one['energy']:.3g} {one['force']:.3g}{z}")
    print(" | ".join(texts), flush=True)


if __name__ == "__main__":
    main()
