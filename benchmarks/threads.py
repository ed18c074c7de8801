"""What two threads gain: a batch of 50, a fit with forces, a lockstep relaxation; equal bits.

    python benchmarks/threads.py

On a busy machine wall time says little: rounds in which other processes took more than a tenth of a
core do not count for the gain. Besides the wall time of both, the processor time of every slice is
taken with one thread, and the slices are put on two cores in their order: what is not sliced, plus
the longer of the two queues, is the time that two free cores would take. Work that two threads do
in vain shows as a larger processor time of both together.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import common  # first: it sets one thread
import numpy as np
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from limits import alloys, fitted

from nugget import CUR, SOAP, LabelNoise, Posterior, Potential, set_threads
from nugget.gp import linalg, regression
from nugget.gp import regression as streaming
from nugget.numerics import threads
from nugget.potential import prediction, surface
from nugget.potential import training as design
from nugget.relax import relax
from nugget.relax import relaxation as relax_run

QUIET = 0.1  # of a core: what others may take in a round that counts
USERS = (linalg, regression, streaming, design, prediction, surface, relax_run)


def queues(work: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds of one thread, and of two free cores, by the slices' own times."""
    sliced, longest, within = 0.0, 0.0, False

    def each(function: Callable[[Any], Any], items: Iterable[Any], _: object = None) -> list[Any]:
        nonlocal sliced, longest, within
        if within:  # slices within slices run one after the other
            return [function(item) for item in items]
        found, ends, within = [], [0.0, 0.0], True
        for item in items:
            start = time.process_time()
            found.append(function(item))
            spent = time.process_time() - start
            sliced += spent
            ends[int(np.argmin(ends))] += spent
        longest, within = longest + max(ends), False
        return found

    for module in USERS:
        module.each = each  # type: ignore[attr-defined]
    try:
        start = time.process_time()
        work()
        whole = time.process_time() - start
    finally:
        for module in USERS:
            module.each = threads.each  # type: ignore[attr-defined]
    return whole, whole - sliced + longest


def busy() -> float:
    """Seconds that all cores together have worked since the machine was started (Linux)."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = (float(x) for x in fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def timed(work: Callable[[], Any], seconds: float) -> tuple[float, float, float, Any]:
    """Wall and processor time of one call, the share of a core that others took, the result."""
    calls, all_before = 0, busy()
    start, processor = time.perf_counter(), time.process_time()
    while calls == 0 or time.perf_counter() - start < seconds:
        result, calls = work(), calls + 1
    wall, cpu = time.perf_counter() - start, time.process_time() - processor
    others = max(busy() - all_before - cpu, 0.0) / wall
    return wall / calls, cpu / calls, others, result


def measure(
    work: Callable[[], Any], same: Callable[[Any, Any], bool], rounds: int, seconds: float = 0.3
) -> dict[str, Any]:
    """One thread and two in turns; rounds in which others took a part of a core do not count."""
    work()
    ratios, wall, cpu, results, foreign = [], {1: [], 2: []}, {1: [], 2: []}, {}, []
    for _ in range(rounds):
        whole, both = queues(work)
        ratios.append(whole / both)
        shares = []
        for number in (1, 2):
            set_threads(number)
            one_wall, one_cpu, others, results[number] = timed(work, seconds)
            wall[number].append(one_wall)
            cpu[number].append(one_cpu)
            shares.append(others)
        foreign.append(max(shares))
    set_threads(None)
    quiet = [k for k, share in enumerate(foreign) if share < QUIET]
    gains = np.array(wall[1]) / np.array(wall[2])
    return {
        "by_slices": float(np.median(ratios)),
        "processor_time_of_two": float(np.median(cpu[2]) / np.median(cpu[1])),
        "gain": float(np.median(gains[quiet])) if quiet else None,
        "rounds": f"{len(quiet)} of {rounds}",
        "wall_best": min(wall[1]) / min(wall[2]),
        "one_s": float(np.median(cpu[1])),
        "equal_bits": same(results[1], results[2]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    images = alloys(["Cu", "Au"], 200)
    pot = fitted(images[:150], SOAP(["Cu", "Au"], 6.0, 3, 2), 10)
    lcb, batch, starts = pot.lcb(2.0), images[150:], images[150:180]

    def fit(stream: bool = False) -> Potential:
        new = Potential(
            SOAP(["Cu", "Au"], 6.0, 3, 2),
            inducing=CUR(800),
            uncertainty=Posterior() if stream else LabelNoise(members=10),
        )
        return new.fit(images[:150], stream=stream)

    def same_model(a: Potential, b: Potential) -> bool:
        return np.array_equal(a.fitted.regression.alpha, b.fitted.regression.alpha)

    def equal(a: Any, b: Any) -> bool:
        return all(np.array_equal(x, y) for x, y in zip(a[1], b[1], strict=True))

    for atoms in images[:150]:
        atoms.calc = EMT()
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    results = {
        "LCB of 50, Cu/Au 20": measure(lambda: lcb(batch), equal, rounds),
        "relaxation of 30, 40 steps": measure(
            lambda: relax(starts, lcb, fmax=1e-3, steps=40),
            lambda a, b: all(x.energy == y.energy for x, y in zip(a, b, strict=True)),
            rounds,
        ),
        "fit, 150 with forces, m = 800": measure(fit, same_model, rounds),
        "the same, streamed, posterior": measure(lambda: fit(stream=True), same_model, rounds),
    }
    header = ["two threads", *next(iter(results.values()))]
    common.table("Two threads", header, [[n, *row.values()] for n, row in results.items()])
    common.save("threads", results)


if __name__ == "__main__":
    main()
