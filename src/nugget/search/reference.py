"""What a search is to find, if that is known: reading it, and telling whether it has been found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ase import Atoms

from nugget.errors import NuggetError
from nugget.evaluation.engines import get_engine
from nugget.generators import Problem
from nugget.identity import is_reference
from nugget.identity.graph import stored_energy
from nugget.search.config import Config
from nugget.search.store import Record
from nugget.structures.io import read_images


def beside(name: str, directory: Path) -> Path:
    """File names count from the search's directory, then from here."""
    inside = directory / name
    return inside if inside.exists() else Path(name)


def read_references(config: Config, directory: Path) -> list[Atoms]:
    """All structures of the reference file: any of them will do. None if no file was given."""
    name = config.search.reference
    if name is None:
        return []
    found = read_images(beside(name, directory))
    if config.search.reference_tolerance is not None:
        for atoms in found:
            stored_energy(atoms)  # one without energy is refused now, not at the first hit
    return found


def is_found(record: Record, references: Sequence[Atoms], tolerance: float | None) -> bool:
    """Has this evaluation hit one of the references?"""
    return record.ok and any(is_reference(record.atoms, one, tolerance) for one in references)


def check(config: Config, problem: Problem, reference: Path | None) -> None:
    """Engine and references, so that no search fails after it has begun."""
    engine = get_engine(config.engine.name)
    if not engine.installed():
        raise NuggetError(
            f"engine {engine.name!r} is not installed. To install it: {engine.how_to_install}"
        )
    if reference is None:
        return
    told = config.search.model_copy(update={"reference": str(reference)})
    for atoms in read_references(config.model_copy(update={"search": told}), Path()):
        if sorted(atoms.numbers) != sorted(problem.numbers):
            raise NuggetError(
                f"The reference {reference} is {atoms.get_chemical_formula()}: its atoms are not "
                "those that are searched for."
            )
