"""Molecule move: rotate and shift molecules of a parent, or place some of them elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.placement import directions, in_ball, random_rotation, rotation
from nugget.generators.random_molecules import dock
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms

_TRIES = 10  # positions tried for each molecule


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class MoleculeMove(BaseGenerator):
    """Rotates and shifts a random share of the molecules; a share `jumps` of all moves instead
    places one or two molecules elsewhere.

    For each structure the largest shift is drawn between `smallest` and `largest` Å, the largest
    rotation between 0.3 and π. Molecules keep the shape that they have in the parent.
    """

    name = "molecule_move"
    needs = 1
    whole_molecules = True
    smallest: float = 0.2
    largest: float = 2.0
    share: float = 0.2
    jumps: float = 0.3

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        [x] = parents
        order = rng.permutation(len(system.units))
        if rng.random() < self.jumps and len(order) > 1:
            yield from self._jump(rng, system, x, order[: int(rng.integers(1, 3))])
            return
        reach, turn = rng.uniform(self.smallest, self.largest), rng.uniform(0.3, np.pi)
        count = max(1, round(len(order) * rng.uniform(self.share, 1.0)))
        present = np.ones(len(x), dtype=bool)
        for k in order[:count]:
            own = system.n_fixed + system.units[k].atoms
            middle = x[own].mean(axis=0)
            present[own] = False
            for shift in in_ball(rng, _TRIES, reach):
                about = rotation(directions(rng, 1)[0], rng.uniform(-turn, turn))
                at = (x[own] - middle) @ about.T + middle + shift
                if all(system.rules.has_room(own, at, x, present)):
                    x[own] = at
                    break
            present[own] = True
        yield Proposal(x)

    def _jump(self, rng: Rng, system: PlacedAtoms, x: Floats, chosen: Ints) -> Proposals:
        present = np.ones(len(x), dtype=bool)
        units = [system.units[int(k)] for k in chosen]
        for unit in units:
            present[system.n_fixed + unit.atoms] = False
        for unit in units:
            places = x[system.n_fixed + unit.atoms]
            shape = (places - places.mean(axis=0)) @ random_rotation(rng).T
            if not dock(rng, system, unit, shape, x, present):
                yield Failure("there was no other position for a molecule")
                return
        yield Proposal(x)
