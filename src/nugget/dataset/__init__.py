"""Data sets of structures from generators or searches, labelled by an engine.

>>> from nugget.dataset import Recipe, build
>>> build("gold", Recipe(("Au10", "Au12"), count=100, engine="gfn1-xtb"), workers=2)
"""

from __future__ import annotations

from nugget.dataset.build import Report, build, read_recipe
from nugget.dataset.recipe import Recipe, expanded

__all__ = ["Recipe", "Report", "build", "expanded", "read_recipe"]
