"""The contract of a system: what is searched for, and what a valid structure of it is.

The search, the generators and the reports use `System`. `PlacedAtoms` (clusters, surfaces, cells of
fixed shape), `VariedAtoms`, `Crystal` and `Compositions` implement it; `system_settings` connects
it to settings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.numerics.arrays import Floats, Ints
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs


@dataclass(frozen=True)
class Failure:
    """No structure could be generated, and the reason."""

    reason: str


class RelaxationSurface(Protocol):
    """An energy surface for relaxations: of atoms when called, of atoms and cells by `on_cells`."""

    def __call__(self, images: Sequence[Atoms]) -> tuple[Floats, list[Floats]]:
        """Values and gradients, one (N, 3) per structure."""

    def on_cells(self, batch: Batch, pairs: Pairs | None = None) -> tuple[Floats, Floats, Floats]:
        """Values, gradients by positions, derivatives by strain."""


class System(ABC):
    """What a search looks for, with the defaults of a fixed cell. Systems are immutable."""

    requirement: ClassVar[str]  # what a structure must share with the system, for error messages

    @property
    def variable_cell(self) -> bool:
        """Whether the cell is optimised with the atoms; then the model also learns stress."""
        return False

    @property
    def several_sizes(self) -> bool:
        """Whether structures differ in their numbers of atoms."""
        return self.variable_cell

    @property
    def whole_molecules(self) -> bool:
        """Whether molecules are placed and moved as units."""
        return False

    @property
    def counts_rediscoveries(self) -> bool:
        """Whether rediscovered structures tell how complete the search is (see `search.stop`)."""
        return False

    @property
    @abstractmethod
    def numbers(self) -> Ints:
        """Atomic numbers of all atoms, or of one formula unit if the cell is variable."""

    @property
    @abstractmethod
    def start_generator(self) -> str:
        """The generator that makes the simplest random structures of this system."""

    def numbers_for(self, n_atoms: int) -> Ints:
        """The atomic numbers of a structure of this size, in the order of the system."""
        return self.numbers

    @abstractmethod
    def fault(self, atoms: Atoms) -> str | None:
        """What makes this structure invalid, or None."""

    def checked(self, atoms: Atoms, info: Mapping[str, str]) -> Atoms | Failure:
        """The structure with this `info`, if it is valid."""
        if (fault := self.fault(atoms)) is not None:
            return Failure(fault)
        atoms.info.update(info)
        return atoms

    @abstractmethod
    def to_frame(self, atoms: Atoms) -> tuple[Atoms, Ints] | None:
        """A structure in the system's frame and order of atoms, without results.

        The second item tells which atom of `atoms` became which. None if it belongs to another
        system.
        """

    def equivalents(self, atoms: Atoms) -> Iterator[Atoms]:
        """The structure itself, then other descriptions of it, such as a primitive cell."""
        yield atoms

    def assemble(self, positions: Floats) -> Atoms:
        """The structure with these positions, valid or not; not for systems with variable cell."""
        raise NotImplementedError("A crystal is not determined by positions alone.")

    def draw_target(
        self, rng: np.random.Generator, parents: Sequence[Atoms]
    ) -> tuple[System, Sequence[Atoms]]:
        """The system that the next candidate is generated for, and its parents."""
        return self, parents

    def required_first(self, images: Sequence[Atoms]) -> System:
        """The system that must be evaluated first, given these structures; else the whole one."""
        return self

    def updated(self, images: Sequence[Atoms], energies: Sequence[float]) -> System:
        """The system with the volumes and shortest distances that evaluations suggest."""
        return self

    @abstractmethod
    def _relaxed(
        self, images: Sequence[Atoms], surface: RelaxationSurface, fmax: float, steps: int,
        model_cutoff: float | None, stiffness: float,
    ) -> list[Atoms | None]:  # fmt: skip
        """All candidates after relaxation, None where it failed; see `relax`."""

    def relax(
        self, images: Sequence[Atoms], surface: RelaxationSurface, fmax: float, steps: int,
        model_cutoff: float | None, stiffness: float,
    ) -> list[Atoms]:  # fmt: skip
        """Relax candidates on a surface; invalid results are dropped, `info["generator"]` is kept.

        `model_cutoff` is the reach of a fitted model in Å; None marks a mean function, which does
        not describe volumes. `stiffness` (eV/Å²) is that of the springs that hold molecules.
        """
        relaxed = self._relaxed(images, surface, fmax, steps, model_cutoff, stiffness)
        valid = []
        for before, after in zip(images, relaxed, strict=True):
            if after is not None and self.fault(after) is None:
                after.info["generator"] = before.info["generator"]
                valid.append(after)
        return valid


def in_frame(atoms: Atoms, system: System) -> Atoms | None:
    """The structure in the system's frame with its results; None if it is of another system."""
    framed = system.to_frame(atoms)
    if framed is None:
        return None
    moved, order = framed
    if atoms.calc is not None:
        given = {key: value for key, value in atoms.calc.results.items() if value is not None}
        results = {key: given[key] for key in ("energy", "stress") if key in given}
        if "forces" in given:
            results["forces"] = np.asarray(given["forces"])[order]
        moved.calc = SinglePointCalculator(moved, **results)
    return moved
