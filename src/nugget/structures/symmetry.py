"""Space groups of crystals (the only calls of spglib), and point groups of clusters."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints


def _call(name: str, *args: Any, **options: Any) -> Any:
    """What spglib says; None if it finds nothing. Its warnings are about its own changes."""
    import spglib

    failure = getattr(spglib, "SpglibError", ())  # versions before 2.7 give None instead
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return getattr(spglib, name)(*args, **options)
        except failure:
            return None


def _cell(atoms: Atoms) -> tuple[Floats, Floats, Ints]:
    # spglib dies of numbers that are none.
    if not (np.isfinite(atoms.positions).all() and np.isfinite(atoms.cell.array).all()):
        raise NuggetError("A crystal has positions or a cell that are not finite numbers.")
    return np.array(atoms.cell.array), atoms.get_scaled_positions(), np.array(atoms.numbers)


def standardised(atoms: Atoms, to_primitive: bool, symprec: float) -> Atoms:
    """The standardised primitive or conventional cell; the crystal itself if none is found."""
    found = _call("standardize_cell", _cell(atoms), to_primitive=to_primitive, symprec=symprec)
    if found is None:
        return atoms.copy()
    cell, points, numbers = found
    return Atoms(numbers, cell=cell, scaled_positions=points, pbc=True)


def space_group_of(atoms: Atoms, symprec: float = 0.1) -> str:
    """Symbol and number, as Fd-3m (227), with a tolerance in Å; empty if none is found."""
    return str(_call("get_spacegroup", _cell(atoms), symprec=symprec) or "")


@cache
def _hall_numbers() -> dict[int, int]:
    """The first setting of every space group."""
    found: dict[int, int] = {}
    for hall in range(1, 531):
        found.setdefault(int(_call("get_spacegroup_type", hall).number), hall)
    return found


def operations(number: int) -> tuple[Ints, Floats]:
    """Rotations and translations of a space group in its conventional cell."""
    database = _call("get_symmetry_from_database", _hall_numbers()[number])
    rotations = np.asarray(database["rotations"], dtype=np.int64)
    return rotations, np.asarray(database["translations"], dtype=np.float64)


# --- Point groups of clusters, within a tolerance ---
#
# An operation counts when it brings every atom to within `tolerance` of another one of its element,
# no two of them to the same. Axes and mirrors are looked for where they can be: along atoms, sums
# and differences of two atoms of one shell, and normals of planes through three atoms a, b, c with
# |ab| = |bc|, as a rotation takes a to b to c. A candidate that nearly works is replaced by the
# rotation that fits best (Kabsch) before it is judged, so that one displaced atom hides no axis.


HIGHEST = 8  # order of the axes that are looked for
_PARALLEL = 0.97  # cosine from which on two directions are one


def point_group(atoms: Atoms, tolerance: float = 0.25) -> str:
    """Schoenflies symbol, such as Td, D5h or C1; `tolerance` in Å."""
    if atoms.pbc.any():
        raise NuggetError("A periodic structure has no point group; give a cluster.")
    if len(atoms) < 2:
        return "Kh"
    figure = _Figure(atoms, tolerance)
    if figure.linear:
        return "Dinfh" if figure.has(-np.eye(3)) else "Cinfv"
    axes = figure.axes()
    mirrors = figure.mirrors()
    inversion = figure.has(-np.eye(3))
    for order, symbol in ((5, "I"), (4, "O"), (3, "T")):
        if sum(n >= order for n, _ in axes) > 1 and any(n == order for n, _ in axes):
            return _cubic(symbol, bool(len(mirrors)), inversion)
    if not axes:
        return "Cs" if len(mirrors) else "Ci" if inversion else "C1"
    order, main = max(axes, key=lambda found: found[0])
    return figure.axial(order, main, axes, mirrors)


def _cubic(symbol: str, mirror: bool, inversion: bool) -> str:
    if symbol == "T":
        return "Th" if inversion else "Td" if mirror else "T"
    return f"{symbol}h" if inversion else symbol


def rotation(axis: Floats, angle: float) -> Floats:
    """Rotation by `angle` about a unit vector (Rodrigues)."""
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    turned = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    return np.asarray(turned)


def reflection(normal: Floats) -> Floats:
    """Mirror through the origin."""
    return np.asarray(np.eye(3) - 2 * np.outer(normal, normal))


class _Figure:
    """Atoms about their centre."""

    def __init__(self, atoms: Atoms, tolerance: float) -> None:
        self.x = atoms.positions - atoms.positions.mean(axis=0)
        self.tolerance = tolerance
        self._other = atoms.numbers[:, None] != atoms.numbers  # elements that do not match
        self._shells = _shells(atoms.numbers, self.x, tolerance)
        self._principal = np.linalg.svd(self.x)[2]

    @property
    def linear(self) -> bool:
        off = self.x - np.outer(self.x @ self._principal[0], self._principal[0])
        return bool(np.max(np.linalg.norm(off, axis=1)) < self.tolerance)

    def image(self, operation: Floats, tolerance: float) -> Ints | None:
        """Which atom each atom is brought to, or None if the operation is none of the figure's."""
        moved = self.x @ operation.T
        apart = np.linalg.norm(moved[:, None] - self.x, axis=-1)
        apart[self._other] = np.inf
        image = np.argmin(apart, axis=1)
        close = apart[np.arange(len(image)), image] <= tolerance
        if not close.all() or len(np.unique(image)) < len(image):
            return None
        return image

    def has(self, operation: Floats) -> bool:
        return self.image(operation, self.tolerance) is not None

    def fitted(self, operation: Floats) -> Floats | None:
        """The operation near this one that fits best; None where there is none."""
        image = self.image(operation, 2.5 * self.tolerance)
        if image is None:
            return None
        u, _, vt = np.linalg.svd(self.x[image].T @ self.x)
        handed = np.sign(np.linalg.det(operation) * np.linalg.det(u @ vt))
        return np.asarray(u @ np.diag([1.0, 1.0, handed]) @ vt)

    def axes(self) -> list[tuple[int, Floats]]:
        """Order and direction of all axes, each with its highest order."""
        found: list[tuple[int, Floats]] = []
        for order in range(HIGHEST, 1, -1):
            for axis in self._directions(differences=False):
                if any(abs(axis @ other) > _PARALLEL for _, other in found):
                    continue
                best = self.fitted(rotation(axis, 2 * np.pi / order))
                if best is None:
                    continue
                values, vectors = np.linalg.eigh(0.5 * (best + best.T))
                axis = vectors[:, np.argmax(values)]
                if self.has(rotation(axis, 2 * np.pi / order)):
                    found.append((order, axis))
        return found

    def mirrors(self) -> list[Floats]:
        """Normals of all mirror planes."""
        found: list[Floats] = []
        for normal in self._directions(differences=True):
            if any(abs(normal @ other) > _PARALLEL for other in found):
                continue
            best = self.fitted(reflection(normal))
            if best is not None:
                values, vectors = np.linalg.eigh(0.5 * (best + best.T))
                normal = vectors[:, np.argmin(values)]
                if self.has(reflection(normal)):
                    found.append(normal)
        return found

    def axial(
        self, order: int, main: Floats, axes: list[tuple[int, Floats]], mirrors: list[Floats]
    ) -> str:
        """Symbol of a group with one main axis."""
        across = sum(n % 2 == 0 and abs(axis @ main) < 0.3 for n, axis in axes)
        horizontal = any(abs(normal @ main) > _PARALLEL for normal in mirrors)
        vertical = sum(abs(normal @ main) < 0.3 for normal in mirrors)
        if across >= order:
            return f"D{order}{'h' if horizontal else 'd' if vertical >= order else ''}"
        if horizontal:
            return f"C{order}h"
        if vertical >= order:
            return f"C{order}v"
        improper = rotation(main, np.pi / order) @ reflection(main)
        return f"S{2 * order}" if self.has(improper) else f"C{order}"

    def _directions(self, differences: bool) -> list[Floats]:
        """Unit vectors along which axes (or normals of mirrors) may be, each direction once."""
        candidates = [*self._principal, *self.x]
        for rows in self._shells:
            pairs = combinations(self.x[rows], 2)
            candidates += [a - b if differences else a + b for a, b in pairs]
        if not differences:
            candidates += self._planes()
        vectors = np.array(candidates)
        lengths = np.linalg.norm(vectors, axis=1)
        vectors = vectors[lengths > 0.3] / lengths[lengths > 0.3, None]
        kept: list[Floats] = []
        for vector in vectors:
            if not kept or np.max(np.abs(np.array(kept) @ vector)) < 0.995:
                kept.append(vector)
        return kept

    def _planes(self) -> list[Floats]:
        """Normals of planes through the first atom of a small shell and two images of it."""
        x = self.x[min(self._shells, key=lambda rows: (len(rows) < 3, len(rows)))]
        apart = np.linalg.norm(x[:, None] - x, axis=-1)
        alike = np.abs(apart[0][:, None] - apart) < 2 * self.tolerance
        b, c = np.nonzero(alike)
        return list(np.cross(x[b] - x[0], x[c] - x[0]))


def _shells(numbers: Ints, x: Floats, tolerance: float) -> list[Ints]:
    """Rows of atoms of one element and about one distance from the centre."""
    radius = np.linalg.norm(x, axis=1)
    shells = []
    for number in np.unique(numbers):
        rows = np.flatnonzero(numbers == number)
        rows = rows[np.argsort(radius[rows], kind="stable")]
        breaks = np.flatnonzero(np.diff(radius[rows]) > tolerance) + 1
        shells += np.split(rows, breaks)
    return shells
