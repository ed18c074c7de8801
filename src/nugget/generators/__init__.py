"""Generators of candidate structures, one per file.

`base` contains the contract and the base classes. A class marked `@registered("generator")` in a
file of this folder can be named in settings. Other packages add generators under the entry-point
group `nugget.generators`.
"""

from __future__ import annotations

from typing import Any

from nugget.generators.base import (
    BaseGenerator,
    CrystalGenerator,
    CrystalProposal,
    Generator,
    Proposal,
    suits,
)
from nugget.generators.mixer import Mixer
from nugget.registry import make
from nugget.systems.base import Failure


def make_generator(name: str, **options: Any) -> Generator:
    """A generator by name: one of ours, or one that an installed package offers."""
    generator: Generator = make("generator", name, **options)
    return generator


__all__ = [
    "BaseGenerator",
    "CrystalGenerator",
    "CrystalProposal",
    "Failure",
    "Generator",
    "Mixer",
    "Proposal",
    "make_generator",
    "suits",
]
