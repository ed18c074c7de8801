"""Fits of the parameters of an analytic potential, which is then used as a mean function."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from nugget.numerics.arrays import Floats, Ints
from nugget.potential.cohesive_energies import BOND_ENERGY
from nugget.potential.mean_functions.base import MeanFunction
from nugget.potential.training import Training
from nugget.structures.neighbours import Pairs

# Width of the prior distributions in units of the widths that are given.
_SPREAD = 10.0

# Residuals count in units of these: forces over their rms, energies per atom over rms force times
# Å, the mean energy over the cohesive energy.
_FORCE_UNIT, _ENERGY_UNIT, _COHESION_UNIT = 0.07, 0.05, 0.15

_CALLS = 40  # of the least-squares solver


class ParameterFit(NamedTuple):
    """The posterior mode of parameters around a start.

    The data are forces, differences of energies between structures, and the cohesive energies as
    the mean of the energies.
    """

    training: Training
    pairs: Pairs
    start: Floats  # (P,)
    widths: Floats  # (P,)
    model: Callable[[Floats], MeanFunction]

    def residuals(self, x: Floats) -> Floats:
        """Residuals of forces, energies, cohesive energy and parameters, each over its unit."""
        batch, training = self.training.batch, self.training
        values = self.model(x).evaluate(batch, self.pairs)
        sizes, rms = batch.sizes, float(np.sqrt(np.mean(training.forces**2)))
        elements = np.unique(batch.numbers)
        counts = np.stack(
            [np.add.reduceat(batch.numbers == z, batch.offsets[:-1]) for z in elements], axis=1
        )
        shares, energy = counts / sizes[:, None], values.totals(batch) / sizes
        rest = training.energy / sizes - energy
        rest -= shares @ np.linalg.lstsq(shares, rest, rcond=1e-10)[0]
        cohesive = shares @ BOND_ENERGY[elements]
        forces = (training.forces + np.asarray(values.gradient)).ravel()
        return np.concatenate(
            [
                forces / (_FORCE_UNIT * max(rms, 1e-3) * np.sqrt(forces.size)),
                rest / (_ENERGY_UNIT * max(rms, 1e-3) * np.sqrt(rest.size)),
                (energy + cohesive) / (_COHESION_UNIT * cohesive * np.sqrt(rest.size)),
                (x - self.start) / (self.widths * _SPREAD),
            ]
        )

    def solution(self) -> Floats:
        """The parameters that agree best."""
        best: Floats = least_squares(self.residuals, self.start, max_nfev=_CALLS).x
        return best


def unexplained(mean_function: MeanFunction, training: Training) -> float:
    """The rms of the forces that a mean function leaves, over the rms of the forces."""
    gradient = np.asarray(mean_function.evaluate(training.batch).gradient)
    square = float(np.sum(training.forces**2))
    return float(np.sqrt(np.sum((training.forces + gradient) ** 2) / max(square, 1e-12)))


def pairs_of_elements(elements: Ints) -> tuple[Ints, Ints]:
    """Rows and columns of the upper triangle of a table by two elements."""
    rows, columns = np.triu_indices(len(elements))
    return rows, columns
