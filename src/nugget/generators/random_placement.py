"""Random placement in the region of a system: a sphere, above a slab, in a bulk cell."""

from __future__ import annotations

from dataclasses import dataclass

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.placement import fill_region
from nugget.numerics.arrays import Floats
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms

CHUNK = 32  # points tried for an atom at a time


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class RandomPlacement(BaseGenerator):
    """Atoms in random order, uniform in the region, each bonded to the template or another atom."""

    name = "random_placement"
    unsuited = "the system has no region to place atoms in"
    chunks: int = 60

    def suits(self, system: PlacedAtoms) -> bool:
        return system.region is not None

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        x, present = system.start()
        order = system.n_fixed + rng.permutation(len(system.symbols))
        fits = fill_region(rng, system, x, present, order, CHUNK, self.chunks)
        yield Proposal(x) if fits else Failure("there was no room for an atom in the region")
