"""How far predictions are from the limit of one core: several elements, periodic cells.

    python benchmarks/limits.py [--quick] [--out NAME] [--committee exact]

LCB and its gradient, K = 10, m = 1000, SOAP with 6 Å. The limit: two GEMMs (features times inducing
points, there and back) at the speed of a large GEMM and one exponential per kernel element at the
speed of the exponential loop, both measured in turns with the work itself. Each central species is
a block of its own: its atoms meet its own inducing points only. Descriptor, list of pairs,
uncertainty and book-keeping count as overhead.
"""

from __future__ import annotations

import argparse
from statistics import median

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.singlepoint import SinglePointCalculator
from descriptor import clusters

from nugget import CUR, SOAP, LabelNoise, Potential
from nugget.gp.kernels.rbf_loops import exponentials

TRAINING, BATCH, SIDE = 200, 20, 768


def alloys(species: list[str], count: int) -> list[Atoms]:
    """Shaken clusters of 20 atoms, with elements at random."""
    rng, images = np.random.default_rng(1), clusters(count)
    for atoms in images:
        spread = np.resize(np.arange(len(species)), len(atoms))
        atoms.symbols = [species[k] for k in rng.permutation(spread)]
    return images


def rock_salt(count: int) -> list[Atoms]:
    """Shaken NaCl with 32 atoms in a periodic cell that is shorter than the cutoff's sphere."""
    rng = np.random.default_rng(2)
    crystal = bulk("NaCl", "rocksalt", a=5.64, cubic=True).repeat((2, 2, 1))
    images = []
    for _ in range(count):
        atoms = crystal.copy()
        atoms.positions += rng.normal(0, 0.15, (len(atoms), 3))
        images.append(atoms)
    return images


def systems(quick: bool) -> dict[str, tuple[list[Atoms], SOAP]]:
    """The rows of the table: structures to learn from and to predict, and their descriptor."""
    alloy, three = ["Cu", "Au"], ["Cu", "Pt", "Au"]
    count = TRAINING + BATCH
    rows = {
        "Au20 (3,2)": (clusters(count), SOAP(["Au"], 6.0, 3, 2)),
        "Cu/Au 20 (3,2)": (alloys(alloy, count), SOAP(alloy, 6.0, 3, 2)),
        "three elements, 20 (3,2)": (alloys(three, count), SOAP(three, 6.0, 3, 2)),
        "NaCl 32, periodic (3,2)": (rock_salt(count), SOAP(["Na", "Cl"], 6.0, 3, 2)),
    }
    if not quick:
        rows["Cu/Au 20 (8,6)"] = (alloys(alloy, count), SOAP(alloy, 6.0, 8, 6))
        rows["three elements (8,6)"] = (alloys(three, count), SOAP(three, 6.0, 8, 6))
    return rows


def fitted(images: list[Atoms], soap: SOAP, members: int | None) -> Potential:
    """The labels of a smooth function will do for timing."""
    for atoms in images:
        distance = np.linalg.norm(atoms.positions - atoms.positions.mean(axis=0), axis=1)
        energy = float((np.cos(distance) * atoms.numbers / 50).sum())
        atoms.calc = SinglePointCalculator(atoms, energy=energy)
    pot = Potential(soap, inducing=CUR(1000), uncertainty=LabelNoise(members=members))
    return pot.fit(images, use_forces=False)


def work(pot: Potential, images: list[Atoms]) -> tuple[float, float]:
    """Floating-point operations of both GEMMs, and kernel elements, per structure."""
    index = {s: k for k, s in enumerate(pot.descriptor.species)}
    inducing = np.bincount(pot.fitted.inducing.group, minlength=len(index))
    rows = np.array([index[s] for atoms in images for s in atoms.symbols])
    elements = float(inducing[rows].sum()) / len(images)
    f = pot.descriptor.n_features
    return elements * (4 * f + 2), elements  # x·z, then Σ w k z with a column of ones for Σ w k


def measure(pot: Potential, images: list[Atoms], seconds: float) -> dict[str, float]:
    surface, one = pot.lcb(2.0), images[:1]
    a = np.random.default_rng(0).normal(size=(SIDE, SIDE))
    k, x, z = np.full((8, 512), -1.0), np.zeros(8), np.zeros(512)

    def exps() -> None:
        for _ in range(16):
            exponentials(k, x, z, 1.0)

    times = common.interleaved(
        {
            "gemm": lambda: a @ a,
            "exp": exps,
            "one": lambda: surface(one),
            "batch": lambda: surface(images),
        },
        seconds,
    )
    flops, elements = work(pot, images)
    of_one, _ = work(pot, one)
    peak = [2 * SIDE**3 / t for t in times.samples["gemm"]]
    exp_s = [t / (16 * k.size) for t in times.samples["exp"]]
    bound = [flops / p + elements * e for p, e in zip(peak, exp_s, strict=True)]
    share = {
        name: median(b / (t / n) for b, t in zip(bound, times.samples[name], strict=True))
        for name, n in (("one", 1), ("batch", len(images)))
    }
    return {
        "features": pot.descriptor.n_features,
        "rank": pot.fitted.uncertainty.columns[0].shape[0],
        "one_ms": 1e3 * times["one"],
        "of_20_ms": 1e3 * times["batch"] / len(images),
        "limit_ms": 1e3 * median(bound),
        "share_one": share["one"] * of_one / flops,
        "share_of_20": share["batch"],
        "gflops": 1e-9 * median(peak),
        "exp_ns": 1e9 * median(exp_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without SOAP (8,6)")
    parser.add_argument("--out", default="limits", help="name of the file of results")
    parser.add_argument("--committee", default="10", help="members, or 'exact'")
    parser.add_argument("--seconds", type=float, default=1.0)
    chosen = parser.parse_args()
    members = None if chosen.committee == "exact" else int(chosen.committee)
    results = {}
    for name, (images, soap) in systems(chosen.quick).items():
        pot = fitted(images[:TRAINING], soap, members)
        results[name] = measure(pot, images[TRAINING:], chosen.seconds)
    header = ["LCB, m = 1000, one thread", *next(iter(results.values()))]
    rows = [[name, *row.values()] for name, row in results.items()]
    common.table(f"Distance to the limit, committee: {chosen.committee}", header, rows)
    common.save(chosen.out, results)


if __name__ == "__main__":
    main()
