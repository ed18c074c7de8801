"""Errors and coverage of groups: by formula, size, kind of structure, element, or a key of info."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from nugget._compiled.arrays import Bools, Floats

if TYPE_CHECKING:
    from nugget.calibration.components import Components
    from nugget.calibration.potential import Residuals

Groups = dict[str, list[int]]
_KINDS = ("cluster or molecule", "chain", "slab", "bulk")


def grouped_by(images: Sequence[Atoms], key: str) -> Groups:
    """Numbers of structures by 'formula', 'size', 'kind' or a key of info, large groups first."""
    known: dict[str, Callable[[Atoms], str]] = {
        "formula": lambda atoms: atoms.get_chemical_formula(),
        "size": lambda atoms: f"{len(atoms)} atoms",
        "kind": lambda atoms: _KINDS[int(atoms.pbc.sum())],
    }
    name_of = known.get(key, lambda atoms: str(atoms.info.get(key, "–")))
    groups: Groups = {}
    for s, atoms in enumerate(images):
        groups.setdefault(name_of(atoms), []).append(s)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def group_errors(
    found: Residuals, parts: Mapping[str, Components], members: Sequence[int]
) -> dict[str, float]:
    """Errors and shares within the error bars of some structures."""
    own = np.asarray(members)
    out: dict[str, float] = {"structures": len(own)}
    energy = _errors((found.y_true - found.y_pred)[own], found.y_std[own])
    out |= {("energy_mae" if name == "mae" else name): value for name, value in energy.items()}
    for kind, part in parts.items():
        some = part.of(list(members))
        if len(some.y_true):
            errors = _errors(some.y_true - some.y_pred, some.y_std)
            out |= {f"{kind}_{name}": value for name, value in errors.items()}
    return out


def element_errors(images: Sequence[Atoms], forces: Components) -> dict[str, dict[str, float]]:
    """Errors and coverage of force components, by the element that they act on."""
    symbols = component_elements(images, forces)
    return {
        str(symbol): {"atoms": int(own.sum()) // 3, **_element(forces, own)}
        for symbol in np.unique(symbols)
        for own in (symbols == symbol,)
    }


def component_elements(images: Sequence[Atoms], forces: Components) -> NDArray[np.str_]:
    """The element of each force component."""
    owners = forces.owner[np.flatnonzero(np.diff(forces.owner, prepend=-1))]
    return np.concatenate([np.repeat(images[s].get_chemical_symbols(), 3) for s in owners])


def force_error_per_atom(parts: Mapping[str, Components]) -> dict[str, float] | None:
    """Lengths of the errors of atoms' forces: mean, root mean square, the worst of twenty."""
    if "force" not in parts:
        return None
    part = parts["force"]
    length = np.linalg.norm((part.y_pred - part.y_true).reshape(-1, 3), axis=1)
    return {
        "mean": float(length.mean()),
        "rms": float(np.sqrt(np.mean(length**2))),
        "quantile_95": float(np.quantile(length, 0.95)),
    }


def _element(forces: Components, own: Bools) -> dict[str, float]:
    error = (forces.y_pred - forces.y_true)[own]
    rmse = float(np.sqrt(np.mean(error**2)))
    return {**_errors(error, forces.y_std[own]), "rmse": rmse}


def _errors(error: Floats, std: Floats) -> dict[str, float]:
    size = np.abs(error)
    return {
        "mae": float(size.mean()),
        "within_1": float(np.mean(size <= std)),
        "within_2": float(np.mean(size <= 2 * std)),
    }
