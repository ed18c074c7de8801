"""SOAP values and gradients: ours against DScribe's, one thread, in one run."""

from __future__ import annotations

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from ase.build import bulk
from dscribe.descriptors import SOAP as Rival

from nugget import SOAP


def clusters(count: int) -> list[Atoms]:
    """Shaken pieces of gold crystal, 20 atoms each."""
    rng = np.random.default_rng(0)
    crystal = bulk("Au", cubic=True).repeat(4).positions
    images = []
    for _ in range(count):
        origin = crystal.mean(axis=0) + rng.normal(0, 0.7, 3)
        nearest = np.argsort(np.linalg.norm(crystal - origin, axis=1))[:20]
        images.append(Atoms("Au20", positions=crystal[nearest] + rng.normal(0, 0.2, (20, 3))))
    return images


def against_dscribe(images: list[Atoms], n_max: int, l_max: int) -> dict[str, float]:
    ours = SOAP(["Au"], 6.0, n_max, l_max)
    rival = Rival(
        species=["Au"],
        r_cut=6.0,
        n_max=n_max,
        l_max=l_max,
        sigma=1.0,
        weighting={"function": "poly", "r0": 6.0, "c": 1, "m": 2},
    )
    one = images[0]
    grad = np.random.default_rng(0).normal(size=(20, ours.n_features))
    grads = np.tile(grad, (len(images), 1))
    seconds = common.interleaved(
        {
            "dscribe": lambda: rival.derivatives(
                one, method="numerical", attach=True, return_descriptor=True
            ),
            "one": lambda: ours.compute(one).pullback(grad),
            "batch": lambda: ours.compute(images).pullback(grads),
        }
    )
    each = seconds["batch"] / len(images)
    return {
        "dscribe_ms": 1e3 * seconds["dscribe"],
        "one_ms": 1e3 * seconds["one"],
        "batch_ms_each": 1e3 * each,
        "ratio_one": seconds["dscribe"] / seconds["one"],
        "ratio_batch": seconds["dscribe"] / each,
        "batch_gain": seconds["one"] / each,
    }


def bulk_scaling() -> list[dict[str, float]]:
    soap = SOAP(["Au"], 6.0)
    work, sizes = {}, {}
    for repeat in ((5, 5, 1), (5, 5, 2), (10, 5, 5), (10, 10, 5), (10, 10, 10)):
        atoms = bulk("Au", cubic=True).repeat(repeat)
        atoms.rattle(0.05, seed=1)
        grad = np.ones((len(atoms), soap.n_features))
        sizes[str(len(atoms))] = len(atoms)
        work[str(len(atoms))] = lambda a=atoms, g=grad: soap.compute(a).pullback(g)
    seconds = common.interleaved(work)
    return [
        {"atoms": n, "us_per_atom": 1e6 * seconds[name] / n, "peak_mb": common.peak_memory_mb()}
        for name, n in sizes.items()
    ]


def main() -> None:
    images = clusters(50)
    rows = []
    results: dict[str, object] = {}
    for basis in ((3, 2), (8, 6)):
        found = against_dscribe(images, *basis)
        results[str(basis)] = found
        rows.append([str(basis), *found.values()])
    common.table(
        "Au20, values + pullback, against DScribe's numerical derivatives",
        ["(n_max, l_max)", "DScribe, ms", "one, ms", "of 50, ms", "×, one", "×, of 50", "gain"],
        rows,
    )
    scaling = bulk_scaling()
    results["bulk"] = scaling
    common.table(
        "Bulk gold, (3, 2), with neighbour search (peak memory: whole process so far)",
        ["atoms", "µs per atom", "peak MB"],
        [list(row.values()) for row in scaling],
    )
    per_atom = [row["us_per_atom"] for row in scaling]
    print(f"\nslowest / quickest per atom: {max(per_atom) / min(per_atom):.2f}")
    common.save("descriptor", results)


if __name__ == "__main__":
    main()
