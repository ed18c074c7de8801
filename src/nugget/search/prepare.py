"""Before a search: find its files, check its settings, and copy the files into its directory."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from ase.cell import Cell
from ase.units import GPa

from nugget.errors import NuggetError
from nugget.evaluation.queue import check_engine
from nugget.evaluation.trust import code_in, engine_code
from nugget.generators import Crystal, Problem
from nugget.search.config import Config
from nugget.search.learner import Learner
from nugget.search.reference import check_references, resolve_path
from nugget.search.system import SystemConfig
from nugget.structures.files import replacing
from nugget.structures.io import read_images

#: The settings that name files, by what the files are.
_ROLES = {"template": "system", "reference": "search"}


def locate(config: Config, base: Path = Path()) -> dict[str, Path]:
    """The files that the settings name, in `base` or else in the present directory."""
    found = {}
    for role, section in _ROLES.items():
        name = getattr(getattr(config, section), role)
        if name is None:
            continue
        places = [place for place in (base / name, Path(name)) if place.is_file()]
        if not places:
            where = "" if base == Path() else f" (looked in {base} and here)"
            raise NuggetError(f"{section}.{role}: there is no file {name}{where}.")
        found[role] = places[0]
    return found


def with_files(config: Config, names: Mapping[str, str]) -> Config:
    """The settings with other file names, by role."""
    update = {}
    for role, name in names.items():
        section = _ROLES[role]
        update[section] = getattr(config, section).model_copy(update={role: name})
    return config.model_copy(update=update)


def check(config: Config, files: Mapping[str, Path]) -> None:
    """Try everything that a search needs, so that none fails after it has begun."""
    config = with_files(config, {role: str(file) for role, file in files.items()})
    problem = make_problem(config.system, Path())
    check_engine(config.engine)
    check_references(config, problem)
    Learner(config, problem).mixer.probabilities(problem, 0)


def code_of(config: Config) -> list[str]:
    """What these settings would run besides nugget's own engines: engine, workers, baseline."""
    return code_in(config.engine, config.execution) + baseline_code(config)


def baseline_code(config: Config) -> list[str]:
    """The code that the model's baseline runs, if it is an engine."""
    options = config.model.baseline_options
    if "engine" not in options:
        return []
    return engine_code(str(options["engine"]), dict(options.get("options", ())))


def copied_names(files: Mapping[str, Path]) -> dict[str, str]:
    """The names that `copy_files` gives to the files, relative to the directory."""
    return {role: f"{role}/{file.name}" for role, file in files.items()}


def copy_files(files: Mapping[str, Path], directory: Path) -> None:
    """Copy files, so that the directory can be moved and resumed from anywhere."""
    for role, name in copied_names(files).items():
        target = directory / name
        if target.exists() and target.samefile(files[role]):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as partial:
            shutil.copyfile(files[role], partial)


def make_problem(system: SystemConfig, directory: Path) -> Problem | Crystal:
    """What is searched for; file names are relative to the search's directory."""
    if system.kind == "surface":
        template = read_images(resolve_path(str(system.template), directory), -1)[0]
        return Problem.on_template(system.formula, template, system.height)
    if system.kind == "crystal":
        return Crystal(
            system.formula, system.units, system.pressure * GPa, system.volume or 0.0,
            min_distance=system.min_distance,
        )  # fmt: skip
    if system.kind == "bulk":
        assert system.cell is not None
        return Problem.bulk(system.formula, Cell.new(list(system.cell)).array)
    return Problem.cluster(system.formula, system.radius)
