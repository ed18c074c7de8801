"""Covalent bonds by bond orders that depend on angles, as a mean function.

E_i = ½ Σ_j f_c(r_ij) [V_R(r_ij) − b_ij V_A(r_ij)],  b_ij = (1 + χ_ij)^(−1/2),

V_R(r) = D/(S − 1) e^(−β √(2S) (r − r₀)),  V_A(r) = S D/(S − 1) e^(−β √(2/S) (r − r₀)),

χ_ij = Σ_{k≠j} f_c(r_ik) g(cos θ_jik),  g(x) = γ [1 + c²/d² − c²/(d² + (h + x)²)],

the form of Tersoff and Brenner in the notation of P. Erhart and K. Albe, Phys. Rev. B 71, 035211
(2005), without the term that depends on differences of bond lengths. D, r₀, S, β and the range of
f_c belong to pairs of elements, γ, c, d and h to the element in the centre. f_c falls from 1 to 0
with two continuous derivatives. For a constant g this is the second-moment approximation of tight
binding (D. W. Brenner, Phys. Rev. Lett. 63, 1022 (1989)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from ase.data import atomic_numbers, chemical_symbols

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

# Values without a fit, near those of silicon, carbon and gallium arsenide. D in cohesive energies,
# r₀ and the range over the sum of covalent radii, β in 1/Å.
_ENERGY, _LENGTH, _RANGE, _S, _BETA = 0.7, 1.02, 1.55, 1.6, 1.6
_GAMMA, _C, _D, _H = 0.09, 1.1, 0.65, 0.35

# Widths of the prior distributions of log D, log r₀, log(S − 1), log β, log range; log γ, log c,
# log d and h.
_PAIR_WIDTHS = np.array([0.4, 0.05, 0.4, 0.25, 0.08])
_ANGLE_WIDTHS = np.array([0.7, 0.5, 0.5, 0.25])

# Share of the range in which f_c falls to zero.
_FADING = 0.4

_LONGEST = 6.0  # limit of the range, Å


class Tables(NamedTuple):
    """Parameters by two atomic numbers (119, 119), and by one (119,)."""

    energy: Floats  # D, eV
    length: Floats  # r₀
    s: Floats  # S
    beta: Floats  # β
    reach: Floats  # range of f_c
    gamma: Floats
    c: Floats
    d: Floats
    h: Floats


@njit(fastmath=FAST, inline="always")
def _fade(r: float, reach: float) -> tuple[float, float]:
    """f_c and its derivative."""
    s = min((1.0 - r / reach) / _FADING, 1.0)
    less = -30.0 * s * s * (1.0 - s) * (1.0 - s) / (_FADING * reach)
    return s * s * s * (10.0 - 15.0 * s + 6.0 * s * s), less


@njit(fastmath=FAST)
def _neighbours(
    positions: Floats, numbers: Ints, reach: Floats, i: Ints, j: Ints, shift: Floats
) -> tuple[Ints, Ints, Floats]:
    """Both directions of the pairs within the range: first entry of each atom, atoms, vectors."""
    first = np.zeros(len(positions) + 1, dtype=np.int64)
    near = np.zeros(len(i), dtype=np.bool_)
    for k in range(len(i)):
        square = 0.0
        for axis in range(3):
            d = positions[j[k], axis] + shift[k, axis] - positions[i[k], axis]
            square += d * d
        limit = reach[numbers[i[k]], numbers[j[k]]]
        if square < limit * limit:
            near[k] = True
            first[i[k] + 1] += 1
            first[j[k] + 1] += 1
    first = np.cumsum(first)
    filled, atoms = first[:-1].copy(), np.empty(first[-1], dtype=np.int64)
    vectors = np.empty((first[-1], 3))
    for k in range(len(i)):
        if near[k]:
            for start, end, sign in ((i[k], j[k], 1.0), (j[k], i[k], -1.0)):
                entry = filled[start]
                filled[start] += 1
                atoms[entry] = end
                for axis in range(3):
                    d = positions[j[k], axis] + shift[k, axis] - positions[i[k], axis]
                    vectors[entry, axis] = sign * d
    return first, atoms, vectors


@njit(fastmath=FAST)
def bonds(
    numbers: Ints, tables: Tables, owner: Ints, first: Ints, atoms: Ints, vectors: Floats,
    energies: Floats, gradient: Floats, strain: Floats,
) -> None:  # fmt: skip
    """Add the energies of all atoms, and the derivatives of their sum."""
    most = 1
    for a in range(len(numbers)):
        most = max(most, first[a + 1] - first[a])
    r, f, slope = np.empty(most), np.empty(most), np.empty(most)
    unit, pull = np.empty((most, 3)), np.empty((most, 3))
    for a in range(len(numbers)):
        n, za = first[a + 1] - first[a], numbers[a]
        for m in range(n):
            v = vectors[first[a] + m]
            r[m] = max(np.sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]), 1e-3)
            reach = tables.reach[za, numbers[atoms[first[a] + m]]]
            f[m], slope[m] = _fade(r[m], reach)
            for axis in range(3):
                unit[m, axis] = v[axis] / r[m]
                pull[m, axis] = 0.0
        c2, d2, h = tables.c[za] * tables.c[za], tables.d[za] * tables.d[za], tables.h[za]
        gamma = tables.gamma[za]
        for m in range(n):
            zb = numbers[atoms[first[a] + m]]
            chi = 0.0
            for k in range(n):
                if k != m:
                    x = h + _dot(unit[m], unit[k])
                    chi += f[k] * gamma * (1.0 + c2 / d2 - c2 / (d2 + x * x))
            order = 1.0 / np.sqrt(1.0 + chi)
            s, beta = tables.s[za, zb], tables.beta[za, zb]
            x = r[m] - tables.length[za, zb]
            rate_r, rate_a = beta * np.sqrt(2.0 * s), beta * np.sqrt(2.0 / s)
            depth = tables.energy[za, zb] / (s - 1.0)
            v_r, v_a = depth * np.exp(-rate_r * x), s * depth * np.exp(-rate_a * x)
            energies[a] += 0.5 * f[m] * (v_r - order * v_a)
            along = 0.5 * (slope[m] * (v_r - order * v_a))
            along += 0.5 * f[m] * (order * rate_a * v_a - rate_r * v_r)
            weight = 0.25 * f[m] * v_a * order * order * order  # dE/dχ
            for axis in range(3):
                pull[m, axis] += along * unit[m, axis]
            for k in range(n):
                if k == m:
                    continue
                cosine = _dot(unit[m], unit[k])
                x = h + cosine
                g = gamma * (1.0 + c2 / d2 - c2 / (d2 + x * x))
                turn = weight * f[k] * gamma * c2 * 2.0 * x / ((d2 + x * x) * (d2 + x * x))
                for axis in range(3):
                    pull[k, axis] += weight * slope[k] * g * unit[k, axis]
                    pull[k, axis] += turn * (unit[m, axis] - cosine * unit[k, axis]) / r[k]
                    pull[m, axis] += turn * (unit[k, axis] - cosine * unit[m, axis]) / r[m]
        for m in range(n):
            b = atoms[first[a] + m]
            for axis in range(3):
                gradient[b, axis] += pull[m, axis]
                gradient[a, axis] -= pull[m, axis]
                for other in range(3):
                    strain[owner[a], axis, other] += pull[m, axis] * vectors[first[a] + m, other]


@njit(fastmath=FAST, inline="always")
def _dot(a: Floats, b: Floats) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _universal(elements: Ints, scale: float) -> tuple[Floats, Floats]:
    """Logarithms of parameters of pairs (Z, Z, 5), S less 1, and of elements (Z, 4), h as it is.

    `scale` is r₀ over the sum of covalent radii.
    """
    energy = np.sqrt(np.multiply.outer(BOND_ENERGY[elements], BOND_ENERGY[elements]))
    length = scale * np.add.outer(RADII[elements], RADII[elements])
    pair = np.empty((*energy.shape, 5))
    pair[..., 0], pair[..., 1] = np.log(_ENERGY * energy), np.log(length)
    pair[..., 2], pair[..., 3] = np.log(_S - 1.0), np.log(_BETA)
    pair[..., 4] = np.log(np.minimum(_RANGE / _LENGTH * length, _LONGEST))
    one = np.array([np.log(_GAMMA), np.log(_C), np.log(_D), _H])
    return pair, np.tile(one, (len(elements), 1))


def _plain(pair: Floats, one: Floats) -> tuple[Floats, Floats]:
    """Parameters from the numbers that are fitted."""
    pair, one = np.exp(pair), np.concatenate([np.exp(one[..., :3]), one[..., 3:]], axis=-1)
    pair[..., 2] += 1.0
    pair[..., 4] = np.minimum(pair[..., 4], _LONGEST)
    return pair, one


@registered("prior")
@dataclass(frozen=True)
class BondOrder(FixedMeanFunction):
    """Energies of covalent bonds.

    `pairs` holds (element, element, D, r₀, S, β, range), `angles` (element, γ, c, d, h) in eV and
    Å; others have universal values.
    """

    name: ClassVar[str] = "bond-order"
    pairs: tuple[tuple[str, str, float, float, float, float, float], ...] = ()
    angles: tuple[tuple[str, float, float, float, float], ...] = ()

    # Error where there are no data, in units of that of a constant energy per element.
    relative_error: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        pairs = tuple((str(a), str(b), *map(float, numbers)) for a, b, *numbers in self.pairs)
        angles = tuple((str(a), *map(float, numbers)) for a, *numbers in self.angles)
        object.__setattr__(self, "pairs", pairs)
        object.__setattr__(self, "angles", angles)

    @cached_property
    def _tables(self) -> Tables:
        pair, one = _plain(*_universal(np.arange(len(RADII)), _LENGTH))
        for a, b, *numbers in self.pairs:
            za, zb = atomic_numbers[a], atomic_numbers[b]
            pair[za, zb] = pair[zb, za] = numbers
        for a, *numbers in self.angles:
            one[atomic_numbers[a]] = numbers
        columns = [pair[..., k] for k in range(5)] + [one[..., k] for k in range(4)]
        return Tables(*(np.ascontiguousarray(column) for column in columns))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        present = np.unique(batch.numbers)
        cutoff = float(self._tables.reach[np.ix_(present, present)].max())
        if pairs is None or pairs.reach < cutoff:
            pairs = find_pairs(batch, cutoff)
        energies, gradient = np.zeros(len(batch.positions)), np.zeros_like(batch.positions)
        strain = np.zeros((len(batch), 3, 3))
        near = _neighbours(
            batch.positions, batch.numbers, self._tables.reach, pairs.i, pairs.j, pairs.shift
        )
        bonds(batch.numbers, self._tables, batch.owner, *near, energies, gradient, strain)
        return MeanValues(energies, gradient, strain)

    @classmethod
    def fitted_to(cls, training: Training) -> BondOrder:
        """The parameters that agree best with structures that all have forces."""
        batch, elements = training.batch, np.unique(training.batch.numbers)
        scale = usual_bond(batch, find_pairs(batch, _LONGEST))
        pair, one = _universal(elements, scale)
        rows, columns = pairs_of_elements(elements)
        names, split = [chemical_symbols[z] for z in elements], 5 * len(rows)

        def model(x: Floats) -> BondOrder:
            of_pairs, of_one = _plain(x[:split].reshape(-1, 5), x[split:].reshape(-1, 4))
            return cls(
                tuple(
                    (names[a], names[b], *values.tolist())
                    for a, b, values in zip(rows, columns, of_pairs, strict=True)
                ),
                tuple((a, *v.tolist()) for a, v in zip(names, of_one, strict=True)),
            )

        widths = [np.tile(_PAIR_WIDTHS, len(rows)), np.tile(_ANGLE_WIDTHS, len(names))]
        start = np.concatenate([pair[rows, columns].ravel(), one.ravel()])
        pairs = find_pairs(batch, _LONGEST)
        return model(ParameterFit(training, pairs, start, np.concatenate(widths), model).solution())
