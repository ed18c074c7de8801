"""Surfaces for relaxations: the mean, the lower confidence bound, or one ensemble member.

Each is a weight vector on the kernel sums plus a scalar, so all of them share one backward pass.
σ of a surface does not contain σ_out of the training domain, because a lower confidence bound that
fell without limit outside the domain would have no minima. With a `domain_penalty` λ the surface is
E − κσ + λσ_out, so that relaxations avoid environments that the training set says nothing about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.threads import each, free
from nugget.potential.evaluate import value_and_grad
from nugget.potential.fitted import FittedState
from nugget.structures.batch import Batch, as_batch
from nugget.structures.neighbours import Pairs, Verlet


class SurfaceValues(NamedTuple):
    """The values of a surface on a batch, and the mean and σ that they consist of."""

    value: Floats  # (B,)
    gradient: Floats  # (N, 3)
    strain: Floats  # (B, 3, 3) derivative by strain
    energy: Floats  # (B,) mean prediction
    std: Floats | None  # (B,)


@dataclass(frozen=True, eq=False)
class Surface:
    """E − κσ + λσ_out, or one ensemble member, `member` = (weights (m,), shift per atom)."""

    state: FittedState
    kappa: float = 0.0
    member: tuple[Floats, float] | None = None
    threads: int | None = None  # cores to use; 0: all, None: see `nugget.set_threads`
    domain_penalty: float = 0.0  # λ, for a state with a training domain

    def __post_init__(self) -> None:
        if not (np.isfinite(self.domain_penalty) and self.domain_penalty >= 0.0):
            raise NuggetError(f"domain_penalty is {self.domain_penalty}; give 0 or more.")
        if self.domain_penalty and self.state.domain is None:
            raise NuggetError(
                "A domain_penalty needs a potential with a training domain: build it with "
                "domain=True."
            )

    concurrent: ClassVar[bool] = True  # evaluators share no mutable state

    @cached_property
    def _coefficients(self) -> Floats:
        return np.array([[1.0, -self.kappa]])

    def __call__(self, images: Sequence[Atoms]) -> tuple[Floats, list[Floats]]:
        """Values (B,) and gradients, one (N, 3) per structure."""
        batch = as_batch(images)
        if len(batch) == 1:
            single = self.evaluate(batch)
            return single.value, [single.gradient]
        parts = each(self.evaluate, self.state.parts(batch), self.threads)
        gradient = np.concatenate([part.gradient for part in parts])
        return np.concatenate([part.value for part in parts]), batch.split(gradient)

    def evaluate(
        self, batch: Batch, pairs: Pairs | None = None, *, strict: bool = True, std: bool = False
    ) -> SurfaceValues:
        """Values and derivatives for a batch; `pairs` may come from a Verlet list.

        With `strict` False a structure with coincident atoms gets the value NaN instead of an
        error for the whole batch. `std` requests σ even where κ is 0.
        """
        values = value_and_grad(
            self.state.inside,
            batch,
            self._coefficients,  # one weight vector a = α − κ Wδ/σ for any number of members
            std=std or self.kappa != 0.0,
            member=self.member,
            pairs=pairs,
            strict=strict,
        )
        value = values.energy
        if self.kappa != 0.0 and values.std is not None:
            value = values.energy - self.kappa * values.std
        gradient, strain = values.gradients[0], values.strains[0]
        if self.domain_penalty and self.state.domain is not None:
            domain = self.state.domain.evaluate(batch, pairs)
            by_positions, by_strain = domain.derivatives
            value = value + self.domain_penalty * domain.std
            gradient = gradient + self.domain_penalty * by_positions
            strain = strain + self.domain_penalty * by_strain
        if len(values.coincident):
            value[values.coincident] = np.nan
        return SurfaceValues(value, gradient, strain, values.energy, values.std)

    def on_cells(self, batch: Batch, pairs: Pairs | None = None) -> tuple[Floats, Floats, Floats]:
        """For optimisers of cells: values, gradients by positions, derivatives by strain."""
        values = self.evaluate(batch, pairs, strict=False)
        return values.value, values.gradient, values.strain

    def start(self, images: Sequence[Atoms]) -> SurfaceEvaluator:
        """For optimisers: the same surface on flat positions, with Verlet lists."""
        return SurfaceEvaluator(self, as_batch(images))


class SurfaceEvaluator:
    """A surface for many structures that relax together and stop one by one."""

    def __init__(self, surface: Surface, batch: Batch) -> None:
        self.surface = surface
        self.whole = batch
        self.active = np.arange(len(batch))
        self.atoms: slice | Ints = slice(None)
        self.batch = batch
        self.rows = surface.state.atoms_per_part
        self.verlet = Verlet(surface.state.descriptor.cutoff, skin=0.6)

    def __call__(self, positions: Floats, active: Ints) -> tuple[Floats, Floats]:
        """Values and flat gradients of the structures `active`; positions are those of all."""
        if not np.array_equal(active, self.active):
            self.verlet.select(np.searchsorted(self.active, active))
            self.active = active.copy()
            self.atoms = self.whole.atoms_of(active)
            self.batch = self.whole.select(active)
        batch = self.batch.with_positions(positions[self.atoms])
        # Results do not depend on the slices. With one thread, small slices only cost time.
        rows = self.rows if free(self.surface.threads) > 1 else 4 * self.rows
        pairs, slices = self.verlet.pairs(batch), batch.slices(rows)
        if len(slices) == 1:
            values = self.surface.evaluate(batch, pairs, strict=False)
            return values.value, values.gradient

        def one(ends: tuple[int, int]) -> SurfaceValues:
            part = batch.part(*ends)
            return self.surface.evaluate(part, pairs.part(batch, *ends), strict=False)

        parts = each(one, slices, self.surface.threads)
        gradient = np.concatenate([part.gradient for part in parts])
        return np.concatenate([part.value for part in parts]), gradient
