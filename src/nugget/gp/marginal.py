"""Log marginal likelihood of the sparse model, and hyper-parameters that maximise it.

The labels are y ~ N(0, S) with S = A K_mm⁻¹ Aᵀ + Σ, where A holds the kernel sums of structures.
With the whitened QR factors of `regression`, Woodbury's identity and the determinant lemma give
S⁻¹y = Σ⁻¹(y − Aα) and log|S| = log|Σ| + 2 log|R|.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from nugget.errors import NuggetError
from nugget.gp.kernels import Kernel
from nugget.gp.labels import Labels
from nugget.gp.linalg import inverse_gram, solve
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty.projected import ProjectedProcess
from nugget.numerics.arrays import Floats, Ints

# A parameter is undetermined if the log likelihood falls by less than this on the way to a bound.
FLAT = 0.05
Evaluate = Callable[[Floats], tuple[float, Floats]]


class RunawayWarning(UserWarning):
    """A hyper-parameter ran into its bound and kept its previous value."""


def log_marginal_likelihood(
    kernel: Kernel, noise: float, points: Points, y: Floats, z: Floats, gz: Ints
) -> tuple[float, Floats]:
    """The log marginal likelihood and its gradient by the logarithms of `parameter_names`.

    `y` (B,) are labels of whole structures, with variance noise²·N_s.
    """
    inducing = kernel.inducing(z, gz)
    rows = inducing.forward(points)
    labels = Labels.energies(rows.k_sum, y, noise, points.sizes)
    reg = SparseRegression.fit(inducing.gram, labels)
    factor = reg.s if reg.few else reg.r  # |I + BBᵀ| = |I + BᵀB|
    log_det = 2.0 * float(np.sum(np.log(labels.noise)) + _log_diagonal(factor))
    residual = (labels.y - rows.k_sum @ reg.alpha) / labels.noise**2  # v = S⁻¹y
    fit = float(labels.y @ residual)
    value = -0.5 * (fit + log_det + labels.y.size * np.log(2.0 * np.pi))

    # ½[vᵀ dS v − tr(S⁻¹dS)] with v = S⁻¹y. For dS = dA K⁻¹Aᵀ + A K⁻¹dAᵀ − A K⁻¹dK K⁻¹Aᵀ both parts
    # are sums over dA and dK with these weights:
    smooth = reg.smooth(np.diag(1.0 / labels.noise))  # U K⁻¹AᵀS⁻¹
    weights = solve(reg.upper, smooth).T  # S⁻¹A K⁻¹
    on_a = np.outer(residual, reg.alpha) - weights  # ∂value/∂A, with K⁻¹Aᵀv = α
    half = ProjectedProcess().fit(reg).v  # K⁻¹AᵀS⁻¹AK⁻¹ = K⁻¹ − (RᵀR)⁻¹ = VVᵀ
    on_k = 0.5 * (half @ half.T - np.outer(reg.alpha, reg.alpha))  # ∂value/∂K_mm

    on_theta = []
    of_k = kernel.log_gradients(inducing.z, inducing.group, inducing.z, inducing.group)
    of_rows = kernel.log_gradients(points.x, points.group, inducing.z, inducing.group)
    for name in of_k:
        d_a = _sum_over_structures(of_rows[name], points)
        on_theta.append(float(np.sum(on_a * d_a) + np.sum(on_k * of_k[name])))
    # tr(S⁻¹Σ) = tr (I + BBᵀ)⁻¹ = p − m + tr (I + BᵀB)⁻¹
    more = 0 if reg.few else reg.y.size - reg.n_inducing
    trace = more + float(np.trace(inverse_gram(factor)))
    d_noise = float(np.sum((residual * labels.noise) ** 2)) - trace
    return value, np.array([*on_theta, d_noise])


def parameter_names(kernel: Kernel, z: Floats, gz: Ints) -> tuple[str, ...]:
    """The kernel's hyper-parameters (length_scale and amplitude of an RBF), then "noise"."""
    return (*kernel.log_gradients(z[:1], gz[:1], z[:1], gz[:1]), "noise")


def _log_diagonal(factor: Floats) -> float:
    return float(np.sum(np.log(np.abs(np.diagonal(factor)))))


def _sum_over_structures(rows: Floats, points: Points) -> Floats:
    total = np.zeros((len(points), rows.shape[1]))
    np.add.at(total, points.owner, rows)
    return total


@dataclass(frozen=True)
class MarginalLikelihood:
    """Maximise the log marginal likelihood over those of l, θ₀ and σ_n that have bounds.

    L-BFGS-B in the logarithms, from the present values and `restarts` further seeded starts inside
    the bounds. A hyper-parameter that the likelihood does not determine runs into a bound: it keeps
    its previous value, with a warning. Hyper-parameters that a kernel lacks are ignored.
    """

    length_scale: tuple[float, float] | None = (1e-1, 1e3)
    amplitude: tuple[float, float] | None = (1e-3, 1e5)
    noise: tuple[float, float] | None = (1e-5, 1e1)
    restarts: int = 2

    def __post_init__(self) -> None:
        for name in ("length_scale", "amplitude", "noise"):
            bounds = getattr(self, name)
            if bounds is not None and not 0.0 < bounds[0] < bounds[1]:
                raise NuggetError(f"Bounds of {name} are {bounds}; give (low, high) above 0.")

    def optimise(
        self, kernel: Kernel, noise: float, points: Points, y: Floats, z: Floats, gz: Ints, rng:
        np.random.Generator,
    ) -> Optimised:  # fmt: skip
        """The best hyper-parameters, starting from those of `kernel` and `noise`."""
        parameters = parameter_names(kernel, z, gz)
        old = np.log([*(getattr(kernel, name) for name in parameters[:-1]), noise])
        limits = {
            i: np.log(bounds)
            for i, name in enumerate(parameters)
            if (bounds := getattr(self, name, None))
        }

        def evaluate(theta: Floats) -> tuple[float, Floats]:
            changed, sigma = _changed(kernel, parameters, theta)
            return log_marginal_likelihood(changed, sigma, points, y, z, gz)

        runaway: set[int] = set()
        while True:
            free = [i for i in limits if i not in runaway]
            best, value = self._maximise(evaluate, old, free, limits, rng)
            stuck = {i for i in free if _undetermined(evaluate, best, value, i, limits[i])}
            if not stuck:
                break
            runaway |= stuck  # the others are optimised again without them
        names = tuple(parameters[i] for i in sorted(runaway))
        for i, name in zip(sorted(runaway), names, strict=True):
            low, high = np.exp(limits[i])
            warnings.warn(
                f"The marginal likelihood does not determine {name} within {low:g} … {high:g};"
                f" it keeps its previous value {np.exp(old[i]):g}.",
                RunawayWarning,
                stacklevel=2,
            )
        return Optimised(*_changed(kernel, parameters, best), value, names)

    def _maximise(
        self, evaluate: Evaluate, old: Floats, free: list[int], limits: Mapping[int, Floats], rng:
        np.random.Generator,
    ) -> tuple[Floats, float]:  # fmt: skip
        if not free:
            return old, evaluate(old)[0]

        def negative(theta: Floats) -> tuple[float, Floats]:
            value, gradient = evaluate(_placed(old, free, theta))
            return -value, -gradient[free]

        bounds = np.array([limits[i] for i in free])
        starts = [np.clip(old[free], bounds[:, 0], bounds[:, 1])]
        starts += [rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(self.restarts)]
        runs = [
            minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds)
            for start in starts
        ]
        winner = min(runs, key=lambda run: float(run.fun))
        return _placed(old, free, winner.x), -float(winner.fun)


@dataclass(frozen=True)
class Optimised:
    """The result of an optimisation; `runaway` names the parameters that kept their old values."""

    kernel: Kernel
    noise: float
    log_marginal_likelihood: float
    runaway: tuple[str, ...] = field(default=())


def _changed(kernel: Any, parameters: tuple[str, ...], theta: Floats) -> tuple[Kernel, float]:
    """The kernel and the noise with these (logarithmic) hyper-parameters."""
    *values, noise = (float(v) for v in np.exp(theta))
    return replace(kernel, **dict(zip(parameters[:-1], values, strict=True))), noise


def _placed(theta: Floats, where: list[int], values: Floats) -> Floats:
    out = theta.copy()
    out[where] = values
    return out


def _undetermined(evaluate: Evaluate, best: Floats, value: float, i: int, limits: Floats) -> bool:
    """True when parameter i could go to one of its bounds at (nearly) no loss of likelihood."""
    return any(evaluate(_placed(best, [i], bound))[0] > value - FLAT for bound in limits)
