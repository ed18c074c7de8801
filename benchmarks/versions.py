"""The same work by two versions of the program in turns: predictions, training, fits, a search.

    python benchmarks/versions.py --other DIR/src [--only KIND ...] [--pairs 8]

For each kind of work and each pair, a process of either version prepares the same work, and the
two then take turns: one short repetition each, by processor time on one thread. The ratio of a pair
is the median over its turns. Reported are the median over pairs and its 95 % interval (bootstrap
over pairs, since a process keeps the speed that its memory layout gives it). Settings are those of
version 0.2: no training domain, energies per element as the only mean function, and rules and
generators of its searches. `equal` says whether both versions returned the same bits.

The sources of another version: `git worktree add --detach DIR COMMIT`.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from descriptor import clusters

SOURCE = Path(__file__).parents[1] / "src"

#: One repetition, which returns something to compare bit by bit.
Work = Callable[[], Any]

#: Generators for clusters of searches of version 0.2, with their weights.
GENERATORS = {
    "random_cluster": 1.0,
    "symmetric": 2.0,
    "rattle": 1.0,
    "surface_move": 1.0,
    "cut_and_splice": 1.0,
    "twist": 0.5,
    "copies": 1.0,
    "melt": 0.5,
}


# --------------------------------------------------------------------------- one version


def labelled(images: list[Atoms]) -> list[Atoms]:
    """The same structures with energies and forces of EMT, without the calculator."""
    for atoms in images:
        atoms.calc = EMT()
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    return images


def alloys(count: int) -> list[Atoms]:
    """Shaken Cu/Au clusters of 20 atoms."""
    rng, images = np.random.default_rng(1), clusters(count)
    for atoms in images:
        atoms.symbols = rng.permutation(["Cu", "Au"] * 10)
    return images


def crystals(count: int) -> list[Atoms]:
    """Shaken copper in periodic cells of 32 atoms."""
    rng = np.random.default_rng(2)
    cell = bulk("Cu", cubic=True).repeat(2)
    images = []
    for _ in range(count):
        atoms = cell.copy()
        atoms.positions += rng.normal(0, 0.1, (len(atoms), 3))
        images.append(atoms)
    return images


def potential(elements: list[str], points: int, uncertainty: Any) -> Any:
    """A potential without a training domain, whose mean function is the energies per element."""
    from nugget import CUR, SOAP, Potential

    more = {"domain": False} if "domain" in inspect.signature(Potential).parameters else {}
    soap = SOAP(elements, 6.0, 3, 2)
    return Potential(soap, inducing=CUR(points), uncertainty=uncertainty, **more)


def predictions(images: list[Atoms], elements: list[str]) -> dict[str, Work]:
    from nugget import LabelNoise

    pot = potential(elements, 1000, LabelNoise(members=10))
    pot.fit(labelled(images[:200]), use_forces=False)
    rest = images[200:]
    for atoms in rest:
        atoms.calc = None
    one, moving, lcb = rest[:1], rest[0].copy(), pot.lcb(2.0)
    moving.calc = pot.calculator()

    def step() -> Any:
        moving.positions[0, 0] += 1e-7
        return moving.get_forces()

    def predict(these: list[Atoms], gradient: bool) -> Any:
        got = pot.predict(these, uncertainty_gradient=gradient)
        return got.energy, got.energy_uncertainty, got.forces

    return {
        "predict": lambda: predict(one, False),
        "lcb": lambda: lcb(one),
        "ase": step,
        "predict_50": lambda: predict(rest, True),
        "lcb_50": lambda: lcb(rest),
    }


def training() -> Work:
    from nugget import Posterior

    images = labelled(alloys(100))

    def work() -> Any:
        pot = potential(["Cu", "Au"], 500, Posterior())
        return pot.fit(images, calibrate="loo").predict(images[:3]).energy

    return work


def relaxation() -> Work:
    from nugget import LabelNoise
    from nugget.relax import relax

    pot = potential(["Au"], 1000, LabelNoise(members=10))
    images = clusters(230)
    surface = pot.fit(labelled(images[:200]), use_forces=False).lcb(1.0)
    starts = [atoms.copy() for atoms in images[200:]]
    return lambda: [r.energy for r in relax(starts, surface, fmax=1e-6, steps=20)]


def fit(*options: str) -> Work:
    """`nugget fit` on a file, in this process."""
    from typer.testing import CliRunner

    from nugget import Potential, presets
    from nugget.cli.main import app

    where = Path(tempfile.mkdtemp())
    write(where / "train.extxyz", labelled([*clusters(40), *alloys(40)]))
    runner, more = CliRunner(), ["--no-domain"] if _has_domain() else []
    if hasattr(presets, "_WIDTHS"):
        presets._WIDTHS = ()  # version 0.2 tries no narrower Gaussians
    ask = ["fit", where / "train.extxyz", "-o", where / "fit.model", "--force", "--threads", 1]
    words = [str(word) for word in [*ask, "--prior", "species", *options, *more]]

    def work() -> Any:
        result = runner.invoke(app, words)
        if result.exit_code != 0:
            raise RuntimeError(result.output)
        return None

    def compared() -> Any:
        work()
        return Potential.load(where / "fit.model").predict(alloys(3)).energy

    work.compared = compared  # type: ignore[attr-defined]
    return work


def _has_domain() -> bool:
    from nugget import Potential

    return "domain" in inspect.signature(Potential).parameters


def search() -> Work:
    """One iteration after the other: a proposal, its EMT energy and forces, and learning."""
    from nugget.search import make_config
    from nugget.search.learner import Learner

    try:
        from nugget.engines.task import Task, run_task
        from nugget.search.loop import complete, make_pending
        from nugget.systems import PlacedAtoms as System
    except ImportError:  # version 0.2
        from nugget.evaluation.run import run_engine  # type: ignore[import-not-found]
        from nugget.search.records import (  # type: ignore[import-not-found, no-redef]
            complete,
            make_pending,
        )

        from nugget.generators import Problem as System  # type: ignore[attr-defined, no-redef]

        def evaluate(atoms: Atoms) -> Any:
            return run_engine("emt", {}, atoms)
    else:

        def evaluate(atoms: Atoms) -> Any:
            return run_task(Task(name="emt"), atoms)

    settings: dict[str, Any] = {
        "system": {"formula": "Au20"},
        "engine": {"name": "emt"},
        "model": {"use_forces": True, "sigma": 1.0},
        "search": {"candidates": 10, "relax_steps": 100, "generators": GENERATORS},
    }
    if "rules" in type(make_config(settings).search).model_fields:
        settings["search"]["rules"] = 0
    learner = Learner(make_config(settings), System.cluster("Au20"))
    ordinals = iter(range(10**6))

    def work() -> Any:
        k = next(ordinals)
        proposal = learner.propose(k)
        outcome = evaluate(proposal.atoms)
        learner.learn(complete(make_pending(k, k, proposal, 2.0), k, outcome))
        learner.potential  # noqa: B018 - trained on demand
        return proposal.atoms.positions

    return work


def works(kind: str) -> dict[str, Work]:
    """Works that need the same preparation, by name."""
    if kind == "cluster":
        return predictions(clusters(250), ["Au"])
    if kind == "crystal":
        return {f"{k} Cu32": w for k, w in predictions(crystals(250), ["Cu"]).items()}
    if kind == "fit":
        return {"fit balanced": fit("--preset", "balanced")}
    if kind == "auto":
        return {"fit auto": fit("--points", "300")}
    return {kind: {"training": training, "relaxation": relaxation, "search": search}[kind]()}


#: Kinds of work, and seconds that one turn should take; a search takes one iteration a turn.
KINDS = ("cluster", "crystal", "training", "relaxation", "search", "fit", "auto")
TURN = 0.01


def digest(value: Any) -> str:
    """Equal for equal bits."""
    text = hashlib.sha256()
    for part in value if isinstance(value, tuple | list) else [value]:
        if part is not None:
            text.update(np.ascontiguousarray(part).tobytes())
    return text.hexdigest()


def serve(kind: str) -> None:
    """Prepare the work, then answer each name on standard input with its processor seconds."""
    ready = works(kind)
    repeats, digests = {}, {}
    for name, work in ready.items():
        digests[name] = digest(getattr(work, "compared", work)())
        work()
        start = time.process_time()
        work()
        repeats[name] = max(1, int(TURN / max(time.process_time() - start, 1e-7)))
    if kind == "search":
        for _ in range(10):
            ready[kind]()
        repeats[kind] = 1
    print(json.dumps({"repeats": repeats, "digests": digests}), flush=True)
    for line in sys.stdin:
        name, times = line.split("\t")
        work, got = ready[name], None
        if int(times) > 1:
            work()  # with caches as this process leaves them
        start = time.process_time()
        for _ in range(int(times)):
            got = work()
        spent = (time.process_time() - start) / int(times)
        print(json.dumps({"seconds": spent, "digest": digest(got)}), flush=True)


# --------------------------------------------------------------------------- both versions


class Worker:
    """A process with the sources of one version."""

    def __init__(self, source: Path, kind: str) -> None:
        command = [sys.executable, __file__, "--serve", kind]
        self.process = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": str(source)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.ready: dict[str, Any] = self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended: {self.process.wait()}")
        return dict(json.loads(line))

    def ask(self, name: str, times: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name}\t{times}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def pair(kind: str, sources: dict[str, Path], turns: int, budget: float) -> Iterator[Any]:
    """For each work: its name, the seconds of all turns of both versions, and equality of bits."""
    workers = {name: Worker(source, kind) for name, source in sources.items()}
    names = list(workers)
    for name, repeats in workers["other"].ready["repeats"].items():
        digests = {worker.ready["digests"][name] for worker in workers.values()}
        seconds: dict[str, list[float]] = {one: [] for one in names}
        begun = time.monotonic()
        while len(seconds["this"]) < turns and (
            len(seconds["this"]) < 3 or time.monotonic() - begun < budget
        ):
            answers = {one: workers[one].ask(name, repeats) for one in names}
            for one, answer in answers.items():
                seconds[one].append(answer["seconds"])
            if kind == "search":
                digests |= {f"{len(seconds['this'])}" + a["digest"] for a in answers.values()}
            names.reverse()
        equal = len(digests) == 1 + (len(seconds["this"]) if kind == "search" else 0)
        yield name, seconds, equal
    for worker in workers.values():
        worker.end()


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % interval of the median, by bootstrap."""
    drawn = np.random.default_rng(0).choice(ratios, (4000, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)


def summary(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [one["ratio"] for one in pairs]
    low, high = interval(ratios)
    return {
        "other_ms": 1e3 * median(one["other"] for one in pairs),
        "this_ms": 1e3 * median(one["this"] for one in pairs),
        "ratio": median(ratios),
        "low": low,
        "high": high,
        "turns": sum(one["turns"] for one in pairs),
        "equal": "yes" if all(one["equal"] for one in pairs) else "no",
        "ratios": ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--other", type=Path, help="folder `src` of the other version")
    parser.add_argument("--this", type=Path, default=SOURCE, help="another copy of this one")
    parser.add_argument("--only", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds for a pair's work")
    parser.add_argument("--out", default="versions", help="name of the file of results")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve)
        return
    if chosen.other is None:
        parser.error("--other is needed")
    sources = {"other": chosen.other.absolute(), "this": chosen.this.absolute()}
    found: dict[str, list[dict[str, Any]]] = {}
    for number in range(chosen.pairs):
        for kind in chosen.only:
            for name, seconds, equal in pair(kind, sources, chosen.turns, chosen.budget):
                both = zip(seconds["this"], seconds["other"], strict=True)
                one = {
                    "ratio": median(a / b for a, b in both),
                    "turns": len(seconds["this"]),
                    "equal": equal,
                    **{version: median(times) for version, times in seconds.items()},
                }
                found.setdefault(name, []).append(one)
                print(number, name, f"{one['ratio']:.4f}", one["turns"], equal, flush=True)
    results = {name: summary(pairs) for name, pairs in found.items()}
    columns = [c for c in next(iter(results.values())) if c != "ratios"]
    rows = [[name, *(row[c] for c in columns)] for name, row in results.items()]
    common.table("This version over the other", ["work", *columns], rows)
    common.save(chosen.out, results)


if __name__ == "__main__":
    main()
