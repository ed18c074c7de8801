"""Data from before a search: references, structures to evaluate first, and labelled structures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ase import Atoms
from ase.data import chemical_symbols

from nugget.errors import NuggetError
from nugget.search.record import Record, lowest_steps
from nugget.search.search_settings import Config, changed_settings
from nugget.search.store import DATABASE, Store
from nugget.settings import resolve_path
from nugget.structures.io import read_images
from nugget.structures.labels import read_labels, stored_energy
from nugget.systems.base import System, in_frame
from nugget.systems.goal import Goal, LowestEnergy
from nugget.systems.system_settings import make_goal


def read_references(config: Config, directory: Path) -> list[Atoms]:
    """All structures of the reference file; empty without one. Finding one of them is enough."""
    name = config.search.reference
    if name is None:
        return []
    return read_images(resolve_path(name, directory))


def check_references(config: Config, problem: System) -> None:
    """Refuse references with other atoms, or without an energy to compare with."""
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
    """Is this structure, with results, a reference within a tolerance of its energy?

    Without a tolerance the same bonds suffice, because the structure may still be relaxed.
    """

    def close(one: Atoms) -> bool:
        if not tolerance:
            return True
        mine, its = (goal.value(a, stored_energy(a)) for a in (atoms, one))
        return mine - its <= tolerance

    return any(goal.same(atoms, one, loose=tolerance is None) and close(one) for one in references)


LEARNED = "learned"  # the generator of records that were not evaluated here


START = "start"

_FIRST = -2  # iterations of such records: −2, −3, …


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Data from before the search.

    start : structures to evaluate first, in order.
    labelled : training structures of any composition.
    learned : those of them that belong to the system, as records with negative iterations.
    directory : the directory to which file names in the settings are relative.
    """

    start: tuple[Atoms, ...] = ()
    labelled: tuple[Atoms, ...] = ()
    learned: tuple[Record, ...] = ()
    directory: Path = Path()


def read_knowledge(config: Config, problem: System, directory: Path = Path()) -> Knowledge:
    """The data that the settings name, in the order of the files."""
    search = config.search
    labelled: list[Atoms] = []
    if search.learn is not None:
        labelled = read_labelled(resolve_path(search.learn, directory), config)
        _check_elements(labelled, problem, search.learn)
        read_labels(
            labelled, None if config.model.use_forces else False, False
        )  # what is missing is named
    same = [atoms for one in labelled if (atoms := in_frame(one, problem)) is not None]
    learned = [Record(_FIRST - k, atoms, LEARNED) for k, atoms in enumerate(same)]
    known = make_goal(config.system).memory()
    for record in learned:
        known.add(record.atoms, record.energy)
    start = []
    for atoms in _start_structures(config, problem, directory):
        if atoms not in known:  # nothing is evaluated twice
            known.add(atoms)
            start.append(atoms)
    return Knowledge(tuple(start), tuple(labelled), tuple(learned), directory)


def _start_structures(config: Config, problem: System, directory: Path) -> list[Atoms]:
    name = config.search.start
    found = []
    for k, one in enumerate([] if name is None else read_images(resolve_path(name, directory))):
        framed = (in_frame(same, problem) for same in problem.equivalents(one))
        atoms = next((atoms for atoms in framed if atoms is not None), None)
        if atoms is None:
            raise NuggetError(
                f"search.start: structure {k} of {name} ({one.get_chemical_formula()}) is not of "
                f"the searched system: {problem.requirement}."
            )
        atoms.calc = None
        atoms.info = {"generator": START}
        found.append(atoms)
    return found


def read_labelled(path: Path, config: Config) -> list[Atoms]:
    """Labelled structures of a file, or of another search with the same engine."""
    if not path.is_dir():
        return read_images(path)
    if not (path / DATABASE).is_file():
        raise NuggetError(f"search.learn: {path} holds no search ({DATABASE} is missing).")
    store = Store(path)
    theirs = store.config()
    engine = theirs.engine.model_copy(update={"relax_steps": config.engine.relax_steps})
    if wrong := changed_settings(config, config.model_copy(update={"engine": engine})):
        raise NuggetError(
            f"search.learn: the search in {path} has another engine: {wrong[0]} there. Its "
            "energies cannot be mixed with these; use a model of them as model.baseline."
        )
    evaluated = [record.atoms for record in store.records() if record.ok]
    relaxed = lowest_steps(store.polish_steps(), make_goal(theirs.system))
    found = [*evaluated, *relaxed.values()]
    if not found:
        raise NuggetError(f"search.learn: no evaluation of the search in {path} has succeeded.")
    return found


def _check_elements(images: list[Atoms], problem: System, name: str) -> None:
    for k, atoms in enumerate(images):
        if strange := set(atoms.numbers.tolist()) - set(problem.numbers.tolist()):
            raise NuggetError(
                f"search.learn: structure {k} of {name} contains "
                f"{chemical_symbols[min(strange)]}, which is not in the searched system; leave "
                "such structures out."
            )
