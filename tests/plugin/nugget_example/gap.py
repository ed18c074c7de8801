"""A GAP-like model: SOAP of unit length with a dot-product kernel, plus a pair potential.

The pair part is linear in `RadialShells`, hence a sum over pairs of a function of their distance.
"""

from dataclasses import dataclass

import numpy as np

from nugget import SOAP
from nugget.descriptors.combined import Joined, UnitLength
from nugget.gp.kernels import DotProduct, KernelBase
from nugget_example.descriptor import RadialShells


def gap_features(species, cutoff=5.0, n_max=3, l_max=2, sigma=1.0, shells=4):
    """The descriptor: SOAP of unit length, then the shells of the pair potential."""
    soap = SOAP(species, cutoff, n_max, l_max, sigma)
    return Joined((UnitLength(soap), RadialShells(soap.species, cutoff, shells)))


@dataclass(frozen=True)
class GAP(KernelBase):
    """k = many_body·(x·x')^zeta + pair·(y·y'), where y are the last `pair_features` features."""

    zeta: int = 4
    many_body: float = 1.0
    pair: float = 0.1
    pair_features: int = 4

    def parts(self, *arrays):
        """Each kernel with its share of the features of every array."""
        many, last = slice(None, -self.pair_features), slice(-self.pair_features, None)
        yield DotProduct(self.zeta, self.many_body), [a[..., many] for a in arrays]
        yield DotProduct(1, self.pair), [a[..., last] for a in arrays]

    def covariance(self, x, z):
        return sum(kernel.covariance(*own) for kernel, own in self.parts(x, z))

    def diagonal(self, x):
        return sum(kernel.diagonal(*own) for kernel, own in self.parts(x))

    def pullback(self, x, z, weights):
        both = [kernel.pullback(*own, weights) for kernel, own in self.parts(x, z)]
        return np.concatenate(both, axis=-1)

    def derivatives(self, x, z, tangents):
        return sum(kernel.derivatives(*own) for kernel, own in self.parts(x, z, tangents))

    def second_derivatives(self, x, tangents):
        both = [kernel.second_derivatives(*own) for kernel, own in self.parts(x, tangents)]
        for many, pair in zip(*both, strict=True):
            yield many + pair
