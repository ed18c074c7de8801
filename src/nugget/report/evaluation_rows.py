"""The structures of a page that judges a model: the worst, and others at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget.report.page import Data, Structures, sections
from nugget.report.page.data import Column
from nugget.report.page.sections import Section

if TYPE_CHECKING:
    from nugget.calibration import Components, Residuals
    from nugget.potential.potential import Potential

POINTS = 3000  # of a plot; more are only larger files
_ATOMS = 30_000  # of all structures on the page
_WORST = 6
_VALUES = {
    "force error": "force error, eV/Å",
    "force σ": "σ of the force, eV/Å",
    "energy σ": "σ of the atom's energy, eV",
}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model on labelled structures: what `nugget evaluate` has found out."""

    potential: Potential
    images: Sequence[Atoms]
    energies: Residuals
    parts: Mapping[str, Components]  # force and stress components, where there are some
    by: str = "formula"  # the reader's own groups
    seed: int = 0  # of the choice of points, where there are too many

    @property
    def error(self) -> Floats:
        return self.energies.y_pred - self.energies.y_true

    def lengths(self, s: int) -> tuple[Floats, Floats] | None:
        """Lengths of the errors of a structure's forces, and of their σ; None without forces."""
        if "force" not in self.parts:
            return None
        own = self.parts["force"].of([s])
        if not len(own.y_true):
            return None
        error = (own.y_pred - own.y_true).reshape(-1, 3)
        return np.linalg.norm(error, axis=1), np.linalg.norm(own.y_std.reshape(-1, 3), axis=1)

    def largest_force_errors(self) -> Floats:
        """The largest error of a force on an atom, by structure; NaN without forces."""
        found = np.full(len(self.images), np.nan)
        if "force" in self.parts:
            part = self.parts["force"]
            length = np.linalg.norm((part.y_pred - part.y_true).reshape(-1, 3), axis=1)
            owner = part.owner[::3]
            found[np.unique(owner)] = 0.0
            np.maximum.at(found, owner, length)
        return found


class Rows:
    """Rows and structures of the page: the worst, and others at random if there are too many."""

    def __init__(self, found: Evaluation) -> None:
        self.found, self.structures = found, Structures()
        self.data: list[Data] = []
        self.rng = np.random.default_rng(found.seed)
        force = np.nan_to_num(found.largest_force_errors())
        self.by_energy = np.argsort(-np.abs(found.error), kind="stable")
        self.by_force = np.argsort(-force, kind="stable")[: len(force) if force.any() else 0]
        worst = [*self.by_energy[:_WORST], *self.by_force[:_WORST]]
        order = [int(s) for s in dict.fromkeys([*worst, *self.rng.permutation(len(force))])]
        self.rows: Ints = np.sort(np.array(order[:POINTS], dtype=np.int64))
        self.number = self._chosen(order[:POINTS], len(set(worst)))

    def _chosen(self, order: Sequence[int], least: int) -> dict[int, int]:
        """Structures that are on the page, at least so many, and their numbers there."""
        sizes = np.cumsum([len(self.found.images[s]) for s in order])
        keys = sorted(order[: max(least, int((sizes <= _ATOMS).sum()))])
        images = [self.found.images[s] for s in keys]
        local = self.found.potential.predict(
            images, forces=False, uncertainty=False, energies_uncertainty=True
        ).energies_uncertainty
        assert local is not None
        return {s: self._add(s, std) for s, std in zip(keys, local, strict=True)}

    def _add(self, s: int, std: Floats) -> int:
        values: dict[str, Floats] = {"energy σ": std}
        if (lengths := self.found.lengths(s)) is not None:
            values = {"force error": lengths[0], "force σ": lengths[1], **values}
        atoms = self.found.images[s]
        label = f"structure {s}, {atoms.get_chemical_formula()}"
        energy = float(self.found.energies.y_true[s]) * len(atoms)
        return self.structures.add(atoms, label, values, energy)

    def add(self, name: str, columns: dict[str, Column], owners: Ints) -> None:
        self.data.append(Data(name, columns, [self.number.get(int(s)) for s in owners]))

    def galleries(self) -> list[Section]:
        """The worst energies and the worst forces, in 3D."""
        found = self.found
        largest = found.largest_force_errors()
        made = []
        for title, order in (("Worst energies", self.by_energy), ("Worst forces", self.by_force)):
            items = []
            for s in list(order)[:_WORST]:
                error = f"{1e3 * found.error[s]:+.1f}".replace("-", "−")
                facts = [("energy", f"{error} ± {1e3 * found.energies.y_std[s]:.1f} meV/atom")]
                if np.isfinite(largest[s]):
                    facts.append(("force, max", f"{largest[s]:.2f} eV/Å"))
                name = found.images[s].get_chemical_formula()
                items.append(sections.item(self.number[int(s)], f"{s}: {name}", facts))
            if items:
                caption = "Prediction minus label, ± σ. Colour the atoms by their errors."
                made.append(sections.gallery(items, title=title, values=_VALUES, caption=caption))
        return made
