"""What a search proposes."""

from __future__ import annotations

from dataclasses import dataclass

from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.search.store import Purpose


@dataclass(frozen=True, eq=False)
class Proposal:
    """A structure that should be evaluated, and what the model expects of it."""

    atoms: Atoms
    generator: str
    predicted: float | None = None
    std: float | None = None  # before rescaling
    scale: float = 1.0
    acquisition: float | None = None
    purpose: Purpose = "start"
    draws: str = ""  # what candidates without parents have met; see `stop`
    walkers: Floats | None = None  # where the walkers stand after it; see `walkers`
