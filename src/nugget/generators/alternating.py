"""Alternating growth: cations beside anions and anions beside cations."""

from __future__ import annotations

from dataclasses import dataclass

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.ions import is_anion, is_ionic, land_ion
from nugget.numerics.arrays import Floats
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Alternating(BaseGenerator):
    """Adds ions in random order, each bonded to ions of the other sign and away from its own.

    Each structure draws how strongly sites with many neighbours are preferred, from `open` (rings
    and chains) to `compact`; see `ions.land_ion`.
    """

    name = "alternating"
    unsuited = "there are no cations and anions to place"
    compact: float = 0.3
    open: float = 1.5

    def suits(self, system: PlacedAtoms) -> bool:
        return is_ionic(system)

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        x, present = system.start()
        anion = is_anion(system)
        landing = rng.uniform(self.compact, self.open)
        waiting = [int(i) for i in system.n_fixed + rng.permutation(len(system.symbols))]
        if not present.any():
            x[waiting[0]] = 0.0 if system.region is None else system.region.sample(rng, 1)[0]
            present[waiting.pop(0)] = True
        while waiting:
            first = waiting[0]
            opposite = next((i for i in waiting if anion[i] != anion[first]), first)
            landed = next(
                (i for i in (first, opposite) if land_ion(rng, system, x, present, i, landing)),
                None,
            )
            if landed is None:
                yield Failure("there was no site for an ion")
                return
            waiting.remove(landed)
        yield Proposal(x)
