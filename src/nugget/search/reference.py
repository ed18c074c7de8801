"""Reference structures: the goal of a search, where it is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ase import Atoms

from nugget.identity import is_reference
from nugget.identity.graph import stored_energy
from nugget.search.config import Config
from nugget.search.store import Record
from nugget.structures.io import read_images


def resolve_path(name: str, directory: Path) -> Path:
    """A file of the search's directory, or else of the present one."""
    inside = directory / name
    return inside if inside.exists() else Path(name)


def read_references(config: Config, directory: Path) -> list[Atoms]:
    """All structures of the reference file; empty without one. Finding any of them is enough."""
    name = config.search.reference
    if name is None:
        return []
    found = read_images(resolve_path(name, directory))
    if config.search.reference_tolerance is not None:
        for atoms in found:
            stored_energy(atoms)  # one without energy is refused now, not at the first hit
    return found


def is_found(record: Record, references: Sequence[Atoms], tolerance: float | None) -> bool:
    """Is the result of this evaluation one of the references?"""
    return record.ok and any(is_reference(record.atoms, one, tolerance) for one in references)
