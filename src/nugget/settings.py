"""The base class of all tables in settings files, and the files that settings name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A table of a settings file: unknown keys and numbers that are not finite are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    @model_validator(mode="after")
    def _finite_options(self) -> Section:
        """Options of parts and engines may have any type; pydantic checks only its own fields."""
        for name in type(self).model_fields:
            for key in _not_finite(getattr(self, name), name):
                raise ValueError(f"{key} is not a finite number")
        return self


def _not_finite(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield name
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _not_finite(item, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _not_finite(item, name)


def resolve_path(name: str, directory: Path) -> Path:
    """The file of this name in a directory, or else in the current one."""
    inside = directory / name
    return inside if inside.exists() else Path(name)
