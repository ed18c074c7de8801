"""How cost and memory grow, with fitted exponents, and how far the LCB is from the core's limit.

    python benchmarks/scaling.py [--quick]

The limit: two GEMMs (features times inducing points, there and back) at the speed of a large GEMM
measured in the same run, plus one exponential per kernel element at the speed of the exponential
loop on data in the first cache. Descriptor, uncertainty and book-keeping count as overhead.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.singlepoint import SinglePointCalculator
from descriptor import clusters

from nugget import CUR, SOAP, LabelNoise, Potential
from nugget.gp.kernels.rbf_loops import exponentials

MODELS = {"exact": LabelNoise(), "K = 10": LabelNoise(members=10)}


def labelled(count: int) -> list[Atoms]:
    """Shaken Au20; the labels of a smooth function will do for timing."""
    images = clusters(count)
    for atoms in images:
        distance = np.linalg.norm(atoms.positions - atoms.positions.mean(axis=0), axis=1)
        energy = float(np.cos(distance).sum())
        atoms.calc = SinglePointCalculator(atoms, energy=energy)
    return images


def fitted(n: int, m: int, members: int | None = None) -> Potential:
    pot = Potential(
        SOAP(["Au"], 6.0, 3, 2), inducing=CUR(m), uncertainty=LabelNoise(members=members)
    )
    return pot.fit(labelled(n), use_forces=False)


def ball(count: int) -> Atoms:
    """A round, shaken piece of gold crystal."""
    crystal = bulk("Au", cubic=True).repeat(16)
    crystal.rattle(0.1, seed=count)
    crystal.calc = None
    away = np.linalg.norm(crystal.positions - crystal.positions.mean(axis=0), axis=1)
    return Atoms(f"Au{count}", positions=crystal.positions[np.argsort(away)[:count]])


def exponent(sizes: list[float], costs: list[float]) -> float:
    """Slope of log cost against log size over the upper half, where the law shows."""
    half = max(len(sizes) // 2, 2)
    return float(np.polyfit(np.log(sizes[-half:]), np.log(costs[-half:]), 1)[0])


def against_atoms(sizes: list[int], seconds: float) -> list[dict[str, float]]:
    surface = fitted(200, 1000).lcb(2.0)
    work: dict[str, Callable[[], object]] = {}
    for n in sizes:
        atoms = ball(n)
        work[str(n)] = lambda a=atoms: surface([a])
    times = common.interleaved(work, seconds)
    return [{"atoms": n, "ms": 1e3 * times[str(n)]} for n in sizes]


def against_batch(sizes: list[int], seconds: float) -> list[dict[str, float]]:
    surface, images = fitted(200, 1000).lcb(2.0), clusters(max(sizes))
    work: dict[str, Callable[[], object]] = {str(b): lambda i=images[:b]: surface(i) for b in sizes}
    times = common.interleaved(work, seconds)
    return [{"structures": b, "ms_each": 1e3 * times[str(b)] / b} for b in sizes]


def memory(reset: bool = False) -> float:
    """High-water mark in MB; `reset` sets it back to what is in use now (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return float(line.split()[1]) / 1024


def point(n: int, m: int) -> dict[str, float]:
    """Training once, in this process (called in a fresh one, for its memory)."""
    fitted(3, 20).predict(labelled(2), uncertainty_gradient=True)  # compiled code is loaded
    images = labelled(n)
    before = memory(reset=True)
    pot = Potential(SOAP(["Au"], 6.0, 3, 2), inducing=CUR(m), uncertainty=LabelNoise())
    start = time.process_time()
    pot.fit(images, use_forces=False)
    trained = time.process_time() - start
    after = memory()
    predicted = []
    for _ in range(3):
        start = time.process_time()
        pot.predict(images[:50], uncertainty_gradient=True)
        predicted.append(time.process_time() - start)
    return {
        "structures": n,
        "environments": 20 * n,
        "m": len(pot.fitted.inducing),
        "training_s": trained,
        "predict_50_ms": 1e3 * min(predicted),
        "memory_mb": after - before,
        "peak_mb": after,
    }


def in_fresh_process(n: int, m: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--point", str(n), str(m)],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak(seconds: float) -> dict[str, float]:
    """GEMM in flop/s, and the seconds of one exponential, of this core in this minute."""
    a = np.random.default_rng(0).normal(size=(768, 768))
    k, x, z = np.full((8, 512), -1.0), np.zeros(8), np.zeros(512)

    def exps() -> None:
        for _ in range(64):
            exponentials(k, x, z, 1.0)

    times = common.interleaved({"gemm": lambda: a @ a, "exp": exps}, seconds)
    return {"flops": 2 * 768**3 / times["gemm"], "exp_s": times["exp"] / (64 * k.size)}


def limit(m: int, seconds: float) -> list[dict[str, object]]:
    """Shares of the GEMM + exp bound reached by one LCB evaluation, single and batched."""
    rows: list[dict[str, object]] = []
    images = clusters(50)
    for name, uncertainty in MODELS.items():
        pot = fitted(max(200, m // 15), m, uncertainty.members)
        surface, f, n = pot.lcb(2.0), pot.descriptor.n_features, 20
        rank = pot.fitted.uncertainty.weights[0].shape[1]
        one = images[:1]
        core = peak(seconds)
        times = common.interleaved(
            {"single": lambda s=surface, i=one: s(i), "of 50": lambda s=surface: s(images)},
            seconds,
        )
        after = peak(seconds)
        flops, exp_s = max(core["flops"], after["flops"]), min(core["exp_s"], after["exp_s"])
        # x·z, then Σ w k z with a column of ones for Σ w k.
        bound = (2 * n * m * f + 2 * n * m * (f + 1)) / flops + n * m * exp_s
        sigma = 4 * m * rank / flops  # κW and Wδ, if they ran like a GEMM too
        for way, each in (("single", times["single"]), ("of 50", times["of 50"] / 50)):
            rows.append(
                {
                    "m": m,
                    "model": name,
                    "rank": rank,
                    "way": way,
                    "us": 1e6 * each,
                    "bound_us": 1e6 * bound,
                    "share": bound / each,
                    "bound_with_sigma_us": 1e6 * (bound + sigma),
                    "share_with_sigma": (bound + sigma) / each,
                    "gflops_peak": 1e-9 * flops,
                    "exp_ns": 1e9 * exp_s,
                }
            )
    return rows


def show(title: str, rows: list[dict[str, object]]) -> None:
    common.table(title, list(rows[0]), [list(row.values()) for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--point", nargs=2, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.point:
        print(json.dumps(point(*chosen.point)))
        return
    quick, seconds = chosen.quick, 0.3 if chosen.quick else 1.0
    atoms = against_atoms([20, 50, 100, 200, 500, 1000, 2000], seconds)
    show("One LCB evaluation against atoms (m = 1000)", atoms)
    batch = against_batch([1, 2, 5, 10, 20, 50, 100, 200], seconds)
    show("LCB evaluation of Au20 against structures in the batch (m = 1000)", batch)
    counts = [100, 200, 500, 1000] if quick else [100, 200, 500, 1000, 2000, 5000]
    structures = [in_fresh_process(n, 1000) for n in counts]
    show("Training against structures (m = 1000, exact committee)", structures)
    points = [250, 500, 1000] if quick else [250, 500, 1000, 2000, 3500, 5000]
    inducing = [in_fresh_process(500, m) for m in points]
    show("Training against inducing points (500 structures, exact committee)", inducing)
    bounds = [row for m in (1000, 4000) for row in limit(m, seconds)]
    show("Distance to the limit, Au20", bounds)
    exponents = {
        "LCB / atoms": exponent([r["atoms"] for r in atoms], [r["ms"] for r in atoms]),
        "training / structures": exponent(
            [r["structures"] for r in structures], [r["training_s"] for r in structures]
        ),
        "memory / structures": exponent(
            [r["structures"] for r in structures], [r["memory_mb"] for r in structures]
        ),
        "training / inducing points": exponent(
            [r["m"] for r in inducing], [r["training_s"] for r in inducing]
        ),
        "prediction / inducing points": exponent(
            [r["m"] for r in inducing], [r["predict_50_ms"] for r in inducing]
        ),
        "memory / inducing points": exponent(
            [r["m"] for r in inducing], [r["memory_mb"] for r in inducing]
        ),
    }
    common.table("Exponents (upper half of the sizes)", ["law", "power"],
                 [[name, value] for name, value in exponents.items()])  # fmt: skip
    results = {
        "atoms": atoms,
        "batch": batch,
        "structures": structures,
        "inducing": inducing,
        "limit": bounds,
        "exponents": exponents,
    }
    common.save("scaling-quick" if quick else "scaling", results)


if __name__ == "__main__":
    main()
