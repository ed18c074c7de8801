"""Shells of neighbours: how many atoms of each species at about each distance."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nugget.descriptors.base import Jacobian, PairEnvironments, central_species, ordered_species
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs


@dataclass(frozen=True)
class RadialShells:
    """x_{s,k} = Σ_j exp(−(r_ij − r_k)²/2w²)·(1 − (r_ij/r_c)²)³ over neighbours j of species s."""

    species: tuple[str, ...]
    cutoff: float = 5.0
    shells: int = 4

    def __post_init__(self):
        object.__setattr__(self, "species", ordered_species(self.species, "RadialShells"))

    @property
    def n_features(self):
        return len(self.species) * self.shells

    @cached_property
    def radii(self):
        return np.linspace(1.5, self.cutoff - 0.5, self.shells)

    def compute(self, images, pairs=None, *, strict=True):
        batch = as_batch(images)
        pairs = find_pairs(batch, self.cutoff) if pairs is None else pairs
        kind = central_species(batch, self.species)
        centre, neighbour, _, r = directed(batch, pairs, self.cutoff)
        values = np.zeros((len(kind), len(self.species), self.shells))
        np.add.at(values, (centre, kind[neighbour]), self.shape(r)[0])
        return Shells(self, batch, pairs, kind, values.reshape(len(kind), -1))

    def shape(self, r):
        """The shells' values and slopes (P, shells) at distances r (P,)."""
        width = self.radii[1] - self.radii[0]
        away = (r[:, None] - self.radii) / width
        left = 1.0 - (r[:, None] / self.cutoff) ** 2
        gauss = np.exp(-0.5 * away**2)
        value = gauss * left**3
        slope = -gauss * away / width * left**3
        return value, slope - gauss * 6.0 * left**2 * r[:, None] / self.cutoff**2


class Shells(PairEnvironments):
    def jacobian(self):
        soap = self.descriptor
        centre, neighbour, d, r = directed(self.batch, self.pairs, soap.cutoff)
        slope = soap.shape(r)[1]
        values = np.zeros((len(r), 3, len(soap.species), soap.shells))
        unit = d / r[:, None]
        values[np.arange(len(r)), :, self.species[neighbour]] = unit[:, :, None] * slope[:, None]
        return Jacobian(centre, neighbour, d, values.reshape(len(r), 3, -1))


def directed(batch, pairs, cutoff):
    """Every pair seen from both of its atoms; atoms on top of each other are left out."""
    d = batch.positions[pairs.j] + pairs.shift - batch.positions[pairs.i]
    centre, neighbour = np.r_[pairs.i, pairs.j], np.r_[pairs.j, pairs.i]
    d = np.concatenate([d, -d])
    r = np.linalg.norm(d, axis=1)
    near = (r < cutoff) & (r > 1e-8)
    return centre[near], neighbour[near], d[near], r[near]
