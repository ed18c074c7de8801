"""Relaxation of many structures at once."""

from nugget.relax.run import Relaxed, relax

__all__ = ["Relaxed", "relax"]
