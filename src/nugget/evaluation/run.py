"""Run an engine on one structure, here and now; every failure becomes an outcome."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, SCFError
from ase.calculators.singlepoint import SinglePointCalculator
from ase.optimize import BFGS

from nugget.errors import NuggetError
from nugget.evaluation.engines import Electrons, get_engine
from nugget.evaluation.outcome import Failure, Outcome


@dataclass(frozen=True)
class Task:
    """How structures are evaluated; plain data.

    `start` is the directory where nugget was started: modules of engines are looked for there too.
    """

    engine: str
    options: dict[str, Any] = field(default_factory=dict)
    charge: int = 0
    spin: int | None = None
    magmoms: dict[str, float] = field(default_factory=dict)
    vacuum: float | None = None
    relax_steps: int = 0
    relax_fmax: float = 0.05
    keep_path: bool = False
    stress: bool = False
    start: str = ""

    @property
    def electrons(self) -> Electrons:
        """Charge and spin."""
        return Electrons(self.charge, self.spin, self.magmoms)

    def calculator(self) -> Calculator:
        """A fresh calculator."""
        engine = get_engine(self.engine, self.start or None)
        options = {key: _located(value, self.start) for key, value in self.options.items()}
        return engine.calculator(self.electrons, self.vacuum, **options)


def _located(value: Any, start: str) -> Any:
    """Text that begins with ./ or ../ is a path from where nugget was started."""
    if isinstance(value, str) and start and value.startswith(("./", "../")):
        return os.path.normpath(os.path.join(start, value))
    if isinstance(value, Mapping):
        return {key: _located(item, start) for key, item in value.items()}
    return value


class _Bad(Exception):
    """Results that cannot be used."""

    def __init__(self, kind: Failure, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def run_engine(
    engine: str, options: Mapping[str, Any] | None, atoms: Atoms, **settings: Any
) -> Outcome:
    """Evaluate one structure in this process; `settings` are those of `Task`."""
    return run_task(Task(engine, dict(options or {}), **settings), atoms)


def run_task(task: Task, atoms: Atoms, directory: Path | None = None) -> Outcome:
    """Energy and forces of one structure, in this process; exceptions become failures.

    With `relax_steps` the structure first takes up to that many BFGS steps on the engine's surface
    (constraints respected), ending early when the largest force is below `relax_fmax`. The
    calculator is made anew each time, so the result does not depend on what was evaluated before.
    Files go to `directory`, if the calculator knows the notion.
    """
    begun = time.perf_counter()
    frames: list[Atoms] = []
    failure: Failure | None = None
    reason = ""
    # Initial charges, moments and constraints stay; an old calculator does not.
    work = atoms.copy()
    try:
        calculator = task.calculator()
        if directory is not None:
            _set_directory(calculator, directory)
        if task.magmoms:
            work.set_initial_magnetic_moments([task.magmoms.get(s, 0.0) for s in work.symbols])
        as_given = atoms.has("initial_magmoms") or not task.magmoms

        def keep() -> None:
            if task.stress and work.pbc.all():
                with contextlib.suppress(PropertyNotImplementedError):
                    work.get_stress(apply_constraint=False)
            frames.append(_frozen(work, calculator, as_given))

        work.calc = calculator
        if task.relax_steps > 0:
            optimiser = BFGS(work, logfile=None)
            optimiser.attach(keep)
            optimiser.run(fmax=task.relax_fmax, steps=task.relax_steps)
        else:
            keep()
    except _Bad as error:
        failure, reason = error.kind, str(error)
    except (Exception, SystemExit) as error:
        failure, reason = _failure(task, error, directory)
    seconds = time.perf_counter() - begun
    if failure is not None:
        return Outcome(atoms.copy(), failure, reason, seconds, path=tuple(frames))
    path = tuple(frames[:-1]) if task.keep_path else ()
    return Outcome(frames[-1], seconds=seconds, path=path)


def _failure(task: Task, error: BaseException, directory: Path | None) -> tuple[Failure, str]:
    """Kind and reason of an error, in the words of the engine's own output if it has any."""
    text = " ".join(str(error).split())
    reason = text if isinstance(error, NuggetError) else f"{type(error).__name__}: {text}"
    unconverged = _speaks_of_convergence(error)
    explain = None if isinstance(error, NuggetError) else _explain(task)
    if directory is not None and explain is not None and (told := explain(directory)) is not None:
        unconverged, reason = told
    return "unconverged" if unconverged else "exception", reason[:500]


def _explain(task: Task) -> Callable[[Path], tuple[bool, str] | None] | None:
    with contextlib.suppress(Exception):  # what is wrong with it stands in the error already
        return get_engine(task.engine, task.start or None).explain
    return None


def _set_directory(calculator: Any, directory: Path) -> None:
    while calculator is not None:  # a box has the calculator inside it
        if hasattr(calculator, "directory"):
            calculator.directory = directory
        calculator = getattr(calculator, "inner", None)


def _frozen(atoms: Atoms, calculator: Calculator, keep_magmoms: bool) -> Atoms:
    """A copy with its results fixed, after a look whether they are any good."""
    # Forces first: codes that compute only what is wanted then run once.
    forces = _numbers(atoms.get_forces(apply_constraint=False), "forces")
    energy = _numbers(atoms.get_potential_energy(), "energy")
    if energy.ndim != 0:
        raise _Bad("invalid", f"the energy is no number but has the shape {energy.shape}")
    if forces.shape != (len(atoms), 3):
        raise _Bad("invalid", f"the forces have the shape {forces.shape}, not ({len(atoms)}, 3)")
    if not math.isfinite(energy):
        raise _Bad("nan", f"the energy is {energy}")
    if not np.isfinite(forces).all():
        row = int(np.flatnonzero(~np.isfinite(forces).all(axis=1))[0])
        raise _Bad("nan", f"the force on atom {row} is {forces[row].tolist()}")
    if getattr(calculator, "converged", None) is False:
        raise _Bad("unconverged", "the calculator says that it has not converged")
    results: dict[str, Any] = {"energy": float(energy), "forces": forces}
    stress = getattr(calculator, "results", {}).get("stress")
    if stress is not None and atoms.pbc.all():
        results["stress"] = _checked_stress(stress)
    frozen = atoms.copy()
    if not keep_magmoms:
        del frozen.arrays["initial_magmoms"]
    frozen.calc = SinglePointCalculator(frozen, **results)
    return frozen


def _numbers(value: Any, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise _Bad(
            "invalid", f"the {name} cannot be read as numbers ({type(value).__name__})"
        ) from None


def _checked_stress(stress: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """In Voigt order, as ASE keeps it."""
    found = _numbers(stress, "stress components")
    if found.shape not in ((6,), (3, 3)):
        raise _Bad("invalid", f"the stress has the shape {found.shape}, not (6,) or (3, 3)")
    if not np.isfinite(found).all():
        raise _Bad("nan", f"the stress is {found.tolist()}")
    if found.shape == (6,):
        return found
    return np.array([found[i, j] for i, j in ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))])


def _speaks_of_convergence(error: BaseException) -> bool:
    """GPAW, tblite, Vasp and others raise errors of their own, but all name the trouble."""
    text = f"{type(error).__name__} {error}"
    return isinstance(error, SCFError) or re.search(r"converge", text, re.IGNORECASE) is not None
