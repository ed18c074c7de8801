"""The grand potential Ω = E − Σ μ N over a range of chemical potentials, as the goal of a search.

Structures of different composition are planes E − Σ μ N over the chemical potentials. Their lower
envelope is the phase diagram: a composition is stable where its plane is the lowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols
from scipy.optimize import linprog

from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.systems.goal import LowestEnergy
from nugget.systems.reservoirs import UNLIMITED

Counts = tuple[int, ...]

#: Energies (eV) that differ by less are equal within the linear program's round-off.
SAME = 1e-6

_GRID = 33  # points per chemical potential of the mean over the range


@dataclass(frozen=True)
class Envelope:
    """The lower envelope of Ω(μ), from the lowest energy of each composition.

    `lowest` and `highest` limit the chemical potentials relative to `references` (eV). A structure
    with N atoms and energy E is the lowest one at some μ if E < max_μ [Ω(μ) + μ N], where Ω is the
    envelope of all others. The maximum is a linear program in (Ω, μ), with one condition
    Ω + μ N_k ≤ E_k for each composition k.
    """

    elements: tuple[int, ...]
    references: tuple[float, ...]
    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    points: dict[Counts, float] = field(default_factory=dict)
    _at: dict[Counts, float] = field(default_factory=dict, compare=False, repr=False)

    def counts(self, atoms: Atoms) -> Counts:
        """Atoms of each element whose number varies, those of a template included."""
        return tuple(int(np.sum(atoms.numbers == z)) for z in self.elements)

    @property
    def symbols(self) -> list[str]:
        return [chemical_symbols[z] for z in self.elements]

    @property
    def centre(self) -> Floats:
        """The middle of the range of Δμ."""
        return 0.5 * (np.array(self.lowest) + np.array(self.highest))

    def omega(self, counts: Counts, energy: float, delta: Floats) -> Floats:
        """E − Σ (reference + Δμ) N for Δμ (..., elements)."""
        return np.asarray(energy - (np.array(self.references) + delta) @ np.array(counts))

    def at(self, counts: Counts) -> float:
        """The energy below which a composition lowers the envelope; 0 while that is empty."""
        if not self.points:
            return 0.0
        if counts not in self._at:
            self._at[counts] = self._solve(counts)
        return self._at[counts]

    def _solve(self, counts: Counts) -> float:
        known = np.array(list(self.points), dtype=float)
        reference, wanted = np.array(self.references), np.array(counts, dtype=float)
        # Energies relative to the reservoirs and to one structure are small and keep more digits.
        energies = np.array(list(self.points.values())) - known @ reference
        zero, origin = energies[0], known[0]
        limits = [(None, None), *zip(self.lowest, self.highest, strict=True)]
        solution = linprog(
            -np.r_[1.0, wanted - origin],
            A_ub=np.column_stack([np.ones(len(known)), known - origin]),
            b_ub=energies - zero,
            bounds=limits,
            method="highs",
        )
        highest = float(-solution.fun + zero + wanted @ reference)
        # There is no round-off where the envelope contains the composition itself.
        if counts in self.points and abs(highest - self.points[counts]) < SAME:
            return self.points[counts]
        return highest

    def including(self, counts: Counts, energy: float) -> Envelope:
        """The envelope with one more structure; the same object if that lies above it."""
        if self.points and energy >= self.at(counts):
            return self
        return replace(self, points={**self.points, counts: energy}, _at={})

    def vertices(self) -> list[Counts]:
        """The compositions that are stable somewhere in the range, fewest atoms first."""
        return sorted(c for c, energy in self.points.items() if energy <= self._without(c) - SAME)

    def _without(self, counts: Counts) -> float:
        others = {c: energy for c, energy in self.points.items() if c != counts}
        return replace(self, points=others, _at={}).at(counts) if others else np.inf

    def stable_at(self, delta: Floats) -> tuple[Counts, float]:
        """The stable composition at Δμ, and its Ω."""
        omegas = {c: float(self.omega(c, e, delta)) for c, e in self.points.items()}
        best = min(omegas, key=lambda c: omegas[c])
        return best, omegas[best]

    def mean(self) -> float:
        """The mean of Ω over a grid of the range, eV."""
        axes = [np.linspace(a, b, _GRID) for a, b in zip(self.lowest, self.highest, strict=True)]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        planes = [self.omega(counts, energy, grid) for counts, energy in self.points.items()]
        return float(np.min(planes, axis=0).mean())


@dataclass(frozen=True)
class GrandPotential(LowestEnergy):
    """How far Ω lies above the envelope of all evaluations, at the most favourable μ, in eV.

    A negative value is a gain: the structure becomes the stable one somewhere in the range.
    """

    envelope: Envelope = field(default_factory=lambda: Envelope((), (), (), ()), kw_only=True)

    @property
    def quantity(self) -> str:
        return "grand potential"

    def value(self, atoms: Atoms, energy: float) -> float:
        return energy - self.envelope.at(self.envelope.counts(atoms))

    def values(self, images: Sequence[Atoms], energy: Floats) -> Floats:
        pairs = zip(images, energy, strict=True)
        return np.array([self.value(atoms, float(e)) for atoms, e in pairs])

    def informed(self, atoms: Atoms, energy: float) -> Self:
        envelope = self.envelope.including(self.envelope.counts(atoms), energy)
        return self if envelope is self.envelope else replace(self, envelope=envelope)

    def order(self, atoms: Atoms, energy: float) -> tuple[float, float]:
        """Of stable phases, that with the lowest Ω in the middle of the range comes first."""
        envelope = self.envelope
        middle = envelope.omega(envelope.counts(atoms), energy, envelope.centre)
        return (round(self.value(atoms, energy), 6), float(middle))

    def comparable(self, atoms: Atoms, other: Atoms) -> bool:
        return self.envelope.counts(atoms) == self.envelope.counts(other)

    def reached(self, evaluated: Sequence[tuple[Atoms, float]]) -> float | None:
        """The mean of Ω over the range of chemical potentials."""
        goal = self
        for one in evaluated:
            goal = goal.informed(*one)
        return goal.envelope.mean() if goal.envelope.points else None

    def same_atoms(self, atoms: Atoms, numbers: Sequence[int]) -> bool:
        return set(atoms.numbers.tolist()) <= set(numbers)

    @property
    def least(self) -> int:
        return max(len(self.envelope.vertices()), 1)


# Which compositions are stable, for many sets of energies at once (draws of a posterior). With one
# chemical potential, intervals and boundaries are exact; with several, a grid covers the range.

_POINTS = {1: 201, 2: 61}  # grid points per chemical potential
_FEW = 17  # the same with three or more
_CHUNK = 2_000_000  # numbers per array


def formation(envelope: Envelope, counts: Sequence[Counts], energies: Floats) -> Floats:
    """E − Σ reference N (..., compositions)."""
    return np.asarray(energies - np.array(counts) @ np.array(envelope.references))


def intervals(counts: Ints, energies: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """The smallest and largest Δμ at which each composition is stable, (..., compositions).

    `energies` are relative to the reservoir. A composition is stable between the largest slope
    (e_c − e_k)/(n_c − n_k) to a smaller composition k and the smallest one to a larger k. It is
    nowhere stable if the second number is not above the first.
    """
    lower, upper = np.full_like(energies, low), np.full_like(energies, high)
    for c, n in enumerate(counts):
        for k, m in enumerate(counts):
            if m != n:
                slope = (energies[..., c] - energies[..., k]) / (n - m)
                if m < n:
                    lower[..., c] = np.maximum(lower[..., c], slope)
                else:
                    upper[..., c] = np.minimum(upper[..., c], slope)
    return lower, upper


def crossing(counts: Ints, energies: Floats, most: int, low: float, high: float) -> Floats:
    """The Δμ (...) at which the stable number of atoms rises above `most`, within the range.

    Compositions with more atoms win if one of them, k, has Δμ > (e_k − e_j)/(n_k − n_j) for all j
    with at most `most` atoms.
    """
    few, many = np.flatnonzero(counts <= most), np.flatnonzero(counts > most)
    slopes = energies[..., many, None] - energies[..., None, few]
    slopes /= counts[many, None] - counts[None, few]
    return np.asarray(np.clip(slopes.max(axis=-1).min(axis=-1), low, high))


def limits(envelope: Envelope) -> list[tuple[float, float]]:
    """The range of each Δμ; one without limits is reduced to where the stable phase changes."""
    ranges = []
    counts = np.array(list(envelope.points))
    energies = formation(envelope, list(envelope.points), np.array(list(envelope.points.values())))
    for k, (low, high) in enumerate(zip(envelope.lowest, envelope.highest, strict=True)):
        if (low, high) == UNLIMITED:
            other = np.delete(counts, k, axis=1)
            slopes = [
                (energies[a] - energies[b]) / (counts[a, k] - counts[b, k])
                for a in range(len(counts))
                for b in range(a)
                if counts[a, k] != counts[b, k] and np.array_equal(other[a], other[b])
            ]
            low, high = min(slopes, default=0.0) - 0.5, max(slopes, default=0.0) + 0.5
        ranges.append((float(low), float(high)))
    return ranges


def grid(ranges: Sequence[tuple[float, float]]) -> tuple[list[Floats], Floats]:
    """The axes, and all points (points, elements) of the range."""
    size = _POINTS.get(len(ranges), _FEW)
    axes = [np.linspace(low, high, size) for low, high in ranges]
    return axes, np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=-1)


def stable_on(points: Floats, counts: Ints, energies: Floats) -> Ints:
    """The index of the stable composition at each point, (draws, points)."""
    work = points @ counts.T  # (points, compositions)
    step = max(_CHUNK // work.size, 1)
    parts = [
        np.argmin(energies[k : k + step, None, :] - work, axis=-1)
        for k in range(0, len(energies), step)
    ]
    return np.concatenate(parts)


def appears(stable: Ints, compositions: int) -> Bools:
    """Whether each composition is stable somewhere, (draws, compositions)."""
    return np.stack([(stable == c).any(axis=1) for c in range(compositions)], axis=1)


def neighbours(stable: Ints, axes: Sequence[Floats]) -> list[tuple[int, int]]:
    """Pairs of compositions with a common boundary on the grid, for one set of energies."""
    cells = stable.reshape([len(axis) for axis in axes])
    pairs = set()
    for axis in range(cells.ndim):
        a = np.moveaxis(cells, axis, 0)
        differ = a[:-1] != a[1:]
        pairs |= {
            (min(p), max(p))
            for p in zip(a[:-1][differ].tolist(), a[1:][differ].tolist(), strict=True)
        }
    return sorted(pairs)
