"""What can be searched for at all: formulas without charge, of a size, with room for all atoms."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from ase.formula import Formula
from ase.geometry import minkowski_reduce

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError

#: Atoms to place at the most: placing and checking more takes minutes for a single candidate.
LARGEST = 2000

_DENSEST = 0.7405  # share of space that equal spheres can fill


def count_atoms(formula: str) -> dict[str, int]:
    """How many atoms of each element a formula such as Au20 or Cu5Au8 has."""
    if "+" in formula or "-" in formula:
        raise NuggetError(
            f"{formula!r}: a formula takes no charge; charges belong into engine.charge "
            "(--set engine.charge=1)."
        )
    try:
        counts: dict[str, int] = Formula(formula, strict=True).count()
    except (ValueError, RecursionError):
        counts = {}
    if not counts or not re.fullmatch(r"[A-Za-z0-9()]+", formula):
        raise NuggetError(f"{formula!r} is not a formula such as Au20 or Cu5Au8.")
    if (total := sum(counts.values())) > LARGEST:
        raise NuggetError(
            f"{formula} has {total} atoms; candidates of more than {LARGEST} atoms would take "
            "hours each."
        )
    return counts


def symbols_of(composition: str | Sequence[str]) -> tuple[str, ...]:
    """The chemical symbol of every atom."""
    if isinstance(composition, str):
        return tuple(s for s, n in count_atoms(composition).items() for _ in range(n))
    return tuple(composition)


def check_cell(cell: Floats, radii: Floats) -> None:
    """Refuse a periodic cell where atoms of these radii meet their own images or do not fit."""
    shortest = float(np.linalg.norm(minkowski_reduce(cell)[0], axis=1).min())
    if shortest < 2 * radii.min():
        raise NuggetError(
            f"The cell is only {shortest:.3g} Å wide: an atom would meet its own image, which must "
            f"be {2 * radii.min():.3g} Å away; give a larger cell."
        )
    check_volume(abs(float(np.linalg.det(cell))), radii)


def check_volume(volume: float, radii: Floats) -> None:
    """Refuse a volume (Å³) in which spheres of these radii do not fit."""
    needed = 4 / 3 * np.pi * float((radii**3).sum()) / _DENSEST
    if volume < needed:
        raise NuggetError(
            f"{len(radii)} atoms do not fit into {volume:.3g} Å³: they need at least "
            f"{needed:.3g} Å³; give more room."
        )
