"""Commands that are killed with SIGKILL at chosen events, resumed, and compared with a whole run.

    python benchmarks/kills.py [COMMAND ...] [--share 1.0] [--seed 0] [--out DIR]

An event is a file of the run directory that is opened for writing, renamed, removed or locked, a
database that is opened, or a process that is started, as Python's audit hooks report it. A run that
is not disturbed counts the events; the kills are spread over them at random, half of them up to
50 ms after the event. After each kill no process of the run may be alive, and the command is
resumed to its end, or given again if it cannot be resumed. Then the results must have the same bits
as those of the whole run, the directory must contain the same files, no temporary file or scratch
directory may remain, no lock may be held, and no process may be alive. With several evaluations in
flight the order of completion decides what is proposed. There, all rows recorded before the kill
must be in the final database, and a replay must give all bits again. Finished kills are kept in DIR
and in results/kills.json and are not repeated. Without these, all begins anew.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from ase.build import add_adsorbate, bulk, fcc100
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms
from ase.io import read, write

from nugget.search.search import Search

RESULTS = common.RESULTS / "kills.json"

# Imported by every Python process that has its directory on PYTHONPATH. Only the command counts its
# events, or all of its processes together.
HOOK = """
import os, signal, sys, threading, time

ALL = os.environ.get("KILL_ALL") == "1"
if os.environ.get("KILL_RUN") and (ALL or "KILL_PID" not in os.environ):
    command = os.environ.setdefault("KILL_PID", str(os.getpid()))
    mine = str(os.getpid())
    run, limit = os.environ["KILL_RUN"], int(os.environ["KILL_AT"])
    log = os.open(os.environ["KILL_COUNT"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    names = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "sqlite3.connect"}
    anywhere = {"fcntl.flock", "fcntl.lockf", "subprocess.Popen"}

    def kill():
        if ALL:
            os.killpg(int(command), signal.SIGKILL)  # the command leads a session
        os.kill(os.getpid(), signal.SIGKILL)

    def later():
        time.sleep(float(os.environ["KILL_DELAY"]))
        kill()

    def inside(name):
        if isinstance(name, (str, bytes, os.PathLike)):
            return os.path.abspath(os.fsdecode(name)).startswith(run)
        return False

    def hook(event, arguments):
        if not ALL and str(os.getpid()) != mine:  # a fork
            return
        if event not in anywhere:
            if event not in names or not inside(arguments[0]):
                return
            if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & 3):
                return
        os.write(log, b".")
        count = os.fstat(log).st_size
        if count == limit or (ALL and 0 < limit < count):
            if os.environ["KILL_DELAY"] == "0":
                kill()
            threading.Thread(target=later, daemon=True).start()

    sys.addaudithook(hook)
"""


@dataclass(frozen=True)
class Command:
    """How to start and resume a run, and what of its directory must have the same bits.

    `before` is a command that is run, undisturbed, first. `kept` are the rows that a kill must not
    change, where the results depend on the order of completion. With `everything`, the events of
    all its processes count, and all of them are killed, as by a power failure.
    """

    kills: int
    start: list[str]
    resume: list[str]
    results: Callable[[Path], list[Any]]
    out: str = "run"
    before: list[str] | None = None
    kept: Callable[[Path], list[Any]] | None = None
    everything: bool = False


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


def rows_of(run: Path) -> list[Any]:
    """The rows of a search at this moment; the directory itself is not touched."""
    with tempfile.TemporaryDirectory() as copy:
        if not (run / "search.db").exists():
            return []
        for file in run.glob("search.db*"):
            shutil.copy(file, copy)
        try:
            return structures(Path(copy) / "search.db")
        except Exception:  # the tables are not written yet
            return []


def replayed(run: Path) -> list[Any]:
    """Whether all proposals are made again with all bits, and the number of evaluations."""
    again = Search.replay(run)
    return [again.same, len(Search.resume(run).store.records())]


def files(*names: str) -> Callable[[Path], list[Any]]:
    return lambda run: [one for name in names for one in structures(run / name)]


def content(path: Path) -> list[Any]:
    """The bytes of a file."""
    return [hashlib.sha256(path.read_bytes()).hexdigest()]


def arrays(path: Path) -> list[Any]:
    """The arrays of a model file; its header contains the time of writing."""
    with np.load(path) as model:
        names = sorted({*model.files} - {"header", "checksum"})
        return [[name, hashlib.sha256(model[name].tobytes()).hexdigest()] for name in names]


def campaign_results(run: Path) -> list[Any]:
    return [one for path in sorted(run.rglob("search.db")) for one in structures(path)]


def commands() -> dict[str, Command]:
    """Small runs of every command; they read the files of `inputs`."""
    small = ["search.candidates=4", "search.walkers=0", "search.explore=1", "search.polish=1",
             "search.initial=3", "search.relax_steps=20",
             "model.cutoff=4.5", "model.n_max=2", "model.l_max=2"]  # fmt: skip
    settings = [word for text in small for word in ("--set", text)]
    search = ["--engine", "emt", "--seed", "5", *settings]
    resumed = ["search", "--resume", "run"]
    flight = ["--set", "search.in_flight=3", "--set", "execution.kind=processes"]
    campaign = ["campaign", "Au6", "--repeats", "2", *search, "--budget", "4"]
    label = ["label", "pool.extxyz", "--engine", "emt"]
    fit = ["fit", "train.extxyz", "--preset", "quick", "--points", "60", "--force"]
    relax = ["relax", "pool.extxyz", "--engine", "emt", "--force"]
    select = ["select", "train.extxyz", "-n", "3", "--force"]
    return {
        "search": Command(24, ["search", "Au6", *search, "--budget", "6"], resumed, search_results),
        "in flight": Command(
            20, ["search", "Au6", *search, *flight, "--budget", "8"], resumed, replayed,
            kept=rows_of),
        "resumed search": Command(
            20, [*resumed, "--budget", "7"], [*resumed, "--budget", "7"], search_results,
            before=["search", "Au6", *search, "--budget", "5"]),
        "slab": Command(
            10, ["search", "Cu2", "--template", "slab.traj", *search, "--budget", "5"], resumed,
            search_results),
        "crystal": Command(
            14, ["search", "Cu2", "--crystal", *search, "--budget", "5"], resumed, search_results),
        "vary": Command(
            12, ["search", "--vary", "Cu:2-3", *search, "--budget", "5", "--set",
                 "system.chemical_potential=Cu=-3.5:-1.0"], resumed, search_results),
        "campaign": Command(10, campaign, ["campaign", "--resume", "run"], campaign_results),
        "campaign with workers": Command(
            14, campaign, ["campaign", "--resume", "run"], campaign_results, everything=True),
        "md": Command(
            16, ["md", "cu.extxyz", "--engine", "emt", "--steps", "20", "--every", "10", "--seed",
                 "1"], ["md", "--resume", "run"], files("md.extxyz", "labelled.extxyz")),
        "neb": Command(
            14, ["neb", "a.traj", "b.traj", "--engine", "emt"], ["neb", "--resume", "run"],
            files("path.extxyz", "labelled.extxyz")),
        "saddle": Command(
            14, ["saddle", "a.traj", "--engine", "emt"], ["saddle", "--resume", "run"],
            files("saddle.extxyz", "labelled.extxyz")),
        "dataset": Command(
            14, ["dataset", "Au5", "-n", "6", "--engine", "emt", "--relax-steps", "1", "--split",
                 "3:2:1"],
            ["dataset", "--resume", "run"],
            files("train.extxyz", "validation.extxyz", "test.extxyz")),
        "label": Command(12, label, label, structures, "run.extxyz"),
        "relax": Command(10, relax, relax, structures, "run.extxyz"),
        "fit": Command(6, fit, fit, arrays, "run.model"),
        "select": Command(6, select, select, content, "run.extxyz"),
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
    write(directory / "pool.extxyz", pool[:3])
    for atoms in pool:
        atoms.calc = EMT()
        atoms.get_forces()
    write(directory / "train.extxyz", pool)


def run(
    command: list[str],
    here: Path,
    hook: Path,
    at: int = 0,
    delay: float = 0.0,
    everything: bool = False,
) -> tuple[int, int]:
    """Exit code of a command in a directory and its number of events.

    It is killed `delay` seconds after event `at`.
    """
    count = here / "events"
    count.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(hook), os.environ.get("PYTHONPATH", "")]),
        "KILL_RUN": str(here),
        "KILL_AT": str(at),
        "KILL_DELAY": f"{delay:g}",
        "KILL_COUNT": str(count),
        "KILL_ALL": str(int(everything)),
        "TMPDIR": str(here / "tmp"),
    }
    (here / "tmp").mkdir(exist_ok=True)
    with (here / "output").open("ab") as output:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("nugget")), *command], cwd=here, env=environment,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        code = process.wait()
    return code, count.stat().st_size


def processes(session: str) -> list[str]:
    """Processes of a run that are still alive 10 s after its end."""
    end = time.monotonic() + 10.0
    while True:
        alive = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environment = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if f"KILL_RUN={session}\0".encode() in environment:
                    alive.append(f"process {entry.name}")
        if not alive or time.monotonic() > end:
            return alive
        time.sleep(0.1)


def names(here: Path) -> set[str]:
    """All files and directories of a run, without those of this program."""
    found = {str(path.relative_to(here)) for path in here.rglob("*")}
    return found - {"events", "output", "tmp"}


def remains(here: Path, whole: Path) -> list[str]:
    """Whatever differs from the files of the whole run, locks that are held, and processes."""
    left = [f"{name} is left" for name in sorted(names(here) - names(whole))]
    left += [f"{name} is missing" for name in sorted(names(whole) - names(here))]
    for lock in here.rglob("lock"):
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                left.append(f"{lock.name} is held")
    return left + processes(str(here))


def digest(results: list[Any]) -> str:
    return hashlib.sha256(json.dumps(results).encode()).hexdigest()


def prepared(command: Command, here: Path, hook: Path) -> None:
    """A fresh directory with the files that the command needs."""
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir()
    inputs(here)
    if command.before is not None:
        template = here.with_name("before")
        if not template.exists():
            template.mkdir()
            run([*command.before, "--out", "run"], template, hook)
        shutil.copytree(template / "run", here / "run")


def killed_once(
    command: Command, start: list[str], here: Path, whole: Path, hook: Path, at: int, delay: float
) -> dict[str, Any]:
    """Kill a command once, bring it to its end, and compare with the whole run."""
    code, _ = run(start, here, hook, at, delay, command.everything)
    row: dict[str, Any] = {"event": at, "delay": delay, "killed": code == -signal.SIGKILL}
    orphans, out = processes(str(here)), here / command.out
    kept = [] if command.kept is None else command.kept(out)
    again = start if command.out != "run" or not out.exists() else command.resume
    code, _ = run(again, here, hook)
    if code == 2 and again is not start:  # killed before there was a run to resume
        code, _ = run(start, here, hook)
        row["begun again"] = True
    row |= {"exit": code, "same": False, "remains": orphans + remains(here, whole)}
    if code == 0:
        row["same"] = digest(command.results(out)) == digest(command.results(whole / command.out))
        if command.kept is not None:
            row["same"] &= command.kept(out)[: len(kept)] == kept
    return row


def recorded(name: str) -> list[dict[str, Any]]:
    """The kills of a command in the results."""
    if not RESULTS.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text())["results"].get(name, [])
    return rows


def whole_run(command: Command, start: list[str], whole: Path, hook: Path) -> int:
    """The number of events of a run that is not disturbed; it stays in `whole`."""
    file = whole.with_name("count")
    if not file.exists():
        prepared(command, whole, hook)
        code, events = run(start, whole, hook, everything=command.everything)
        if code:
            raise SystemExit(f"{start[0]} ended with {code}: see {whole / 'output'}")
        file.write_text(str(events))
    return int(file.read_text())


def drill(
    name: str, command: Command, share: float, seed: int, out: Path, again: bool = False
) -> list[dict[str, Any]]:
    """Kill a command at events drawn at random; one row for each kill.

    Commands that ended before their kill do not count, so others follow. With `again`, kills that
    were not clean before are repeated.
    """
    place = out / name.replace(" ", "_")
    log = place / "rows.json"
    rows: list[dict[str, Any]] = json.loads(log.read_text()) if log.exists() else recorded(name)
    hook = place / "hook"
    hook.mkdir(parents=True, exist_ok=True)
    (hook / "sitecustomize.py").write_text(HOOK)
    option = "--out" if command.out == "run" else "-o"
    start = command.start if command.before else [*command.start, option, command.out]
    whole, kills = place / "whole", max(round(share * command.kills), 1)
    again = again and not all(clean(row) for row in rows)
    if not again and sum(row["killed"] for row in rows) >= kills:
        return rows
    events = whole_run(command, start, whole, hook)
    for k in range(3 * kills):
        if k < len(rows) and (clean(rows[k]) or not again):
            continue
        if sum(row["killed"] for row in rows[:k]) >= kills:
            break
        here, (at, delay) = place / f"kill{k}", moment(name, seed, k, events)
        prepared(command, here, hook)
        row = killed_once(command, start, here, whole, hook, at, delay)
        rows[k : k + 1] = [row]
        print(name, k, row, flush=True)
        log.write_text(json.dumps(rows))
        if clean(row):
            shutil.rmtree(here)
    return rows


def clean(row: dict[str, Any]) -> bool:
    return row["same"] and not row["remains"]


def moment(name: str, seed: int, k: int, events: int) -> tuple[int, float]:
    """The event and the delay of kill `k`; every event has its turn before one is repeated."""
    rng = np.random.default_rng([seed, *name.encode(), k // events])
    event = int(rng.permutation(events)[k % events]) + 1
    rng = np.random.default_rng([seed, *name.encode(), k])
    return event, round(float(rng.choice([0.0, rng.uniform(0.0, 0.05)])), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = commands()
    parser.add_argument("commands", nargs="*", choices=[*every, []])
    parser.add_argument("--share", type=float, default=1.0, help="of the kills of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="repeat kills that were not clean")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "kills")
    chosen = parser.parse_args()
    results = {
        name: drill(
            name, every[name], chosen.share, chosen.seed, chosen.out.resolve(), chosen.again
        )
        for name in chosen.commands or every
    }
    common.table(
        "Commands killed at events of their files and resumed",
        ["command", "kills", "killed", "same bits", "nothing left"],
        [
            [name, len(rows), sum(r["killed"] for r in rows), sum(r["same"] for r in rows),
             sum(not r["remains"] for r in rows)]
            for name, rows in results.items()
        ],
    )  # fmt: skip
    common.save("kills", {name: results.get(name) or recorded(name) for name in every})


if __name__ == "__main__":
    sys.exit(main())
