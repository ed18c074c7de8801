"""What several evaluations in flight gain in time, and what they cost in evaluations.

    python benchmarks/in_flight.py --processes 2

Wall time: EMT with an artificial delay of 2 s, the same number of evaluations one at a time and
four at a time. Evaluations to the solution: Au13 with EMT until the reference is found, over many
seeds. Those run in virtual time: `Virtual` answers each structure at once, but hands the answers
out in the order in which calculations of random length (0.5 to 1.5, evenly) would end on
`in_flight` workers. Every fifth of these searches is replayed.
"""

from __future__ import annotations

import argparse
import heapq
import json
import tempfile
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import common  # first: it sets one thread
import numpy as np

REFERENCE = Path(__file__).parent / "references" / "emt-au13.extxyz"
TOLERANCE = 0.03  # eV, as in success.py

# in_flight, what is done about pending structures, acquisition.
VARIANTS: dict[str, tuple[int, str, str]] = {
    "one at a time": (1, "believer", "lcb"),
    "4, lcb": (4, "believer", "lcb"),
    "4, no fantasies": (4, "known", "lcb"),
    "thompson": (1, "believer", "thompson"),
    "4, thompson": (4, "believer", "thompson"),
    "4, thompson, no fantasies": (4, "known", "thompson"),
}
MAIN = ("one at a time", "4, thompson", "4, lcb")


class Virtual(Executor):
    """Workers in virtual time: answers come in the order of their virtual ends."""

    def __init__(self, workers: int, total: int, seed: int) -> None:
        self.workers, self.total = workers, total
        self.rng = np.random.default_rng([seed, 1])
        self.now, self.count = 0.0, 0
        self.running: list[tuple[float, int, Future[Any], Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        end = self.now + self.rng.uniform(0.5, 1.5)
        heapq.heappush(self.running, (end, self.count, future, fn(*args, **kwargs)))
        self.count += 1
        # Nobody can be waiting before all workers are busy or everything is submitted.
        while len(self.running) == self.workers or (self.count == self.total and self.running):
            self.now, _, done, answer = heapq.heappop(self.running)
            done.set_result(answer)
        return future


def settings(seed: int, in_flight: int, acquisition: str, budget: int) -> dict[str, Any]:
    return {
        "system": {"formula": "Au13"},
        "engine": {"name": "emt"},
        "model": {"use_forces": False, "n_max": 3, "l_max": 2, "force_noise": 0.5},
        "search": {
            "explore": 0,
            "budget": budget,
            "seed": seed,
            "in_flight": in_flight,
            "acquisition": acquisition,
        },
    }


def without_fantasies() -> None:
    """Pending structures only count as known: what the fantasies are compared with."""
    from nugget.potential import Potential

    Potential.update_for_real = Potential.update  # type: ignore[attr-defined]

    def update(self: Any, images: Any, use_forces: bool | None = None) -> Any:
        return self if use_forces is False else self.update_for_real(images)

    Potential.update = update  # type: ignore[method-assign,assignment]


def to_solution(job: tuple[str, int, int]) -> dict[str, Any]:
    """Evaluations until the reference was found, or None within the budget."""
    from nugget.search import Search, make_config

    variant, seed, budget = job
    in_flight, pending, acquisition = VARIANTS[variant]
    if pending == "known":
        without_fantasies()
    tree = settings(seed, in_flight, acquisition, budget)
    tree["search"] |= {"reference": str(REFERENCE), "reference_tolerance": TOLERANCE}
    with tempfile.TemporaryDirectory() as folder:
        search = Search.create(make_config(tree), Path(folder) / "run")
        result = search.run(executor=Virtual(in_flight, budget, seed))
        checked = seed % 5 == 0 and pending == "believer"
        replayed = Search.replay(Path(folder) / "run").same if checked else None
    return {
        "variant": variant,
        "seed": seed,
        "found": result.evaluations if result.found else None,
        "budget": budget,
        "replayed": replayed,
    }


def wall(seed: int, in_flight: int, evaluations: int, delay: float) -> dict[str, float]:
    """Seconds by the clock for some evaluations, each with a true delay."""
    from nugget.search import Search, make_config

    tree = settings(seed, in_flight, "lcb", evaluations)
    tree["engine"] = {"name": "slow_engine:emt", "options": {"delay": delay}}
    with tempfile.TemporaryDirectory() as folder:
        search = Search.create(make_config(tree), Path(folder) / "run")
        begun = time.perf_counter()
        search.run()
        seconds = time.perf_counter() - begun
        records = search.store.records()
    assert len(records) == evaluations
    assert all(record.ok for record in records)
    surrogate = sum(record.surrogate_seconds for record in records)
    return {"wall": seconds, "surrogate": surrogate, "engine": evaluations * delay}


def ratios(one: list[float], many: list[float], draws: int = 10_000) -> dict[str, list[float]]:
    """many/one with a 95 % bootstrap interval over seeds: of medians and of restricted means.

    A search that found nothing counts with its whole budget, which is what "restricted" means.
    """
    a, b = np.array(one), np.array(many)
    rng = np.random.default_rng(0)
    pick = rng.integers(len(a), size=(draws, len(a)))  # pairs of the same seed stay together
    found = {}
    for name, statistic in (("median", np.median), ("mean", np.mean)):
        drawn = statistic(b[pick], axis=1) / statistic(a[pick], axis=1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        found[name] = [float(statistic(b) / statistic(a)), float(low), float(high)]
    return found


def fantasy_cost() -> dict[str, float]:
    """Milliseconds that three pending structures add to a proposal with 100 known."""
    from nugget.engines.task import Task, run_task
    from nugget.search import make_config
    from nugget.search.learner import Learner
    from nugget.search.loop import complete, make_pending
    from nugget.systems import PlacedAtoms

    learner = Learner(make_config(settings(0, 4, "lcb", 100)), PlacedAtoms.cluster("Au13"))
    for k in range(100):
        proposal = learner.propose(k)
        assert proposal is not None
        outcome = run_task(Task(name="emt"), proposal.atoms)
        learner.learn(complete(make_pending(k, k, proposal, 2.0), k, outcome))
    waiting = []
    for k in range(100, 103):
        proposal = learner.propose(k, waiting)
        assert proposal is not None
        waiting.append(proposal.atoms)
    seconds = common.interleaved(
        {
            "fantasies": lambda: learner._with_pending(waiting),
            "proposal": lambda: learner.propose(103, waiting),
        }
    )
    return {name: 1e3 * value for name, value in seconds.items()}


def known_rows(path: str | None) -> list[dict[str, Any]]:
    if path is None or not Path(path).exists():
        return []
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--variant", default=",".join(MAIN), help="; ".join(VARIANTS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--wall-seeds", type=int, default=3)
    parser.add_argument("--wall-evaluations", type=int, default=24)
    parser.add_argument("--delay", type=float, default=2.0)
    parser.add_argument("--rows", help="keeps finished searches; those in it are not run again")
    parser.add_argument("--name", default="in_flight", help="results/NAME.json")
    args = parser.parse_args()

    variants = args.variant.replace(", ", "§").split(",")
    variants = [name.replace("§", ", ") for name in variants]
    seeds = range(args.first, args.first + args.seeds)
    jobs = [(variant, seed, args.budget) for seed in seeds for variant in variants]
    rows = known_rows(args.rows)
    had = {(row["variant"], row["seed"], row["budget"]) for row in rows}
    jobs = [job for job in jobs if job not in had]
    # A fresh process for each search: `without_fantasies` changes the one that it runs in.
    with ProcessPoolExecutor(args.processes, max_tasks_per_child=1) as pool:
        for row in pool.map(to_solution, jobs):
            rows.append(row)
            if args.rows is not None:
                with open(args.rows, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            print(f"{row['variant']:28} seed {row['seed']:3d}: {row['found']}", flush=True)
    rows = sorted((r for r in rows if r["variant"] in variants), key=lambda r: r["seed"])
    rows = [row for row in rows if row["seed"] in seeds and row["budget"] == args.budget]
    counts = {
        name: [float(r["found"] or r["budget"]) for r in rows if r["variant"] == name]
        for name in variants
    }
    first = counts[variants[0]]
    compared = {name: ratios(first, values) for name, values in counts.items()}
    common.table(
        f"Au13, EMT: evaluations to the solution, {args.seeds} seeds, budget {args.budget}; "
        f"ratios to {variants[0]!r} with 95 % bootstrap intervals",
        ["variant", "found", "median", "mean", "ratio of medians", "ratio of means", "replayed"],
        [
            [
                name,
                sum(r["found"] is not None for r in rows if r["variant"] == name),
                float(np.median(values)),
                float(np.mean(values)),
                *("{:.2f} ({:.2f} to {:.2f})".format(*compared[name][k]) for k in compared[name]),
                sum(r["replayed"] is True for r in rows if r["variant"] == name),
            ]
            for name, values in counts.items()
        ],
    )
    times = [
        {"seed": seed, "in_flight": n, **wall(seed, n, args.wall_evaluations, args.delay)}
        for seed in range(args.wall_seeds)
        for n in (1, 4)
    ]
    pairs = list(zip(times[::2], times[1::2], strict=True))
    common.table(
        f"Wall seconds for {args.wall_evaluations} evaluations of {args.delay:g} s each",
        ["seed", "one at a time", "4 in flight", "ratio", "surrogate, one", "surrogate, 4"],
        [
            [a["seed"], a["wall"], b["wall"], a["wall"] / b["wall"], a["surrogate"], b["surrogate"]]
            for a, b in pairs
        ],
    )
    cost = fantasy_cost() if args.wall_seeds else {}
    if cost:
        common.table(
            "One proposal, 100 known, 3 pending (processor ms)", list(cost), [[*cost.values()]]
        )
    common.save(
        args.name, {"searches": rows, "ratios": compared, "wall": times, "proposal_ms": cost}
    )


if __name__ == "__main__":
    main()
