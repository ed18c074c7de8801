"""Energies of the species that supply atoms, computed with the engine when a search is created."""

from __future__ import annotations

import numpy as np
from ase import Atoms
from ase.build import bulk, molecule

from nugget.engines.engine_settings import EngineConfig
from nugget.engines.queue import EvaluationQueue
from nugget.errors import NuggetError
from nugget.relax.engine_relaxation import CellRelaxation, EngineRelaxation, LearningRelaxation
from nugget.search.search_settings import Config
from nugget.systems.grand_canonical import reservoirs_of
from nugget.systems.reservoirs import split_form
from nugget.systems.system_settings import SystemConfig

#: Å: distance between images of a molecule where the engine of a surface needs a cell.
_BOX = 12.0

_FMAX, _EVALUATIONS = 0.02, 200


def with_reference_energies(config: Config) -> Config:
    """The settings with the energies of all species that the chemical potentials refer to."""
    missing = missing_references(config.system)
    if not missing:
        return config
    energies = dict(config.system.reference_energies)
    periodic = config.system.kind == "surface"
    for name in missing:
        energies[name] = species_energy(name, config.engine, periodic)
    system = config.system.model_copy(update={"reference_energies": energies})
    return config.model_copy(update={"system": system})


def missing_references(system: SystemConfig) -> list[str]:
    """Species without an energy; none for systems whose numbers of atoms do not vary."""
    return [] if system.vary is None else reservoirs_of(system).needed


def require_references(system: SystemConfig) -> None:
    """Refuse the settings of a run directory from which energies are missing."""
    if missing := missing_references(system):
        raise NuggetError(
            f"system.reference_energies has no energy of {missing[0]}; the directory of a search "
            "holds the energies of all species, so config.toml was changed."
        )


def species_energy(name: str, engine: EngineConfig, periodic: bool) -> float:
    """The energy of a relaxed molecule, or per atom of an isolated atom or a bulk metal, eV."""
    atoms, form = species(name, periodic), split_form(name)[1]
    run: EngineRelaxation
    if form == "bulk":
        engine = engine.model_copy(update={"stress": True})
        run = CellRelaxation(atoms, _FMAX, _EVALUATIONS, 0.0)
    else:
        run = LearningRelaxation(atoms, _FMAX, 1 if len(atoms) == 1 else _EVALUATIONS)
    reasons: list[str] = []
    still = engine.model_copy(update={"relax_steps": 0})
    with EvaluationQueue(still, 1) as queue:

        def evaluate(one: Atoms) -> Atoms | None:
            outcome = queue.evaluate(one)
            reasons.append(f"{outcome.failure}: {outcome.reason}")
            return outcome.atoms if outcome.ok else None

        relaxed = run.run(evaluate)
    if not np.isfinite(relaxed.energy) or (len(atoms) > 1 and not relaxed.converged):
        why = reasons[-1] if not np.isfinite(relaxed.energy) else relaxed.reason
        raise NuggetError(
            f"The energy of {name} could not be computed with {engine.name} ({why}); give it as "
            f"system.reference_energies = {{{name} = …}} in eV."
        )
    return relaxed.energy / (len(atoms) if form else 1)


def species(name: str, periodic: bool = False) -> Atoms:
    """The structure of a species: a molecule of ASE's collection, an atom, or a bulk metal."""
    symbol, form = split_form(name)
    if form == "bulk":
        return bulk(symbol)
    try:
        atoms = Atoms(symbol) if form == "atom" else molecule(name)
    except (KeyError, NotImplementedError):
        raise NuggetError(
            f"ASE has no molecule {name}; give its energy as system.reference_energies = "
            f"{{{name} = …}} in eV."
        ) from None
    if periodic:
        atoms.center(vacuum=_BOX / 2)
        atoms.pbc = True
    return atoms
