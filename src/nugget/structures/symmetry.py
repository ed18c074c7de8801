"""Space groups: the only place where spglib is called."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError


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
