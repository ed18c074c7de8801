"""Before a search: find its files, check its settings, and copy the files into its directory."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.cell import Cell
from ase.io import write
from ase.units import GPa

from nugget.errors import NuggetError
from nugget.evaluation.config import Section
from nugget.evaluation.engines import get_engine
from nugget.evaluation.queue import check_engine
from nugget.evaluation.trust import code_in
from nugget.generators import Compositions, Crystal, Problem
from nugget.search.baseline import baseline_code, baseline_file, has_value
from nugget.search.config import Config, ModelConfig
from nugget.search.knowledge import read_knowledge, read_labelled
from nugget.search.learner import Learner
from nugget.search.reference import check_references, resolve_path
from nugget.search.system import SystemConfig
from nugget.structures.files import replacing
from nugget.structures.io import read_images

#: The settings that name files, by what the files are.
_ROLES = {
    "template": "system",
    "reference": "search",
    "start": "search",
    "learn": "search",
    "baseline": "model",
}


def locate(config: Config, base: Path = Path()) -> dict[str, Path]:
    """The files that the settings name, in `base` or else in the present directory."""
    found = {}
    for role, section in _ROLES.items():
        name = getattr(getattr(config, section), role)
        if name is None or (role == "baseline" and baseline_file(config.model) is None):
            continue
        places = [place for place in (base / name, Path(name)) if _is_there(place, role)]
        if not places:
            where = "" if base == Path() else f" (looked in {base} and here)"
            raise NuggetError(f"{section}.{role}: there is no file {name}{where}.")
        found[role] = places[0]
    return found


def _is_there(place: Path, role: str) -> bool:
    return place.is_file() or (role == "learn" and place.is_dir())


def with_files(config: Config, names: Mapping[str, str]) -> Config:
    """The settings with other file names, by role."""
    update: dict[str, Section] = {}
    for role, name in names.items():
        section = _ROLES[role]
        before = update.get(section, getattr(config, section))
        update[section] = before.model_copy(update={role: name})
    return config.model_copy(update=update)


def check(config: Config, files: Mapping[str, Path]) -> None:
    """Try everything that a search needs, so that none fails after it has begun."""
    config = with_files(config, {role: str(file) for role, file in files.items()})
    problem = make_problem(config.system, Path())
    check_engine(config.engine)
    _check_k_points(config)
    check_references(config, problem)
    learner = Learner(config, problem, read_knowledge(config, problem))
    learner.mixer.probabilities(problem, 0)
    _check_baseline(learner)


def _check_k_points(config: Config) -> None:
    """Refuse crystals in small cells with a code that knows one k point."""
    option = get_engine(config.engine.name).one_k_point
    if config.system.kind == "crystal" and option and not config.engine.options.get(option):
        raise NuggetError(
            f"{config.engine.name} knows a single k point: energies of small cells would be wrong "
            f"by eV per atom. Set engine.options = {{{option} = 8.0}} (Å; small cells are "
            "repeated, which takes longer), or choose an engine with k points."
        )


def _check_baseline(learner: Learner) -> None:
    """Refuse a baseline that does not know these atoms, or an engine that cannot run."""
    if learner.baseline is None:
        return
    rng = np.random.default_rng(learner.config.search.seed)
    made = [learner.mixer(rng, learner.problem) for _ in range(3)]
    images = [atoms for atoms in made if isinstance(atoms, Atoms)]
    if images and not any(has_value(learner.baseline, atoms) for atoms in images):
        raise NuggetError(
            f"model.baseline {learner.config.model.baseline!r} gives no energy for structures of "
            f"{learner.config.system.formula}: choose one that runs for them."
        )


def first_structure(config: Config, base: Path = Path()) -> Atoms:
    """A structure as a search of these settings would begin with, without model or baseline."""
    bare = config.model_copy(update={"model": ModelConfig()})
    files = {role: str(file) for role, file in locate(bare, base).items()}
    bare = with_files(bare, files)
    proposal = Learner(bare, make_problem(bare.system, Path())).propose(0, [])
    assert proposal is not None  # nothing is known yet
    return proposal.atoms


def code_of(config: Config, directory: Path = Path()) -> list[str]:
    """What these settings would run besides nugget's own engines: engine, workers, baseline."""
    return code_in(config.engine, config.execution) + baseline_code(config, directory)


def copied_names(files: Mapping[str, Path]) -> dict[str, str]:
    """The names that `copy_files` gives to the files, relative to the directory."""
    return {
        role: f"{role}/{file.resolve().name}" + (".traj" if file.is_dir() else "")
        for role, file in files.items()
    }


def copy_files(files: Mapping[str, Path], directory: Path, config: Config) -> None:
    """Copy files, so that the directory can be moved and resumed from anywhere.

    Of another search, the labelled structures are copied, exact to the last bit.
    """
    for role, name in copied_names(files).items():
        target = directory / name
        if target.exists() and target.samefile(files[role]):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as partial:
            if files[role].is_dir():
                write(partial, read_labelled(files[role], config), format="traj")
            else:
                shutil.copyfile(files[role], partial)


def make_problem(system: SystemConfig, directory: Path) -> Problem | Crystal:
    """What is searched for; file names are relative to the search's directory."""
    if system.kind == "surface":
        template = read_images(resolve_path(str(system.template), directory), -1)[0]
        return Problem.on_template(system.formula, template, system.height)
    if system.compositions is not None:
        return Compositions(
            system.formula, (1, system.max_atoms), system.pressure * GPa,
            min_distance=system.min_distance, most=system.max_atoms, first=system.volume or 0.0,
        )  # fmt: skip
    if system.kind == "crystal":
        return Crystal(
            system.formula, system.units, system.pressure * GPa, system.volume or 0.0,
            min_distance=system.min_distance,
        )  # fmt: skip
    if system.kind == "bulk":
        assert system.cell is not None
        return Problem.bulk(system.formula, Cell.new(list(system.cell)).array)
    return Problem.cluster(system.formula, system.radius)
