"""Commands that are killed with SIGKILL at chosen events, resumed, and compared with a whole run.

    python benchmarks/kills.py [COMMAND ...] [--kills 20] [--seed 0] [--out DIR]

An event is a file of the run directory that is opened for writing, renamed, removed or locked, as
Python's audit hooks report it. A run that is not disturbed counts the events; the kills are spread
over them at random. After each kill the command is resumed to its end. Then the results must have
the same bits as those of the whole run, no temporary file or scratch directory may remain, and no
process of the run may be alive. Finished kills are kept in DIR and are not repeated. Writes
results/kills.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from ase.build import add_adsorbate, bulk, fcc100
from ase.constraints import FixAtoms
from ase.io import read, write

# Imported by every Python process that has its directory on PYTHONPATH; the command counts.
HOOK = """
import os, signal, sys

if os.environ.get("KILL_RUN") and "KILL_PID" not in os.environ:  # not in processes of its own
    os.environ["KILL_PID"] = str(os.getpid())
    run, limit, count = os.environ["KILL_RUN"], int(os.environ["KILL_AT"]), 0
    names = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "fcntl.flock", "fcntl.lockf"}

    def hook(event, arguments):
        global count
        if event not in names:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & 3):
            return
        if not event.startswith("fcntl") and run not in str(arguments[0]):
            return
        count += 1
        if count == limit:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)

    def report():
        with open(os.environ["KILL_COUNT"], "w") as file:
            file.write(str(count))

    import atexit
    atexit.register(report)
"""


@dataclass(frozen=True)
class Command:
    """How to start and resume a run, and what of its directory must have the same bits."""

    start: list[str]
    resume: list[str]
    results: Callable[[Path], list[Any]]
    out: str = "run"


def structures(path: Path) -> list[Any]:
    """Positions, cells, and energies of the structures of a file."""
    return [
        [a.get_chemical_formula(), a.positions.tolist(), a.cell.array.tolist(), energy(a)]
        for a in read(path, ":")
    ]


def energy(atoms: Atoms) -> float | None:
    return None if atoms.calc is None else float(atoms.calc.results["energy"])


def search_results(run: Path) -> list[Any]:
    return [*structures(run / "search.db"), *structures(run / "best.extxyz")]


def files(*names: str) -> Callable[[Path], list[Any]]:
    return lambda run: [one for name in names for one in structures(run / name)]


def campaign_results(run: Path) -> list[Any]:
    return [one for path in sorted(run.rglob("search.db")) for one in structures(path)]


def commands() -> dict[str, Command]:
    """Small runs of every command that can be resumed; they read the files of `inputs`."""
    small = ["search.candidates=4", "search.walkers=0", "search.explore=1", "search.polish=1"]
    settings = [word for text in small for word in ("--set", text)]
    search = ["--engine", "emt", "--budget", "8", "--seed", "5", *settings]
    resumed = ["search", "--resume", "run"]
    return {
        "search": Command(["search", "Au6", *search], resumed, search_results),
        "in flight": Command(
            ["search", "Au7", *search, "--set", "search.in_flight=2", "--set",
             "execution.kind=processes"], resumed, lambda run: []),
        "slab": Command(
            ["search", "Cu2", "--template", "slab.traj", *search], resumed, search_results),
        "crystal": Command(["search", "Cu2Au", "--crystal", *search[:-2]], resumed, search_results),
        "campaign": Command(
            ["campaign", "Au6", "--repeats", "2", "--executor", "in-process", *search],
            ["campaign", "--resume", "run"], campaign_results),
        "md": Command(
            ["md", "cu.extxyz", "--engine", "emt", "--steps", "40", "--every", "10", "--seed", "1"],
            ["md", "--resume", "run"], files("md.extxyz", "labelled.extxyz")),
        "neb": Command(
            ["neb", "a.traj", "b.traj", "--engine", "emt"],
            ["neb", "--resume", "run"], files("path.extxyz", "labelled.extxyz")),
        "label": Command(
            ["label", "pool.extxyz", "--engine", "emt"],
            ["label", "pool.extxyz", "--engine", "emt"], structures, "run.extxyz"),
    }  # fmt: skip


def inputs(directory: Path) -> None:
    """The files that the commands read."""
    slab = fcc100("Al", (2, 2, 2), vacuum=6.0)
    slab.set_constraint(FixAtoms([atom.index for atom in slab if atom.tag == 2]))
    for name, offset in (("a", (0, 0)), ("b", (1, 0))):
        end = slab.copy()
        add_adsorbate(end, "Au", 1.7, "hollow", offset=offset)
        write(directory / f"{name}.traj", end)
    write(directory / "slab.traj", slab)
    cu = bulk("Cu", cubic=True).repeat((2, 2, 1))
    write(directory / "cu.extxyz", cu)
    rng = np.random.default_rng(0)
    pool = [cu.copy() for _ in range(8)]
    for atoms in pool:
        atoms.rattle(0.1, rng=rng)
    write(directory / "pool.extxyz", pool)


def run(command: list[str], here: Path, hook: Path, at: int = 0) -> tuple[int, int]:
    """Exit code of a command in a directory and its number of events; killed at event `at`."""
    count = here / "events"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(hook), os.environ.get("PYTHONPATH", "")]),
        "KILL_RUN": str(here),
        "KILL_AT": str(at),
        "KILL_COUNT": str(count),
        "TMPDIR": str(here / "scratch"),
    }
    (here / "scratch").mkdir(exist_ok=True)
    with (here / "output").open("ab") as output:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("nugget")), *command], cwd=here, env=environment,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        code = process.wait()
    return code, int(count.read_text()) if count.exists() else 0


def remains(here: Path, session: str) -> list[str]:
    """Temporary files, scratch directories and processes that a finished run left behind."""
    left = [p.name for p in here.rglob("*") if p.suffix == ".tmp" or p.name.startswith(".tmp")]
    left += [f"scratch/{p.name}" for p in (here / "scratch").iterdir()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if session.encode() in environment:
                left.append(f"process {entry.name}")
    return left


def digest(results: list[Any]) -> str:
    return hashlib.sha256(json.dumps(results).encode()).hexdigest()


def drill(name: str, command: Command, kills: int, seed: int, out: Path) -> list[dict[str, Any]]:
    """Kill a command at events drawn at random; one row for each kill."""
    place = out / name.replace(" ", "_")
    log = place / "rows.json"
    rows: list[dict[str, Any]] = json.loads(log.read_text()) if log.exists() else []
    place.mkdir(parents=True, exist_ok=True)
    hook = place / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(HOOK)
    start = [*command.start, "--out", command.out]
    whole = place / "whole"
    if not (whole / "events").exists():
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        inputs(whole)
        code, _ = run(start, whole, hook)
        if code:
            raise SystemExit(f"{name} ended with {code}: see {whole / 'output'}")
    expected = digest(command.results(whole / command.out))
    events = int((whole / "events").read_text())
    moments = np.random.default_rng([seed, len(name)]).integers(1, events + 1, kills)
    for k in range(len(rows), kills):
        here = place / f"kill{k}"
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir()
        inputs(here)
        code, _ = run(start, here, hook, int(moments[k]))
        killed = code == -signal.SIGKILL
        resumable = (here / command.out).exists()
        code, _ = run(command.resume if resumable and command.out == "run" else start, here, hook)
        if code and command.out == "run":  # killed before the run existed
            shutil.rmtree(here / command.out, ignore_errors=True)
            code, _ = run(start, here, hook)
        same = code == 0 and digest(command.results(here / command.out)) == expected
        rows.append(
            {"event": int(moments[k]), "killed": killed, "exit": code, "same": same,
             "remains": remains(here, str(here))}
        )  # fmt: skip
        print(name, k, rows[-1], flush=True)
        log.write_text(json.dumps(rows))
        if same and not rows[-1]["remains"]:
            shutil.rmtree(here)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = commands()
    parser.add_argument("commands", nargs="*", choices=[*every, []])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "kills")
    chosen = parser.parse_args()
    results = {
        name: drill(name, every[name], chosen.kills, chosen.seed, chosen.out.resolve())
        for name in chosen.commands or every
    }
    common.table(
        "Commands killed at events of their files and resumed",
        ["command", "killed", "same bits", "nothing left"],
        [
            [name, sum(r["killed"] for r in rows), sum(r["same"] for r in rows),
             sum(not r["remains"] for r in rows)]
            for name, rows in results.items()
        ],
    )  # fmt: skip
    common.save("kills", results)


if __name__ == "__main__":
    sys.exit(main())
