"""AGOX and nugget on the same structures with the same settings, in turns, on one core.

    make bench-peers        (or: .venv/bin/python benchmarks/peers/run.py [--quick])

Two worker processes, each in its own environment, wait for each other: while one computes, the
other sleeps. Every number is the median over rounds, with its range; ratios are formed within a
round. Writes benchmarks/results/peers.json and benchmarks/results/peers.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np  # noqa: E402
from ase.calculators.emt import EMT  # noqa: E402
from ase.calculators.singlepoint import SinglePointCalculator  # noqa: E402
from ase.io import write  # noqa: E402
from descriptor import clusters  # noqa: E402
from protocol import ONE_THREAD, Worker  # noqa: E402
from table import markdown  # noqa: E402

PYTHON = {"agox": ROOT / ".venv-peers/bin/python", "nugget": ROOT / ".venv/bin/python"}
OUT = HERE.parent / "results"
# A model of the peer's, and those of ours that are set against it.
RIVALS = {
    "ensemble": ("ensemble", "exact"),
    "projected": ("projected", "projected-structures"),
}


def labelled(count: int, path: Path) -> None:
    """Shaken Au20 with EMT energies, shifted so that they are zero on average."""
    images = clusters(count)
    for atoms in images:
        atoms.calc = EMT()
        atoms.info["raw"] = atoms.get_potential_energy()
    mean = float(np.mean([atoms.info["raw"] for atoms in images]))
    for atoms in images:
        atoms.calc = SinglePointCalculator(atoms, energy=atoms.info.pop("raw") - mean)
    write(path, images)


class Match:
    """Both workers, asked the same questions in turns."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.structures = directory / "structures.extxyz"
        labelled(250, self.structures)
        self.workers = {name: self.start(name) for name in PYTHON}
        self.versions = {
            name: worker("setup", path=str(self.structures))
            for name, worker in self.workers.items()
        }

    def start(self, name: str) -> Worker:
        return Worker(name, PYTHON[name], HERE / f"worker_{name}.py", self.directory / "log.txt")

    def rounds(self, times: int, do: str, model: str, **arguments: Any) -> dict[str, Any]:
        """`times` rounds of one question: AGOX's model, then each of ours set against it."""
        answers: dict[str, list[dict[str, Any]]] = {}
        for _ in range(times):
            answers.setdefault("agox", []).append(self.ask("agox", do, model, arguments))
            for own in RIVALS[model]:
                answers.setdefault(own, []).append(self.ask("nugget", do, own, arguments))
        return {name: summary(found, answers["agox"]) for name, found in answers.items()}

    def ask(self, worker: str, do: str, model: str, arguments: dict[str, Any]) -> dict[str, Any]:
        told = dict(arguments)
        if (do == "train" and "key" in told) or do in ("predict", "relax"):
            told["key"] = f"{model}-{told.pop('of', told.get('key', ''))}"
        if do in ("train", "iteration"):
            told["model"] = model
        return self.workers[worker](do, **told)

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()


def summary(found: list[dict[str, Any]], peer: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians and ranges of times, the ratio to the peer's within each round, and the rest."""
    out: dict[str, Any] = {}
    for clock in ("cpu", "wall"):
        times = [f[clock] for f in found]
        ratios = [p[clock] / t for p, t in zip(peer, times, strict=True)]
        out[clock] = {
            "median": float(np.median(times)),
            "range": [min(times), max(times)],
            "ratio": float(np.median(ratios)),
            "ratio_range": [min(ratios), max(ratios)],
        }
    out.update({k: v for k, v in found[-1].items() if k not in ("cpu", "wall")})
    return out


def agreement(match: Match) -> list[dict[str, Any]]:
    """Both codes on the same inducing points: how far energies, forces and σ are apart."""
    rows = []
    for m, jitter in ((10, 1e-10), (30, 1e-10), (100, 1e-5), (1000, 1e-5)):
        chosen = np.sort(np.random.default_rng(m).permutation(4000)[:m]).tolist()
        found, said = {}, {}
        for name, worker in match.workers.items():
            file = match.directory / f"{name}.npz"
            said[name] = worker("agreement", n=200, rows=chosen, unc_jitter=jitter, file=str(file))
            found[name] = {key: value.ravel() for key, value in np.load(file).items()}
        theirs, ours = found["agox"], found["nugget"]
        row = {"m": m, "unc_jitter": jitter, **said["nugget"]}
        for what in ("energy", "forces"):
            row[what] = _largest(theirs[what] - ours[what])
            row[f"{what}_rms"] = float(np.std(ours[what]))
            row[f"{what}_peer_qr"] = _largest(theirs[what] - ours[f"{what}_qr"])
            if f"{what}_exact" in ours:
                row[f"{what}_peer_exact"] = _largest(theirs[what] - ours[f"{what}_exact"])
                row[f"{what}_own_exact"] = _largest(ours[what] - ours[f"{what}_own_exact"])
        row["sigma_median"] = float(np.median(ours["sigma"]))
        row["sigma"] = _largest(theirs["sigma"] / ours["sigma"] - 1)
        row["sigma_peer_qr"] = _largest(theirs["sigma"] / ours["sigma_qr"] - 1)
        rows.append(row)
    return rows


def _largest(values: np.ndarray) -> float:
    return float(np.max(np.abs(values)))


def start_up(code: dict[str, list[str]], count: int) -> dict[str, Any]:
    """Processor and wall seconds of whole short processes, in turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in code}
    for _ in range(count + 1):
        for name, command in code.items():
            before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(
                command, check=True, capture_output=True, env={**os.environ, **ONE_THREAD}
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            times[name].append((cpu, time.perf_counter() - wall))
    return {  # the first start reads from disk
        name: {
            "cpu": float(np.median([t[0] for t in found[1:]])),
            "wall": float(np.median([t[1] for t in found[1:]])),
            "cpu_range": [min(t[0] for t in found[1:]), max(t[0] for t in found[1:])],
        }
        for name, found in times.items()
    }


def memory(match: Match) -> dict[str, float]:
    """Peak memory of a fresh process that trains (200 structures, m = 1000) and iterates once."""
    found = {}
    for name in PYTHON:
        for model in ("ensemble", "projected"):
            worker = match.start(name)
            worker("setup", path=str(match.structures))
            worker("iteration", model=model, n=200, m=1000, candidates=10, steps=5)
            found[f"{name} {model}"] = worker("memory")["mb"]
            worker.close()
    return found


def predictions(
    match: Match, model: str, part: dict[str, Any], rounds: int, sizes: list[int]
) -> None:
    """What is asked for, of 1 and of 50 structures; needs the trained models of these sizes."""
    full = "E, F, σ, ∇σ"
    for count in (1, 50):
        part[f"predict {count}"] = {
            what: match.rounds(rounds, "predict", model, of=1000, what=what, count=count)
            for what in ("E", "E, F", "E, F, σ", full, "LCB")
        }
    part["predict 50 m"] = {
        m: match.rounds(min(rounds, 2), "predict", model, of=m, what=full, count=50)
        for m in sizes
        if m != 1000
    } | {1000: part["predict 50"][full]}
    if 2000 in sizes:
        part["predict 1, m = 2000"] = match.rounds(
            rounds, "predict", model, of=2000, what=full, count=1
        )


def again(match: Match, rounds: int) -> dict[str, Any]:
    """The results of the last full run with the predictions measured anew."""
    results: dict[str, Any] = json.loads((OUT / "peers.json").read_text())
    for model in RIVALS:
        for m in (250, 500, 1000, 2000):
            match.rounds(1, "train", model, n=200, m=m, key=f"{m}")
        predictions(match, model, results[model], rounds, [250, 500, 1000, 2000])
        _say(model, results[model])
    return results


def measure(match: Match, rounds: int, quick: bool) -> dict[str, Any]:
    results: dict[str, Any] = {"agreement": agreement(match)}
    print("agreement", json.dumps(results["agreement"], indent=1), flush=True)
    for model in RIVALS:
        part: dict[str, Any] = {}
        results[model] = part
        largest = 1000 if quick else 2000
        part["training n"] = {
            n: match.rounds(rounds, "train", model, n=n, m=1000) for n in (25, 50, 100, 200)
        }
        part["training m"] = {
            m: match.rounds(
                rounds if m <= 1000 else min(rounds, 2), "train", model, n=200, m=m, key=f"{m}"
            )
            for m in (250, 500, 1000, 2000)
            if m <= largest
        }
        _say(model, part)
        predictions(match, model, part, rounds, list(part["training m"]))
        _say(model, part)
        for count, name in ((1, "relax 1"), (30, "relax 30")):
            answers = {}
            if count == 1:
                answers = match.rounds(
                    min(rounds, 2), "relax", model, of=1000, count=1, steps=200, fmax=1e-4
                )
            else:  # ours together; the peer takes structures one by one, as measured above
                for own in RIVALS[model]:
                    asked = {"of": 1000, "count": 30, "steps": 200, "fmax": 1e-4}
                    found = [match.ask("nugget", "relax", own, asked) for _ in range(rounds)]
                    answers[own] = summary(found, found)
            part[name] = answers
        part["relax to 0.05"] = match.rounds(
            1, "relax", model, of=1000, count=3, steps=200, fmax=0.05
        )
        part["iteration"] = match.rounds(
            1, "iteration", model, n=200, m=1000, candidates=10, steps=100
        )
        _say(model, part)
    results["memory MB"] = memory(match)
    results["start"] = start_up(
        {
            "import agox": [str(PYTHON["agox"]), "-c", "import agox"],
            "agox's model, descriptor and acquisitor": [
                str(PYTHON["agox"]),
                "-c",
                "from agox.models.GPR import SparseGPREnsemble\n"
                "from agox.models.descriptors import SOAP\n"
                "from agox.acquisitors import LowerConfidenceBoundAcquisitor",
            ],
            "import nugget": [str(PYTHON["nugget"]), "-c", "import nugget"],
            "nugget's model, descriptor and relax": [
                str(PYTHON["nugget"]),
                "-c",
                "from nugget import Potential, SOAP\nfrom nugget.relax import relax",
            ],
            "nugget --help": [str(PYTHON["nugget"].with_name("nugget")), "--help"],
        },
        3,
    )
    return results


def _say(model: str, part: dict[str, Any]) -> None:
    last = list(part)[-1]
    print(f"{time.strftime('%H:%M:%S')} {model}: {last} done", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, no m = 2000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--predictions", action="store_true", help="only these, into the last full run's results"
    )
    chosen = parser.parse_args()
    if not PYTHON["agox"].exists():
        raise SystemExit("There is no .venv-peers; `make bench-peers` makes it.")
    with tempfile.TemporaryDirectory() as directory:
        match = Match(Path(directory))
        load = os.getloadavg()[0]
        try:
            if chosen.predictions:
                results = again(match, chosen.rounds)
            else:
                results = measure(match, 1 if chosen.quick else chosen.rounds, chosen.quick)
        except RuntimeError:
            print((Path(directory) / "log.txt").read_text()[-3000:], file=sys.stderr)
            raise
        finally:
            match.close()  # also when interrupted: the workers end with their pipes
        results["versions"] = match.versions
        results["load"] = [load, os.getloadavg()[0]]
    results["processor"] = _processor()
    OUT.mkdir(exist_ok=True)
    name = "peers-quick" if chosen.quick else "peers"
    (OUT / f"{name}.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    text = markdown(results)
    (OUT / f"{name}.md").write_text(text)
    print(text)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
