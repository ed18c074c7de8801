"""Before a campaign: find and copy its files, try its settings, compare what is there already."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from ase.io import write

from nugget.errors import NuggetError
from nugget.search import reference
from nugget.search.config import Config, read_config
from nugget.search.learner import Learner
from nugget.search.loop import make_problem
from nugget.search.store import SETTINGS
from nugget.structures.io import read_images

REFERENCE = "reference.extxyz"


def check(config: Config, files: Mapping[str, Path]) -> None:
    """Try what a search needs, so that none fails after all have begun."""
    system = config.system
    if system.template is not None:
        system = system.model_copy(update={"template": str(files[system.template])})
    problem = make_problem(system, Path())
    reference.check(config, problem, files.get(REFERENCE))
    Learner(config, problem).mixer.probabilities(problem, 0)


def located(config: Config, base: Path) -> dict[str, Path]:
    """The files that the searches need, by the names that they will have."""
    wanted = {"search.reference": (config.search.reference, REFERENCE)}
    template = config.system.template
    wanted["system.template"] = (template, f"template{Path(template or '').suffix}")
    found = {}
    for option, (name, kept) in wanted.items():
        if name is None:
            continue
        places = [place for place in (base / name, Path(name)) if place.is_file()]
        if not places:
            raise NuggetError(f"{option}: there is no file {name}.")
        found[kept] = places[0]
    return found


def with_files(config: Config, files: Mapping[str, Path]) -> Config:
    search, system = config.search, config.system
    if search.reference is not None:
        search = search.model_copy(update={"reference": REFERENCE})
    if system.template is not None:
        name = next(name for name in files if name != REFERENCE)
        system = system.model_copy(update={"template": name})
    return config.model_copy(update={"search": search, "system": system})


def copy(file: Path, target: Path) -> None:
    """A copy, byte for byte unless the format has to change."""
    if target.exists() and target.samefile(file):
        return
    if target.name == REFERENCE and file.suffix not in (".xyz", ".extxyz"):
        write(target, read_images(file), format="extxyz")
    else:
        shutil.copyfile(file, target)


def check_settings(directory: Path, ours: Config) -> None:
    """A search that is there already must be the one that the grid asks for."""
    if not (directory / SETTINGS).exists():
        return
    theirs = read_config(directory / SETTINGS)
    a, b = (config.model_dump(exclude={"execution"}) for config in (theirs, ours))
    wrong = [
        f"{section}.{key} is {a[section][key]!r} there and {value!r} here"
        for section, values in b.items()
        for key, value in values.items()
        if a[section][key] != value
    ]
    if wrong:
        raise NuggetError(
            f"{directory} holds another search: {'; '.join(wrong[:3])}. Move it away, or give the "
            "campaign the same settings."
        )
