"""Relaxation of many structures at once."""

from nugget.relax.run import Relaxed, relax
from nugget.relax.surfaces import on_calculator

__all__ = ["Relaxed", "on_calculator", "relax"]
