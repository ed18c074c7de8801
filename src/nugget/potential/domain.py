"""The training domain: how far the local environments of a structure are from the training set.

Far from all inducing points the kernel vanishes, and with it all that an ensemble or a posterior of
the weights can say about errors. The domain adds the missing part of the uncertainty, from the
densities of neighbours on a logarithmic scale, in which errors grow at about the same rate towards
high and low density:

t_b(i) = log(ε + ρ_b(i)),  ρ_b(i) = Σ_j exp(−b(r_ij/r₀ − 1)) f_c(r_ij),  b = 3, 6, 12,

where r₀ is the sum of covalent radii; alloys also have one density per neighbouring element. D_i is
the distance of t(i) from the nearest of some hundred reference environments of the training set
(a soft minimum, so that gradients are continuous), beyond the margin m that environments of the
training set need themselves when their structure is omitted. Then

σ_out = Σ_i [c E_i g(D_i) + a n(D_i) + b E_i u(Z_i)/Z],
g = D₊² + s D₋²/(1 + D₋),  n = D²/[(m + D)(1 + D/0.3)],  u = x²/[(x + 0.2)(1 + x/4)],
x = (Z_min − Z_i)₊,

with the parts D₊ and D₋ towards higher and lower density, the cohesive energy E_i of the element,
c = 0.2, the relative error s of the mean function (1 for constant energies per element; towards
higher density, extrapolated repulsion is no more reliable than a constant), and amplitudes a and b
from leave-shells-out (`leave_shells_out`). Z_i counts neighbours within 1.2 usual bond lengths
fully and within 1.8 in part. Z_min and Z are the 2 % quantile and the median of the training set.
The last term stands for missing neighbours: thermal motion hides them in D, and training sets of
crystals contain none. The errors of atoms add up linearly, so that σ per atom of a crystal does not
depend on the choice of the cell. σ_p, the error of the mean function where the kernel vanishes, is
raised to s times the mean cohesive energy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from nugget.gp.uncertainty import FittedUncertainty
from nugget.gp.uncertainty.base import HasLevels
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.potential.cohesive_energies import BOND_ENERGY
from nugget.potential.domain_loops import (
    CHANNELS,
    References,
    densities,
    logarithms,
    pull_back,
    shares_of_std,
)
from nugget.structures.batch import Batch
from nugget.structures.geometry import RADII
from nugget.structures.neighbour_loops import structure_sums
from nugget.structures.neighbours import Pairs, find_pairs

# Largest range of the densities, Å; a descriptor with a shorter cutoff shortens it.
LONGEST = 5.0

# References per element.
REFERENCES = 600

# Share of training environments that are inside when their structure is omitted.
QUANTILE = 0.95

# c: σ_out of an atom at a distance of one e-fold, in cohesive energies.
AMPLITUDE = 0.2

# Range of coordination over the usual bond length, and the quantile of the training set below which
# neighbours are missing.
COORDINATION_RANGE, FEWEST_NEIGHBOURS = 1.8, 0.02

# b before leave-shells-out, the median of its prior distribution. Vacancies and surfaces predicted
# by models of bulk had errors of 0.15 to 0.3 for copper (DFT) and EMT alloys, 0.03 for EMT silver.
MISSING = 0.3

# Å within which the unknown part of an energy may change, for the uncertainty of forces.
FORCE_LENGTH = 1.0

# Smallest margin; σ_out is differentiable only with a margin.
_LEAST_MARGIN = 0.01

# Structures and atoms of each that are omitted to measure the margin.
_STRUCTURES, _ATOMS = 40, 15


@dataclass(frozen=True, eq=False)
class TrainingDomain:
    """Reference environments of each element, the margin around them, and the amplitude a."""

    elements: Ints  # (S,) atomic numbers
    starts: Ints  # (S + 1,) first reference of each element
    references: Floats  # (R, c)
    margin: float
    cutoff: float
    prior: float  # σ_p, s times the mean cohesive energy of the training set, eV/atom
    bond: float  # range of coordination over the sum of covalent radii
    least: Floats  # (S,) Z_min
    usual: Floats  # (S,) Z
    near: float = 0.0  # a, eV
    missing: float = MISSING  # b
    scale: float = 1.0  # s, the relative error of the mean function

    @classmethod
    def fit(
        cls, batch: Batch, cutoff: float, pairs: Pairs | None = None, scale: float = 1.0
    ) -> TrainingDomain:
        """The domain of a training set, for a descriptor with this cutoff.

        `scale` is the relative error of the mean function.
        """
        reach = min(float(cutoff), LONGEST)
        if pairs is None or pairs.reach < reach:
            pairs = find_pairs(batch, reach)
        elements, bond = np.unique(batch.numbers), COORDINATION_RANGE * usual_bond(batch, pairs)
        neighbourhood = Neighbourhood.of(batch, elements, pairs, reach, bond)
        return cls.of_coordinates(neighbourhood, batch, elements, scale)

    @classmethod
    def of_coordinates(
        cls, neighbourhood: Neighbourhood, batch: Batch, elements: Ints, scale: float = 1.0
    ) -> TrainingDomain:
        """The domain from the coordinates of all environments."""
        t, number = neighbourhood.t, neighbourhood.number
        chosen, starts, cover = [np.zeros((0, t.shape[1]))], [0], 0.0
        for element in elements:
            own = t[batch.numbers == element]
            rows, radius = farthest_points(own, REFERENCES)
            chosen.append(own[rows])
            starts.append(starts[-1] + len(rows))
            cover = max(cover, radius)
        margin = max(cover, _spacing(t, batch), _LEAST_MARGIN)
        prior = scale * float(BOND_ENERGY[batch.numbers].mean())
        present = [number[batch.numbers == element] for element in elements]
        # The lower of two values, so that all environments of a small set are inside.
        quantiles = [
            np.quantile(own, (FEWEST_NEIGHBOURS, 0.5), method="lower") if len(own) else np.zeros(2)
            for own in present
        ]
        least, usual = np.array(quantiles).reshape(-1, 2).T.copy()
        return cls(
            elements, np.array(starts), np.concatenate(chosen), margin, neighbourhood.cutoff,
            prior, neighbourhood.bond, least, usual, scale=scale,
        )  # fmt: skip

    def widened(self, fitted: FittedUncertainty) -> FittedUncertainty:
        """The uncertainty with σ_p of at least s times the cohesive energy of the training set.

        σ_p is the error of the mean function where the kernel vanishes. Near the training set about
        1/10000 of it remains.
        """
        if not isinstance(fitted, HasLevels):
            return fitted
        prior, settings = self.prior / fitted.scale, cast(Any, fitted.settings)
        return fitted if settings.prior >= prior else fitted.with_levels(prior=prior)

    def with_amplitudes(self, near: float, missing: float) -> TrainingDomain:
        """The same domain with other amplitudes a (eV) and b."""
        return replace(self, near=float(near), missing=float(missing))

    @cached_property
    def _references(self) -> References:
        element = np.repeat(np.arange(len(self.elements)), np.diff(self.starts))
        order = np.lexsort((self.references[:, 0], element))
        points = np.ascontiguousarray(self.references[order].T)
        missing = self.missing * BOND_ENERGY[self.elements] / np.maximum(self.usual, 1.0)
        return References(
            self.starts, points, float(self.margin), float(self.near), self.least, missing,
            float(self.scale),
        )  # fmt: skip

    @cached_property
    def _index(self) -> Ints:
        return element_index(self.elements)

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> DomainValues:
        """Distances and σ_out on a batch; `pairs` may reach farther than needed."""
        if pairs is None or pairs.reach < self.cutoff:
            pairs = find_pairs(batch, self.cutoff)
        index, radii = self._index[batch.numbers], RADII[batch.numbers]
        rho, number = _densities(
            batch, index, radii, pairs, self.cutoff, self.bond, len(self.elements)
        )
        weight = AMPLITUDE * BOND_ENERGY[batch.numbers]
        share, slope, by_number, distance, near, missing = shares_of_std(
            rho, number, index, weight, self._references
        )
        total: Floats = structure_sums(share, batch.offsets)
        return DomainValues(
            self, batch, pairs, total, share, distance, near, missing, slope, by_number
        )

    def state(self) -> dict[str, Any]:
        """Plain arrays for a model file."""
        return {item.name: np.asarray(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TrainingDomain:
        """The inverse of `state`."""
        numbers = ("margin", "cutoff", "prior", "bond", "near", "missing", "scale")
        values: dict[str, Any] = {n: np.ascontiguousarray(value) for n, value in state.items()}
        return cls(**values | {name: float(state[name]) for name in numbers})


@dataclass(frozen=True, eq=False)
class DomainValues:
    """The domain on a batch: σ_out of structures and atoms, and distances from the references."""

    domain: TrainingDomain
    batch: Batch
    pairs: Pairs
    std: Floats  # (B,) σ_out, eV
    shares: Floats  # (N,) share of each atom
    distance: Floats  # (N,) D, e-folds of density
    near: Floats  # (N,) n(D)
    missing: Floats  # (N,) u of missing neighbours
    slope: Floats  # (N, c) of the shares by densities
    by_number: Floats  # (N,) of the shares by coordination

    @property
    def outside_atoms(self) -> Floats:
        """0 (inside the training domain) to 1 (far outside) for each atom (N,)."""
        return 1.0 - np.exp(-np.hypot(self.distance, self.missing_share))

    @property
    def missing_share(self) -> Floats:
        """u over the usual number of neighbours (N,)."""
        usual = self.domain.usual[np.maximum(self.domain._index[self.batch.numbers], 0)]
        return self.missing / np.maximum(usual, 1.0)

    @property
    def outside(self) -> Floats:
        """The largest value of `outside_atoms` in each structure (B,)."""
        largest: Floats = np.maximum.reduceat(self.outside_atoms, self.batch.offsets[:-1])
        return largest

    @cached_property
    def derivatives(self) -> tuple[Floats, Floats]:
        """Derivatives of σ_out by positions (N, 3) and strain (B, 3, 3)."""
        b, pairs = self.batch, self.pairs
        gradient, strain = np.zeros_like(b.positions), np.zeros((len(b), 3, 3))
        if self.std.any():
            pull_back(
                b.positions, self.domain._index[b.numbers], b.owner, RADII[b.numbers], pairs.i,
                pairs.j, pairs.shift, self.domain.cutoff, self.domain.bond, self.slope,
                self.by_number, gradient, strain,
            )  # fmt: skip
        return gradient, strain


def element_index(elements: Ints) -> Ints:
    """The number of each atomic number among the elements, −1 for others."""
    index = np.full(len(RADII), -1, dtype=np.int64)
    index[elements] = np.arange(len(elements))
    return index


def _densities(
    batch: Batch, index: Ints, radii: Floats, pairs: Pairs, cutoff: float, bond: float,
    n_elements: int,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Densities (N, c) and coordination (N,)."""
    rho = np.zeros((len(batch.positions), CHANNELS + (n_elements if n_elements > 1 else 0)))
    number = np.zeros(len(rho))
    densities(
        batch.positions, index, radii, pairs.i, pairs.j, pairs.shift, cutoff, bond, rho, number
    )
    return rho, number


class Neighbourhood(NamedTuple):
    """Coordinates of environments, and the ranges that define them."""

    t: Floats  # (N, c) logarithms of densities
    number: Floats  # (N,) coordination
    cutoff: float
    bond: float

    @classmethod
    def of(
        cls, batch: Batch, elements: Ints, pairs: Pairs, cutoff: float, bond: float
    ) -> Neighbourhood:
        """The coordinates of all environments of a batch."""
        index, radii = element_index(elements)[batch.numbers], RADII[batch.numbers]
        rho, number = _densities(batch, index, radii, pairs, cutoff, bond, len(elements))
        return cls(logarithms(rho), number, cutoff, bond)

    def select(self, atoms: Bools) -> Neighbourhood:
        """The coordinates of some atoms."""
        return self._replace(t=self.t[atoms], number=self.number[atoms])


def usual_bond(batch: Batch, pairs: Pairs) -> float:
    """Median distance of nearest neighbours over the sum of covalent radii; 1 without any."""
    radii = RADII[batch.numbers]
    ratio = pairs.distances(batch) / (radii[pairs.i] + radii[pairs.j])
    nearest_ratio = np.full(len(batch.positions), np.inf)
    np.minimum.at(nearest_ratio, pairs.i, ratio)
    np.minimum.at(nearest_ratio, pairs.j, ratio)
    bonded = nearest_ratio[np.isfinite(nearest_ratio)]
    return float(np.median(bonded)) if len(bonded) else 1.0


def farthest_points(x: Floats, number: int) -> tuple[Ints, float]:
    """Rows that cover x, by farthest-point sampling, and the radius of the cover."""
    if not len(x):
        return np.zeros(0, dtype=np.int64), 0.0
    left = np.full(len(x), np.inf)
    chosen = [int(np.argmin(np.sum((x - x.mean(axis=0)) ** 2, axis=1)))]
    while True:
        left = np.minimum(left, np.sum((x - x[chosen[-1]]) ** 2, axis=1))
        farthest = int(np.argmax(left))
        if len(chosen) >= number or left[farthest] < 1e-10:
            return np.array(chosen), float(np.sqrt(left[farthest]))
        chosen.append(farthest)


def _spacing(t: Floats, batch: Batch) -> float:
    """Quantile of the distance of environments from those of all other structures."""
    rng, owner, numbers = np.random.default_rng(0), batch.owner, batch.numbers
    distances = [np.zeros(1)]
    for s in rng.permutation(len(batch))[:_STRUCTURES]:
        own = rng.permutation(np.flatnonzero(owner == s))[:_ATOMS]
        for element in np.unique(numbers[own]):
            others = t[(numbers == element) & (owner != s)]
            if len(others):
                distances.append(nearest(t[own[numbers[own] == element]], others))
    return float(np.quantile(np.concatenate(distances), QUANTILE))


def nearest(a: Floats, b: Floats) -> Floats:
    """Distance of each row of a from the nearest row of b."""
    squares = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2.0 * a @ b.T
    return np.sqrt(np.maximum(squares.min(axis=1), 0.0))
