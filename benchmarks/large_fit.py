"""A large fit in bounded memory: time and peak memory, against the estimate that is made before.

    python benchmarks/large_fit.py [--structures 5000] [--points 2000] [--predict 20000]

Cu/Au clusters of 20 atoms with energies and forces (EMT), SOAP (3, 2), exact posterior. Then one
crystal of so many atoms is predicted, with forces and σ, in parts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from limits import alloys

from nugget import CUR, SOAP, Posterior, Potential
from nugget.cli._fit import estimate_fit, measure, speed
from nugget.numerics.jit import compile_seconds


def labelled(count: int) -> list[Atoms]:
    images = alloys(["Cu", "Au"], count)
    for atoms in images:
        atoms.calc = EMT()
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    return images


def memory(reset: bool = False) -> float:
    """High-water mark in MB; `reset` sets it back to what is in use now (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return float(line.split()[1]) / 1024


class Tell:
    """Progress, a tenth at a time."""

    def phase(self, name: str) -> None:
        print(f"  {name}", flush=True)

    def __call__(self, done: int, total: int) -> None:
        if done * 10 // total != (done - 1) * 10 // total:
            print(f"  {done} of {total}", flush=True)


def crystal(count: int) -> Atoms:
    """A shaken alloy of about so many atoms, periodic."""
    edge = max(round((count / 4) ** (1 / 3)), 1)
    atoms = bulk("Au", cubic=True).repeat(edge)
    rng = np.random.default_rng(0)
    atoms.symbols = rng.choice(["Cu", "Au"], len(atoms))
    atoms.rattle(0.1, rng=rng)
    return atoms


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--structures", type=int, default=5000)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--predict", type=int, default=20000)
    parser.add_argument("--out", default="large_fit", help="name of the file of results")
    chosen = parser.parse_args()
    images = labelled(chosen.structures)

    def potential(m: int) -> Potential:
        return Potential(SOAP(["Cu", "Au"], 6.0, 3, 2), inducing=CUR(m), uncertainty=Posterior())

    small = potential(20).fit(images[:10], stream=True)  # compiles, or loads what is compiled
    small.predict(images[:2])
    pot = potential(chosen.points)
    before = memory(reset=True)
    gflops = speed()
    expected = estimate_fit(measure(pot, images, forces=True, stream=True), gflops)
    print(f"estimate: {expected.bytes / 1e9:.2f} GB, {expected.seconds:.0f} s", flush=True)
    before = memory(reset=True)
    cpu, wall, compiled = time.process_time(), time.perf_counter(), compile_seconds()
    pot.fit(images, stream=True, progress=Tell(), threads=chosen.threads)
    result: dict[str, float] = {
        "structures": len(images),
        "labels": float(pot.fitted.regression.y.size),
        "m": len(pot.fitted.inducing),
        "threads": chosen.threads,
        "gflops": gflops,
        "estimate_gb": expected.bytes / 1e9,
        "estimate_s": expected.seconds,
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
        "compile_s": compile_seconds() - compiled,
        "fit_gb": (memory() - before) / 1e3,
        "peak_gb": memory() / 1e3,
    }
    if chosen.predict:
        atoms = crystal(chosen.predict)
        before, cpu = memory(reset=True), time.process_time()
        pot.predict(atoms)
        result |= {
            "predicted_atoms": len(atoms),
            "predict_cpu_s": time.process_time() - cpu,
            "predict_gb": (memory() - before) / 1e3,
        }
    common.table("A large fit", list(result), [list(result.values())])
    common.save(chosen.out, result)


if __name__ == "__main__":
    main()
