"""Run an engine on one structure, here and now; every failure becomes an outcome."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, SCFError
from ase.calculators.singlepoint import SinglePointCalculator
from ase.optimize import BFGS

from nugget.evaluation.engines import get_engine
from nugget.evaluation.outcome import Failure, Outcome


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
