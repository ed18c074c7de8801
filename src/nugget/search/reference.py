"""Reference structures: the goal of a search, where it is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ase import Atoms

from nugget.errors import NuggetError
from nugget.generators import Crystal, Problem
from nugget.identity.graph import stored_energy
from nugget.search.config import Config
from nugget.search.goal import Goal, LowestEnergy, make_goal
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
    return read_images(resolve_path(name, directory))


def check_references(config: Config, problem: Problem | Crystal) -> None:
    """Refuse references of other atoms, and those without the energy that must be met."""
    name = config.search.reference
    for atoms in read_references(config, Path()):
        if not make_goal(config.system).same_atoms(atoms, problem.numbers.tolist()):
            raise NuggetError(
                f"The reference {name} is {atoms.get_chemical_formula()}: its atoms are not those "
                "that are searched for."
            )
        if config.search.reference_tolerance and not _has_energy(atoms):
            raise NuggetError(
                f"The reference {name} carries no energy: relax it with `nugget relax {name} "
                f"--engine {config.engine.name} -o FILE` and give FILE, or set "
                "search.reference_tolerance = 0, and its bonds suffice."
            )


def _has_energy(atoms: Atoms) -> bool:
    return atoms.calc is not None and atoms.calc.results.get("energy") is not None


def is_found(
    atoms: Atoms,
    references: Sequence[Atoms],
    tolerance: float | None,
    goal: Goal = LowestEnergy(),  # noqa: B008 (frozen)
) -> bool:
    """Is this structure, with results, a reference, and not higher than that by a tolerance?

    Without a tolerance a likeness is enough: the structure may still be relaxed.
    """

    def close(one: Atoms) -> bool:
        if not tolerance:
            return True
        mine, its = (goal.value(a, stored_energy(a)) for a in (atoms, one))
        return mine - its <= tolerance

    return any(goal.same(atoms, one, loose=tolerance is None) and close(one) for one in references)
