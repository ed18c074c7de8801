"""New candidate structures: one way of making them per file.

A generator is a small frozen dataclass with `name`, `needs` (parents), `suits(problem)` and
`generator(rng, problem, parents) -> Atoms | Failure`. Packages add their own under the entry point
group `nugget.generators`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from nugget.errors import NuggetError
from nugget.generators._base import Generator
from nugget.generators.cut_and_splice import CutAndSplice
from nugget.generators.melt import Melt
from nugget.generators.mixer import Mixer
from nugget.generators.permutation import Permutation
from nugget.generators.problem import Failure, Problem
from nugget.generators.random_cluster import RandomCluster
from nugget.generators.random_placement import RandomPlacement
from nugget.generators.rattle import Rattle
from nugget.generators.surface_move import SurfaceMove
from nugget.generators.symmetric import Symmetric
from nugget.generators.twist import Twist

GENERATORS: dict[str, Callable[..., Generator]] = {
    g.name: g
    for g in (
        RandomCluster,
        RandomPlacement,
        Symmetric,
        Rattle,
        SurfaceMove,
        Permutation,
        CutAndSplice,
        Twist,
        Melt,
    )
}


def make_generator(name: str, **options: Any) -> Generator:
    """A generator by name: one of ours, or one that an installed package offers."""
    if name in GENERATORS:
        return GENERATORS[name](**options)
    outside = {e.name: e for e in entry_points(group="nugget.generators")}
    if name in outside:
        made: Generator = outside[name].load()(**options)
        return made
    known = ", ".join([*GENERATORS, *outside])
    raise NuggetError(f"There is no generator {name!r}; choose from {known}.")


__all__ = [
    "GENERATORS",
    "CutAndSplice",
    "Failure",
    "Generator",
    "Melt",
    "Mixer",
    "Permutation",
    "Problem",
    "RandomCluster",
    "RandomPlacement",
    "Rattle",
    "SurfaceMove",
    "Symmetric",
    "Twist",
    "make_generator",
]
