"""Preparation of a search: locate its files, check its settings, and copy the files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import write

from nugget.engines.engine import get_engine
from nugget.engines.engine_settings import code_in
from nugget.engines.task import Task
from nugget.errors import NuggetError
from nugget.search.knowledge import check_references, read_knowledge, read_labelled
from nugget.search.learner import Learner
from nugget.search.search_settings import Config, ModelConfig
from nugget.search.surrogate import baseline_code, baseline_file, has_value
from nugget.settings import Section
from nugget.storage.files import replacing
from nugget.systems.base import System
from nugget.systems.system_settings import make_system

#: The settings that name files, by what the files are.
_ROLES = {
    "template": "system",
    "reference": "search",
    "start": "search",
    "learn": "search",
    "baseline": "model",
}


def locate(config: Config, base: Path = Path()) -> dict[str, Path]:
    """The files that the settings name, in `base` or else in the current directory."""
    located = {}
    for role, section in _ROLES.items():
        name = getattr(getattr(config, section), role)
        if name is None or (role == "baseline" and baseline_file(config.model) is None):
            continue
        places = [place for place in (base / name, Path(name)) if _is_there(place, role)]
        if not places:
            where = "" if base == Path() else f" (looked in {base} and here)"
            raise NuggetError(f"{section}.{role}: there is no file {name}{where}.")
        located[role] = places[0]
    return located


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
    """Check everything that a search needs before it begins."""
    config = with_files(config, {role: str(file) for role, file in files.items()})
    problem = make_system(config.system, Path())
    task = Task.of(config.engine)
    task.check(config.execution)
    if config.system.kind in ("cluster", "molecules"):
        task.electrons.check_spin(problem.numbers)
    _check_k_points(config, problem)
    check_references(config, problem)
    learner = Learner(config, problem, read_knowledge(config, problem))
    learner.mixer.probabilities(problem, 0)
    _check_baseline(learner)


def _check_k_points(config: Config, problem: System) -> None:
    """Refuse crystals with an engine that is limited to one k point."""
    option = get_engine(config.engine.name).one_k_point
    if problem.variable_cell and option and not config.engine.options.get(option):
        raise NuggetError(
            f"{config.engine.name} uses a single k point: energies of small cells would be wrong "
            f"by eV per atom. Set engine.options = {{{option} = 8.0}} (Å; small cells are "
            "repeated, which takes longer), or choose an engine with k points."
        )


def _check_baseline(learner: Learner) -> None:
    """Refuse a mean function that gives no energy for these atoms."""
    if learner.baseline is None:
        return
    rng = np.random.default_rng(learner.config.search.seed)
    made = [learner.mixer(rng, learner.problem) for _ in range(3)]
    images = [atoms for atoms in made if isinstance(atoms, Atoms)]
    if images and not any(has_value(learner.baseline, atoms) for atoms in images):
        failure = getattr(learner.baseline, "failure", "")
        reason = f" ({failure})" if failure else ""
        raise NuggetError(
            f"model.baseline {learner.config.model.baseline!r} gives no energy for structures of "
            f"{learner.config.system.formula}{reason}: choose one that runs for them."
        )


def first_structure(config: Config, base: Path = Path()) -> Atoms:
    """The first structure of a search with these settings, without a mean function."""
    bare = config.model_copy(update={"model": ModelConfig()})
    files = {role: str(file) for role, file in locate(bare, base).items()}
    bare = with_files(bare, files)
    proposal = Learner(bare, make_system(bare.system, Path())).propose(0, [])
    assert proposal is not None  # nothing is known yet
    return proposal.atoms


def code_of(config: Config, directory: Path = Path()) -> list[str]:
    """Code outside of nugget that these settings run: engine, workers, mean function."""
    return code_in(config.engine, config.execution) + baseline_code(config, directory)


def copied_names(files: Mapping[str, Path]) -> dict[str, str]:
    """The names that `copy_files` gives to the files, relative to the directory."""
    return {
        role: f"{role}/{file.resolve().name}" + (".traj" if file.is_dir() else "")
        for role, file in files.items()
    }


def copy_files(files: Mapping[str, Path], directory: Path, config: Config) -> None:
    """Copy files, so that the directory can be moved and resumed anywhere.

    Of another search, the labelled structures are copied with all bits.
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
