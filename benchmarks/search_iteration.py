"""Relaxation in lockstep and one whole search iteration, one thread.

A structure-step (value and gradient of the LCB, and the optimiser's move, per structure) is put
against DScribe's numerical derivatives in the same run, as in potential.py. The search iteration is
ten candidates of Au20, up to 100 steps each, one EMT evaluation and learning from it.
"""

from __future__ import annotations

import time

import common  # first: it sets one thread
import numpy as np
from dscribe.descriptors import SOAP as Rival
from potential import trained

from nugget import LabelNoise, ProjectedProcess
from nugget.engines.task import Task, run_task
from nugget.generators.random_cluster import RandomCluster
from nugget.potential.mean_functions.pair_terms import PairWell
from nugget.relax import relax
from nugget.search import make_config
from nugget.search.learner import Learner
from nugget.search.loop import complete, make_pending
from nugget.systems import PlacedAtoms


def structure_steps() -> dict[str, dict[str, float]]:
    problem = PlacedAtoms.cluster("Au20")
    rng = np.random.default_rng(0)
    images = [RandomCluster()(rng, problem) for _ in range(30)]
    images = [r.atoms for r in relax(images, PairWell(), 0.05, 30, problem.region)]
    rival = Rival(
        species=["Au"],
        r_cut=6.0,
        n_max=3,
        l_max=2,
        sigma=1.0,
        weighting={"function": "poly", "r0": 6.0, "c": 1, "m": 2},
    )
    results = {}
    models = {
        "exact": LabelNoise(),
        "K = 10": LabelNoise(members=10),
        "projected": ProjectedProcess(),
    }
    for name, uncertainty in models.items():
        surface = trained(1000, uncertainty).lcb(1.0)
        counts = []

        def together(surface=surface, counts=counts) -> None:
            done = relax(images, surface, fmax=1e-6, steps=100, confinement=problem.region)
            counts.append(sum(r.evaluations for r in done))

        seconds = common.interleaved(
            {
                "dscribe": lambda: rival.derivatives(
                    images[0], method="numerical", attach=True, return_descriptor=True
                ),
                "relax": together,
            },
            seconds=6.0,
        )
        step = seconds["relax"] / counts[-1]
        ratio = counts[-1] * seconds.ratio("dscribe", "relax")
        results[name] = {"step_us": 1e6 * step, "ratio": ratio}
    return results


def iteration(use_forces: bool, known: int) -> dict[str, float]:
    config = make_config(
        {
            "system": {"formula": "Au20"},
            "engine": {"name": "emt"},
            "model": {"use_forces": use_forces},
            "search": {"candidates": 10, "relax_steps": 100},
        }
    )
    learner = Learner(config, PlacedAtoms.cluster("Au20"))
    times = []
    for k in range(known):
        begun = time.process_time()
        proposal = learner.propose(k)
        proposed = time.process_time()
        assert proposal is not None
        outcome = run_task(Task(name="emt"), proposal.atoms)
        evaluated = time.process_time()
        learner.learn(complete(make_pending(k, k, proposal, 2.0), k, outcome))
        end = time.process_time()
        times.append((proposed - begun, evaluated - proposed, end - evaluated))
    last = 1e3 * np.median(np.array(times[-20:]), axis=0)
    return {
        "propose_ms": float(last[0]),
        "engine_ms": float(last[1]),
        "learn_ms": float(last[2]),
        "inducing": float(len(learner.potential.fitted.inducing)),
        "peak_mb": common.peak_memory_mb(),
    }


def main() -> None:
    iterations = {
        "energies, 150 known": iteration(False, 150),
        "energies and forces, 150 known": iteration(True, 150),
    }
    header = ["Au20, EMT", *next(iter(iterations.values()))]
    common.table(
        "One search iteration (median of the last 20; 10 candidates, up to 100 steps)",
        header,
        [[name, *row.values()] for name, row in iterations.items()],
    )
    steps = structure_steps()
    common.table(
        "30 Au20 in lockstep, m = 1000",
        ["uncertainty", "structure-step, µs", "DScribe derivatives / structure-step"],
        [[name, *row.values()] for name, row in steps.items()],
    )
    common.save("search_iteration", {"iterations": iterations, "steps": steps})


if __name__ == "__main__":
    main()
