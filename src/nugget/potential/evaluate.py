"""The one evaluation: features, kernel, uncertainty and prior forward, and gradients backward.

Predictions, surfaces, calculators and calibration all go through `value_and_grad`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.descriptors.base import Environments
from nugget.errors import NuggetError
from nugget.gp.kernels import KernelRows
from nugget.gp.labels import FORCE, STRESS
from nugget.gp.points import Points
from nugget.gp.uncertainty.base import derivative_std
from nugget.potential._whole import Constants, constants, whole_value_and_grad
from nugget.potential.design import gradient_rows, prior_force_variance
from nugget.potential.priors import PriorValues
from nugget.structures.batch import Batch
from nugget.structures.labels import VOIGT
from nugget.structures.neighbours import Pairs, find_pairs

if TYPE_CHECKING:
    from nugget.potential.potential import Fit, Potential

# Rows of coefficients (c_E, c_σ): what the gradients are of.
MEAN = np.array([[1.0, 0.0]])
STD = np.array([[0.0, 1.0]])
MEAN_AND_STD = np.concatenate([MEAN, STD])
NO_GRADIENT = np.empty((0, 2))
_NONE = np.zeros(0, dtype=np.int64)


class Evaluation(NamedTuple):
    """A potential on a batch: values, and one gradient per row of coefficients."""

    potential: Potential
    batch: Batch
    environments: Environments | None  # None after one compiled call for everything
    rows: KernelRows | None  # kept when asked for, or when there was no gradient to make
    prior: PriorValues | None  # likewise
    energy: Floats  # (B,)
    std: Floats | None  # (B,)
    gradients: Floats  # (R, N, 3) by positions
    strains: Floats  # (R, B, 3, 3) by strain

    @property
    def env(self) -> Environments:
        assert self.environments is not None, "evaluate with keep_rows=True"
        return self.environments

    @property
    def coincident(self) -> Ints:
        """Structures in which two atoms sit on top of each other."""
        env = self.environments
        return env.coincident if env is not None and env.has_coincident else _NONE

    def local_energies(self) -> Floats:
        """Energies of the atoms (N,)."""
        assert self.prior is not None
        return self._rows.k @ self._fit.regression.alpha + self.prior.energies

    def local_std(self) -> Floats:
        """Standard deviation of each atom's energy (N,)."""
        fitted, k = self._fit.uncertainty, self._rows.k
        own = np.full(len(k), self.potential.kernel.amplitude)
        return fitted.std(k, np.ones(len(k)), own if fitted.uses_prior_variance else None)

    def forces_std(self) -> Floats:
        """Standard deviation of each force component (N, 3)."""
        fitted = self._fit.uncertainty
        slopes = gradient_rows(self.env, self._rows)[0].reshape(-1, self._rows.n_inducing)
        own = None
        if fitted.uses_prior_variance:
            own = prior_force_variance(self.env, self.potential.kernel).ravel()
        return derivative_std(fitted, -slopes, FORCE, own).reshape(-1, 3)

    def stress_std(self) -> Floats:
        """Standard deviation of each stress component (B, 6), in Voigt's order."""
        fitted, m = self._fit.uncertainty, self._rows.n_inducing
        if fitted.uses_prior_variance:
            raise NuggetError(
                f"{type(fitted.settings).__name__} has no uncertainty of the stress; use Posterior "
                "or LabelNoise."
            )
        strain = gradient_rows(self.env, self._rows, strain=True)[1]
        assert strain is not None
        rows = np.stack([0.5 * (strain[:, a, b] + strain[:, b, a]) for a, b in VOIGT], axis=1)
        rows /= np.abs(np.linalg.det(self.batch.cells))[:, None, None]
        return derivative_std(fitted, rows.reshape(-1, m), STRESS, None).reshape(-1, 6)

    @property
    def _fit(self) -> Fit:
        return self.potential.fitted

    @property
    def _rows(self) -> KernelRows:
        assert self.rows is not None, "evaluate with keep_rows=True"
        return self.rows


def value_and_grad(
    potential: Potential,
    batch: Batch,
    coefficients: Floats,
    *,
    std: bool = True,
    member: tuple[Floats, float] | None = None,
    pairs: Pairs | None = None,
    strict: bool = True,
    keep_rows: bool = False,
) -> Evaluation:
    """Energies, standard deviations, and gradients of c_E·E + c_σ·σ for each row (c_E, c_σ).

    `member` = (weights, shift per atom) takes the place of the mean. `pairs` may come from a Verlet
    list. `keep_rows` keeps the kernel rows, for what belongs to single atoms.
    """
    fit = potential.fitted
    alpha, shift = (fit.regression.alpha, 0.0) if member is None else member
    if len(coefficients) and not keep_rows:
        known = constants(potential)
        if known is not None:
            found = _at_once(known, potential, batch, alpha, shift, coefficients, std, pairs)
            if found is not None:
                return found
    env = potential.descriptor.compute(batch, pairs, strict=strict)
    prior = fit.prior.evaluate(batch, env.pairs)
    rows = None
    if keep_rows or not len(coefficients):
        rows = fit.inducing.forward(environment_points(env))
    if len(coefficients):
        energy, deviation, by_features = _features_grad(
            potential, env, alpha, coefficients, std, rows
        )
        gradients, strains = env.pullback_strain(by_features)
        if prior.gradient is not None or prior.strain is not None:
            _add_prior(prior, coefficients, gradients, strains)
    else:
        assert rows is not None
        energy = rows.k_sum @ alpha
        deviation = _std_alone(potential, env, rows) if std else None
        gradients, strains = np.empty((0, *batch.positions.shape)), np.empty((0, len(batch), 3, 3))
    energy += prior.totals(batch)
    if shift:
        energy += shift * batch.sizes
    return Evaluation(potential, batch, env, rows, prior, energy, deviation, gradients, strains)


def _at_once(
    known: Constants, potential: Potential, batch: Batch, alpha: Floats, shift: float,
    coefficients: Floats, std: bool, pairs: Pairs | None,
) -> Evaluation | None:  # fmt: skip
    """`value_and_grad` in one compiled call; None if anything is unusual."""
    if pairs is None and not known.species_only:
        pairs = find_pairs(batch, potential.descriptor.cutoff)
    found = whole_value_and_grad(known, batch, alpha, coefficients, std, pairs)
    if found is None:
        return None
    energy, deviation, gradients, strains = found
    if not known.species_only:
        prior = potential.fitted.prior.evaluate(batch, pairs)
        _add_prior(prior, coefficients, gradients, strains)
        energy += prior.totals(batch)
    if shift:
        energy += shift * batch.sizes
    return Evaluation(
        potential, batch, None, None, None, energy, deviation if std else None, gradients, strains
    )


def environment_points(env: Environments) -> Points:
    """The features as the Gaussian process takes them: one group per central species."""
    return Points.trusted(env.values, env.batch.offsets, env.species)


def _features_grad(
    potential: Potential,
    env: Environments,
    alpha: Floats,
    coefficients: Floats,
    std: bool,
    rows: KernelRows | None,
) -> tuple[Floats, Floats | None, Floats]:
    """Mean without prior (B,), std (B,) if wanted, and gradients by features (R, n, f)."""
    fit, points, sizes = potential.fitted, environment_points(env), env.batch.sizes
    fitted = fit.uncertainty
    self_sum = own = None
    if std and fitted.uses_prior_variance:
        self_sum = potential.kernel.self_sum(points)
        own = self_sum.value
    if std and fitted.columns is None:  # an uncertainty with formulas of its own
        rows = fit.inducing.forward(points) if rows is None else rows
        mean, deviation, weights = fitted.std_and_weights(
            rows.k_sum, sizes, alpha, coefficients, own
        )
        gradients = rows.vjp(weights)
    else:
        columns = fitted.columns if std else None
        own = None if own is None else fitted.scale**2 * own
        mean, deviation, gradients = (
            fit.inducing.value_and_grad(points, sizes, alpha, coefficients, columns, own)
            if rows is None
            else rows.value_and_grad(sizes, alpha, coefficients, columns, own)
        )
    if self_sum is not None and coefficients[:, 1].any():
        own_gradient = self_sum.vjp(fitted.prior_variance_slope(deviation))
        gradients += coefficients[:, 1, None, None] * own_gradient
    return mean, deviation if std else None, gradients


def _std_alone(potential: Potential, env: Environments, rows: KernelRows) -> Floats:
    """σ (B,) without weights for a gradient: one pass over W instead of two."""
    fitted = potential.fitted.uncertainty
    own = potential.kernel.self_sum(rows.points).value if fitted.uses_prior_variance else None
    return fitted.std(rows.k_sum, env.batch.sizes, own)


def _add_prior(
    prior: PriorValues, coefficients: Floats, gradients: Floats, strains: Floats
) -> None:
    for r in np.flatnonzero(coefficients[:, 0]):
        if prior.gradient is not None:
            gradients[r] += coefficients[r, 0] * prior.gradient
        if prior.strain is not None:
            strains[r] += coefficients[r, 0] * prior.strain
