"""Random crystals in a random space group, atoms on orbits of random sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget.generators.base import Rng
from nugget.generators.crystal import Crystal
from nugget.generators.crystal_base import (
    CrystalGenerator,
    CrystalProposal,
    CrystalProposals,
    random_cell,
    scaled_to,
)
from nugget.generators.problem import Failure
from nugget.generators.wyckoff import GROUPS, Site, SpaceGroup, space_group
from nugget.registry import registered


def choose_sites(
    rng: Rng, group: SpaceGroup, counts: dict[int, int]
) -> list[tuple[int, Site]] | None:
    """Random sites whose orbits add up to the wanted atoms of each element, or None."""
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
            # First the kind: the same kind of site may stand in the list many times.
            k = int(rng.choice(list(kinds.values())[int(rng.integers(len(kinds)))]))
            if group.sites[k].freedom == 0:
                taken.add(k)
            chosen.append((number, group.sites[k]))
            left -= group.sites[k].multiplicity
    return chosen


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class SpaceGroupCrystal(CrystalGenerator):
    """A random space group, a random cell of its kind, random orbits; relaxations keep the group.

    Groups that the wanted number of atoms does not fit are drawn again, `draws` times.
    """

    name: ClassVar[str] = "space_group"
    tries: int = 40
    draws: int = 20

    def propose(self, rng: Rng, problem: Crystal, parents: list[Atoms]) -> CrystalProposals:
        numbers = problem.numbers_of(problem.draw_units(rng))
        elements, counts = np.unique(numbers, return_counts=True)
        wanted = dict(zip(elements.tolist(), counts.tolist(), strict=True))
        for _ in range(self.draws):
            group = space_group(int(rng.choice(GROUPS)))
            sites = choose_sites(rng, group, wanted)
            if sites is not None:
                break
        else:
            yield Failure("no space group was found that fits the number of atoms")
            return
        volume = problem.draw_volume(rng, len(numbers))
        cell = scaled_to(group.symmetrised(random_cell(rng, volume)), volume)
        points, species = _orbits(rng, group, sites)
        if len(points) < len(numbers):  # a random point happened to lie on a special one
            yield Failure("an orbit is smaller than it should be")
            return
        yield CrystalProposal(cell, points, species, {"space_group": str(group.number)})


def _orbits(rng: Rng, group: SpaceGroup, sites: list[tuple[int, Site]]) -> tuple[Floats, Ints]:
    points, species = [], []
    for number, site in sites:
        orbit = group.orbit(site.constant + site.projector @ rng.random(3))
        points.append(orbit)
        species += [number] * len(orbit)
    return np.concatenate(points), np.array(species, dtype=np.int64)
