"""Presets: `nugget.potential.presets` under its public name."""

from nugget.potential.presets import (
    CANDIDATES,
    PRESETS,
    accurate,
    auto,
    balanced,
    length_scale,
    quick,
)

__all__ = [
    "CANDIDATES",
    "PRESETS",
    "accurate",
    "auto",
    "balanced",
    "length_scale",
    "quick",
]
