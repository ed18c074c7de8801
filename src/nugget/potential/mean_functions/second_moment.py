"""Cohesion in the second-moment approximation of tight binding, as a mean function.

E_i = Σ_j A e^{−p(r_ij/r₀ − 1)} f_c(r_ij) − [Σ_j ξ² e^{−2q(r_ij/r₀ − 1)} f_c(r_ij)]^{1/2}

with A, ξ, p, q and r₀ for each pair of elements; F. Cleri and V. Rosato, Phys. Rev. B 48, 22
(1993). f_c falls from 1 to 0, with two continuous derivatives, at the end of the range. Bonds
become stronger as neighbours are removed, atoms repel each other at short range, and isolated atoms
have no energy, so that compressed, expanded and broken structures have energies of the right order
where a Gaussian process has no data.

Without a fit, p and q have values that are typical of metals, r₀ is a multiple of the sum of
covalent radii, and A and ξ reproduce the cohesive energy (table of Kittel) at 13.5 neighbours
at r₀. `fitted_to` adjusts all parameters to forces and energies around these values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from ase.data import atomic_numbers, chemical_symbols

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.jit import FAST, njit
from nugget.potential.cohesive_energies import BOND_ENERGY
from nugget.potential.domain import usual_bond
from nugget.potential.mean_functions.base import FixedMeanFunction, MeanValues
from nugget.potential.mean_functions.fitted_form import ParameterFit, pairs_of_elements
from nugget.potential.training import Training
from nugget.registry import registered
from nugget.structures.batch import Batch
from nugget.structures.geometry import RADII
from nugget.structures.neighbours import Pairs, find_pairs

# p, q, r₀ over the sum of covalent radii, and the number of neighbours at r₀ (with the weights of
# farther shells) at which A and ξ give the cohesive energy. Cleri and Rosato have p from 8.6 (Al)
# to 17 (Ni) and q from 1.2 to 4.
_P, _Q, _LENGTH, _NEIGHBOURS = 10.5, 3.0, 1.05, 13.5

# r₀ of a fit over the median distance of nearest neighbours, which thermal motion shortens.
_THERMAL = 1.04

# Range over the largest r₀, and its limit in Å.
_RANGE, _LONGEST = 2.0, 6.5

# Share of the range in which f_c falls to zero.
_FADING = 0.35

# eV²; keeps the square root differentiable where an atom has no neighbour.
_LEAST = 1e-6

# Widths of the prior distributions of log A, log ξ, log p, log q and log r₀ around the values
# above.
_WIDTHS = (0.7, 0.4, 0.25, 0.3, 0.04)


class Tables(NamedTuple):
    """Parameters by two atomic numbers, (119, 119) each."""

    repulsion: Floats  # A, eV
    hopping: Floats  # ξ², eV²
    p: Floats
    q: Floats
    length: Floats  # r₀, Å


@njit(fastmath=FAST, inline="always")
def _terms(
    r: float, a: float, h: float, p: float, q: float, length: float, cutoff: float
) -> tuple[float, float, float, float]:
    """Repulsion and squared hopping of a pair, and their derivatives."""
    x = r / length - 1.0
    repulsion, hopping = a * np.exp(-p * x), h * np.exp(-2.0 * q * x)
    s = min((1.0 - r / cutoff) / _FADING, 1.0)
    fade = s * s * s * (10.0 - 15.0 * s + 6.0 * s * s)
    less = -30.0 * s * s * (1.0 - s) * (1.0 - s) / (_FADING * cutoff)
    return (
        repulsion * fade, repulsion * (less - p / length * fade),
        hopping * fade, hopping * (less - 2.0 * q / length * fade),
    )  # fmt: skip


@njit(fastmath=FAST)
def cohesion(
    positions: Floats, numbers: Ints, tables: Tables, cutoff: float, owner: Ints, i: Ints,
    j: Ints, shift: Floats, energies: Floats, gradient: Floats, strain: Floats,
) -> None:  # fmt: skip
    """Add the energies of all atoms, and the derivatives of their sum."""
    d = np.empty(3)
    square = cutoff * cutoff
    kept = np.empty(len(i), dtype=np.int64)
    terms = np.empty((len(i), 3))
    hopping = np.zeros(len(positions))
    count = 0
    for k in range(len(i)):
        a, b = i[k], j[k]
        r2 = 0.0
        for axis in range(3):
            d[axis] = positions[b, axis] + shift[k, axis] - positions[a, axis]
            r2 += d[axis] * d[axis]
        if r2 >= square:
            continue
        r = max(np.sqrt(r2), 1e-3)
        za, zb = numbers[a], numbers[b]
        value, slope, h, h_slope = _terms(
            r, tables.repulsion[za, zb], tables.hopping[za, zb], tables.p[za, zb],
            tables.q[za, zb], tables.length[za, zb], cutoff,
        )  # fmt: skip
        energies[a] += value
        energies[b] += value
        hopping[a] += h
        hopping[b] += h
        kept[count] = k
        terms[count, 0], terms[count, 1], terms[count, 2] = 2.0 * slope, h_slope, r
        count += 1
    for a in range(len(positions)):
        root = np.sqrt(hopping[a] + _LEAST)
        energies[a] -= root - np.sqrt(_LEAST)
        hopping[a] = -0.5 / root
    for m in range(count):
        k = kept[m]
        a, b = i[k], j[k]
        by_r = (terms[m, 0] + (hopping[a] + hopping[b]) * terms[m, 1]) / terms[m, 2]
        for axis in range(3):
            d[axis] = positions[b, axis] + shift[k, axis] - positions[a, axis]
        for axis in range(3):
            g = by_r * d[axis]
            gradient[b, axis] += g
            gradient[a, axis] -= g
            for other in range(3):
                strain[owner[a], axis, other] += g * d[other]


def _universal(elements: Ints, scale: float) -> Floats:
    """log A, log ξ, log p, log q and log r₀ for each pair of elements (Z, Z, 5).

    `scale` is r₀ over the sum of covalent radii.
    """
    energy = np.sqrt(np.multiply.outer(BOND_ENERGY[elements], BOND_ENERGY[elements]))
    # −E = N A − √N ξ at r₀, where the derivative N A p − √N ξ q is zero.
    band = energy / (1.0 - _Q / _P)
    out = np.empty((*energy.shape, 5))
    out[..., 0] = np.log(band * _Q / (_P * _NEIGHBOURS))
    out[..., 1] = np.log(band / np.sqrt(_NEIGHBOURS))
    out[..., 2], out[..., 3] = np.log(_P), np.log(_Q)
    out[..., 4] = np.log(scale * np.add.outer(RADII[elements], RADII[elements]))
    return out


@registered("prior")
@dataclass(frozen=True)
class SecondMoment(FixedMeanFunction):
    """Energies in the second-moment approximation of tight binding.

    `pairs` holds (element, element, A, ξ, p, q, r₀) in eV and Å; other pairs have universal values.
    """

    name: ClassVar[str] = "second-moment"
    pairs: tuple[tuple[str, str, float, float, float, float, float], ...] = ()
    cutoff: float = 6.0

    # Error where there are no data, in units of that of a constant energy per element. Chosen on
    # expanded cells of nickel, copper (DFT) and Ni-Pt (EMT).
    relative_error: ClassVar[float] = 0.3

    def __post_init__(self) -> None:
        plain = tuple((str(a), str(b), *map(float, numbers)) for a, b, *numbers in self.pairs)
        object.__setattr__(self, "pairs", plain)
        if not self.cutoff > 0:
            raise NuggetError(f"The cutoff of SecondMoment is {self.cutoff}; it must be positive.")

    @cached_property
    def _tables(self) -> Tables:
        values = np.exp(_universal(np.arange(len(RADII)), _LENGTH))
        for a, b, *numbers in self.pairs:
            za, zb = atomic_numbers[a], atomic_numbers[b]
            values[za, zb] = values[zb, za] = numbers
        values[..., 1] **= 2
        return Tables(*(np.ascontiguousarray(values[..., k]) for k in range(5)))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        if pairs is None or pairs.reach < self.cutoff:
            pairs = find_pairs(batch, self.cutoff)
        energies, gradient = np.zeros(len(batch.positions)), np.zeros_like(batch.positions)
        strain = np.zeros((len(batch), 3, 3))
        cohesion(
            batch.positions, batch.numbers, self._tables, self.cutoff, batch.owner, pairs.i,
            pairs.j, pairs.shift, energies, gradient, strain,
        )  # fmt: skip
        return MeanValues(energies, gradient, strain)

    @classmethod
    def fitted_to(cls, training: Training) -> SecondMoment:
        """The parameters that agree best with structures that all have forces."""
        batch, elements = training.batch, np.unique(training.batch.numbers)
        start = _universal(elements, _THERMAL * usual_bond(batch, find_pairs(batch, _LONGEST)))
        cutoff = min(_RANGE * float(np.exp(start[..., 4].max())), _LONGEST)
        rows, columns = pairs_of_elements(elements)
        names = [chemical_symbols[z] for z in elements]

        def model(x: Floats) -> SecondMoment:
            pairs = [
                (names[a], names[b], *one.tolist())
                for a, b, one in zip(rows, columns, np.exp(x.reshape(-1, 5)), strict=True)
            ]
            return cls(tuple(pairs), cutoff)

        widths = np.tile(_WIDTHS, len(rows))
        first = start[rows, columns].ravel()
        fit = ParameterFit(training, find_pairs(batch, cutoff), first, widths, model)
        return model(fit.solution())
