"""Labels: energies, forces and stresses stored with structures, as ASE keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats

# Arrays that also invalidate results when they change; few structures have them.
_ELECTRONIC = ("initial_charges", "initial_magmoms")

# Names in `info` of a structure's own noise levels (eV/atom, eV/Å), and of its weight.
ENERGY_NOISE, FORCE_NOISE, WEIGHT = "energy_noise", "force_noise", "label_weight"

# Pairs of Cartesian axes in the order of Voigt's six components.
VOIGT = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))
_ROWS, _COLUMNS = np.array(VOIGT).T


@dataclass(frozen=True, eq=False)
class StructureLabels:
    """The labels of one structure, and how well they are known."""

    energy: float
    forces: Floats | None
    stress: Floats | None  # (6,)
    energy_noise: float | None = None  # eV/atom; None: the level of the potential
    force_noise: float | None = None  # eV/Å
    weight: float = 1.0  # divides the variances of the noise


def read_labels(
    images: Sequence[Atoms], use_forces: bool | None, use_stress: bool
) -> list[StructureLabels]:
    """Energies, and forces and stress if wanted; missing or non-finite labels are errors.

    Some structures may lack a stress, but not all of them.
    """
    labels = [_read(s, atoms, use_forces, use_stress) for s, atoms in enumerate(images)]
    if use_stress and labels and all(one.stress is None for one in labels):
        raise NuggetError(
            "Structure 0 has no stress, nor has any other: compute it, or fit with "
            "use_stress=False."
        )
    return labels


def _read(s: int, atoms: Atoms, use_forces: bool | None, use_stress: bool) -> StructureLabels:
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
    if stress is not None and atoms.cell.rank < 3:
        raise NuggetError(
            f"Structure {s} has a stress but no cell volume: set its cell, or fit with "
            "use_stress=False."
        )
    number = _numbers(s, "energy", energy, ())
    return StructureLabels(
        float(number),
        None if forces is None else _numbers(s, "forces", forces, (len(atoms), 3)),
        None if stress is None else _numbers(s, "stress", stress, (6,)),
        _positive(s, atoms, ENERGY_NOISE),
        _positive(s, atoms, FORCE_NOISE),
        _positive(s, atoms, WEIGHT) or 1.0,
    )


def _positive(s: int, atoms: Atoms, name: str) -> float | None:
    """A positive number in `info`, or None if there is none of this name."""
    if name not in atoms.info:
        return None
    value = float(_numbers(s, name, atoms.info[name], ()))
    if value <= 0.0:
        raise NuggetError(f"Structure {s}: {name} is {value:g}; it must be a positive number.")
    return value


def check_stored(images: Sequence[Atoms]) -> None:
    """Refuse labels that are not finite or have the wrong shape; a structure may have none."""
    for s, atoms in enumerate(images):
        results = {} if atoms.calc is None else atoms.calc.results
        shapes = {"energy": (), "forces": (len(atoms), 3), "stress": (6,)}
        for name, shape in shapes.items():
            if results.get(name) is not None:
                label = _numbers(s, name, results[name], shape)
                results[name] = label if shape else float(label)


def stored_energy(atoms: Atoms) -> float:
    """The energy that a structure's calculator holds; nothing is calculated."""
    energy = None if atoms.calc is None else atoms.calc.results.get("energy")
    if energy is None:
        raise NuggetError(f"{atoms.get_chemical_formula()} carries no energy; attach one.")
    return float(energy)


def voigt(tensor: Floats, axis: int = 0) -> Floats:
    """Six components of a tensor symmetrised over its axes `axis` and `axis` + 1."""
    before = (slice(None),) * axis
    upper, lower = tensor[(*before, _ROWS, _COLUMNS)], tensor[(*before, _COLUMNS, _ROWS)]
    return np.ascontiguousarray(0.5 * (upper + lower))


def _numbers(s: int, name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    """A label as an array of finite numbers of this shape."""
    try:
        label = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise NuggetError(
            f"Structure {s}: the {name} label is {str(value)[:40]!r}, which is not a number; "
            "repair or remove the structure."
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
    """A stored result; nothing is calculated."""
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
    """Whether the calculator's atoms equal these to the last bit.

    If not, ASE compares them with its tolerance, which takes longer than fitting.
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
