"""What is searched for: atoms to place, what they are placed on, and what counts as sensible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from ase import Atoms
from ase.constraints import FixAtoms
from ase.data import atomic_numbers

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget.errors import NuggetError
from nugget.generators._validity import (
    DISCONNECTED,
    TOO_CLOSE,
    Lattice,
    bonds_of,
    check,
    coordination,
    first_fit,
    lattice,
)
from nugget.generators.composition import check_cell, check_volume, symbols_of
from nugget.generators.molecules import Rules, Unit, units_of
from nugget.relax.confinement import Box, Confinement, Sphere
from nugget.structures.bonds import CONNECTED, radii_of

_APART = "the structure is not connected"


@dataclass(frozen=True)
class Failure:
    """A generator could not make a structure, and why."""

    reason: str


@dataclass(frozen=True)
class Problem:
    """A structure search's setting. Made by `cluster`, `on_template` or `bulk`.

    Every structure has the template's atoms first, then `symbols` in this order. `min_ratio` and
    `bond_ratio` are in units of the sum of two covalent radii: no two atoms closer than the first,
    and all atoms connected (to the template) by bonds not longer than the second. `units` are the
    molecules that stay whole; `rules` then say what is sensible.
    """

    variable_cell: ClassVar[bool] = False

    symbols: tuple[str, ...]
    template: Atoms = field(default_factory=Atoms)
    region: Confinement | None = None
    min_ratio: float = 0.75
    bond_ratio: float = CONNECTED
    units: tuple[Unit, ...] = ()

    def __post_init__(self) -> None:
        unknown = sorted({s for s in self.symbols if s not in atomic_numbers or s == "X"})
        if unknown:
            raise NuggetError(f"{', '.join(unknown)} in the composition is not an element.")
        if not self.symbols:
            raise NuggetError("There are no atoms to place; give a composition such as Au20.")
        if not 0 < self.min_ratio < self.bond_ratio:
            raise NuggetError(
                f"min_ratio {self.min_ratio} must lie between 0 and bond_ratio {self.bond_ratio}."
            )
        if (len(self.template) or self.template.pbc.any()) and self.region is None:
            raise NuggetError("A template or a periodic cell needs a region to place atoms in.")
        if not self.free and self.region is not None and self.region.middle is None:
            raise NuggetError("On a template or in a cell the sphere needs a centre.")

    @classmethod
    def cluster(
        cls, composition: str | Sequence[str], radius: float | None = None, **limits: Any
    ) -> Problem:
        """A free cluster. Without a radius, flat structures fit too, long chains do not."""
        symbols, units = _parts(composition)
        bare = cls(symbols, **limits)
        if radius is None:
            n, bond = len(symbols), bare.bond
            if units:  # molecules keep 3 to 4 Å between their middles
                n, bond = len(units), 3.0 + max(2 * _reach(unit) for unit in units)
            radius = bond * (1.0 + 0.6 * max(np.sqrt(n / 0.9), (n / 0.74) ** (1 / 3)))
        # Centres stay within the radius; half of the closest approach may stick out.
        closest = bare.min_ratio * bare.radii
        check_volume(4 / 3 * np.pi * (radius + float(closest.max())) ** 3, closest)
        return cls(symbols, region=Sphere(float(radius)), units=units, **limits)

    @classmethod
    def on_template(
        cls,
        composition: str | Sequence[str],
        template: Atoms,
        height: float = 5.0,
        region: Confinement | None = None,
        **limits: Any,
    ) -> Problem:
        """Atoms on a surface: within `height` Å above the topmost template atom, unless `region`.

        The template's own constraints are kept; a template without any is fixed as a whole.
        """
        template = template.copy()
        template.calc = None
        if region is None:
            if not (template.pbc[0] and template.pbc[1]):
                raise NuggetError(
                    "The template is not periodic along its first two axes; give a region."
                )
            cell = template.cell.complete().array
            normal = np.cross(cell[0], cell[1])
            normal /= np.linalg.norm(normal)
            top = (template.positions @ normal).max()
            edges = tuple(tuple(float(v) for v in row) for row in (*cell[:2], height * normal))
            origin = tuple(float(v) for v in top * normal)
            region = Box(origin, edges, (True, True, False), skip=len(template))  # type: ignore[arg-type]
        symbols, units = _parts(composition)
        return cls(symbols, template, region, units=units, **limits)

    @classmethod
    def bulk(
        cls, composition: str | Sequence[str], cell: Floats | Sequence[float], **limits: Any
    ) -> Problem:
        """Atoms in a periodic cell."""
        empty = Atoms(cell=cell, pbc=True)
        if empty.cell.rank < 3:
            raise NuggetError("A bulk cell needs three independent vectors.")
        edges = tuple(tuple(float(v) for v in row) for row in empty.cell.array)
        box = Box((0.0, 0.0, 0.0), edges, (True, True, True))  # type: ignore[arg-type]
        symbols, units = _parts(composition)
        problem = cls(symbols, empty, box, units=units, **limits)
        check_cell(np.asarray(empty.cell.array), problem.min_ratio * problem.radii)
        return problem

    def drawn(
        self, rng: np.random.Generator, parents: Sequence[Atoms]
    ) -> tuple[Problem, Sequence[Atoms]]:
        """What the next candidate is made for, and from which known structures."""
        return self, parents

    def learned(self, images: Sequence[Atoms], energies: Sequence[float]) -> Problem:
        """What evaluated structures teach about the problem: nothing where the cell is given."""
        return self

    def lacking(self, images: Sequence[Atoms]) -> Problem:
        """What must be evaluated before all else, when these are known; else the whole problem."""
        return self

    @property
    def n_fixed(self) -> int:
        """Number of template atoms, which come first."""
        return len(self.template)

    @property
    def free(self) -> bool:
        """A cluster in empty space: may be turned and moved at will."""
        return not len(self.template) and not self.template.pbc.any()

    @cached_property
    def numbers(self) -> Ints:
        placed = [atomic_numbers[s] for s in self.symbols]
        return np.concatenate([self.template.numbers, placed]).astype(np.int64)

    @cached_property
    def radii(self) -> Floats:
        return radii_of(self.numbers)

    @property
    def bond(self) -> float:
        """Typical bond length of the placed atoms."""
        return float(2 * self.radii[self.n_fixed :].mean())

    @cached_property
    def lattice(self) -> Lattice:
        return _lattice(self.template, 2 * self.bond_ratio * float(self.radii.max()))

    @cached_property
    def rules(self) -> Rules:
        """What distances molecules allow; of a problem with units."""
        limits = (self.min_ratio, self.bond_ratio)
        reach = _lattice(self.template, 5.0)
        return Rules.of(self.units, self.numbers, self.n_fixed, reach, *limits)

    @cached_property
    def _centre(self) -> Floats:
        middle = None if self.region is None else self.region.middle
        return np.zeros(3) if middle is None else middle

    def start(self) -> tuple[Floats, Bools]:
        """Positions with the template filled in, and which atoms are present so far."""
        x = np.zeros((len(self.numbers), 3))
        x[: self.n_fixed] = self.template.positions
        present = np.arange(len(x)) < self.n_fixed
        return x, present

    def fit(self, points: Floats, i: int, x: Floats, present: Bools, need: int = 1) -> int:
        """Index of the first point where atom i has room and `need` bonds, or −1."""
        g = self.lattice
        return int(
            first_fit(
                points, self.radii[i], i, x, self.radii, present, g.cell, g.inverse, g.shifts,
                self.min_ratio, self.bond_ratio, need,
            )
        )  # fmt: skip

    def bonds(self, points: Floats, i: int, x: Floats, present: Bools, room: float) -> Ints:
        """Bonds that atom i would have at each point, −1 where the ratio falls below `room`."""
        g = self.lattice
        return bonds_of(
            points, self.radii[i], i, x, self.radii, present, g.cell, g.inverse, g.shifts, room,
            self.bond_ratio,
        )  # fmt: skip

    def coordination(self, x: Floats) -> Ints:
        """Neighbours of every atom (template too)."""
        g = self.lattice
        return coordination(x, self.radii, g.cell, g.inverse, g.shifts, self.bond_ratio)

    def fault(self, x: Floats) -> str | None:
        """What is wrong with these positions, or None."""
        wrong = self.rules.fault(x) if self.units else self._atoms_fault(x)
        if wrong is not None:
            return wrong
        if self.region is not None and not np.all(self.region.inside(x[self.n_fixed :], 1e-6)):
            return "an atom is outside the region"
        return None

    def _atoms_fault(self, x: Floats) -> str | None:
        g = self.lattice
        code = check(
            x, self.radii, self.n_fixed, g.cell, g.inverse, g.shifts, self.min_ratio,
            self.bond_ratio,
        )  # fmt: skip
        return {TOO_CLOSE: "two atoms are too close", DISCONNECTED: _APART}.get(code)

    def build(self, x: Floats, **info: str) -> Atoms | Failure:
        """The structure as Atoms when it is valid. Clusters are moved to the region's centre."""
        atoms = self.assemble(x)
        fault = self.fault(atoms.positions)
        if fault is not None:
            return Failure(fault)
        atoms.info.update(info)
        return atoms

    def assemble(self, x: Floats) -> Atoms:
        """The structure as `build` makes it, valid or not."""
        if self.free:
            x = x + (self._centre - x.mean(axis=0))
        atoms = Atoms(
            numbers=self.numbers, positions=x, cell=self.template.cell, pbc=self.template.pbc
        )
        if self.template.constraints:
            atoms.set_constraint([c.copy() for c in self.template.constraints])
        elif self.n_fixed:
            atoms.set_constraint(FixAtoms(indices=np.arange(self.n_fixed)))
        return atoms


def _parts(composition: str | Sequence[str]) -> tuple[tuple[str, ...], tuple[Unit, ...]]:
    if isinstance(composition, str):
        return units_of(composition)
    return symbols_of(composition), ()


def _reach(unit: Unit) -> float:
    """How far a molecule's atoms are from its middle, Å."""
    return float(np.linalg.norm(unit.shape, axis=1).max())


def _lattice(template: Atoms, reach: float) -> Lattice:
    cell = np.asarray(template.cell.complete().array, dtype=float)
    return lattice(cell, template.pbc, reach)
