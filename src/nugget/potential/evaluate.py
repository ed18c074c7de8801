"""Evaluation of a fitted state: energies, uncertainties and their gradients.

Predictions, surfaces, calculators and calibration all use `value_and_grad`, which runs the compiled
call of `potential.compiled` where it can, and otherwise features, kernel, uncertainty and mean
function one after the other, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nugget.descriptors.base import Environments
from nugget.errors import NuggetError
from nugget.gp.kernels import KernelRows
from nugget.gp.labels import FORCE, STRESS
from nugget.gp.uncertainty.base import derivative_std
from nugget.numerics.arrays import Floats, Ints
from nugget.potential.compiled import Compiled
from nugget.potential.design import gradient_rows, prior_force_variance
from nugget.potential.domain import FORCE_LENGTH, DomainValues
from nugget.potential.fitted import FittedState, environment_points
from nugget.potential.mean_functions.base import MeanValues
from nugget.structures.batch import Batch
from nugget.structures.geometry import RADII
from nugget.structures.labels import voigt
from nugget.structures.neighbour_loops import structure_sums
from nugget.structures.neighbours import Pairs, find_pairs

# Rows of coefficients (c_E, c_σ): the gradients are those of c_E·E + c_σ·σ.
MEAN = np.array([[1.0, 0.0]])

STD = np.array([[0.0, 1.0]])

MEAN_AND_STD = np.concatenate([MEAN, STD])

NO_GRADIENT = np.empty((0, 2))

_NONE = np.zeros(0, dtype=np.int64)

_NO_MEAN = MeanValues(np.zeros(0))


class Evaluation(NamedTuple):
    """Values of a batch, and one gradient per row of coefficients."""

    state: FittedState
    batch: Batch
    environments: Environments | None  # None after the compiled call
    rows: KernelRows | None  # with `keep_rows`, or without gradients
    mean_function: MeanValues | None  # likewise
    energy: Floats  # (B,)
    std: Floats | None  # (B,)
    gradients: Floats  # (R, N, 3) by positions
    strains: Floats  # (R, B, 3, 3) by strain
    domain: DomainValues | None = None  # where σ was requested of a state with a domain

    @property
    def env(self) -> Environments:
        assert self.environments is not None, "evaluate with keep_rows=True"
        return self.environments

    @property
    def coincident(self) -> Ints:
        """Structures with coincident atoms."""
        env = self.environments
        return env.coincident if env is not None and env.has_coincident else _NONE

    def local_energies(self) -> Floats:
        """Energies of the atoms (N,)."""
        assert self.mean_function is not None
        return self._rows.k @ self.state.regression.alpha + self.mean_function.energies

    def local_std(self) -> Floats:
        """Standard deviation of each atom's energy (N,)."""
        fitted, k = self.state.widened, self._rows.k
        own = self.state.kernel.diagonal(self.env.values)
        std = fitted.std(k, np.ones(len(k)), own if fitted.uses_prior_variance else None)
        if self.domain is None:
            return std
        mean = self._mean_std
        return _root_sum(std, self.domain.shares, None if mean is None else mean.energies)

    def forces_std(self) -> Floats:
        """Standard deviation of each force component (N, 3)."""
        fitted = self.state.widened
        slopes = gradient_rows(self.env, self._rows)[0].reshape(-1, self._rows.n_inducing)
        own = None
        if fitted.uses_prior_variance:
            own = prior_force_variance(self.env, self.state.kernel).ravel()
        std = derivative_std(fitted, -slopes, FORCE, own).reshape(-1, 3)
        added = self.added_force_variance()
        return std if added is None else np.sqrt(std**2 + added)

    def added_force_variance(self) -> Floats | None:
        """Variance of each force component (N, 3) from training domain and mean function."""
        parts = []
        if self.domain is not None and self.domain.std.any():
            parts += [self.domain.derivatives[0], self.domain.shares[:, None] / FORCE_LENGTH]
        if self._mean_std is not None and self._mean_std.gradient is not None:
            parts.append(self._mean_std.gradient)
        return sum((p**2 for p in parts), np.zeros_like(self.batch.positions)) if parts else None

    def stress_std(self) -> Floats:
        """Standard deviation of each stress component (B, 6), in Voigt's order."""
        fitted, m = self.state.widened, self._rows.n_inducing
        if fitted.uses_prior_variance:
            raise NuggetError(
                f"{type(fitted.settings).__name__} has no uncertainty of the stress; use Posterior "
                "or LabelNoise."
            )
        strain = gradient_rows(self.env, self._rows, strain=True)[1]
        assert strain is not None
        rows = voigt(strain, axis=1)
        volume = np.abs(np.linalg.det(self.batch.cells))[:, None]
        rows /= volume[:, :, None]
        std = derivative_std(fitted, rows.reshape(-1, m), STRESS, None).reshape(-1, 6)
        if self.domain is not None:
            # A strain changes distances by bond lengths, 2 R for an atom of radius R.
            shares = self.domain.shares * 2.0 * RADII[self.batch.numbers] / FORCE_LENGTH
            total = structure_sums(shares, self.batch.offsets)[:, None]
            std = _root_sum(std, voigt(self.domain.derivatives[1], axis=1) / volume, total / volume)
        if self._mean_std is not None and self._mean_std.strain is not None:
            std = _root_sum(std, voigt(self._mean_std.strain, axis=1) / volume)
        return std

    @property
    def _mean_std(self) -> MeanValues | None:
        """The standard deviation of the mean function, which counts with a training domain."""
        assert self.mean_function is not None, "evaluate with keep_rows=True"
        return None if self.domain is None else self.mean_function.std

    @property
    def _rows(self) -> KernelRows:
        assert self.rows is not None, "evaluate with keep_rows=True"
        return self.rows


def value_and_grad(
    state: FittedState,
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

    `member` = (weights, shift per atom) replaces the mean. `pairs` may come from a Verlet list.
    `keep_rows` keeps the kernel rows, which the values of single atoms and components need.
    """
    alpha, shift = (state.regression.alpha, 0.0) if member is None else member
    if len(coefficients) and not keep_rows and (compiled := state.compiled) is not None:
        whole = _at_once(compiled, state, batch, alpha, shift, coefficients, std, pairs)
        if whole is not None:
            return whole
    env = state.descriptor.compute(batch, pairs, strict=strict)
    mean_function = state.mean_function.evaluate(batch, env.pairs)
    rows = None
    if keep_rows or not len(coefficients):
        rows = state.inducing.forward(environment_points(env))
    domain = _domain_values(state, batch, env.pairs) if std else None
    added = None if domain is None else _Added.of(domain, mean_function)
    if len(coefficients):
        energy, deviation, by_features = _features_grad(
            state, env, alpha, coefficients, std, rows, None if added is None else added.variance
        )
        gradients, strains = env.pullback_strain(by_features)
        if mean_function.gradient is not None or mean_function.strain is not None:
            _add_mean_function(mean_function, coefficients, gradients, strains)
        if added is not None and deviation is not None:
            added.add_gradients(coefficients, deviation, gradients, strains)
    else:
        assert rows is not None
        energy = rows.k_sum @ alpha
        deviation = _std_alone(state, env, rows) if std else None
        if added is not None and deviation is not None:
            deviation = np.sqrt(deviation**2 + added.variance)
        gradients, strains = np.empty((0, *batch.positions.shape)), np.empty((0, len(batch), 3, 3))
    energy += mean_function.totals(batch)
    if shift:
        energy += shift * batch.sizes
    return Evaluation(
        state, batch, env, rows, mean_function, energy, deviation, gradients, strains, domain
    )


def _domain_values(state: FittedState, batch: Batch, pairs: Pairs | None) -> DomainValues | None:
    return None if state.domain is None else state.domain.evaluate(batch, pairs)


class _Added(NamedTuple):
    """Standard deviations of structures that are added in quadrature to that of the kernel sums."""

    batch: Batch
    parts: list[tuple[Floats, Callable[[], tuple[Floats, Floats]]]]  # σ (B,), its derivatives
    variance: Floats  # (B,) sum of the squares

    @classmethod
    def of(cls, domain: DomainValues, mean_function: MeanValues) -> _Added | None:
        """Those of the training domain and of the mean function that are not zero everywhere."""
        parts: list[Any] = []
        batch = domain.batch
        if domain.std.any():
            parts.append((domain.std, lambda: domain.derivatives))
        if (own := mean_function.std) is not None:
            parts.append((own.totals(batch), lambda: (own.gradient, own.strain)))
        if not parts:
            return None
        return cls(batch, parts, sum((std**2 for std, _ in parts), np.zeros(len(batch))))

    def add_gradients(
        self, coefficients: Floats, std: Floats, gradients: Floats, strains: Floats
    ) -> None:
        """Add c_σ·(σ_a ∇σ_a + …)/σ to the gradients of c_E·E + c_σ·σ."""
        if not coefficients[:, 1].any():
            return
        for own, derivatives in self.parts:
            share = np.divide(own, std, out=np.zeros_like(std), where=std > 0.0)
            by_positions, by_strain = derivatives()
            for r in np.flatnonzero(coefficients[:, 1]):
                factor = coefficients[r, 1] * share
                gradients[r] += factor[self.batch.owner, None] * by_positions
                strains[r] += factor[:, None, None] * by_strain


def _root_sum(*parts: Floats | None) -> Floats:
    """The root of the sum of squares."""
    first, *others = (part for part in parts if part is not None)
    assert first is not None
    return first if not others else np.sqrt(sum((p**2 for p in others), first**2))


def _at_once(
    compiled: Compiled, state: FittedState, batch: Batch, alpha: Floats, shift: float,
    coefficients: Floats, std: bool, pairs: Pairs | None,
) -> Evaluation | None:  # fmt: skip
    """`value_and_grad` in one compiled call; None for an unusual structure."""
    domain = added = mean_function = None
    if pairs is None and not (compiled.only_species and state.domain is None):
        pairs = find_pairs(batch, state.descriptor.cutoff)
    if not compiled.only_species:
        mean_function = state.mean_function.evaluate(batch, pairs)
    if std:
        domain = _domain_values(state, batch, pairs)
        added = None if domain is None else _Added.of(domain, mean_function or _NO_MEAN)
    values = compiled.evaluate(
        batch, alpha, coefficients, std, pairs, None if added is None else added.variance
    )
    if values is None:
        return None
    energy, deviation, gradients, strains = values
    if mean_function is not None:
        _add_mean_function(mean_function, coefficients, gradients, strains)
        energy += mean_function.totals(batch)
    if added is not None:
        added.add_gradients(coefficients, deviation, gradients, strains)
    if shift:
        energy += shift * batch.sizes
    return Evaluation(
        state, batch, None, None, None, energy, deviation if std else None, gradients, strains,
        domain,
    )  # fmt: skip


def _features_grad(
    state: FittedState,
    env: Environments,
    alpha: Floats,
    coefficients: Floats,
    std: bool,
    rows: KernelRows | None,
    added: Floats | None,
) -> tuple[Floats, Floats | None, Floats]:
    """Energies without mean function (B,), stds (B,) and gradients by features (R, n, f).

    `added` (B,) is a variance that is added to that of the uncertainty.
    """
    points, sizes = environment_points(env), env.batch.sizes
    fitted = state.widened
    self_sum = own = None
    if std and fitted.uses_prior_variance:
        self_sum = state.kernel.self_sum(points)
        own = self_sum.value
    if std and fitted.columns is None:  # an uncertainty that is not linear
        rows = state.inducing.forward(points) if rows is None else rows
        mean, deviation, weights = fitted.std_and_weights(
            rows.k_sum, sizes, alpha, coefficients, own
        )
        if added is not None:
            linear, deviation = deviation, np.sqrt(deviation**2 + added)
            share = np.divide(linear, deviation, out=np.zeros_like(linear), where=deviation > 0.0)
            on_mean = coefficients[:, 0, None, None] * alpha
            weights = on_mean + share[:, None] * (weights - on_mean)
        gradients = rows.vjp(weights)
    else:
        columns = fitted.columns if std else None
        variance, sign = added, 1.0
        if own is not None:
            variance, sign = fitted.prior_part(own, sizes), -1.0
            if added is not None:
                variance = variance + added
        mean, deviation, gradients = (
            state.inducing.value_and_grad(
                points, sizes, alpha, coefficients, columns, variance, sign
            )
            if rows is None
            else rows.value_and_grad(sizes, alpha, coefficients, columns, variance, sign)
        )
    if self_sum is not None and coefficients[:, 1].any():
        own_gradient = self_sum.vjp(fitted.prior_variance_slope(deviation))
        gradients += coefficients[:, 1, None, None] * own_gradient
    return mean, deviation if std else None, gradients


def _std_alone(state: FittedState, env: Environments, rows: KernelRows) -> Floats:
    """σ (B,) without a gradient, in one pass over W instead of two."""
    fitted = state.widened
    own = state.kernel.self_sum(rows.points).value if fitted.uses_prior_variance else None
    return fitted.std(rows.k_sum, env.batch.sizes, own)


def _add_mean_function(
    values: MeanValues, coefficients: Floats, gradients: Floats, strains: Floats
) -> None:
    for r, factor in enumerate(coefficients[:, 0].tolist()):
        if factor == 0.0:
            continue
        if values.gradient is not None:
            gradients[r] += values.gradient if factor == 1.0 else factor * values.gradient
        if values.strain is not None:
            strains[r] += values.strain if factor == 1.0 else factor * values.strain
