"""Run an engine on one structure in this process; every error becomes an outcome.

A `Task` contains all that an evaluation needs besides the structure. It serialises itself, so that
the queue, the runner, its child processes and Dask workers all share this one object.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, SCFError
from ase.calculators.singlepoint import SinglePointCalculator
from ase.optimize import BFGS
from pydantic import Field

from nugget.engines.engine import Electrons, Engine, get_engine, start_directory
from nugget.engines.engine_settings import EngineConfig, ExecutionConfig
from nugget.engines.outcome import Failure, Outcome
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats

SCRATCH = "scratch"  # inside the directory of the results


class Task(EngineConfig):
    """The settings of an engine, and what is not in a settings file."""

    start: str = Field(
        default_factory=start_directory,
        description="directory in which nugget was started; engine modules are also searched there",
    )
    relax_fmax: float = Field(0.05, gt=0, description="force at which relax_steps end early, eV/Å")
    keep_path: bool = Field(False, description="return all structures of a relaxation")

    @classmethod
    def of(cls, engine: EngineConfig, directory: Path | None = None) -> Task:
        """The task for these settings; results go to `directory`.

        The engine's files go to scratch/ in that directory, unless the settings name a place.
        """
        settings = engine.model_dump()
        if engine.scratch is None and directory is not None:
            settings["scratch"] = str(directory.absolute() / SCRATCH)
        return cls(**settings)

    def to_json(self) -> str:
        """One line of text."""
        return json.dumps(self.model_dump())

    @classmethod
    def from_json(cls, text: str) -> Task:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))

    @property
    def electrons(self) -> Electrons:
        """Charge and spin."""
        return Electrons(self.charge, self.spin, self.magmoms)

    def engine(self) -> Engine:
        """The engine; may import the module of `module:factory`."""
        return get_engine(self.name, self.start or None)

    def calculator(self) -> Calculator:
        """A fresh calculator."""
        options = {key: _located(value, self.start) for key, value in self.options.items()}
        return self.engine().calculator(self.electrons, self.vacuum, **options)

    def check(self, execution: ExecutionConfig | None = None) -> None:
        """Raise NuggetError if the engine cannot run or does not support charge or spin.

        It must be installed here, unless `execution` says that it runs elsewhere: jobs have modules
        and variables of their own, and the first one ends the run if something is missing there.
        May import the module of `module:factory`: call `require_trust` first.
        """
        engine = self.engine()
        if execution is None or not execution.is_elsewhere:
            engine.require(self.options)
        engine.full_options(self.options, self.electrons)


def _located(value: Any, start: str) -> Any:
    """Text that begins with ./ or ../ is a path relative to the start directory."""
    if isinstance(value, str) and start and value.startswith(("./", "../")):
        return os.path.normpath(os.path.join(start, value))
    if isinstance(value, Mapping):
        return {key: _located(item, start) for key, item in value.items()}
    return value


class _Unusable(Exception):
    """Results that cannot be used."""

    def __init__(self, failure: Failure, reason: str) -> None:
        super().__init__(reason)
        self.failure = failure


def run_task(task: Task, atoms: Atoms, directory: Path | None = None) -> Outcome:
    """Energy and forces of one structure, in this process; exceptions become failures.

    With `relax_steps` the structure first takes up to that number of BFGS steps with the engine
    (constraints are respected), and ends early when the largest force is below `relax_fmax`. Each
    call creates a new calculator, so that results do not depend on earlier evaluations. Files go
    to `directory` if the calculator has such an attribute.
    """
    start = time.perf_counter()
    frames: list[Atoms] = []
    failure: Failure | None = None
    reason = ""
    # Initial charges, moments and constraints stay; an old calculator does not.
    work = atoms.copy()
    try:
        if not work.pbc.any():
            task.electrons.check_spin(work.numbers)
        calculator = task.calculator()
        if directory is not None:
            _set_directory(calculator, directory)
        if task.magmoms:
            work.set_initial_magnetic_moments([task.magmoms.get(s, 0.0) for s in work.symbols])
        keep_magmoms = atoms.has("initial_magmoms") or not task.magmoms

        def keep() -> None:
            if task.stress and work.pbc.all():
                with contextlib.suppress(PropertyNotImplementedError):
                    work.get_stress(apply_constraint=False)
            frames.append(_frozen(work, calculator, keep_magmoms))

        work.calc = calculator
        work.get_forces(apply_constraint=False)
        _restore_positions(work, atoms)
        if task.relax_steps > 0:
            optimiser = BFGS(work, logfile=None)
            optimiser.attach(keep)
            optimiser.run(fmax=task.relax_fmax, steps=task.relax_steps)
        else:
            keep()
    except _Unusable as error:
        failure, reason = error.failure, str(error)
    except (Exception, SystemExit) as error:
        failure, reason = _classified(task, error, directory)
    seconds = time.perf_counter() - start
    if failure is not None:
        return Outcome(atoms.copy(), failure, reason, seconds, path=tuple(frames))
    path = tuple(frames[:-1]) if task.keep_path else ()
    return Outcome(frames[-1], seconds=seconds, path=path)


def _restore_positions(work: Atoms, submitted: Atoms) -> None:
    """Undo a shift of all atoms by the engine; a structure that it changed cannot be used."""
    same_cell = np.array_equal(work.cell.array, submitted.cell.array)
    if same_cell and np.array_equal(work.positions, submitted.positions):
        return
    moved = work.positions - submitted.positions
    if same_cell and np.ptp(moved, axis=0).max() < 1e-8:
        work.positions = submitted.positions
        return
    distance = float(np.linalg.norm(moved, axis=1).max())
    raise _Unusable(
        Failure.INVALID,
        f"the engine changed the structure that it was given (atoms moved by {distance:.3g} Å), so "
        "that its energy belongs to another structure",
    )


def _classified(task: Task, error: BaseException, directory: Path | None) -> tuple[Failure, str]:
    """Failure and reason of an error, from the engine's own output if it explains the error."""
    text = " ".join(str(error).split())
    reason = text if isinstance(error, NuggetError) else f"{type(error).__name__}: {text}"
    unconverged = _names_convergence(error)
    explain = None if isinstance(error, NuggetError) else _explain(task)
    if directory is not None and explain is not None:
        unconverged, reason = explain(directory) or (unconverged, reason)
    return Failure.UNCONVERGED if unconverged else Failure.EXCEPTION, reason[:500]


def _explain(task: Task) -> Callable[[Path], tuple[bool, str] | None] | None:
    with contextlib.suppress(Exception):  # the error itself already names the problem
        return task.engine().explain
    return None


def _set_directory(calculator: Any, directory: Path) -> None:
    while calculator is not None:  # wrappers have the calculator as `inner`
        if hasattr(calculator, "directory"):
            calculator.directory = directory
        calculator = getattr(calculator, "inner", None)


def _frozen(atoms: Atoms, calculator: Calculator, keep_magmoms: bool) -> Atoms:
    """A copy with its results, after checks of their shapes and values."""
    # Forces first: codes that compute only what is requested then run once.
    forces = _numbers(atoms.get_forces(apply_constraint=False), "forces")
    energy = _numbers(atoms.get_potential_energy(), "energy")
    if energy.ndim != 0:
        raise _Unusable(Failure.INVALID, f"the energy is an array of shape {energy.shape}")
    if forces.shape != (len(atoms), 3):
        raise _Unusable(
            Failure.INVALID, f"the forces have the shape {forces.shape}, not ({len(atoms)}, 3)"
        )
    if not math.isfinite(energy):
        raise _Unusable(Failure.NAN, f"the energy is {energy}")
    if not np.isfinite(forces).all():
        row = int(np.flatnonzero(~np.isfinite(forces).all(axis=1))[0])
        raise _Unusable(Failure.NAN, f"the force on atom {row} is {forces[row].tolist()}")
    if getattr(calculator, "converged", None) is False:
        raise _Unusable(Failure.UNCONVERGED, "the calculator reports that it has not converged")
    results: dict[str, Any] = {"energy": float(energy), "forces": forces}
    stress = getattr(calculator, "results", {}).get("stress")
    if stress is not None and atoms.pbc.all():
        results["stress"] = _checked_stress(stress)
    frozen = atoms.copy()
    if not keep_magmoms:
        del frozen.arrays["initial_magmoms"]
    frozen.calc = SinglePointCalculator(frozen, **results)
    return frozen


def _numbers(value: Any, name: str) -> Floats:
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise _Unusable(
            Failure.INVALID, f"the {name} cannot be read as numbers ({type(value).__name__})"
        ) from None


def _checked_stress(stress: Any) -> Floats:
    """In Voigt order, as in ASE."""
    values = _numbers(stress, "stress components")
    if values.shape not in ((6,), (3, 3)):
        raise _Unusable(
            Failure.INVALID, f"the stress has the shape {values.shape}, not (6,) or (3, 3)"
        )
    if not np.isfinite(values).all():
        raise _Unusable(Failure.NAN, f"the stress is {values.tolist()}")
    if values.shape == (6,):
        return values
    return np.array([values[i, j] for i, j in ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))])


def _names_convergence(error: BaseException) -> bool:
    """GPAW, tblite, VASP and others raise errors of their own, but all mention convergence."""
    text = f"{type(error).__name__} {error}"
    return isinstance(error, SCFError) or re.search(r"converge", text, re.IGNORECASE) is not None
