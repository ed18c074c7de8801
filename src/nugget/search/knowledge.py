"""What is known before a search begins: structures to evaluate first, and labelled ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.data import chemical_symbols

from nugget._compiled.arrays import Ints
from nugget.errors import NuggetError
from nugget.generators import Crystal, Problem
from nugget.identity.crystal import primitive
from nugget.search.config import Config, changed_settings
from nugget.search.goal import make_goal
from nugget.search.polish_step import lowest_steps
from nugget.search.reference import resolve_path
from nugget.search.store import DATABASE, Record, Store
from nugget.structures.io import read_images
from nugget.structures.labels import read_labels

LEARNED = "learned"  # the generator of records that were not evaluated here
START = "start"
_FIRST = -2  # iterations of such records: −2, −3, …
_SAME = 0.01  # Å; cells and fixed atoms that agree this well are the same


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Knowledge from before, the same whenever it is read.

    start : structures to evaluate first, in order.
    labelled : what the model learns from before the first evaluation, of any composition.
    learned : those of the searched system, as records with negative iterations.
    directory : what file names in the settings are relative to.
    """

    start: tuple[Atoms, ...] = ()
    labelled: tuple[Atoms, ...] = ()
    learned: tuple[Record, ...] = ()
    directory: Path = Path()


def read_knowledge(
    config: Config, problem: Problem | Crystal, directory: Path = Path()
) -> Knowledge:
    """What the settings name, in the order of the files."""
    search = config.search
    labelled: list[Atoms] = []
    if search.learn is not None:
        labelled = read_labelled(resolve_path(search.learn, directory), config)
        _check_elements(labelled, problem, search.learn)
        read_labels(
            labelled, None if config.model.use_forces else False, False
        )  # what is missing is named
    same = [atoms for one in labelled if (atoms := as_searched(one, problem)) is not None]
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


def _start_structures(config: Config, problem: Problem | Crystal, directory: Path) -> list[Atoms]:
    name = config.search.start
    found = []
    for k, one in enumerate([] if name is None else read_images(resolve_path(name, directory))):
        atoms = as_searched(one, problem)
        if atoms is None and isinstance(problem, Crystal) and one.pbc.all():
            atoms = as_searched(primitive(one), problem)  # a smaller cell of the same crystal
        if atoms is None:
            must = "composition, cell and template must be the same"
            if isinstance(problem, Crystal):
                must = "the composition and the number of atoms in the cell must be among those"
            raise NuggetError(
                f"search.start: structure {k} of {name} ({one.get_chemical_formula()}) is not of "
                f"the searched system: {must}."
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
    found = [*evaluated, *lowest_steps(store.polish_steps()).values()]
    if not found:
        raise NuggetError(f"search.learn: no evaluation of the search in {path} has succeeded.")
    return found


def _check_elements(images: list[Atoms], problem: Problem | Crystal, name: str) -> None:
    for k, atoms in enumerate(images):
        if strange := set(atoms.numbers.tolist()) - set(problem.numbers.tolist()):
            raise NuggetError(
                f"search.learn: structure {k} of {name} contains "
                f"{chemical_symbols[min(strange)]}, which is not in the searched system; leave "
                "such structures out."
            )


def as_searched(atoms: Atoms, problem: Problem | Crystal) -> Atoms | None:
    """The structure with atoms in the search's order, results kept; None if it is another system.

    Clusters are moved to the centre. Crystals get a reduced cell. Elsewhere the cell, the
    template's elements and its fixed atoms must be the same.
    """
    if isinstance(problem, Crystal):
        found = problem.adopted(atoms)
    else:
        found = _in_place(atoms, problem)
    if found is None:
        return None
    made, order = found
    if atoms.calc is not None:
        given = {key: value for key, value in atoms.calc.results.items() if value is not None}
        results = {key: given[key] for key in ("energy", "stress") if key in given}
        if "forces" in given:
            results["forces"] = np.asarray(given["forces"])[order]
        made.calc = SinglePointCalculator(made, **results)
    return made


def _in_place(atoms: Atoms, problem: Problem) -> tuple[Atoms, Ints] | None:
    """The structure in a problem with a given cell, and which atom became which."""
    order = _order(atoms.numbers, problem)
    if order is None or not np.array_equal(atoms.pbc, problem.template.pbc):
        return None
    made = problem.assemble(atoms.positions[order])
    if not problem.free:
        fixed = [i for c in made.constraints for i in getattr(c, "index", [])]
        if not np.allclose(atoms.cell, problem.template.cell, rtol=0, atol=_SAME):
            return None
        before = problem.start()[0]
        if not np.allclose(made.positions[fixed], before[fixed], rtol=0, atol=_SAME):
            return None
    return made, order


def _order(numbers: Ints, problem: Problem) -> Ints | None:
    """Which of these atoms stands for each atom of the problem; None if they do not fit."""
    n = problem.n_fixed
    wanted = problem.numbers
    if len(numbers) != len(wanted) or not np.array_equal(numbers[:n], wanted[:n]):
        return None
    if not np.array_equal(np.sort(numbers[n:]), np.sort(wanted[n:])):
        return None
    order = np.arange(len(wanted))
    order[n + np.argsort(wanted[n:], kind="stable")] = n + np.argsort(numbers[n:], kind="stable")
    return order
