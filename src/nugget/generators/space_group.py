"""Random crystals with a random space group and atoms on random orbits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget.generators.base import CrystalGenerator, CrystalProposal, CrystalProposals, Rng
from nugget.generators.wyckoff import GROUPS, Site, SpaceGroup, space_group
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered
from nugget.structures.geometry import random_cell, scaled_to
from nugget.systems.base import Failure
from nugget.systems.crystal import Crystal


def choose_sites(
    rng: Rng, group: SpaceGroup, counts: dict[int, int]
) -> list[tuple[int, Site]] | None:
    """Random sites whose orbits contain the wanted number of atoms of each element, or None."""
    taken: set[int] = set()  # sites without freedom hold one orbit
    chosen = []
    for number, wanted in counts.items():
        left = wanted
        while left:
            kinds: dict[tuple[int, int], list[int]] = {}
            for k, site in enumerate(group.sites):
                if site.multiplicity <= left and k not in taken:
                    kinds.setdefault((site.multiplicity, site.freedom), []).append(k)
            if not kinds:
                return None
            # The kind is drawn first, since a kind can have many sites.
            k = int(rng.choice(list(kinds.values())[int(rng.integers(len(kinds)))]))
            if group.sites[k].freedom == 0:
                taken.add(k)
            chosen.append((number, group.sites[k]))
            left -= group.sites[k].multiplicity
    return chosen


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class SpaceGroupCrystal(CrystalGenerator):
    """A random space group, a random cell with its symmetry, and random orbits.

    Relaxations keep the symmetry. Up to `draws` groups are drawn until one suits the number of
    atoms.
    """

    name = "space_group"
    tries: int = 40
    draws: int = 20

    def propose(self, rng: Rng, system: Crystal, parents: list[Atoms]) -> CrystalProposals:
        numbers = system.numbers_of(system.draw_units(rng))
        elements, counts = np.unique(numbers, return_counts=True)
        wanted = dict(zip(elements.tolist(), counts.tolist(), strict=True))
        for _ in range(self.draws):
            group = space_group(int(rng.choice(GROUPS)))
            sites = choose_sites(rng, group, wanted)
            if sites is not None:
                break
        else:
            yield Failure("none of the space groups suits the number of atoms")
            return
        volume = system.draw_volume(rng, len(numbers))
        cell = scaled_to(group.symmetrised(random_cell(rng, volume)), volume)
        points, species = _orbits(rng, group, sites)
        if len(points) < len(numbers):  # a random point lies on a special position
            yield Failure("an orbit has too few atoms")
            return
        yield CrystalProposal(cell, points, species, {"space_group": str(group.number)})


def _orbits(rng: Rng, group: SpaceGroup, sites: list[tuple[int, Site]]) -> tuple[Floats, Ints]:
    points, species = [], []
    for number, site in sites:
        orbit = group.orbit(site.constant + site.projector @ rng.random(3))
        points.append(orbit)
        species += [number] * len(orbit)
    return np.concatenate(points), np.array(species, dtype=np.int64)
