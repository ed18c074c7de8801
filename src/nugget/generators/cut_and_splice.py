"""Cut and splice (Deaven and Ho): the upper part of one parent on the lower part of another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.generators.base import BaseGenerator, Proposals, Rng
from nugget.generators.placement import joined_halves, random_rotation
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.registry import registered
from nugget.systems.placed_atoms import PlacedAtoms


def splice(upper: Floats, lower: Floats, high: Floats, low: Floats, numbers: Ints,
           cut: float) -> tuple[Floats, Bools]:  # fmt: skip
    """Atoms of `upper` above the cut, completed by the lowest atoms of `lower`.

    Each element is treated separately, so that the composition is kept. Returns positions in the
    order of `numbers`, and which of them come from `upper`.
    """
    child = np.empty_like(upper)
    from_upper = np.zeros(len(numbers), dtype=bool)
    for z in np.unique(numbers):
        own = np.flatnonzero(numbers == z)
        top = own[high[own] > cut]
        bottom = own[np.argsort(low[own], kind="stable")][: len(own) - len(top)]
        child[own[: len(top)]] = upper[top]
        child[own[len(top) :]] = lower[bottom]
        from_upper[own[: len(top)]] = True
    return child, from_upper


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class CutAndSplice(BaseGenerator):
    """Clusters are rotated at random first; on a template the cut is a random vertical plane.

    In a periodic cell the height is the fractional coordinate along a random axis from a random
    origin. Halves of clusters that overlap are moved apart by up to `apart` bond lengths.
    """

    name = "cut_and_splice"
    needs = 2
    redraws = True
    unsuited = "a single atom cannot be cut"
    apart: float = 0.4

    def suits(self, system: PlacedAtoms) -> bool:
        return len(system.symbols) > 1

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        n, fixed = len(system.symbols), system.n_fixed
        a, b = (x[fixed:] for x in parents)
        up = np.zeros(3)
        if system.free:
            a = (a - a.mean(axis=0)) @ random_rotation(rng).T
            b = (b - b.mean(axis=0)) @ random_rotation(rng).T
            up[2] = 1.0
            high, low = a[:, 2], b[:, 2]
        elif fixed:
            angle = rng.uniform(0, 2 * np.pi)
            normal = np.array([np.cos(angle), np.sin(angle), 0.0])
            high, low = a @ normal, b @ normal
        else:
            axis, zero = int(rng.integers(3)), rng.random()
            inverse = system.lattice.inverse[:, axis]
            high, low = (a @ inverse + zero) % 1.0, (b @ inverse + zero) % 1.0
        take = int(rng.integers(1, n))
        cut = float(np.sort(high)[n - take - 1])
        child, from_upper = splice(a, b, high, low, system.numbers[fixed:], cut)
        yield from joined_halves(system, child, from_upper, up, self.apart, system.bond)
