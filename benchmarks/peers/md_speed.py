"""Steps of dynamics per day: a model learned on the fly, GAP on the same structures, the engine.

    python benchmarks/peers/md_speed.py RUN [RUN ...] --python ENV/bin/python [--structures 10]

RUN is the directory of a finished `nugget md`; ENV holds quippy-ase. GAP has the settings of
worker_gap.py and is fitted to the first structures that the engine has labelled, with 1000 points
or as many as these have atoms. Processor time, one thread, velocity Verlet; nugget also with σ as
in a run that learns (looked at as the atoms move, no calls).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import common  # noqa: E402
from ase import Atoms, units  # noqa: E402
from ase.io import read, write  # noqa: E402
from ase.md.verlet import VelocityVerlet  # noqa: E402
from gap import plain  # noqa: E402

from nugget.engines import make_calculator  # noqa: E402
from nugget.onthefly.learning_calculator import LearningCalculator  # noqa: E402
from nugget.onthefly.molecular_dynamics import MDRun  # noqa: E402
from nugget.potential.potential import Potential  # noqa: E402


def milliseconds(atoms: Atoms, calculator: Any, dt: float, steps: int) -> float:
    """Per step, after two steps that are not counted."""
    atoms = atoms.copy()
    atoms.calc = calculator
    dynamics = VelocityVerlet(atoms, dt * units.fs)
    dynamics.run(2)
    begun = time.process_time()
    for _ in range(steps):
        dynamics.step()
    return 1e3 * (time.process_time() - begun) / steps


def never(atoms: Atoms) -> None:
    """An engine that is not called."""


def gap_ms(python: Path, labelled: list[Atoms], frames: list[Atoms]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        train, out, test = (
            Path(folder) / name for name in ("training.xyz", "out.json", "test.xyz")
        )
        write(train, [plain(a) for a in labelled], format="extxyz")
        write(test, [plain(a) for a in frames], format="extxyz")
        command = [python, HERE / "worker_gap.py", train, out, test]
        subprocess.run(command, check=True)
        return float(json.loads(out.read_text())["test"]["predict_ms"])


def measure(directory: Path, python: Path | None, structures: int) -> dict[str, Any]:
    run = MDRun.resume(directory)
    dt, engine = run.config.dt, run.config.engine.name
    frames = read(directory / "md.extxyz", "-10:")
    labelled = read(directory / "labelled.extxyz", ":")
    potential = Potential.load(directory / "learned.model")
    frozen, looking = (LearningCalculator(potential, never) for _ in range(2))
    frozen.frozen = True
    found = {
        "nugget": milliseconds(frames[-1], frozen, dt, 200),
        "nugget with σ": milliseconds(frames[-1], looking, dt, 100),
        engine: milliseconds(frames[-1], make_calculator(engine), dt, 20),
    }
    if python is not None:
        found["GAP"] = gap_ms(python, labelled[:structures], frames)
    return {
        "run": directory.name, "dt": dt, "atoms": len(frames[-1]),
        "inducing": len(potential.fitted.inducing), "ms": found,
        "ns_per_day": {name: 86.4 * dt / ms for name, ms in found.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--python", type=Path, help="of the environment of GAP")
    parser.add_argument("--structures", type=int, default=10, help="that GAP is fitted to")
    args = parser.parse_args()
    results = [measure(run, args.python, args.structures) for run in args.runs]
    rows = [
        [r["run"], r["atoms"], name, f"{ms:.2f}", f"{r['ns_per_day'][name]:.3g}"]
        for r in results
        for name, ms in r["ms"].items()
    ]
    common.table("Dynamics", ["run", "atoms", "", "ms per step", "ns/day"], rows)
    common.save("md_speed", results)


if __name__ == "__main__":
    main()
