"""The label-noise ensemble of the paper: sampled members, or the exact limit of infinitely many.

Both variants are a pair (W, ρ): deviations δ(X) = k_sum·W + N_X ρ, σ = |δ|, ∇σ = (Wδ/σ)·∇k_sum.
The blocks of W are stored for unit noise levels, so that calibrating the levels needs no refit:

- label:  W_l = C·diag(N_s) on energy rows,
- force:  W_f = C on force (and stress) rows,
- prior:  w_p = −C n with ρ = 1.

Exact: W = [σ_l W_l, σ_lf W_f, σ_p w_p]. Sampled: the same blocks times Gaussian draws, summed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from nugget.errors import NuggetError
from nugget.gp.labels import ENERGY
from nugget.gp.linalg import compress, compress_gram, inverse_gram, right_solve, solve
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty.base import EnvironmentRows, LinearUncertainty
from nugget.numerics.arrays import Bools, Floats
from nugget.registry import registered

# |κU⁻¹|² <= k(X, X) <= N²θ₀, so dropping directions of UW smaller than TOLERANCE/√θ₀ lowers σ² by
# at most (TOLERANCE·N·σ_level)², less than 1e-6 of σ wherever σ > 0.007·N·σ_level.
TOLERANCE = 1e-5


@registered("uncertainty")
@dataclass(frozen=True)
class LabelNoise:
    """Noise levels of the ensemble and its number of members (None: the exact limit).

    `label` (σ_l) and `prior` (σ_p) are in eV/atom, `force` (σ_lf) in eV/Å per force component.
    """

    label: float = 0.01
    prior: float = 0.05
    force: float = 0.05
    members: int | None = None

    def __post_init__(self) -> None:
        for name in ("label", "prior", "force"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise NuggetError(f"LabelNoise {name} is {value}; it must be zero or positive.")
        if self.members is not None and self.members < 1:
            raise NuggetError(f"LabelNoise members is {self.members}; None is the exact limit.")

    @property
    def needs_label_rows(self) -> bool:
        """Whether the fit needs the rows of all labels, which a streamed fit drops."""
        return self.members is not None

    def fit(
        self,
        regression: SparseRegression,
        rng: np.random.Generator,
        environments: EnvironmentRows | None = None,
        noise: float | None = None,
    ) -> Committee:
        """The ensemble of a fitted regression (only sampled members use `rng`)."""
        if self.members is None:
            label, force, prior = _exact_blocks(regression)
            return Committee(self, label, force, prior, np.ones(1))
        return _sampled(self, regression, rng)

    def from_state(self, state: dict[str, Floats]) -> Committee:
        """An ensemble from the arrays of `Committee.state`, bit for bit."""
        blocks = {name: np.ascontiguousarray(state[name], float) for name in _BLOCKS}
        return Committee(self, **blocks, scale=float(state["scale"]))

    def state_shapes(self) -> dict[str, tuple[str | int, ...]]:
        """Shapes of the arrays of `Committee.state`; "m" is the number of inducing points."""
        k = self.members
        widths: tuple[str | int, ...] = ("labels", "forces", 1) if k is None else (k, k, k)
        blocks = {name: ("m", width) for name, width in zip(_BLOCKS[:3], widths, strict=True)}
        return {"scale": (), **blocks, "rho": (widths[2],)}


_BLOCKS = ("label", "force", "prior", "rho")


@dataclass(frozen=True)
class Committee(LinearUncertainty):
    """A fitted ensemble: blocks (m, q) for unit levels, and the levels in `settings`."""

    settings: LabelNoise
    label: Floats
    force: Floats
    prior: Floats
    rho: Floats  # unit shifts of the prior block
    scale: float = 1.0

    has_members: ClassVar[bool] = True
    level_names: ClassVar[tuple[str, ...]] = ("label", "force", "prior")

    @property
    def sampled(self) -> bool:
        return self.settings.members is not None

    def with_levels(
        self, label: float | None = None, prior: float | None = None, force: float | None = None
    ) -> Committee:
        """The same ensemble with other noise levels; no refit."""
        old = self.settings
        new = LabelNoise(
            old.label if label is None else label,
            old.prior if prior is None else prior,
            old.force if force is None else force,
            old.members,
        )
        return replace(self, settings=new)

    def with_scale(self, scale: float) -> Committee:
        """The same ensemble with every σ multiplied by `scale`."""
        return replace(self, scale=float(scale))

    def calibrated_as(self, old: Committee) -> Committee:
        """This ensemble with the noise levels and the calibration factor of an older one."""
        levels = {name: getattr(old.settings, name) for name in self.level_names}
        return self.with_levels(**levels).with_scale(old.scale)

    @property
    def levels(self) -> Floats:
        """(σ_l, σ_lf, σ_p), in the order of the unit blocks."""
        s = self.settings
        return np.array([s.label, s.force, s.prior])

    @cached_property
    def weights(self) -> tuple[Floats, Floats]:
        """(W, ρ) at the present levels and scale."""
        s_l, s_f, s_p = self.scale * self.levels
        if self.sampled:
            return s_l * self.label + s_f * self.force + s_p * self.prior, s_p * self.rho
        parts = [s_l * self.label, s_f * self.force, s_p * self.prior]
        rho = np.concatenate([np.zeros(self.label.shape[1] + self.force.shape[1]), s_p * self.rho])
        kept = [part for part, level in zip(parts, (s_l, s_f, 1.0), strict=True) if level > 0]
        w = np.ascontiguousarray(np.concatenate(kept, axis=1))
        return w, rho[rho.size - w.shape[1] :]

    def unit_deviations(self, k_sum: Floats, sizes: Floats) -> tuple[Floats, Floats, Floats]:
        """δ_l, δ_lf, δ_p for unit levels (each (B, q))."""
        return (
            k_sum @ self.label,
            k_sum @ self.force,
            k_sum @ self.prior + np.multiply.outer(sizes, self.rho),
        )

    def unit_gram(self, k_sum: Floats, sizes: Floats) -> Floats:
        """(B, 3, 3) with σ² = scale²·sᵀGs for levels s = (σ_l, σ_lf, σ_p); diagonal when exact."""
        parts = self.unit_deviations(k_sum, sizes)
        gram = np.zeros((k_sum.shape[0], 3, 3))
        for a in range(3):
            for b in range(3):
                if a == b or self.sampled:
                    gram[:, a, b] = np.einsum("bq,bq->b", parts[a], parts[b])
        return gram

    def members(
        self, alpha: Floats, rng: np.random.Generator, n: int | None = None
    ) -> tuple[Floats, Floats]:
        """Weights (n, m) and shifts per atom (n,) of single members: E_k(X) = k_sum·a_k + N_X s_k.

        A sampled ensemble returns its members (all, or n at random), the exact one fresh draws.
        """
        w, rho = self.weights
        if self.sampled:
            total = w.shape[1]
            if n is not None and n > total:
                raise NuggetError(f"{n} members requested from an ensemble of {total}.")
            chosen = np.arange(total) if n is None else np.sort(rng.permutation(total)[:n])
            root = np.sqrt(total)
            return alpha + root * w[:, chosen].T, root * rho[chosen]
        draws = rng.standard_normal((10 if n is None else n, w.shape[1]))
        return alpha + draws @ w.T, draws @ rho

    def state(self) -> dict[str, Floats]:
        """Plain arrays that `LabelNoise.from_state` restores to the same ensemble."""
        blocks = {name: getattr(self, name) for name in _BLOCKS}
        return {"scale": np.array(self.scale), **blocks}


def _exact_blocks(regression: SparseRegression) -> tuple[Floats, Floats, Floats]:
    """(W_l, W_f, w_p) for unit levels, none with more columns than inducing points."""
    reg = regression
    energy = reg.kind == ENERGY
    units = np.where(energy, reg.count, 1.0) / reg.noise
    tolerance = TOLERANCE / np.sqrt(reg.amplitude)
    if reg.few:
        u_c = reg.smooth(np.diag(units))
        whitened, force = u_c[:, energy], u_c[:, ~energy]
    else:
        q_e = right_solve(reg.some_rows(energy), reg.r)  # the energies' rows of Q₁ = BR⁻¹
        whitened = solve(reg.r, (q_e * units[energy, None]).T)  # U W_l = R⁻¹Q_Eᵀ diag(N_s/noise)
        force = np.zeros((reg.n_inducing, 0))
        if not np.all(energy):
            force = compress_gram(_force_gram(reg, energy, q_e), tolerance)
    prior = -whitened.sum(axis=1, keepdims=True)  # −U C n
    if whitened.shape[1] > whitened.shape[0]:
        whitened = compress(whitened, tolerance)
    widths = np.cumsum([whitened.shape[1], force.shape[1]])
    blocks = solve(reg.upper, np.concatenate([whitened, force, prior], axis=1))
    w_l, w_f, w_p = (np.ascontiguousarray(part) for part in np.split(blocks, widths, axis=1))
    return w_l, w_f, w_p


def _force_gram(reg: SparseRegression, energy: Bools, q_e: Floats) -> Floats:
    """(U W_f)(U W_f)ᵀ, without using the many force rows.

    QᵀQ = I gives Q_FᵀQ_F = I − Q_EᵀQ_E − TᵀT with T = R⁻¹. The few rows whose noise differs from
    the most common one (stresses) are treated explicitly.
    """
    noise = reg.noise[~energy]
    values, counts = np.unique(noise, return_counts=True)
    common = values[np.argmax(counts)]
    other = ~energy & (reg.noise != common)
    q_o = right_solve(reg.some_rows(other), reg.r)
    p = inverse_gram(reg.r)  # R⁻¹R⁻ᵀ
    apart = solve(reg.r, np.concatenate([q_e, q_o]).T)
    gram = p - p @ p.T - apart @ apart.T
    gram /= common**2
    if q_o.size:
        weighted = solve(reg.r, q_o.T) / reg.noise[other]
        gram += weighted @ weighted.T
    return gram


def _sampled(
    settings: LabelNoise, regression: SparseRegression, rng: np.random.Generator
) -> Committee:
    """K members with Γ ~ N(0,1) on every label and ρ ~ N(0,1) per member, divided by √K."""
    reg, k = regression, int(settings.members or 0)
    energy = reg.kind == ENERGY
    gamma = rng.standard_normal((reg.y.size, k))
    rho = rng.standard_normal(k) / np.sqrt(k)
    units = np.where(energy, reg.count, 1.0) / reg.noise
    draws = gamma * (units / np.sqrt(k))[:, None]
    right = np.concatenate(
        [
            np.where(energy[:, None], draws, 0.0),
            np.where(energy[:, None], 0.0, draws),
            (reg.count / reg.noise)[:, None],
        ],
        axis=1,
    )
    solved = solve(reg.upper, reg.smooth(right))
    label = np.ascontiguousarray(solved[:, :k])
    force = np.ascontiguousarray(solved[:, k : 2 * k])
    return Committee(settings, label, force, -np.multiply.outer(solved[:, -1], rho), rho)
