"""Directories of searches without a search: records that an engine made, written by the store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.cluster import Octahedron
from ase.optimize import BFGS

from nugget.search.record import PolishStep, Record
from nugget.search.search_settings import make_config
from nugget.search.store import Store

HOSTILE = "</script><img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
GENERATORS = ("symmetric", "rattle", "cut_and_splice")
PURPOSES = ("improve", "explore")


def labelled(rng: np.random.Generator, spread: float = 0.3) -> Atoms:
    """A distorted gold octahedron with its energy and forces."""
    atoms = Octahedron("Au", 2)
    atoms.set_cell(None)
    atoms.positions += rng.normal(0, spread, atoms.positions.shape)
    return with_results(atoms)


def relaxed() -> Atoms:
    """The octahedron at rest."""
    atoms = Octahedron("Au", 2)
    atoms.set_cell(None)
    atoms.calc = EMT()
    BFGS(atoms, logfile=None).run(0.01, 100)
    return with_results(atoms)


def with_results(atoms: Atoms) -> Atoms:
    atoms = atoms.copy()
    atoms.calc = EMT()
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    atoms.calc = SinglePointCalculator(atoms, energy=float(energy), forces=forces)
    return atoms


def a_record(k: int, rng: np.random.Generator) -> Record:
    atoms = labelled(rng)
    if k % 7 == 3:
        atoms.calc = None
        return Record(k, atoms, "melt", "error", f"it died: {HOSTILE}", purpose="improve")
    known = {} if k < 3 else {"predicted": float(atoms.get_potential_energy()) + 0.1, "std": 0.1}
    return Record(
        k, atoms, GENERATORS[k % 3], engine_seconds=0.5, surrogate_seconds=0.2,
        purpose="start" if k < 3 else PURPOSES[k % 2], **known,
    )  # fmt: skip


def make_run(directory: Path, count: int = 12, polish: bool = True) -> Store:
    """A search of Au6 that has ended, one in seven evaluations failed with a hostile reason."""
    config = make_config(
        {
            "system": {"formula": "Au6"},
            "engine": {"name": "emt"},
            "search": {"budget": max(count, 1)},
        }
    )
    store = Store.create(directory, config)
    rng = np.random.default_rng(0)
    for k in range(count):
        store.append(a_record(k, rng))
    if polish:
        store.append_polish(PolishStep(0, 1, relaxed(), engine_seconds=0.1))
        store.append_polish(PolishStep(1, 1, labelled(rng), "timeout", HOSTILE))
    return store
