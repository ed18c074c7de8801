"""Labels: energies, forces and stresses that structures carry, as ASE keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError

# What a change of makes results void as well, though few structures carry it.
_ELECTRONIC = ("initial_charges", "initial_magmoms")
# Pairs of Cartesian axes in the order of Voigt's six components.
VOIGT = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))


@dataclass(frozen=True, eq=False)
class Known:
    """What a calculator said of one structure."""

    energy: float
    forces: Floats | None
    stress: Floats | None  # (6,)


def read_labels(images: Sequence[Atoms], use_forces: bool | None, use_stress: bool) -> list[Known]:
    """Energies, and forces and stress where wanted; what is missing or not finite is named."""
    return [_read(s, atoms, use_forces, use_stress) for s, atoms in enumerate(images)]


def _read(s: int, atoms: Atoms, use_forces: bool | None, use_stress: bool) -> Known:
    energy = _result(atoms, "energy")
    if energy is None:
        raise NuggetError(
            f"Structure {s} ({atoms.get_chemical_formula()}) has no energy: attach a calculator "
            "and call get_potential_energy(), or read a file that holds energies."
        )
    forces = None if use_forces is False else _result(atoms, "forces")
    if forces is None and use_forces:
        raise NuggetError(
            f"Structure {s} has no forces: compute them, or fit with use_forces=False."
        )
    stress = _result(atoms, "stress") if use_stress else None
    if stress is None and use_stress:
        raise NuggetError(f"Structure {s} has no stress: compute it, or fit with use_stress=False.")
    number = _numbers(s, "energy", energy, ())
    return Known(
        float(number),
        None if forces is None else _numbers(s, "forces", forces, (len(atoms), 3)),
        None if stress is None else _numbers(s, "stress", stress, (6,)),
    )


def _numbers(s: int, name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    """A label as finite numbers of this shape; files may hold anything."""
    try:
        label = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise NuggetError(
            f"Structure {s}: the {name} label is {str(value)[:40]!r}, which is no number; repair "
            "or remove the structure."
        ) from None
    if not np.isfinite(label).all():
        raise NuggetError(
            f"Structure {s}: the {name} label is not finite; repair or remove the structure."
        )
    if label.size == 1 and not shape:
        label = label.reshape(())
    if label.shape != shape:
        atoms = f" for {shape[0]} atoms" if name == "forces" else ""
        raise NuggetError(f"Structure {s}: {name} of shape {label.shape}{atoms}.")
    return label


def _result(atoms: Atoms, name: str) -> float | Floats | None:
    """A stored result; nothing is ever computed here."""
    calc = atoms.calc
    if calc is None:
        return None
    if isinstance(calc, SinglePointCalculator) and name in calc.results and _same(atoms, calc):
        value: float | Floats = calc.results[name]
        return value.copy() if isinstance(value, np.ndarray) else value
    try:
        return calc.get_property(name, atoms, allow_calculation=False)
    except (NotImplementedError, RuntimeError):
        return None


def _same(atoms: Atoms, calc: SinglePointCalculator) -> bool:
    """True when the results surely belong to these atoms, to the last bit.

    ASE's own comparison, which is asked otherwise, takes longer than fitting does.
    """
    old: Atoms | None = calc.atoms
    if old is None:
        return False
    now, then = atoms.arrays, old.arrays
    if any(name in arrays for name in _ELECTRONIC for arrays in (now, then)):
        return False
    return (
        len(atoms) == len(old)
        and bool((now["positions"] == then["positions"]).all())
        and bool((now["numbers"] == then["numbers"]).all())
        and bool((atoms.cell.array == old.cell.array).all())
        and bool((atoms.pbc == old.pbc).all())
    )
