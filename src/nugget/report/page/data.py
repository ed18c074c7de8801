"""Columns of numbers and words, and everything as JSON that may stand in a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """What JSON knows: no NumPy, and None for numbers that are not finite."""
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
    """JSON that can stand inside of a script element: no text in it can end the element."""
    text = json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return written(text)


def written(text: str) -> str:
    """Text as UTF-8 can hold it: names of files that are no UTF-8 bring lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True)
class Column:
    """Numbers or words; `digits` after the point, where numbers are shown."""

    values: Sequence[Any]
    label: str = ""
    unit: str = ""
    digits: int | None = None
    shown: bool = True  # among the facts of a structure

    def spec(self, start: int = 0) -> dict[str, Any]:
        values = plain(self.values[start:])
        if self.digits is not None:
            digits = self.digits + 2
            values = [round(v, digits) if isinstance(v, float) else v for v in values]
        found = {"values": values, "label": self.label, "unit": self.unit, "digits": self.digits}
        return found if self.shown else found | {"shown": False}


def column(
    values: Sequence[Any],
    label: str = "",
    unit: str = "",
    digits: int | None = None,
    shown: bool = True,
) -> Column:
    """A column; without `digits` numbers are shown with four figures."""
    return Column(values, label, unit, digits, shown)


@dataclass(frozen=True)
class Data:
    """Columns of one length, and the structure of each row (its number, or None)."""

    name: str
    columns: Mapping[str, Column]
    structures: Sequence[int | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())).values) if self.columns else 0

    def spec(self, start: int = 0) -> dict[str, Any]:
        """All of it, or what follows after the first `start` rows."""
        return {
            "from": start,
            "columns": {name: one.spec(start) for name, one in self.columns.items()},
            "structures": plain(list(self.structures)[start:]),
        }
