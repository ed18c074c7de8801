"""Molecule splice: molecules above a plane from one parent, the others from another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.generators.base import BaseGenerator, Proposals, Rng
from nugget.generators.placement import joined_halves, random_rotation
from nugget.numerics.arrays import Floats
from nugget.registry import registered
from nugget.systems.placed_atoms import PlacedAtoms


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class MoleculeSplice(BaseGenerator):
    """Clusters are rotated at random first; on a template the cut is a random vertical plane.

    Halves of clusters that overlap are moved apart by up to `apart` Å.
    """

    name = "molecule_splice"
    needs = 2
    redraws = True
    unsuited = "a single molecule cannot be cut"
    whole_molecules = True
    apart: float = 1.5

    def suits(self, system: PlacedAtoms) -> bool:
        return len(system.units) > 1

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        fixed, units = system.n_fixed, system.units
        a, b = (x[fixed:] for x in parents)
        angle = rng.uniform(0, 2 * np.pi)
        normal = np.array([np.cos(angle), np.sin(angle), 0.0])
        if system.free:
            a = (a - a.mean(axis=0)) @ random_rotation(rng).T
            b = (b - b.mean(axis=0)) @ random_rotation(rng).T
        high, low = (np.array([x[u.atoms].mean(axis=0) @ normal for u in units]) for x in (a, b))
        cut = np.sort(high)[int(rng.integers(0, len(units) - 1))]
        child, lifted = np.empty_like(a), np.zeros(len(a), dtype=bool)
        for name in dict.fromkeys(unit.name for unit in units):
            own = np.array([k for k, unit in enumerate(units) if unit.name == name])
            top = own[high[own] > cut]
            rest = own[np.argsort(low[own], kind="stable")][: len(own) - len(top)]
            for k, source in enumerate([*top, *rest]):
                place, taken = units[own[k]].atoms, units[source].atoms
                child[place] = (a if k < len(top) else b)[taken]
                lifted[place] = k < len(top)
        yield from joined_halves(system, child, lifted, normal, self.apart)
