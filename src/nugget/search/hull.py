"""The convex hull: which crystals of several compositions are stable, and by how much.

The enthalpy per atom of the hull at a composition x is the least of Σ λ_k h_k over mixtures of
known crystals with Σ λ_k x_k = x, λ ≥ 0, Σ λ = 1: a linear program. A crystal below the hull
changes it, one above it never does, since the hull only sinks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from math import gcd

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols
from scipy.optimize import linprog

Shares = tuple[int, ...]
#: Enthalpies per atom (eV) that differ by less are the same: round-off of the linear program.
SAME = 1e-7


@dataclass(frozen=True)
class Hull:
    """Enthalpies per atom by composition, the lowest known; compositions count atoms per unit."""

    elements: tuple[int, ...]
    points: dict[Shares, float] = field(default_factory=dict)
    _at: dict[Shares, float] = field(default_factory=dict, compare=False, repr=False)

    def shares(self, atoms: Atoms) -> Shares:
        """The composition of a crystal: atoms of each element in a formula unit."""
        counts = [int(np.sum(atoms.numbers == z)) for z in self.elements]
        if sum(counts) < len(atoms):
            return ()
        divisor = reduce(gcd, counts)
        return tuple(n // divisor for n in counts)

    @property
    def symbols(self) -> list[str]:
        return [chemical_symbols[z] for z in self.elements]

    @property
    def complete(self) -> bool:
        """Are all elements known? Without them, nothing has a formation enthalpy."""
        return all(end in self.points for end in self.ends)

    @property
    def ends(self) -> list[Shares]:
        """The compositions of the elements."""
        return [tuple(row) for row in np.eye(len(self.elements), dtype=int).tolist()]

    def at(self, shares: Shares) -> float:
        """Enthalpy per atom of the hull; 0 before all elements are known."""
        if not self.complete:
            return 0.0
        if shares not in self._at:
            self._at[shares] = self._solve(shares)
        return self._at[shares]

    def _solve(self, shares: Shares) -> float:
        known = np.array(list(self.points), dtype=float)
        known /= known.sum(axis=1, keepdims=True)
        values = np.array(list(self.points.values()))
        wanted = np.array(shares, dtype=float) / sum(shares)
        # Formation enthalpies are small numbers; total ones would cost digits.
        line = np.array([self.points[end] for end in self.ends])
        found = linprog(values - known @ line, A_eq=known.T, b_eq=wanted, method="highs")
        if shares in self.points:  # no round-off where the hull is a point
            return min(self.points[shares], float(found.fun + wanted @ line))
        return float(found.fun + wanted @ line)

    def formation(self, shares: Shares, value: float) -> float | None:
        """Enthalpy per atom relative to the elements; None before all of them are known."""
        if not self.complete:
            return None
        line = np.array([self.points[end] for end in self.ends])
        return value - float(np.dot(shares, line)) / sum(shares)

    def including(self, shares: Shares, value: float) -> Hull:
        """With one more crystal; the same hull when that lies above it."""
        before = self.points.get(shares, np.inf)
        if value >= before or (self.complete and value >= self.at(shares)):
            return self
        return Hull(self.elements, {**self.points, shares: value})

    def vertices(self) -> list[Shares]:
        """The stable compositions, in the order of their first element's share."""
        on = [s for s, v in self.points.items() if v <= self._without(s) - SAME]
        return sorted(on, key=lambda s: [-n / sum(s) for n in s])

    def _without(self, shares: Shares) -> float:
        """The hull at a composition, if its own crystal were not known."""
        if shares in self.ends:
            return np.inf
        others = {s: v for s, v in self.points.items() if s != shares}
        return Hull(self.elements, others).at(shares)

    def name(self, shares: Shares) -> str:
        """As Cu3Au."""
        parts = zip(self.symbols, shares, strict=True)
        return "".join(f"{symbol}{n if n > 1 else ''}" for symbol, n in parts if n)
