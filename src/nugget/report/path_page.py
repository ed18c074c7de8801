"""The page of a `nugget neb` run: energies with error band, evaluations, images in 3D."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.geometry import find_mic

from nugget import __version__
from nugget.engines.outcome import Outcome
from nugget.numerics.arrays import Floats
from nugget.report.digest import fixed
from nugget.report.onthefly_runs import ReactionPath, calls_data, calls_plot, read_path
from nugget.report.page import Data, Structures, as_html, column, page_spec, sections
from nugget.report.page.sections import Section
from nugget.report.run_verdicts import path_verdict

_SAME = 1e-3  # Å; an evaluation this close belongs to an image
_VALUES = {"force σ": "σ of the force, eV/Å", "moved": "distance from the start, Å"}


def path_spec(directory: Path) -> dict[str, Any]:
    """The page of a run of `nugget neb`, as plain data."""
    run = read_path(directory)
    structures = Structures()
    config, result, n = run.config, run.result, len(run.outcomes)
    ends = n if result is None else result["end_calls"]
    phases = ["call" if result is None else "ends" if k < ends else "path" for k in range(n)]
    calls = calls_data(run.outcomes, phases, structures)
    parts = [sections.verdict(path_verdict(run).to_dict())]
    data = [calls]
    if run.images:
        shown = _Images(run, structures)
        data.insert(0, shown.data())
        parts += [sections.side_by_side(shown.profile(), shown.film()), shown.gallery()]
        parts.append(sections.side_by_side(_certainty(run), _calls(run)))
        parts += [shown.table(), sections.rows("calls", title="All evaluations")]
    else:
        parts += [
            sections.text("The path is written at the end of the run; continue it with --resume."),
            _calls(run),
        ]
    settings = config.model_dump_json(indent=1)
    parts.append(sections.code(settings, title="Settings", filename="run.json", folded=True))
    converged = bool(result and result["converged"])
    badge = ("converged", "good") if converged else ("not converged", "bad")
    if result is None:
        badge = ("no result yet", "plain") if not run.images else ("ended", "plain")
    return page_spec(
        f"Reaction path of {run.ends[0].get_chemical_formula()}", parts, structures=structures,
        data=data, badge=badge, subtitle=f"{config.engine.name} · {directory}",
        footer=f"nugget {__version__}", inspector=not run.images,
    )  # fmt: skip


def path_page(directory: Path) -> str:
    """The page of a run of `nugget neb`, as HTML."""
    return as_html(path_spec(directory))


class _Images:
    """The images of a path with energies and σ of the model, and energies of the engine."""

    def __init__(self, run: ReactionPath, structures: Structures) -> None:
        self.run, images = run, run.images
        steps = [float(np.linalg.norm(b.positions - a.positions)) for a, b in pairwise(images)]
        self.length: Floats = np.concatenate([[0.0], np.cumsum(steps)])
        self.engine = [_energy_at(image, run.outcomes) for image in images]
        model = np.array([image.get_potential_energy() for image in images])
        zero = model[0] if self.engine[0] is None else self.engine[0]
        self.energy: Floats = model - zero
        self.engine = [None if e is None else e - zero for e in self.engine]
        self.std: Floats = np.array([image.info["energy_uncertainty"] for image in images])
        self.top = 1 + int(np.argmax(self.energy[1:-1]))
        self.numbers = [
            structures.add(image, self.title(k), _per_atom(image, images[0]), float(model[k]))
            for k, image in enumerate(images)
        ]

    def title(self, k: int) -> str:
        last = len(self.run.images) - 1
        names = {0: ", start", last: ", end", self.top: ", highest"}
        return f"image {k}{names.get(k, '')}"

    def data(self) -> Data:
        """The images of the model, followed by those that the engine evaluated."""
        evaluated = [k for k, energy in enumerate(self.engine) if energy is not None]
        rows = [*range(len(self.numbers)), *evaluated]
        who = ["model"] * len(self.numbers) + ["engine"] * len(evaluated)
        energy = [*self.energy, *(self.engine[k] for k in evaluated)]
        std = [*self.std, *([None] * len(evaluated))]
        columns = {
            "image": column(rows, "image"),
            "length": column([float(self.length[k]) for k in rows], "length of the path", "Å", 3),
            "energy": column(energy, "energy above the start", "eV", 4),
            "std": column(std, "σ", "eV", 4),
            "who": column(who, "by"),
        }
        return Data("images", columns, [self.numbers[k] for k in rows])

    def profile(self) -> Section:
        low, high = self.energy - self.std, self.energy + self.std
        band = sections.curve("model, ± σ", self.length, self.energy, low, high.tolist())
        band["plain"] = True
        return sections.plot(
            "images", [band, sections.points("length", "energy")], title="Energy along the path",
            x=sections.axis("length of the path, Å"), y=sections.axis("energy above the start, eV"),
            colors=["who"], caption="Click an image to see it.",
        )  # fmt: skip

    def gallery(self) -> Section:
        items = []
        for k in dict.fromkeys((0, self.top, len(self.numbers) - 1)):
            facts = [("model", f"{fixed(self.energy[k], plus=True)} ± {self.std[k]:.4f} eV")]
            engine = self.engine[k]
            if engine is not None:
                facts.append(("engine", f"{fixed(engine, plus=True)} eV"))
            items.append(sections.item(self.numbers[k], self.title(k).capitalize(), facts))
        return sections.gallery(items, title="Start, highest image, end", values=_VALUES)

    def film(self) -> Section:
        return sections.film(self.numbers, title="All images in sequence", values=_VALUES)

    def table(self) -> Section:
        forces = [_largest_std(image) for image in self.run.images]
        titles = map(self.title, range(len(forces)))
        rows = zip(titles, self.length, self.energy, self.std, self.engine, forces, strict=True)
        heads = ["image", "length, Å", "model, eV", "σ, eV", "engine, eV", "σ of a force, eV/Å"]
        digits = (None, 3, 4, 4, 4, 4)
        return sections.table(
            heads, list(rows), title="Images", structures=self.numbers, digits=digits
        )


def _certainty(run: ReactionPath) -> Section:
    std = [_largest_std(image) for image in run.images]
    return sections.plot(
        "", [sections.curve("largest σ of a force", list(range(len(std))), std),
             sections.level(run.config.max_force_error, "threshold")],
        title="σ of forces along the path", x=sections.axis("image"),
        y=sections.axis("eV/Å", limits=(0, None)),
    )  # fmt: skip


def _calls(run: ReactionPath) -> Section:
    return calls_plot(
        run.config.fmax,
        "First both ends are relaxed. Then images are evaluated where σ is largest, and at the "
        "highest point of the path.",
    )


def _per_atom(image: Atoms, start: Atoms) -> dict[str, Floats]:
    values = {"moved": np.linalg.norm(image.positions - start.positions, axis=1)}
    if (std := image.arrays.get("forces_uncertainty")) is not None:
        values["force σ"] = np.linalg.norm(std, axis=1)
    return values


def _largest_std(image: Atoms) -> float:
    return float(np.max(image.arrays.get("forces_uncertainty", np.zeros(1)), initial=0.0))


def _energy_at(image: Atoms, outcomes: list[Outcome]) -> float | None:
    """Energy of the engine at this image; None if it was not evaluated."""
    for outcome in reversed(outcomes):
        shift = outcome.atoms.positions - image.positions
        if outcome.ok and find_mic(shift, image.cell, image.pbc)[1].max() < _SAME:
            return outcome.energy
    return None
