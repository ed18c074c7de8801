"""Surfaces to relax on: the mean, the lower confidence bound, single committee members.

Each is a weight vector on the kernel sums plus a scalar, so all of them share one backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.threads import each, free
from nugget.potential.evaluate import value_and_grad
from nugget.structures.batch import Batch, as_batch
from nugget.structures.neighbours import Pairs, Verlet

if TYPE_CHECKING:
    from nugget.potential.potential import Potential


class SurfaceValues(NamedTuple):
    """A surface on a batch, with what it is made of."""

    value: Floats  # (B,)
    gradient: Floats  # (N, 3)
    strain: Floats  # (B, 3, 3) derivative by strain
    energy: Floats  # (B,) mean prediction
    std: Floats | None  # (B,)


@dataclass(frozen=True, eq=False)
class Surface:
    """E(X) − κ σ(X), or one committee member: `member` = (weights (m,), shift per atom)."""

    potential: Potential
    kappa: float = 0.0
    member: tuple[Floats, float] | None = None
    threads: int | None = None  # cores to use; 0: all, None: as `nugget.set_threads` says

    concurrent: ClassVar[bool] = True  # evaluators share nothing that changes

    @cached_property
    def _coefficients(self) -> Floats:
        return np.array([[1.0, -self.kappa]])

    def __call__(self, images: Sequence[Atoms]) -> tuple[Floats, list[Floats]]:
        """Values (B,) and gradients, one (N, 3) per structure."""
        batch = as_batch(images)
        if len(batch) == 1:
            single = self.evaluate(batch)
            return single.value, [single.gradient]
        found = each(self.evaluate, self.potential.parts(batch), self.threads)
        gradient = np.concatenate([part.gradient for part in found])
        return np.concatenate([part.value for part in found]), batch.split(gradient)

    def evaluate(
        self, batch: Batch, pairs: Pairs | None = None, *, strict: bool = True, std: bool = False
    ) -> SurfaceValues:
        """Values and derivatives for a batch; `pairs` may come from a Verlet list.

        With `strict` False a structure whose atoms have fallen onto each other gets the value NaN
        instead of stopping all the others with an error. `std` asks for σ even where κ is 0.
        """
        found = value_and_grad(
            self.potential,
            batch,
            self._coefficients,  # weights of the LCB: a = α − κ Wδ/σ, whatever the committee's size
            std=std or self.kappa != 0.0,
            member=self.member,
            pairs=pairs,
            strict=strict,
        )
        value = found.energy
        if self.kappa != 0.0 and found.std is not None:
            value = found.energy - self.kappa * found.std
        if len(found.coincident):
            value[found.coincident] = np.nan
        return SurfaceValues(value, found.gradients[0], found.strains[0], found.energy, found.std)

    def on_cells(self, batch: Batch, pairs: Pairs | None = None) -> tuple[Floats, Floats, Floats]:
        """For optimisers of cells: values, gradients by positions, derivatives by strain."""
        found = self.evaluate(batch, pairs, strict=False)
        return found.value, found.gradient, found.strain

    def start(self, images: Sequence[Atoms]) -> SurfaceEvaluator:
        """For optimisers: the same surface on flat positions, with lists of pairs kept."""
        return SurfaceEvaluator(self, as_batch(images))


class SurfaceEvaluator:
    """A surface under many moving structures, some of which have already stopped."""

    def __init__(self, surface: Surface, batch: Batch) -> None:
        self.surface = surface
        self.whole = batch
        self.active = np.arange(len(batch))
        self.atoms: slice | Ints = slice(None)
        self.batch = batch
        self.rows = surface.potential.rows_at_a_time
        self.verlet = Verlet(surface.potential.descriptor.cutoff, skin=0.6)

    def __call__(self, positions: Floats, active: Ints) -> tuple[Floats, Floats]:
        """Values and flat gradients of the structures `active`; positions are those of all."""
        if not np.array_equal(active, self.active):
            self.verlet.select(np.searchsorted(self.active, active))
            self.active = active.copy()
            self.atoms = self.whole.atoms_of(active)
            self.batch = self.whole.select(active)
        batch = self.batch.with_positions(positions[self.atoms])
        # Results do not depend on the slices. Without a second thread small ones cost time only.
        rows = self.rows if free(self.surface.threads) > 1 else 4 * self.rows
        pairs, slices = self.verlet.pairs(batch), batch.slices(rows)
        if len(slices) == 1:
            found = self.surface.evaluate(batch, pairs, strict=False)
            return found.value, found.gradient

        def one(ends: tuple[int, int]) -> SurfaceValues:
            part = batch.part(*ends)
            return self.surface.evaluate(part, pairs.part(batch, *ends), strict=False)

        several = each(one, slices, self.surface.threads)
        gradient = np.concatenate([part.gradient for part in several])
        return np.concatenate([part.value for part in several]), gradient
