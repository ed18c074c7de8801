"""The label-noise committee: exact (infinitely many members) or sampled.

Every variant is one pair (W, ρ): deviations δ(X) = κW + N_X ρ, σ = |δ|, ∇σ = (Wδ/σ)·∇κ. The blocks
are kept for unit noise levels, so that calibrating the levels needs no refit:

- label:  W_l = C·diag(N_s) on energy rows,
- force:  W_f = C on force (and stress) rows,
- prior:  w_p = −C n with ρ = 1.

Exact: W = [σ_l W_l, σ_lf W_f, σ_p w_p]. Sampled: the same blocks times Gaussian draws, added up.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nugget._compiled.simd import aligned
from nugget.errors import NuggetError
from nugget.gp._std_loops import SIGMA_ROAD, sigma_roads
from nugget.gp.linalg import (
    compress,
    compress_gram,
    inverse_gram,
    right_solve,
    solve,
)
from nugget.gp.regression import ENERGY, SparseRegression

Array = NDArray[np.float64]
Numbers = NDArray[np.float64] | NDArray[np.int64]

# |κU⁻¹|² <= k(X, X) <= N²θ₀, so leaving out directions of UW smaller than TOLERANCE/√θ₀ lowers σ²
# by at most (TOLERANCE·N·σ_level)²: below 1e-6 of σ wherever σ > 0.007·N·σ_level.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class LabelNoise:
    """Noise levels of the committee, and how many members it has (None: the exact limit).

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

    def fit(self, regression: SparseRegression, rng: np.random.Generator) -> "Committee":
        """The committee of a fitted regression (`rng` is used by sampled members only)."""
        if self.members is None:
            label, force, prior = _exact_blocks(regression)
            return Committee(self, label, force, prior, np.ones(1))
        return _sampled(self, regression, rng)


@dataclass(frozen=True)
class Committee:
    """Fitted unit blocks (m, q) and the levels they are used with."""

    settings: LabelNoise
    label: Array
    force: Array
    prior: Array
    rho: Array  # unit shifts of the prior block
    scale: float = 1.0

    @property
    def sampled(self) -> bool:
        return self.settings.members is not None

    def with_levels(
        self, label: float | None = None, prior: float | None = None, force: float | None = None
    ) -> "Committee":
        """The same committee with other noise levels; no refit."""
        old = self.settings
        new = LabelNoise(
            old.label if label is None else label,
            old.prior if prior is None else prior,
            old.force if force is None else force,
            old.members,
        )
        return replace(self, settings=new)

    def with_scale(self, scale: float) -> "Committee":
        """The same committee with every σ multiplied by `scale`."""
        return replace(self, scale=float(scale))

    @property
    def levels(self) -> Array:
        """(σ_l, σ_lf, σ_p), in the order of the unit blocks."""
        s = self.settings
        return np.array([s.label, s.force, s.prior])

    @cached_property
    def weights(self) -> tuple[Array, Array]:
        """(W, ρ) at the present levels and scale."""
        s_l, s_f, s_p = self.scale * self.levels
        if self.sampled:
            return s_l * self.label + s_f * self.force + s_p * self.prior, s_p * self.rho
        parts = [s_l * self.label, s_f * self.force, s_p * self.prior]
        rho = np.concatenate([np.zeros(self.label.shape[1] + self.force.shape[1]), s_p * self.rho])
        kept = [part for part, level in zip(parts, (s_l, s_f, 1.0), strict=True) if level > 0]
        w = np.ascontiguousarray(np.concatenate(kept, axis=1))
        return w, rho[rho.size - w.shape[1] :]

    @cached_property
    def columns(self) -> tuple[Array, Array]:
        """(Wᵀ, ρ), as the compiled loops want them."""
        w, rho = self.weights
        return aligned(w.T), rho

    def deviations(self, kappa: Array, sizes: Numbers) -> Array:
        """δ = κW + Nρ (B, q)."""
        w, rho = self.weights
        delta: Array = kappa @ w
        delta += np.multiply.outer(sizes, rho)
        return delta

    def sigma_alone(self, kappa: Array, sizes: Numbers) -> Array:
        """σ (B,) for those who do not go on to its gradient: one pass over W instead of two."""
        return norms(self.deviations(kappa, sizes))

    def sigma(self, kappa: Array, sizes: Numbers) -> tuple[Array, Array]:
        """σ (B,) and b (B, m) with ∇σ = b·∇κ; b is 0 where σ is 0."""
        nothing = np.zeros(kappa.shape[1])
        _, sigma, b = sigma_roads(kappa, sizes, nothing, SIGMA_ROAD, *self.columns, np.empty(0))
        return sigma, b[0]

    def local(self, k_rows: Array) -> Array:
        """σ of each environment's own energy (n,), from kernel rows (n, m)."""
        return norms(self.deviations(k_rows, np.ones(k_rows.shape[0])))

    def rows_sigma(self, rows: Array) -> Array:
        """σ of linear labels without a shift (force components), |A W| (p,)."""
        return norms(rows @ self.weights[0])

    def unit_deviations(self, kappa: Array, sizes: Array) -> tuple[Array, Array, Array]:
        """δ_l, δ_lf, δ_p for unit levels (each (B, q))."""
        return (
            kappa @ self.label,
            kappa @ self.force,
            kappa @ self.prior + np.multiply.outer(sizes, self.rho),
        )

    def unit_gram(self, kappa: Array, sizes: Array) -> Array:
        """(B, 3, 3) with σ² = scale²·sᵀGs for levels s = (σ_l, σ_lf, σ_p); diagonal when exact."""
        parts = self.unit_deviations(kappa, sizes)
        gram = np.zeros((kappa.shape[0], 3, 3))
        for a in range(3):
            for b in range(3):
                if a == b or self.sampled:
                    gram[:, a, b] = np.einsum("bq,bq->b", parts[a], parts[b])
        return gram

    def unit_variances(self, kappa: Array, sizes: Array) -> Array:
        """(B, 3): the variances that σ_l, σ_lf and σ_p of 1 would cause, each alone."""
        return np.einsum("baa->ba", self.unit_gram(kappa, sizes)).copy()

    def members(
        self, alpha: Array, rng: np.random.Generator, n: int | None = None
    ) -> tuple[Array, Array]:
        """Weights (n, m) and shifts per atom (n,) of single members: E_k(X) = κ·a_k + N_X s_k.

        A sampled committee gives its own (n of them at random, or all), the exact one fresh draws.
        """
        w, rho = self.weights
        if self.sampled:
            total = w.shape[1]
            if n is not None and n > total:
                raise NuggetError(f"{n} members asked of a committee that has {total}.")
            chosen = np.arange(total) if n is None else np.sort(rng.permutation(total)[:n])
            root = np.sqrt(total)
            return alpha + root * w[:, chosen].T, root * rho[chosen]
        draws = rng.standard_normal((10 if n is None else n, w.shape[1]))
        return alpha + draws @ w.T, draws @ rho

    def thinned(self, kappa: Array, tolerance: float = 1e-4) -> "Committee":
        """An exact committee with fewer columns, for speed with single structures.

        For every row of `kappa` (the training structures, say) the label part and the force part
        of σ keep their values to the relative `tolerance`. Elsewhere the loss is larger: on gold
        clusters unlike any in the training set it was 100 times the default, i.e. 1 %.
        """
        if self.sampled:
            return self
        label, force = (_thin(block, kappa, tolerance) for block in (self.label, self.force))
        return replace(self, label=label, force=force)

    def state(self) -> dict[str, Array]:
        """Plain arrays that `from_state` turns back into the same committee, bit for bit."""
        s = self.settings
        members = -1.0 if s.members is None else float(s.members)
        return {
            "settings": np.array([s.label, s.prior, s.force, members, self.scale]),
            "label": self.label,
            "force": self.force,
            "prior": self.prior,
            "rho": self.rho,
        }

    @classmethod
    def from_state(cls, state: dict[str, Array]) -> "Committee":
        label, prior, force, members, scale = (float(v) for v in state["settings"])
        settings = LabelNoise(label, prior, force, None if members < 0 else int(members))
        w_l, w_f, w_p, rho = (
            np.ascontiguousarray(state[name], float) for name in ("label", "force", "prior", "rho")
        )
        return cls(settings, w_l, w_f, w_p, rho, scale)


def norms(rows: Array) -> Array:
    """Euclidean norm of every row."""
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))


def _thin(block: Array, kappa: Array, tolerance: float) -> Array:
    """The principal directions of the deviations κW, as few as keep every row's norm."""
    deviations = kappa @ block
    total = np.einsum("bq,bq->b", deviations, deviations)
    deviations /= np.sqrt(np.where(total > 0.0, total, 1.0))[:, None]
    _, axes = np.linalg.eigh(deviations.T @ deviations)  # smallest first
    lost = np.cumsum((deviations @ axes) ** 2, axis=1).max(axis=0, initial=0.0)
    first = int(np.searchsorted(lost, 2.0 * tolerance))  # |δ'| = |δ|√(1 − lost)
    return np.ascontiguousarray(block @ axes[:, first:])


def _exact_blocks(regression: SparseRegression) -> tuple[Array, Array, Array]:
    """(W_l, W_f, w_p) for unit levels, none with more columns than inducing points."""
    reg = regression
    energy = reg.kind == ENERGY
    units = np.where(energy, reg.count, 1.0) / reg.noise
    tolerance = TOLERANCE / np.sqrt(reg.amplitude)
    if reg.few:
        u_c = reg.smooth(np.diag(units))
        whitened, force = u_c[:, energy], u_c[:, ~energy]
    else:
        q_e = right_solve(reg.whitened[energy], reg.r)  # the energies' rows of Q₁ = BR⁻¹
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


def _force_gram(reg: SparseRegression, energy: NDArray[np.bool_], q_e: Array) -> Array:
    """(U W_f)(U W_f)ᵀ, without touching the many force rows.

    QᵀQ = I gives Q_FᵀQ_F = I − Q_EᵀQ_E − TᵀT with T = R⁻¹. Rows whose noise differs from the most
    common one are few (stresses); they are treated one by one.
    """
    noise = reg.noise[~energy]
    values, counts = np.unique(noise, return_counts=True)
    common = values[np.argmax(counts)]
    other = ~energy & (reg.noise != common)
    q_o = right_solve(reg.whitened[other], reg.r)
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
