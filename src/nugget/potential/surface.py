"""Surfaces to walk on: mean, lower confidence bound, single committee members.

Each is a weight vector on the kernel sums κ plus a scalar, so all of them share one road back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from nugget.structures.batch import Batch, as_batch
from nugget.structures.neighbours import Pairs, Verlet

if TYPE_CHECKING:
    from nugget.potential.potential import Potential

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Values:
    """A surface on a batch, with what it is made of."""

    value: Floats  # (B,)
    gradient: Floats  # (N, 3)
    strain: Floats  # (B, 3, 3) derivative by strain
    energy: Floats  # (B,) mean prediction
    sigma: Floats | None  # (B,)


@dataclass(frozen=True, eq=False)
class Surface:
    """E(X) − κ σ(X), or one committee member: `member` = (weights (m,), shift per atom)."""

    potential: Potential
    kappa: float = 0.0
    member: tuple[Floats, float] | None = None

    @cached_property
    def _mix(self) -> Floats:
        return np.array([[1.0, -self.kappa]])

    def __call__(self, images: Sequence[Atoms]) -> tuple[Floats, list[Floats]]:
        """Values (B,) and gradients, one (N, 3) per structure."""
        batch = as_batch(images)
        if len(batch) == 1:
            alone = self.evaluate(batch)
            return alone.value, [alone.gradient]
        found = [self.evaluate(part) for part in self.potential.parts(batch)]
        gradient = np.concatenate([part.gradient for part in found])
        return np.concatenate([part.value for part in found]), batch.split(gradient)

    def evaluate(self, batch: Batch, pairs: Pairs | None = None, *, strict: bool = True) -> Values:
        """Values and derivatives for a batch; `pairs` may come from a Verlet list.

        With `strict` False a structure whose atoms have fallen onto each other gets the value NaN
        instead of stopping all the others with an error.
        """
        pot = self.potential
        alpha, shift = (pot.fitted.regression.alpha, 0.0) if self.member is None else self.member
        env, prior = pot.describe(batch, pairs, strict=strict)
        # Weights of the LCB: a = α − κ Wδ/σ; one road back, whatever the committee's size.
        energy, sigma, roads = pot.roads(env, alpha, self._mix, sigma=self.kappa != 0.0)
        energy += np.add.reduceat(prior.energies, batch.offsets[:-1])
        if shift:
            energy += shift * batch.sizes
        value = energy if sigma is None else energy - self.kappa * sigma
        if env.has_coincident:
            value[env.coincident] = np.nan
        gradient, strain = env.pullback_strain(roads[0])
        if prior.gradient is not None:
            gradient += prior.gradient
        if prior.strain is not None:
            strain += prior.strain
        return Values(value, gradient, strain, energy, sigma)

    def start(self, images: Sequence[Atoms]) -> Walk:
        """For optimisers: the same surface on flat positions, with lists of pairs kept."""
        return Walk(self, as_batch(images))


class Walk:
    """A surface being walked on by many structures, some of which have already stopped."""

    def __init__(self, surface: Surface, batch: Batch) -> None:
        self.surface = surface
        self.whole = batch
        self.active = np.arange(len(batch))
        self.atoms: slice | Ints = slice(None)
        self.batch = batch
        self.verlet = Verlet(surface.potential.descriptor.cutoff, skin=0.6)

    def __call__(self, positions: Floats, active: Ints) -> tuple[Floats, Floats]:
        """Values and flat gradients of the structures `active`; positions are those of all."""
        if not np.array_equal(active, self.active):
            self.verlet.select(np.searchsorted(self.active, active))
            self.active = active.copy()
            self.atoms = self.whole.atoms_of(active)
            self.batch = self.whole.select(active)
        batch = self.batch.with_positions(positions[self.atoms])
        found = self.surface.evaluate(batch, self.verlet.pairs(batch), strict=False)
        return found.value, found.gradient
