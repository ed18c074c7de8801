"""SOAP brought to unit length: environments are compared by shape, not by how crowded they are.

The power spectrum grows with the square of the number of neighbours, so that a plain length scale
means different things in small and large clusters. With u = x/|x| it does not: training on gold
clusters of some sizes and predicting another, the error falls by a tenth (docs/accuracy.md). Small
bases such as (3, 2) need the length and are better without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from nugget.batch import Batch, Pairs
from nugget.descriptors.soap import SOAP, Environments, Jacobian

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class NormalizedSOAP(SOAP):
    """As `SOAP`, with each feature vector divided by its length (distances lie between 0 and 2)."""

    def compute(
        self,
        images: Sequence[Atoms] | Atoms | Batch,
        pairs: Pairs | None = None,
        *,
        strict: bool = True,
    ) -> UnitEnvironments:
        env = super().compute(images, pairs, strict=strict)
        # Never zero: the centre is part of its own density.
        length = np.sqrt(np.einsum("if,if->i", env.values, env.values))
        return _unit(replace(env, values=env.values / length[:, None]), length)


@dataclass(frozen=True, eq=False)
class UnitEnvironments(Environments):
    """Features u = x/|x|; du = (1 − uuᵀ)dx/|x| on both roads."""

    length: Floats = field(repr=False, kw_only=True)  # |x|, (n_env,)

    def pullback_strain(self, grad: Floats) -> tuple[Floats, Floats]:
        if grad.shape[-2:] != self.values.shape:
            return super().pullback_strain(grad)  # which refuses it
        u = self.values
        along = np.einsum("...if,if->...i", grad, u)
        return super().pullback_strain((grad - along[..., None] * u) / self.length[:, None])

    def select(self, structures: Ints) -> UnitEnvironments:
        length = self.length[self.batch.atoms_of(structures)]
        return _unit(super().select(structures), length)

    def jacobian(self) -> Jacobian:
        plain = super().jacobian()
        u = self.values[plain.centre]
        along = np.einsum("pcf,pf->pc", plain.values, u)
        values = plain.values - along[..., None] * u[:, None, :]
        values /= self.length[plain.centre, None, None]
        return replace(plain, values=values)


def _unit(env: Environments, length: Floats) -> UnitEnvironments:
    """`env`, whose values have unit length already, with the lengths they had."""
    shared = {item.name: getattr(env, item.name) for item in fields(Environments)}
    return UnitEnvironments(**shared, length=length)
