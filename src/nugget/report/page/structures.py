"""Structures in few bytes: positions in units of 1e-4 Å, arrays in base64."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols
from ase.data.colors import jmol_colors
from numpy.typing import ArrayLike

from nugget.structures.bonds import RADII

UNIT = 1e-4  # Å


class Structures:
    """A growing list of structures; what was added is never changed."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self._elements: set[int] = set()

    def __len__(self) -> int:
        return len(self.frames)

    def add(
        self,
        atoms: Atoms,
        label: str = "",
        values: Mapping[str, ArrayLike] | None = None,
        energy: float | None = None,
    ) -> int:
        """Its number. `values` are per atom; `energy` (eV) goes into the files to download."""
        frame: dict[str, Any] = {
            "z": _packed(np.clip(atoms.numbers, 0, 255), np.uint8),
            "r": _packed(np.rint(_finite(atoms.positions, 1e5) / UNIT), np.int32),
        }
        if atoms.cell.rank:
            frame["cell"] = np.round(_finite(atoms.cell.array.ravel(), 1e5), 6).tolist()
        if atoms.pbc.any():
            frame["pbc"] = [int(one) for one in atoms.pbc]
        if label:
            frame["label"] = label
        if energy is not None:
            frame["energy"] = round(energy, 6)
        if values:
            frame["values"] = {name: _packed(v, np.float32) for name, v in values.items()}
        self._elements.update(int(z) for z in np.clip(atoms.numbers, 0, 255))
        self.frames.append(frame)
        return len(self.frames) - 1

    def spec(self, start: int = 0) -> dict[str, Any]:
        """All of them, or those from number `start` on."""
        return {
            "from": start,
            "elements": {z: _element(z) for z in sorted(self._elements)},
            "frames": self.frames[start:],
        }


def _element(z: int) -> dict[str, Any]:
    known = 0 < z < min(len(jmol_colors), len(RADII))
    rgb = jmol_colors[z] if known else (0.6, 0.6, 0.6)
    colour = "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
    symbol = chemical_symbols[z] if z < len(chemical_symbols) else "X"
    return {"symbol": symbol, "color": colour, "radius": float(RADII[z]) if known else 1.0}


def _finite(values: ArrayLike, limit: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64)), -limit, limit)


def _packed(values: ArrayLike, kind: type) -> str:
    """Little-endian bytes in base64."""
    array = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<"))
    return b64encode(array.tobytes()).decode("ascii")
