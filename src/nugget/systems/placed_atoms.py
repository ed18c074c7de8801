"""Systems with a given cell: a free cluster, atoms on a template (surface), atoms in a bulk cell.

All three place atoms, or whole molecules, into a region. They differ in the template and the region
only, so that one class, `PlacedAtoms`, covers them. The kinds that settings name are at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ase import Atoms
from ase.cell import Cell
from ase.constraints import FixAtoms
from ase.data import atomic_numbers

from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.registry import registered
from nugget.relax.relaxation import BatchSurface, PlainSurface, Springs, relax
from nugget.settings import resolve_path
from nugget.structures.batch import as_batch
from nugget.structures.geometry import CONNECTED, radii_of
from nugget.structures.io import read_images
from nugget.structures.neighbours import find_pairs
from nugget.structures.regions import Box, Confinement, Sphere
from nugget.systems.base import Failure, RelaxationSurface, System
from nugget.systems.molecules import Rules, Unit, units_of
from nugget.systems.system_settings import SystemConfig, SystemKind
from nugget.systems.validity import (
    DISCONNECTED,
    TOO_CLOSE,
    Lattice,
    bonds_of,
    check,
    check_cell,
    check_volume,
    coordination,
    first_fit,
    lattice,
    learned_ratio,
    symbols_of,
)

_FAULTS = {TOO_CLOSE: "two atoms are too close", DISCONNECTED: "the structure is not connected"}
_SAME = 0.01  # Å; cells and fixed atoms that agree within this are the same
_WIDEST = 0.9  # a learned shortest distance stays below this share of a bond's largest length
_RUNAWAY = 10.0  # Å; a candidate with an atom that moves farther has failed


@dataclass(frozen=True)
class PlacedAtoms(System):
    """Atoms or molecules in a region; construct it with `cluster`, `on_template` or `bulk`.

    Every structure has the template's atoms first, then `symbols` in this order. `min_ratio` and
    `bond_ratio` are in units of the sum of two covalent radii: no two atoms are closer than the
    first, and bonds up to the second connect all atoms (and the template). `units` are the
    molecules that stay whole; `rules` then define which distances are valid.
    """

    requirement: ClassVar[str] = "composition, cell and template must be the same"

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
        if not self.symbols and not len(self.template):
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
    ) -> PlacedAtoms:
        """A free cluster. The default radius leaves room for flat structures, not for chains."""
        symbols, units = _parts(composition)
        bare = cls(symbols, **limits)
        if radius is None:
            n, bond = len(symbols), bare.bond
            if units:  # centres of molecules are 3 to 4 Å apart
                n, bond = len(units), 3.0 + max(2 * _reach(unit) for unit in units)
            radius = bond * (1.0 + 0.6 * max(np.sqrt(n / 0.9), (n / 0.74) ** (1 / 3)))
        # Centres of atoms stay within the radius; half of the shortest distance extends beyond.
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
    ) -> PlacedAtoms:
        """Atoms within `height` Å above the topmost atom of a template, or in a `region`.

        The template's constraints are kept; a template without constraints is fixed as a whole.
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
            edges = _tuples(np.array([*cell[:2], height * normal]))
            region = Box(
                tuple((top * normal).tolist()), edges, (True, True, False), skip=len(template)
            )
        symbols, units = _parts(composition)
        return cls(symbols, template, region, units=units, **limits)

    @classmethod
    def bulk(
        cls, composition: str | Sequence[str], cell: Floats | Sequence[float], **limits: Any
    ) -> PlacedAtoms:
        """Atoms in a periodic cell."""
        empty = Atoms(cell=cell, pbc=True)
        if empty.cell.rank < 3:
            raise NuggetError("A bulk cell needs three independent vectors.")
        box = Box((0.0, 0.0, 0.0), _tuples(empty.cell.array), (True, True, True))
        symbols, units = _parts(composition)
        system = cls(symbols, empty, box, units=units, **limits)
        check_cell(np.asarray(empty.cell.array), system.min_ratio * system.radii)
        return system

    @property
    def whole_molecules(self) -> bool:
        return bool(self.units)

    @property
    def counts_rediscoveries(self) -> bool:
        """Bond graphs, by which rediscovered structures are counted, are all alike in molecules."""
        return not self.units

    @property
    def start_generator(self) -> str:
        if self.units:
            return "random_molecules"
        return "random_cluster" if self.free else "random_placement"

    @property
    def n_fixed(self) -> int:
        """Number of template atoms, which come first."""
        return len(self.template)

    @property
    def free(self) -> bool:
        """Whether this is a cluster in empty space, which may be rotated and translated."""
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
        """Which distances are valid, for systems with molecules."""
        limits = (self.min_ratio, self.bond_ratio)
        reach = _lattice(self.template, 5.0)
        return Rules.of(self.units, self.numbers, self.n_fixed, reach, *limits)

    @cached_property
    def _centre(self) -> Floats:
        middle = None if self.region is None else self.region.middle
        return np.zeros(3) if middle is None else middle

    def start(self) -> tuple[Floats, Bools]:
        """Positions with those of the template set, and which atoms are present so far."""
        x = np.zeros((len(self.numbers), 3))
        x[: self.n_fixed] = self.template.positions
        present = np.arange(len(x)) < self.n_fixed
        return x, present

    @property
    def _cell(self) -> tuple[Floats, Floats, Floats]:
        """The lattice as arguments of the compiled loops."""
        return self.lattice.cell, self.lattice.inverse, self.lattice.shifts

    def fit(self, points: Floats, i: int, x: Floats, present: Bools, need: int = 1) -> int:
        """Index of the first point that is valid for atom i with `need` bonds, or −1."""
        atom, limits = (self.radii[i], i, x, self.radii, present), (self.min_ratio, self.bond_ratio)
        return int(first_fit(points, *atom, *self._cell, *limits, need))

    def bonds(self, points: Floats, i: int, x: Floats, present: Bools, room: float) -> Ints:
        """Bonds that atom i would have at each point, −1 where the ratio falls below `room`."""
        atom = (self.radii[i], i, x, self.radii, present)
        return bonds_of(points, *atom, *self._cell, room, self.bond_ratio)

    def coordination(self, x: Floats) -> Ints:
        """Number of neighbours of every atom, those of the template included."""
        return coordination(x, self.radii, *self._cell, self.bond_ratio)

    def fault(self, atoms: Atoms) -> str | None:
        x = atoms.positions
        wrong = self.rules.fault(x) if self.units else self._atoms_fault(x)
        if wrong is not None:
            return wrong
        if self.region is not None and not np.all(self.region.inside(x[self.n_fixed :], 1e-6)):
            return "an atom is outside the region"
        return None

    def _atoms_fault(self, x: Floats) -> str | None:
        limits = (self.min_ratio, self.bond_ratio)
        return _FAULTS.get(check(x, self.radii, self.n_fixed, *self._cell, *limits))

    def updated(self, images: Sequence[Atoms], energies: Sequence[float]) -> PlacedAtoms:
        """With the shortest distance that evaluations leave open; molecules have rules instead."""
        if self.units or not images:
            return self
        values = np.array(energies) / [len(atoms) for atoms in images]
        closest = np.array([self._closest(atoms) for atoms in images])
        ratio = min(learned_ratio(closest, values, self.min_ratio), _WIDEST * self.bond_ratio)
        return self if ratio <= self.min_ratio else replace(self, min_ratio=ratio)

    def _closest(self, atoms: Atoms) -> float:
        """The shortest distance of a placed atom, in units of the sum of two covalent radii."""
        batch = as_batch([atoms])
        pairs = find_pairs(batch, 2 * self.bond_ratio * float(self.radii.max()))
        placed = (pairs.i >= self.n_fixed) | (pairs.j >= self.n_fixed)
        ratios = pairs.distances(batch) / (self.radii[pairs.i] + self.radii[pairs.j])
        return float(np.min(ratios[placed], initial=np.inf))

    def build(self, x: Floats, **info: str) -> Atoms | Failure:
        """The structure with these positions if it is valid; see `assemble`."""
        return self.checked(self.assemble(x), info)

    def assemble(self, x: Floats) -> Atoms:
        """The structure with these positions. Clusters are moved to the centre of the region."""
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

    def to_frame(self, atoms: Atoms) -> tuple[Atoms, Ints] | None:
        """The structure with atoms in the system's order; a cluster is moved to the centre.

        Elsewhere the cell, the template's elements and its fixed atoms must agree.
        """
        order = self._order_of(atoms.numbers)
        if order is None or not np.array_equal(atoms.pbc, self.template.pbc):
            return None
        framed = self.assemble(atoms.positions[order])
        if not self.free:
            fixed = [i for c in framed.constraints for i in getattr(c, "index", [])]
            if not np.allclose(atoms.cell, self.template.cell, rtol=0, atol=_SAME):
                return None
            before = self.start()[0]
            if not np.allclose(framed.positions[fixed], before[fixed], rtol=0, atol=_SAME):
                return None
        return framed, order

    def _order_of(self, numbers: Ints) -> Ints | None:
        """Which of these atoms stands for each atom of the system; None if they do not fit."""
        n, wanted = self.n_fixed, self.numbers
        if len(numbers) != len(wanted) or not np.array_equal(numbers[:n], wanted[:n]):
            return None
        if not np.array_equal(np.sort(numbers[n:]), np.sort(wanted[n:])):
            return None
        order = np.arange(len(wanted))
        given = np.argsort(numbers[n:], kind="stable")
        order[n + np.argsort(wanted[n:], kind="stable")] = n + given
        return order

    def _relaxed(
        self, images: Sequence[Atoms], surface: RelaxationSurface, fmax: float, steps: int,
        model_cutoff: float | None, stiffness: float,
    ) -> list[Atoms | None]:  # fmt: skip
        """Relax atoms in the region; springs hold molecules nearly rigid."""
        if not images:
            return []
        held: PlainSurface | BatchSurface = surface
        if self.units and stiffness:
            held = Springs(surface, self.rules.held, self.rules.lengths, stiffness)
        relaxed = relax(images, held, fmax, steps, self.region, runaway=_RUNAWAY)
        return [one.atoms if one.ok else None for one in relaxed]


@registered("system")
class ClusterKind(SystemKind):
    """A free cluster."""

    name = "cluster"

    def make(self, settings: SystemConfig, directory: Path) -> PlacedAtoms:
        return PlacedAtoms.cluster(settings.formula, settings.radius)


@registered("system")
class SurfaceKind(SystemKind):
    """Atoms on a template."""

    name = "surface"

    def check(self, settings: SystemConfig) -> None:
        super().check(settings)
        if settings.template is None:
            raise ValueError("a surface search needs system.template, a file with the slab")

    def make(self, settings: SystemConfig, directory: Path) -> PlacedAtoms:
        template = read_images(resolve_path(str(settings.template), directory), -1)[0]
        return PlacedAtoms.on_template(settings.formula, template, settings.height)

    def title(self, settings: SystemConfig) -> str:
        return f"{settings.formula} on {Path(settings.template or '').stem}"


@registered("system")
class BulkKind(SystemKind):
    """Atoms in a periodic cell of fixed shape."""

    name = "bulk"

    def check(self, settings: SystemConfig) -> None:
        super().check(settings)
        if settings.cell is None or len(settings.cell) not in (3, 6):
            raise ValueError("a bulk search needs system.cell with 3 or 6 numbers")

    def make(self, settings: SystemConfig, directory: Path) -> PlacedAtoms:
        assert settings.cell is not None  # see `check`
        return PlacedAtoms.bulk(settings.formula, Cell.new(list(settings.cell)).array)


def _parts(composition: str | Sequence[str]) -> tuple[tuple[str, ...], tuple[Unit, ...]]:
    if isinstance(composition, str):
        return units_of(composition)
    return symbols_of(composition), ()


def _tuples(rows: Floats) -> Any:
    return tuple(map(tuple, rows.tolist()))


def _reach(unit: Unit) -> float:
    """Largest distance of an atom from the centre of its molecule, Å."""
    return float(np.linalg.norm(unit.shape, axis=1).max())


def _lattice(template: Atoms, reach: float) -> Lattice:
    cell = np.asarray(template.cell.complete().array, dtype=float)
    return lattice(cell, template.pbc, reach)
