"""Evaluate structures with an engine: every failure becomes a record, none stops a search.

`run_engine` is the pure part (here, now, in this process). `Evaluator` runs it in warm processes of
their own with a time limit, see `nugget.evaluation.worker`.
"""

import math
import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Literal, get_args

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, SCFError
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io.jsonio import decode, encode
from ase.optimize import BFGS

from nugget.errors import NuggetError
from nugget.evaluation.engines import get_engine

Failure = Literal["exception", "timeout", "nan", "unconverged", "died"]
FAILURES: tuple[str, ...] = get_args(Failure)

#: What is tried again: deterministic failures would only repeat, but a process may die because
#: somebody else emptied the memory.
RETRY_ON: tuple[Failure, ...] = ("died",)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of one structure.

    On success `atoms` carries energy and forces (without constraints applied) in a
    SinglePointCalculator. On failure it is the structure that was asked for, without results.
    `path` holds the structures on the way, all with results: those before the last one of a
    relaxation if they were asked for, or those before a failure.
    """

    atoms: Atoms
    failure: Failure | None = None
    reason: str = ""
    seconds: float = 0.0
    attempts: int = 1
    path: tuple[Atoms, ...] = ()

    @property
    def ok(self) -> bool:
        """Are there an energy and forces?"""
        return self.failure is None

    @property
    def energy(self) -> float:
        """Energy in eV; only after success."""
        if not self.ok:
            raise NuggetError(f"no energy: the evaluation failed ({self.failure}: {self.reason}).")
        return float(self.atoms.calc.results["energy"])

    def to_json(self) -> str:
        """One line of text, exact to the last bit."""
        return encode(
            {
                "atoms": _atoms_dict(self.atoms),
                "failure": self.failure,
                "reason": self.reason,
                "seconds": self.seconds,
                "attempts": self.attempts,
                "path": [_atoms_dict(atoms) for atoms in self.path],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        """The inverse of `to_json`."""
        data = decode(text)
        return cls(
            atoms=_atoms_from(data["atoms"]),
            failure=data["failure"],
            reason=data["reason"],
            seconds=data["seconds"],
            attempts=data["attempts"],
            path=tuple(_atoms_from(frame) for frame in data["path"]),
        )


def _atoms_dict(atoms: Atoms) -> dict[str, Any]:
    """A structure and its results, without `info` (which may hold anything)."""
    bare = atoms.copy()
    bare.info = {}
    results = {} if atoms.calc is None else dict(atoms.calc.results)
    return {"structure": bare.todict(), "results": results}


def _atoms_from(data: Mapping[str, Any]) -> Atoms:
    structure = data["structure"]
    atoms = structure if isinstance(structure, Atoms) else Atoms.fromdict(structure)
    if data["results"]:
        atoms.calc = SinglePointCalculator(atoms, **data["results"])
    return atoms


@dataclass(frozen=True)
class Task:
    """How structures are evaluated; plain data."""

    engine: str
    options: dict[str, Any]
    relax_steps: int = 0
    relax_fmax: float = 0.05
    keep_path: bool = False


class _NotFinite(Exception):
    pass


class _Unconverged(Exception):
    pass


def run_engine(
    engine: str,
    options: Mapping[str, Any] | None,
    atoms: Atoms,
    relax_steps: int = 0,
    relax_fmax: float = 0.05,
    keep_path: bool = False,
) -> Outcome:
    """Energy and forces of one structure, in this process; exceptions become failures.

    With `relax_steps` the structure first takes up to that many BFGS steps on the engine's surface
    (constraints respected), ending early when the largest force is below `relax_fmax`. The
    calculator is made anew each time, so the result does not depend on what was evaluated before.
    """
    begun = time.perf_counter()
    frames: list[Atoms] = []
    failure: Failure | None = None
    reason = ""
    # Initial charges, moments and constraints stay; an old calculator does not.
    work = atoms.copy()
    try:
        calculator = get_engine(engine).calculator(**dict(options or {}))
        work.calc = calculator
        if relax_steps > 0:
            optimiser = BFGS(work, logfile=None)
            optimiser.attach(lambda: frames.append(_frozen(work, calculator)))
            optimiser.run(fmax=relax_fmax, steps=relax_steps)
        else:
            frames.append(_frozen(work, calculator))
    except _NotFinite as error:
        failure, reason = "nan", str(error)
    except (Exception, SystemExit) as error:
        failure = "unconverged" if _speaks_of_convergence(error) else "exception"
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
    seconds = time.perf_counter() - begun
    if failure is not None:
        return Outcome(atoms.copy(), failure, reason, seconds, path=tuple(frames))
    path = tuple(frames[:-1]) if keep_path else ()
    return Outcome(frames[-1], seconds=seconds, path=path)


def _frozen(atoms: Atoms, calculator: Calculator) -> Atoms:
    """A copy with its results fixed, after a look whether they are any good."""
    energy = float(atoms.get_potential_energy())
    forces = np.array(atoms.get_forces(apply_constraint=False), dtype=np.float64)
    if not math.isfinite(energy):
        raise _NotFinite(f"the energy is {energy}")
    if not np.isfinite(forces).all():
        row = int(np.flatnonzero(~np.isfinite(forces).all(axis=1))[0])
        raise _NotFinite(f"the force on atom {row} is {forces[row].tolist()}")
    if getattr(calculator, "converged", None) is False:
        raise _Unconverged("the calculator says that it has not converged")
    results: dict[str, Any] = {"energy": energy, "forces": forces}
    stress = calculator.results.get("stress")
    if stress is not None and atoms.pbc.all():
        results["stress"] = np.array(stress, dtype=np.float64)
    frozen = atoms.copy()
    frozen.calc = SinglePointCalculator(frozen, **results)
    return frozen


def _speaks_of_convergence(error: BaseException) -> bool:
    """GPAW, tblite, Vasp and others raise errors of their own, but all name the trouble."""
    text = f"{type(error).__name__} {error}"
    return isinstance(error, SCFError) or re.search(r"converge", text, re.IGNORECASE) is not None


class Evaluator:
    """Evaluates structures in processes of their own, with a time limit for each.

    A process stays warm between structures (start-up costs more than a small calculation), runs one
    thread, and is killed and replaced when it hangs or dies. Close it after use, or use `with`.
    """

    def __init__(
        self,
        engine: str,
        options: Mapping[str, Any] | None = None,
        *,
        time_limit: float = 600.0,
        retries: int = 1,
        retry_on: Iterable[Failure] = RETRY_ON,
        relax_steps: int = 0,
        relax_fmax: float = 0.05,
        keep_path: bool = False,
        workers: int = 1,
    ) -> None:
        from nugget.evaluation.worker import Worker

        if not 0 < time_limit < math.inf:
            raise NuggetError(f"time_limit is {time_limit}; give a finite number of seconds.")
        if retries < 0 or relax_steps < 0 or workers < 1:
            raise NuggetError(
                f"retries ({retries}) and relax_steps ({relax_steps}) must not be negative, "
                f"workers ({workers}) must be at least one."
            )
        self.retry_on = tuple(retry_on)
        if unknown := set(self.retry_on) - set(FAILURES):
            raise NuggetError(f"retry_on has {sorted(unknown)}; choose from {', '.join(FAILURES)}.")
        found = get_engine(engine)
        if not found.installed():
            raise NuggetError(
                f"engine {engine!r} is not installed. To install it: {found.how_to_install}"
            )
        self.task = Task(engine, dict(options or {}), relax_steps, relax_fmax, keep_path)
        self.time_limit = time_limit
        self.retries = retries
        self._closed = False
        self._workers = [Worker(self.task) for _ in range(workers)]
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; evaluations under way in other threads come back as "died"."""
        self._closed = True
        for worker in self._workers:
            worker.close()

    def evaluate(self, atoms: Atoms) -> Outcome:
        """One structure. Never raises for what an engine does; safe to call from many threads."""
        if self._closed:
            raise NuggetError("the evaluator is closed; make a new one.")
        begun = time.perf_counter()
        worker = self._free.get()
        try:
            attempts = 1
            outcome = worker.ask(atoms, self.time_limit)
            while outcome.failure in self.retry_on and attempts <= self.retries:
                attempts += 1
                outcome = worker.ask(atoms, self.time_limit)
        finally:
            self._free.put(worker)
        for frame in (outcome.atoms, *outcome.path):
            frame.info = dict(atoms.info)  # stayed here, see _atoms_dict
        return replace(outcome, seconds=time.perf_counter() - begun, attempts=attempts)

    def evaluate_many(self, images: Iterable[Atoms]) -> list[Outcome]:
        """Many structures, side by side if there are several workers; in the order given."""
        if len(self._workers) == 1:
            return [self.evaluate(atoms) for atoms in images]
        pool = ThreadPoolExecutor(len(self._workers))
        try:
            return list(pool.map(self.evaluate, images))
        except BaseException:
            # Ctrl-C: without this the threads would wait for their engines to the end.
            pool.shutdown(wait=False, cancel_futures=True)
            self.close()
            raise
        finally:
            pool.shutdown()
