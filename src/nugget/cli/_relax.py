"""The parts of `nugget relax`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ase import Atoms
from ase.units import GPa
from pydantic import ValidationError

from nugget.cli._common import progress
from nugget.cli._values import setting
from nugget.errors import NuggetError
from nugget.evaluation.config import EngineConfig
from nugget.evaluation.outcome import Outcome
from nugget.evaluation.queue import EvaluationQueue, check_engine
from nugget.relax.cell_engine import CellRelaxation
from nugget.relax.learning import LearningRelaxation
from nugget.relax.queued import EngineRelaxation, relax_through


def engine_config(name: str, settings: Sequence[str]) -> EngineConfig:
    """The engine with settings such as engine.charge=1 or engine.options.rc=6."""
    tree: dict[str, Any] = {"name": name, "options": {}}
    for text in settings:
        key, value = setting(text)
        section, *path = key.split(".")
        if section != "engine" or (len(path) > 1 and path[0] != "options"):
            raise NuggetError(f"--set {text}: here only engine settings, as engine.charge=1.")
        (tree["options"] if len(path) > 1 else tree)[path[-1]] = value
    try:
        config = EngineConfig.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise NuggetError(
            f"--set engine.{where}: {first['msg']} (got {first['input']!r})."
        ) from None
    if config.relax_steps:
        raise NuggetError("engine.relax_steps is for searches; here the engine only evaluates.")
    check_engine(config)
    return config


Begin = Callable[[Atoms, float, int], EngineRelaxation]


def learning_relaxation(probes: int) -> Begin:
    """Relaxations with a local model, cells kept."""
    return lambda atoms, fmax, most: LearningRelaxation(atoms, fmax, most, probes)


def cell_relaxation(pressure: float) -> Begin:
    """Relaxations of atoms and cells; the pressure is in GPa."""
    return lambda atoms, fmax, most: CellRelaxation(atoms, fmax, most, pressure * GPa)


def relax_all(
    images: Sequence[Atoms],
    engine: EngineConfig,
    begin: Begin,
    fmax: float,
    max_evaluations: int,
    jobs: int,
    shown: bool,
) -> list[EngineRelaxation]:
    """Relax all structures, `jobs` at a time."""
    runs = {k: begin(atoms, fmax, max_evaluations) for k, atoms in enumerate(images)}
    with (
        EvaluationQueue(engine, min(jobs, max(len(images), 1))) as queue,
        progress("Relaxing", shown) as step,
    ):

        def seen(key: int, outcome: Outcome) -> None:
            if step is not None:
                step(sum(run.done for run in runs.values()), len(runs))

        relax_through(queue, runs, seen)
    return list(runs.values())


def row(number: int, run: EngineRelaxation) -> dict[str, Any]:
    """One structure as plain data."""
    result = run.result()
    return {
        "structure": number,
        "formula": result.atoms.get_chemical_formula(),
        "start_energy": run.points[0].energy if run.points else None,
        "energy": result.energy if run.points else None,
        "fmax": result.fmax if run.points else None,
        "evaluations": result.evaluations,
        "converged": result.converged,
        "reason": result.reason,
    }
