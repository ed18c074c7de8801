"""Features divided by their length: what counts is the shape of an environment, not its density."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget.descriptors.base import Descriptor, Environments, Jacobian
from nugget.registry import registered
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs


@registered("descriptor")
@dataclass(frozen=True)
class UnitLength:
    """x̂ = x/|x| of another descriptor, whose features must not vanish (SOAP's never do)."""

    name: ClassVar[str] = "unit-length"
    inner: Descriptor

    @property
    def species(self) -> tuple[str, ...]:
        return self.inner.species

    @property
    def cutoff(self) -> float:
        return self.inner.cutoff

    @property
    def n_features(self) -> int:
        return self.inner.n_features

    def compute(
        self,
        images: Sequence[Atoms] | Atoms | Batch,
        pairs: Pairs | None = None,
        *,
        strict: bool = True,
    ) -> UnitEnvironments:
        """Features of every atom of every structure."""
        return UnitEnvironments(self.inner.compute(images, pairs, strict=strict))


@dataclass(frozen=True, eq=False)
class UnitEnvironments:
    """Environments whose features were divided by their lengths."""

    inner: Environments

    @cached_property
    def _length(self) -> Floats:
        x = self.inner.values
        return np.sqrt(np.einsum("if,if->i", x, x))

    @cached_property
    def values(self) -> Floats:
        return np.ascontiguousarray(self.inner.values / self._length[:, None])

    @property
    def batch(self) -> Batch:
        return self.inner.batch

    @property
    def pairs(self) -> Pairs:
        return self.inner.pairs

    @property
    def species(self) -> Ints:
        return self.inner.species

    @property
    def owner(self) -> Ints:
        return self.inner.owner

    @property
    def has_coincident(self) -> bool:
        return self.inner.has_coincident

    @property
    def coincident(self) -> Ints:
        return self.inner.coincident

    def _to_inner(self, grad: Floats) -> Floats:
        """∂/∂x = (1 − x̂x̂ᵀ)/|x| ∂/∂x̂."""
        along = np.einsum("...if,if->...i", grad, self.values)[..., None]
        inner: Floats = (grad - along * self.values) / self._length[:, None]
        return inner

    def pullback(self, grad: Floats) -> Floats:
        """Gradient of Σ grad·values by positions: (n, f) → (n, 3); a leading axis stays."""
        return self.pullback_strain(grad)[0]

    def pullback_strain(self, grad: Floats) -> tuple[Floats, Floats]:
        """Gradients by positions and by the strain of each structure, (n, 3) and (B, 3, 3)."""
        return self.inner.pullback_strain(self._to_inner(grad))

    def select(self, structures: Ints) -> UnitEnvironments:
        """The environments of these structures alone."""
        return UnitEnvironments(self.inner.select(structures))

    def jacobian(self) -> Jacobian:
        j = self.inner.jacobian()
        x = self.values[j.centre]
        along = np.einsum("pcf,pf->pc", j.values, x)
        values = j.values - along[:, :, None] * x[:, None, :]
        values /= self._length[j.centre][:, None, None]
        return Jacobian(j.centre, j.neighbour, j.vector, values)
