"""New candidate structures: one way of making them per file.

`base` holds the contract and what all generators share. A file of this folder with a class marked
`@registered("generator")` is found by its name. Other packages add theirs under the entry-point
group `nugget.generators`.
"""

from __future__ import annotations

from typing import Any

from nugget.generators.base import BaseGenerator, Generator, Proposal, suits
from nugget.generators.compositions import Compositions
from nugget.generators.crystal import Crystal
from nugget.generators.crystal_base import CrystalGenerator, CrystalProposal
from nugget.generators.mixer import Mixer
from nugget.generators.problem import Failure, Problem
from nugget.registry import make


def make_generator(name: str, **options: Any) -> Generator:
    """A generator by name: one of ours, or one that an installed package offers."""
    made: Generator = make("generator", name, **options)
    return made


__all__ = [
    "BaseGenerator",
    "Compositions",
    "Crystal",
    "CrystalGenerator",
    "CrystalProposal",
    "Failure",
    "Generator",
    "Mixer",
    "Problem",
    "Proposal",
    "make_generator",
    "suits",
]
