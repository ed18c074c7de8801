"""Small runs that the commands have made and finished, with what they printed.

Each function runs a command twice: with `--json`, and again for its printed summary (a finished run
that is resumed only prints it).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import add_adsorbate, bulk, fcc100
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms
from ase.io import write
from page_spec import spec_of
from typer.testing import CliRunner

from nugget.cli.main import app

QUICK = ("--set", "search.candidates=4", "--set", "search.relax_steps=20")
COARSE = ("--set", "model.n_max=3", "--set", "model.l_max=2")


@dataclass(frozen=True)
class Finished:
    """A run directory, what `--json` and the terminal said, and the page."""

    directory: Path
    json: dict[str, Any]
    text: str
    page: dict[str, Any]

    @property
    def verdict(self) -> dict[str, Any]:
        return dict(self.json["verdict"])

    @property
    def said(self) -> str:
        """The sentences of the verdict."""
        return " ".join(self.verdict["sentences"])

    @property
    def levels(self) -> dict[str, str]:
        """Levels of the badges by their labels."""
        return {badge["label"]: badge["level"] for badge in self.verdict["badges"]}


def nugget(*words: object, code: int | None = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    if code is not None:
        assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout


def page_of(directory: Path) -> dict[str, Any]:
    target = directory.parent / f"{directory.name}.html"
    nugget("report", directory, "-o", target, "--no-searches")
    return spec_of(target.read_text(encoding="utf-8"))


def finished(command: str, directory: Path, *words: object, code: int | None = 0) -> Finished:
    """Run a command to its end; `code` is its exit code, None for any."""
    out = nugget(command, *words, "--out", directory, "--json", code=code)
    text = nugget(command, "--resume", directory, *(["--no-live"] if _lively(command) else []),
                  code=code)  # fmt: skip
    return Finished(directory, json.loads(out), text, page_of(directory))


def _lively(command: str) -> bool:
    return command in ("search", "campaign")


def search(directory: Path, *words: object, code: int | None = 0) -> Finished:
    return finished("search", directory, *words, *QUICK, code=code)


def cluster(directory: Path, *words: object, budget: int = 8, code: int | None = 0) -> Finished:
    """Au5 with EMT, whose minimum the search finds at once."""
    return search(directory, "Au5", "-e", "emt", "--budget", budget, *words, code=code)


def slab(directory: Path) -> Finished:
    """A gold atom on aluminium, of which two layers are fixed."""
    template = fcc100("Al", (2, 2, 3), vacuum=6.0)
    template.set_constraint(FixAtoms(mask=template.get_tags() > 1))
    write(directory.parent / "slab.traj", template)
    file = directory.parent / "slab.toml"
    file.write_text(
        '[system]\nformula = "Au"\nkind = "surface"\ntemplate = "slab.traj"\n'
        '[engine]\nname = "emt"\n[search]\nbudget = 6\npolish = 1\n'
    )
    return search(directory, file)


def crystal(directory: Path, pressure: float = 20.0) -> Finished:
    """Copper under pressure."""
    return search(
        directory, "Cu", "--crystal", "--units", "1-2", "-e", "emt", "--budget", 8, "--pressure",
        pressure, *COARSE, "--set", "search.initial=4", "--set", "search.polish=2",
    )  # fmt: skip


def hull(directory: Path, polish: int = 3) -> Finished:
    return search(
        directory, "--crystal", "--compositions", "Cu-Au", "--max-atoms", 2, "-e", "emt",
        "--budget", 10, *COARSE, "--set", "search.initial=5", "--set", f"search.polish={polish}",
    )  # fmt: skip


def campaign(directory: Path, *words: object) -> Finished:
    return finished(
        "campaign", directory, "Au4", "-e", "emt", "--budget", 3, "--repeats", 2, *words, *QUICK
    )


def dynamics(directory: Path, *words: object, code: int | None = 0) -> Finished:
    start = directory.parent / "start.traj"
    write(start, bulk("Cu", cubic=True) * (2, 1, 1))
    return finished(
        "md", directory, start, "-e", "emt", "--temperature", 300, "--preset", "quick", "--every",
        5, *words, code=code,
    )  # fmt: skip


def reaction_path(directory: Path, *words: object, code: int | None = 0) -> Finished:
    """A gold atom hops on aluminium."""
    start = fcc100("Al", size=(2, 2, 3))
    add_adsorbate(start, "Au", 1.7, "hollow")
    start.center(axis=2, vacuum=4.0)
    start.set_constraint(FixAtoms(mask=start.get_tags() > 1))
    end = start.copy()
    end[-1].x += end.cell[0, 0] / 2
    for name, atoms in (("a", start), ("b", end)):
        write(directory.parent / f"{name}.traj", atoms)
    files = [directory.parent / "a.traj", directory.parent / "b.traj"]
    return finished("neb", directory, *files, "-e", "emt", "--images", 5, *words, code=code)


def hop_start() -> Atoms:
    """A gold atom in a hollow of Al(100), of which two layers are fixed; not relaxed."""
    slab = fcc100("Al", size=(2, 2, 2))
    add_adsorbate(slab, "Au", 1.9, "hollow")
    slab.center(axis=2, vacuum=4.0)
    slab.set_constraint(FixAtoms(mask=slab.get_tags() > 1))
    slab.info = {}
    return slab


def saddle(
    directory: Path, *words: object, shift: tuple[float, float] = (0.19, 0.0), height: float = 0.0,
    engine: str = "emt", code: int | None = 0,
) -> Finished:  # fmt: skip
    """A saddle search of that atom, displaced by a share of the cell and upwards by `height`."""
    start = hop_start()
    start.positions[-1] += [*(np.array(shift) * start.cell.lengths()[:2]), height]
    file = directory.parent / f"{directory.name}.traj"
    write(file, start)
    return finished("saddle", directory, file, "-e", engine, *words, code=code)


def judge(folder: Path, images: list[Atoms], engine: str, *words: object) -> Finished:
    """An engine judged on labelled structures."""
    data, html = folder / "labels.extxyz", folder / "judge.html"
    folder.mkdir()
    write(data, images)
    command = ("judge", data, "-e", engine, "--preset", "quick", *words)
    out = nugget(*command, "--html", html, "--json")
    page = spec_of(html.read_text(encoding="utf-8"))
    return Finished(folder, json.loads(out), nugget(*command), page)


def model(folder: Path, train: Path, test: Path) -> Finished:
    """A model that was fitted to one file and evaluated on another."""
    fitted, html = folder / "au.model", folder / "model.html"
    nugget("fit", train, "-o", fitted, "--preset", "quick", "--force")
    words = ("evaluate", fitted, test, "--resamples", 0)
    out = nugget(*words, "--html", html, "--json", "--force")
    return Finished(
        folder, json.loads(out), nugget(*words), spec_of(html.read_text(encoding="utf-8"))
    )


def emt_energy(atoms: Any) -> float:
    copy = atoms.copy()
    copy.calc = EMT()
    return float(copy.get_potential_energy())
