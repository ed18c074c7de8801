"""Fitting: from the parts of a model and a training set to a fitted state.

`fit_state` holds all features and label rows in memory. `fit_state_streamed` computes them for some
structures at a time. `extended_state` learns further structures. `optimise_likelihood` chooses
hyper-parameters by the marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise
from typing import Any

import numpy as np

from nugget.errors import NuggetError
from nugget.gp.cross_validation import NoiseSearch, structure_of, with_best_noise
from nugget.gp.inducing import PivotedCholesky
from nugget.gp.kernels import Inducing
from nugget.gp.kernels.stationary import StationaryKernel
from nugget.gp.labels import Labels
from nugget.gp.marginal import MarginalLikelihood
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression, fit_streamed
from nugget.gp.uncertainty import Uncertainty
from nugget.gp.uncertainty.base import Streamable
from nugget.numerics.arrays import Floats, Ints
from nugget.potential.design import label_rows
from nugget.potential.domain import TrainingDomain
from nugget.potential.evaluate import NO_GRADIENT, value_and_grad
from nugget.potential.fitted import FittedState, ModelParts, environment_points
from nugget.potential.mean_functions.base import extended, label_values, relative_error
from nugget.potential.training import Noise, Training, TrainingData

Progress = Callable[[int, int], None]

# Labels that a streamed fit holds at a time.
_STREAMED_ROWS = 2048

# Environments per inducing point from which a streamed fit selects.
_PER_POINT = 10

# Operations, 2p(2m)², up to which the number m of inducing points for p labels is doubled. This is
# one minute of one core, so that the choice at most doubles the time of a fit.
LARGEST_COST = 2e11

# Points are added if the last 30 % of them reduced log MAE of energies plus log MAE of forces by
# this much, on so many structures. It is 0.07 for lithium and 0.03 for gold clusters, where twice
# as many points reduce the test errors by less than 5 %.
_POINTS_GAIN, _POINTS_STRUCTURES, _POINTS_FEWEST = 0.1, 60, 20

# Structures that are learned together are a new kind if they are at least so many, and either their
# median distance from the training domain or their rms of error/σ is larger than this. The limit of
# inducing points is then raised by a quarter.
_NEW_KIND, _OUTSIDE, _WRONG, _MORE = 5, 0.1, 2.0, 4

# Inducing points for the marginal likelihood, which is evaluated many times.
_LIKELIHOOD_POINTS = 300


def fit_state(
    parts: ModelParts,
    data: TrainingData,
    rng: np.random.Generator,
    *,
    choose_noise: bool = False,
    choose_points: bool = False,
    progress: Progress | None = None,
    threads: int | None = None,
) -> tuple[FittedState, Noise]:
    """The fitted state, and the noise levels, which `choose_noise` changes.

    With `choose_noise` the levels are those with the smallest leave-one-out errors. With
    `choose_points` the number of inducing points is doubled while the last points reduced these
    errors and the cost stays below `LARGEST_COST`.
    """
    phase = phases(progress)
    training, noise = data.training, parts.noise
    mean_function = parts.mean_function.fit(training.batch, training.energy)
    phase("descriptors")
    env = data.environments(parts.descriptor)
    points = environment_points(env)
    phase("inducing points")
    chosen = parts.inducing.select(points, parts.kernel, rng)
    inducing = parts.kernel.inducing(points.x[chosen], points.group[chosen])
    phase("kernel rows")
    labels = label_rows(training, env, inducing, mean_function, noise, progress, threads)
    phase("linear algebra")
    regression = SparseRegression.fit(inducing.gram, labels, threads)
    if choose_noise and len(training.batch) > 1:
        phase("noise levels")
        own = np.random.default_rng(parts.seed)
        fixed = training.has_fixed_noise[structure_of(regression), regression.kind]
        best, regression = with_best_noise(regression, inducing.gram, labels, own, fixed)
        noise = noise.scaled(best.energy, best.force)
    if choose_points:
        phase("more inducing points")
        rule: Any = parts.inducing
        while _more_points_help(rule, regression, training, parts.seed):
            rule = replace(rule, max_points=2 * len(inducing))
            before = (inducing.z, inducing.group)
            more = rule.select(points, parts.kernel, rng, before)
            new = parts.kernel.inducing(points.x[more], points.group[more])
            rows = label_rows(training, env, new, mean_function, noise, None, threads).rows
            k_new = np.concatenate([new.matrix(*before), new.gram])
            inducing = parts.kernel.inducing(
                np.concatenate([before[0], new.z]), np.concatenate([before[1], new.group])
            )
            regression = regression.add_inducing(k_new, rows)
    phase("uncertainty")
    uncertainty = parts.uncertainty.fit(
        regression, rng, lambda: inducing.matrix(env.values, env.species), noise.energy
    )
    domain = None
    if parts.domain:
        phase("training domain")
        scale = relative_error(mean_function)
        domain = TrainingDomain.fit(training.batch, parts.descriptor.cutoff, env.pairs, scale)
    state = FittedState(
        parts.descriptor, parts.kernel, mean_function, inducing, regression, uncertainty, training,
        domain=domain,
    )  # fmt: skip
    return state, noise


def _more_points_help(
    rule: Any, regression: SparseRegression, training: Training, seed: int
) -> bool:
    """Whether twice as many inducing points are affordable and promise smaller errors.

    The points of a pivoted Cholesky are in order of choice and B = Σ^{-1/2}AU⁻¹ with an upper
    triangular U, so that its first columns are those of a fit with fewer points.
    """
    m, structures = regression.n_inducing, len(training.batch)
    full = isinstance(rule, PivotedCholesky) and rule.max_points == m
    cost = 2.0 * regression.y.size * (2 * m) ** 2
    if not full or cost > LARGEST_COST or structures < _POINTS_FEWEST:
        return False
    sample = np.sort(np.random.default_rng(seed).permutation(structures)[:_POINTS_STRUCTURES])
    fewer = NoiseSearch(regression, sample, columns=int(m / np.sqrt(2.0))).trial(1.0, 1.0)
    return fewer.score - NoiseSearch(regression, sample).trial(1.0, 1.0).score > _POINTS_GAIN


def phases(progress: Any) -> Callable[[str], None]:
    """The method `phase` of a progress callback, if it has one; it is called with a name."""
    phase: Callable[[str], None] = getattr(progress, "phase", lambda name: None)
    return phase


def is_new_kind(state: FittedState, more: Training) -> bool:
    """Whether several structures are unlike the training set, by distance or by error.

    This needs a training domain; a single structure is no kind.
    """
    if state.domain is None or len(more.batch) < _NEW_KIND:
        return False
    values = value_and_grad(state, more.batch, NO_GRADIENT)
    assert values.std is not None
    assert values.domain is not None
    error = (more.energy - values.energy) / values.std
    unusual, wrong = np.median(values.domain.outside), np.sqrt(np.mean(error**2))
    return bool(unusual > _OUTSIDE or wrong > _WRONG)


def with_more_points(parts: ModelParts, present: int) -> ModelParts:
    """The parts with a larger limit of inducing points, for structures of a new kind."""
    rule = parts.inducing
    if not isinstance(rule, PivotedCholesky) or rule.max_points is None:
        return parts
    limit = max(rule.max_points, present) + max(rule.max_points // _MORE, 1)
    return replace(parts, inducing=replace(rule, max_points=limit))


def extended_state(
    parts: ModelParts, old: FittedState, more: Training, rng: np.random.Generator
) -> FittedState:
    """The state after learning further structures.

    The mean function stays fixed on all earlier structures, and so do the amplitudes of the
    uncertainty.
    """
    env = parts.descriptor.compute(more.batch)
    points = environment_points(env)
    existing = (old.inducing.z, old.inducing.group)
    chosen = parts.inducing.select(points, parts.kernel, rng, existing)
    inducing, regression = old.inducing, old.regression
    if len(chosen):
        inducing, regression = _with_inducing(parts, old, points.x[chosen], points.group[chosen])
    mean_function = extended(old.mean_function, more.batch)
    labels = label_rows(more, env, inducing, mean_function, parts.noise)
    regression = regression.add_rows(labels)
    training = old.training.append(more)
    domain = old.domain
    if domain is not None:
        new = TrainingDomain.fit(training.batch, domain.cutoff, scale=domain.scale)
        domain = new.with_amplitudes(domain.near, domain.missing)

    def environments() -> Floats:
        every = parts.descriptor.compute(training.batch)
        return inducing.matrix(every.values, every.species)

    uncertainty = parts.uncertainty.fit(regression, rng, environments, parts.noise.energy)
    return replace(
        old,
        kernel=parts.kernel,
        mean_function=mean_function,
        inducing=inducing,
        regression=regression,
        uncertainty=uncertainty.calibrated_as(old.uncertainty),
        training=training,
        domain=domain,
    )


def _with_inducing(
    parts: ModelParts, old: FittedState, x: Floats, group: Ints
) -> tuple[Inducing, SparseRegression]:
    """Append inducing points, which are new columns of K_mm and of all label rows."""
    kernel, before = parts.kernel, old.inducing
    new = kernel.inducing(x, group)
    rows = _training_rows(parts, old, new).rows
    k_new = np.concatenate([new.matrix(before.z, before.group), new.gram])
    every = np.concatenate([before.z, x]), np.concatenate([before.group, group])
    return kernel.inducing(*every), old.regression.add_inducing(k_new, rows)


def with_label_rows(parts: ModelParts, state: FittedState) -> FittedState:
    """The state with its label rows, which a model file does not hold."""
    if state.lean:
        raise NuggetError("A lean model predicts but cannot be updated; update the full model.")
    if state.regression.has_rows:
        return state
    labels = _training_rows(parts, state, state.inducing)
    return replace(state, regression=state.regression.with_rows(labels))


def _training_rows(parts: ModelParts, state: FittedState, inducing: Inducing) -> Labels:
    env = parts.descriptor.compute(state.training.batch)
    return label_rows(state.training, env, inducing, state.mean_function, parts.noise)


def fit_state_streamed(
    parts: ModelParts,
    training: Training,
    rng: np.random.Generator,
    progress: Progress | None,
    threads: int | None,
) -> FittedState:
    """`fit_state` in bounded memory, without holding all features or all label rows.

    Inducing points are selected from the environments of every n-th structure.
    """
    _refuse_streaming(parts.uncertainty)
    phase = phases(progress)
    mean_function = parts.mean_function.fit(training.batch, training.energy)
    phase("inducing points")
    points = _sampled_points(parts, training)
    chosen = parts.inducing.select(points, parts.kernel, rng)
    inducing = parts.kernel.inducing(points.x[chosen], points.group[chosen])
    phase("kernel rows and linear algebra")
    done = count(1)

    def advance(_: int, __: int) -> None:
        if progress is not None:
            progress(next(done), len(training.batch))

    def rows_of(start: int, stop: int) -> Callable[[], Labels]:
        def compute() -> Labels:
            some = training.part(start, stop)
            env = parts.descriptor.compute(some.batch)
            return label_rows(some, env, inducing, mean_function, parts.noise, advance)

        return compute

    ends = _part_ends(training)
    regression = fit_streamed(inducing.gram, [rows_of(a, b) for a, b in pairwise(ends)], threads)
    phase("uncertainty")
    uncertainty = parts.uncertainty.fit(regression, rng, _no_rows, parts.noise.energy)
    domain = None
    if parts.domain:
        scale = relative_error(mean_function)
        domain = TrainingDomain.fit(training.batch, parts.descriptor.cutoff, scale=scale)
    return FittedState(
        parts.descriptor, parts.kernel, mean_function, inducing, regression, uncertainty, training,
        domain=domain,
    )  # fmt: skip


def _refuse_streaming(kind: Uncertainty) -> None:
    if isinstance(kind, Streamable) and not kind.needs_label_rows:
        return
    raise NuggetError(
        f"A streamed fit drops its label rows, which {type(kind).__name__} needs: use Posterior() "
        "or LabelNoise(members=None), or fit without stream."
    )


def _no_rows() -> Floats:
    raise NuggetError("A streamed fit has no rows of single environments; fit without stream.")


def _sampled_points(parts: ModelParts, training: Training) -> Points:
    """Features of every n-th structure, enough to select inducing points from."""
    rule = parts.inducing
    most = getattr(rule, "n_points", None) or getattr(rule, "max_points", None) or 2000
    step = max(len(training.batch.positions) // (_PER_POINT * int(most)), 1)
    batch = training.batch.select(np.arange(0, len(training.batch), step))
    return environment_points(parts.descriptor.compute(batch))


def _part_ends(training: Training) -> list[int]:
    """Boundaries of parts of equal size with at most _STREAMED_ROWS labels."""
    rows: Ints = np.cumsum(
        1 + 3 * training.batch.sizes * training.has_forces + 6 * training.has_stress
    )
    parts = 2 * -(-int(rows[-1]) // (2 * _STREAMED_ROWS))  # an even number, for two cores
    size, ends, start = -(-int(rows[-1]) // parts), [0], 0
    while ends[-1] < len(rows):
        end = max(int(np.searchsorted(rows, start + size, side="right")), ends[-1] + 1)
        ends.append(end)
        start = int(rows[end - 1])
    return ends


def optimise_likelihood(
    parts: ModelParts, data: TrainingData
) -> tuple[ModelParts, dict[str, float | None]]:
    """The parts with the largest marginal likelihood of the energies, and what was chosen.

    The noise of forces is scaled along with that of energies. Length scales are searched within a
    factor of ten of the current one.
    """
    kernel, training = parts.kernel, data.training
    if not isinstance(kernel, StationaryKernel):
        raise NuggetError(
            "The marginal likelihood is available for kernels with one length scale; choose a "
            "preset with one range (quick, balanced) or give a cutoff."
        )
    mean_function = parts.mean_function.fit(training.batch, training.energy)
    y = training.energy - label_values(mean_function, training.batch).totals(training.batch)
    points = environment_points(data.environments(parts.descriptor))
    rng = np.random.default_rng(parts.seed)
    chosen = parts.inducing.select(points, kernel, rng)[:_LIKELIHOOD_POINTS]
    length = (0.1 * kernel.length_scale, 10.0 * kernel.length_scale)
    search = MarginalLikelihood(length_scale=length, noise=(1e-4, 1.0), restarts=1)
    best = search.optimise(
        kernel, parts.noise.energy, points, y, points.x[chosen], points.group[chosen], rng
    )
    ratio = best.noise / parts.noise.energy
    stress = None if parts.noise.stress is None else parts.noise.stress * ratio
    noise = Noise(best.noise, parts.noise.force * ratio, stress)
    choices = {
        "log_marginal_likelihood": best.log_marginal_likelihood,
        "length_scale": getattr(best.kernel, "length_scale", None),
        "amplitude": getattr(best.kernel, "amplitude", None),
        "noise": noise.energy,
        "force_noise": noise.force,
    }
    return replace(parts, kernel=best.kernel, noise=noise), choices
