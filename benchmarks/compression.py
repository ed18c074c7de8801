"""Accuracy of compressed species: Cu/Pt/Au clusters (EMT) and MgO (GFN1-xTB), errors on new ones.

    python benchmarks/compression.py [--train 60] [--test 60] [--skip-oxide]

SOAP with 6 Å (4, 3), energies and forces, up to 400 inducing points; one split, no tuning.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from data_sets import oxide_cluster
from limits import alloys

from nugget import SOAP, PivotedCholesky, Potential


def labelled(images: list[Atoms], calculator: Any) -> list[Atoms]:
    for atoms in images:
        atoms.calc = calculator
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    return images


def oxides(count: int) -> list[Atoms]:
    from nugget.engines import make_calculator

    rng = np.random.default_rng(11)
    make = oxide_cluster((4, 5, 6))
    return labelled([make(rng) for _ in range(count)], make_calculator("gfn1-xtb"))


def judge(images: list[Atoms], train: int, compression: str) -> dict[str, float]:
    elements = sorted({s for atoms in images for s in atoms.symbols})
    soap = SOAP(elements, 6.0, 4, 3, compression=compression)
    pot = Potential(soap, inducing=PivotedCholesky(1e-4, max_points=400))
    start = time.process_time()
    pot.fit(images[:train])
    fitted = time.process_time() - start
    test = images[train:]
    found = pot.predict(test)
    energy = [a.get_potential_energy() / len(a) for a in test]
    error = found.energy / np.array([len(a) for a in test]) - energy
    assert found.forces is not None
    forces = np.concatenate([f - a.get_forces() for f, a in zip(found.forces, test, strict=True)])
    times = common.interleaved({"predict": lambda: pot.predict(test[:10], uncertainty=False)}, 0.2)
    return {
        "features": soap.n_features,
        "energy_mae_mev": 1e3 * float(np.abs(error).mean()),
        "force_mae": float(np.abs(forces).mean()),
        "points": len(pot.fitted.inducing),
        "fit_s": fitted,
        "predict_ms": 100 * times["predict"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--train", type=int, default=60)
    parser.add_argument("--test", type=int, default=60)
    parser.add_argument("--skip-oxide", action="store_true")
    chosen = parser.parse_args()
    count = chosen.train + chosen.test
    sets = {"Cu/Pt/Au 20": labelled(alloys(["Cu", "Pt", "Au"], count), EMT())}
    if not chosen.skip_oxide:
        sets["MgO 8 to 12"] = oxides(count)
    results = {
        f"{name}, {mode}": judge(images, chosen.train, mode)
        for name, images in sets.items()
        for mode in ("off", "mu1nu1", "mu2")
    }
    header = ["compression", *next(iter(results.values()))]
    rows = [[name, *row.values()] for name, row in results.items()]
    common.table("Compressed species", header, rows)
    common.save("compression", results)


if __name__ == "__main__":
    main()
