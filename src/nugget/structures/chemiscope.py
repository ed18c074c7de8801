"""Structures and their properties as a JSON file for chemiscope (https://chemiscope.org).

The file is a data set of chemiscope: structures, and properties of structures and of atoms.
Any two properties can be the axes of its map.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

SUFFIXES = (".chemiscope.json", ".chemiscope.json.gz")

# Radius of the environments that are marked around an atom, Å.
_RADIUS = 5.0

_UNITS = {
    "energy": "eV",
    "energy_per_atom": "eV/atom",
    "energy_uncertainty": "eV",
    "largest_force": "eV/Å",
    "volume_per_atom": "Å³",
    "energies": "eV",
    "energies_uncertainty": "eV",
    "force": "eV/Å",
    "expected_uncertainty": "",
}


def is_chemiscope(path: Path) -> bool:
    return path.name.endswith(SUFFIXES)


def write_chemiscope(path: Path, images: Sequence[Atoms], name: str = "nugget") -> None:
    """Write structures with all numbers and texts that every one of them has."""
    rows = [_of_structure(k, atoms) for k, atoms in enumerate(images)]
    properties = {
        key: _property("structure", key, [row[key] for row in rows])
        for key in rows[0]
        if all(key in row for row in rows)
    }
    atoms_rows = [_of_atoms(atoms) for atoms in images]
    shared = [key for key in atoms_rows[0] if all(key in row for row in atoms_rows)]
    data: dict[str, Any] = {
        "meta": {"name": name},
        "structures": [_structure(atoms) for atoms in images],
        "properties": properties,
    }
    if shared:
        for key in shared:
            values = [value for row in atoms_rows for value in row[key]]
            properties[f"{key} (atom)"] = _property("atom", key, values)
        data["environments"] = [
            {"structure": s, "center": i, "cutoff": _RADIUS}
            for s, atoms in enumerate(images)
            for i in range(len(atoms))
        ]
    text = json.dumps(data, allow_nan=False).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def _property(target: str, key: str, values: list[Any]) -> dict[str, Any]:
    found = {"target": target, "values": values}
    return {**found, "units": _UNITS[key]} if _UNITS.get(key) else found


def _structure(atoms: Atoms) -> dict[str, Any]:
    x, y, z = (atoms.positions[:, axis].tolist() for axis in range(3))
    found = {"size": len(atoms), "names": list(atoms.symbols), "x": x, "y": y, "z": z}
    if atoms.pbc.any() and atoms.cell.rank == 3:
        found["cell"] = atoms.cell.array.ravel().tolist()
    return found


def _of_structure(number: int, atoms: Atoms) -> dict[str, Any]:
    """Numbers and texts of one structure, for the axes and colours of the map."""
    results = {} if atoms.calc is None else atoms.calc.results
    found: dict[str, Any] = {"index": number, "formula": atoms.get_chemical_formula()}
    found["atoms"] = len(atoms)
    if results.get("energy") is not None:
        found["energy"] = float(results["energy"])
        found["energy_per_atom"] = found["energy"] / len(atoms)
    if results.get("forces") is not None:
        found["largest_force"] = float(np.linalg.norm(results["forces"], axis=1).max())
    if atoms.cell.rank == 3 and atoms.pbc.all():
        found["volume_per_atom"] = float(atoms.get_volume()) / len(atoms)
    for key, value in atoms.info.items():
        if isinstance(value, str):
            found.setdefault(str(key), value)
        elif np.ndim(value) == 0 and _is_finite(value):
            found.setdefault(str(key), float(value))
    return found


def _of_atoms(atoms: Atoms) -> dict[str, list[float]]:
    results = {} if atoms.calc is None else atoms.calc.results
    found = {}
    if results.get("forces") is not None:
        found["force"] = np.linalg.norm(results["forces"], axis=1).tolist()
    for home, key in ((results, "energies"), (atoms.arrays, "energies_uncertainty")):
        if home.get(key) is not None:
            found[key] = np.asarray(home[key], float).tolist()
    return found


def _is_finite(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except (TypeError, ValueError):
        return False
