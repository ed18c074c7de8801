"""Presets: `nugget.potential.presets` under its public name."""

from nugget.potential.presets import PRESETS, accurate, balanced, length_scale, quick

__all__ = ["PRESETS", "accurate", "balanced", "length_scale", "quick"]
