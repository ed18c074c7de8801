"""A page from plain data to one HTML file: columns, structures, JSON, scripts."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from importlib import resources
from math import isfinite
from typing import Any

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols
from ase.data.colors import jmol_colors
from numpy.typing import ArrayLike

from nugget.report.page.sections import Section
from nugget.structures.geometry import RADII, free_mask


def plain(value: Any) -> Any:
    """Values that JSON can hold: no NumPy, and None for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return str(value)


def to_json(value: Any) -> str:
    """JSON for a script element; no text in it can end the element."""
    text = json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return written(text)


def written(text: str) -> str:
    """Text without lone surrogates, which come from file names that are not UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True)
class column:
    """Numbers or words.

    `digits` is the number of decimals; without it numbers have four significant digits.
    """

    values: Sequence[Any] | np.ndarray[Any, Any]
    label: str = ""
    unit: str = ""
    digits: int | None = None
    shown: bool = True  # in tables and in the inspector

    def spec(self) -> dict[str, Any]:
        values = plain(self.values)
        if self.digits is not None:
            digits = self.digits + 2
            values = [round(v, digits) if isinstance(v, float) else v for v in values]
        spec = {"values": values, "label": self.label, "unit": self.unit, "digits": self.digits}
        return spec if self.shown else spec | {"shown": False}


@dataclass(frozen=True)
class Data:
    """Columns of one length, and the structure of each row (its number, or None)."""

    name: str
    columns: Mapping[str, column]
    structures: Sequence[int | None] = field(default_factory=list)

    def spec(self) -> dict[str, Any]:
        return {
            "columns": {name: one.spec() for name, one in self.columns.items()},
            "structures": plain(list(self.structures)),
        }


UNIT = 1e-4  # Å; positions are stored as integers in this unit


class Structures:
    """A list of structures in compact form, to which structures are only appended."""

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
        """Append a structure and return its number.

        `values` are per atom; `energy` (eV) is written to downloaded files.
        """
        frame: dict[str, Any] = {
            "z": _packed(np.clip(atoms.numbers, 0, 255), np.uint8),
            "r": _packed(np.rint(_finite(atoms.positions, 1e5) / UNIT), np.int32),
        }
        if atoms.cell.rank:
            frame["cell"] = np.round(_finite(atoms.cell.array.ravel(), 1e5), 6).tolist()
        if atoms.pbc.any():
            frame["pbc"] = [int(one) for one in atoms.pbc]
        if kinds := _kinds(atoms):
            frame["kinds"] = kinds
        if label:
            frame["label"] = label
        if energy is not None:
            frame["energy"] = round(energy, 6)
        if values:
            frame["values"] = {name: _packed(v, np.float32) for name, v in values.items()}
        self._elements.update(int(z) for z in np.clip(atoms.numbers, 0, 255))
        self.frames.append(frame)
        return len(self.frames) - 1

    def spec(self) -> dict[str, Any]:
        elements = {z: _element(z) for z in sorted(self._elements)}
        return {"elements": elements, "frames": self.frames}


def _kinds(atoms: Atoms) -> str:
    """Per atom 0 free, 1 fixed, 2 adsorbed (free, and above the fixed atoms of a slab, tag 0)."""
    free = free_mask(atoms).any(axis=1)
    if free.all():
        return ""
    kinds = np.where(free, 0, 1)
    if atoms.has("tags"):
        kinds[free & (atoms.get_tags() <= 0)] = 2
    return "".join(map(str, kinds))


def _element(z: int) -> dict[str, Any]:
    is_element = 0 < z < min(len(jmol_colors), len(RADII))
    rgb = jmol_colors[z] if is_element else (0.6, 0.6, 0.6)
    colour = "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
    symbol = chemical_symbols[z] if z < len(chemical_symbols) else "X"
    return {"symbol": symbol, "color": colour, "radius": float(RADII[z]) if is_element else 1.0}


def _finite(values: ArrayLike, limit: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64)), -limit, limit)


def _packed(values: ArrayLike, kind: type) -> str:
    """Little-endian bytes in base64."""
    array = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<"))
    return b64encode(array.tobytes()).decode("ascii")


#: Scripts in the order of concatenation; each may use the ones before it.
SCRIPTS = (
    "dom", "colors", "store", "scale", "marks", "legend", "plot", "plot_input", "geometry",
    "measure", "viewer", "viewer_input", "files", "export", "inspector", "sections", "verdict",
    "structure_sections", "live", "main",
)  # fmt: skip


def page_spec(
    title: str,
    sections: Sequence[Section],
    *,
    structures: Structures | None = None,
    data: Sequence[Data] = (),
    **more: Any,
) -> dict[str, Any]:
    """A page as plain data.

    `more` is any of `subtitle`, `footer`, `badge`, `live`, `bare` and `inspector`. `badge` is a
    word beside the title and its kind (good, busy, bad or plain). `live` is for served pages and
    holds the `address` that answers with the current page, its `session` and `revision`. A `bare`
    page has neither header nor inspector and is meant for a frame. With `inspector=False` the film
    of the page shows what is selected.
    """
    frame = {"subtitle": "", "badge": None, "footer": "", "live": None, "bare": False, **more}
    return {
        "title": title,
        **frame,
        "structures": (structures or Structures()).spec(),
        "data": {one.name: one.spec() for one in data},
        "sections": list(sections),
    }


def page(title: str, sections: Sequence[Section], **parts: Any) -> str:
    """The HTML of a page; the arguments are those of `page_spec`."""
    return as_html(page_spec(title, sections, **parts))


def as_html(spec: Mapping[str, Any]) -> str:
    """The HTML of a page from its plain data."""
    style, script, title = asset("page.css"), assembled_script(), escape(written(spec["title"]))
    origin = "'self'" if spec["live"] else "'none'"
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        f"img-src data: blob:; connect-src {origin}; base-uri 'none'; form-action 'none'"
    )
    head = (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n"
    )
    return (
        f"{head}<body>\n"
        "<noscript>This page needs JavaScript; allow it for this file.</noscript>\n"
        f'<script type="application/json" id="page-data">{to_json(spec)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def asset(name: str) -> str:
    """The text of a file in the folder `assets`."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def assembled_script() -> str:
    """All scripts concatenated in one scope."""
    parts = "\n".join(asset(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _hash(content: str) -> str:
    """The hash of a script or style in a content security policy."""
    return "sha256-" + b64encode(sha256(content.encode("utf-8")).digest()).decode("ascii")
