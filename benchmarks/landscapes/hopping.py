"""Basin hopping for pair potentials: references that do not come from nugget itself.

Two moves: all atoms are displaced, or the most weakly bound ones go to other places on the surface.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Floats = NDArray[np.float64]
#: Energy and dE/dr of pairs at these distances, in units of the bond length.
Pair = Callable[[Floats], tuple[Floats, Floats]]


def lennard_jones(r: Floats) -> tuple[Floats, Floats]:
    """Minimum of −1 at r = 1."""
    x = r**-6
    return x * x - 2 * x, (-12 * x * x + 12 * x) / r


def morse(rho: float) -> Pair:
    """Minimum of −1 at r = 1; rho is the inverse range."""

    def pair(r: Floats) -> tuple[Floats, Floats]:
        x = np.exp(-rho * (r - 1))
        return x * (x - 2), -2 * rho * x * (x - 1)

    return pair


def _energies(positions: Floats, pair: Pair) -> tuple[Floats, Floats]:
    """Energy of each atom (all of its bonds) and the gradient of the total energy."""
    difference = positions[:, None] - positions
    r = np.sqrt((difference**2).sum(axis=-1))
    np.fill_diagonal(r, 1.0)
    energy, slope = pair(np.maximum(r, 0.5))
    np.fill_diagonal(energy, 0.0)
    np.fill_diagonal(slope, 0.0)
    return energy.sum(axis=1), ((slope / r)[..., None] * difference).sum(axis=1)


def relaxed(positions: Floats, pair: Pair) -> tuple[float, Floats]:
    """The minimum that L-BFGS reaches, and its energy."""

    def total(flat: Floats) -> tuple[float, Floats]:
        atoms, gradient = _energies(flat.reshape(-1, 3), pair)
        return 0.5 * float(atoms.sum()), gradient.ravel()

    found = minimize(total, positions.ravel(), jac=True, method="L-BFGS-B", options={"gtol": 1e-6})
    return float(found.fun), found.x.reshape(-1, 3)


def _moved(positions: Floats, pair: Pair, rng: np.random.Generator) -> Floats:
    if rng.random() < 0.5:
        return positions + rng.uniform(-0.4, 0.4, positions.shape)
    count = int(rng.integers(1, 4))
    weakest = np.argsort(_energies(positions, pair)[0])[-count:]
    centre = positions.mean(axis=0)
    radius = np.sqrt(((positions - centre) ** 2).sum(axis=1)).max()
    direction = rng.normal(size=(count, 3))
    direction /= np.sqrt((direction**2).sum(axis=1, keepdims=True))
    moved = positions.copy()
    moved[weakest] = centre + radius * direction
    return moved


def hop(
    n_atoms: int, pair: Pair, smooth: Pair, steps: int, temperature: float, seed: int
) -> tuple[float, Floats]:
    """The lowest minimum of one walk from random positions, which `smooth` relaxes first."""
    rng = np.random.default_rng(seed)
    start = rng.normal(size=(n_atoms, 3)) * (0.3 * n_atoms ** (1 / 3))
    energy, positions = relaxed(relaxed(start, smooth)[1], pair)
    lowest, best = energy, positions
    for _ in range(steps):
        trial = relaxed(_moved(positions, pair, rng), smooth)[1]
        new, there = relaxed(trial, pair)
        if new < energy or rng.random() < np.exp((energy - new) / temperature):
            energy, positions = new, there
        if energy < lowest - 1e-9:
            lowest, best = energy, positions
    return lowest, best
