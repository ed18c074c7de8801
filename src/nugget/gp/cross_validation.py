"""Leave-one-out and leave-group-out residuals without a refit, and noise levels chosen by them.

With Q₁ = BR⁻¹, the hat matrix of the whitened labels is H = Q₁Q₁ᵀ. Without the rows of a block G
(the labels of one structure, or of a group of structures) the residuals of these rows become
(I − H_GG)⁻¹r_G instead of r_G, and the covariance of their predicted labels, in units of the noise,
is (I − H_GG)⁻¹. The inducing points are not changed. These predictions are
(I − H_GG)⁻¹H_Gj times the other labels j, which gives the variance that noise of these labels
causes.

`NoiseSearch` minimises such residuals. Scaling the noise of energies by a and that of forces and
stresses by b changes the whitened normal matrix to I + G_E/a² + G_F/b², where G = BᵀB of each kind;
each trial needs a Cholesky factor instead of a QR factorisation of all labels. (This squares the
condition number, which is harmless because B is whitened and only errors are compared.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve, lapack, solve_triangular

from nugget.errors import NuggetError
from nugget.gp.labels import ENERGY, Labels
from nugget.gp.linalg import right_solve, solve
from nugget.gp.regression import SparseRegression
from nugget.numerics.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class LeftOut:
    """Label minus prediction (p,), and the variance of the prediction (p,), without label noise."""

    residual: Floats
    variance: Floats


def left_out(regression: SparseRegression, blocks: Iterable[Ints]) -> LeftOut:
    """Residuals of every block of rows, predicted from all rows outside it.

    Blocks must not overlap. Rows in no block have NaN.
    """
    residual = np.full(regression.y.size, np.nan)
    variance = residual.copy()
    q, rest = _hat_factor(regression)
    for rows in blocks:
        residual[rows], variance[rows] = _one_block(q[rows], rest[rows])
    noise = regression.noise
    return LeftOut(residual * noise, variance * noise**2)


def left_out_labels(regression: SparseRegression, blocks: Iterable[Ints], labels: Floats) -> Floats:
    """Residuals (p, k) of other labels (p, k) with the same rows and noise, as in `left_out`."""
    residual = np.full(labels.shape, np.nan)
    q, rest = _hat_factor(regression, labels)
    for rows in blocks:
        residual[rows] = _one_block(q[rows], rest[rows])[0]
    return residual * regression.noise[:, None]


@dataclass(frozen=True)
class LeftOutNoise:
    """Variances (p,) of omitted labels by noise of unit level on all others; NaN elsewhere.

    The noise of an energy is its number of atoms, that of other labels 1. `prior` is that of a unit
    shift of the mean function per atom.
    """

    energy: Floats
    other: Floats
    prior: Floats


def left_out_noise(
    regression: SparseRegression, blocks: Iterable[Ints], wanted: Bools
) -> LeftOutNoise:
    """Variances of the `wanted` rows (p,) of each block, for labels of a label-noise ensemble."""
    reg = regression
    energy = reg.kind == ENERGY
    units = np.where(energy, reg.count, 1.0) / reg.noise
    q, rest = _hat_factor(reg, reg.count)
    parts = [(rows, q[rows] * units[rows, None]) for rows in (energy, ~energy)]
    grams = [part.T @ part for _, part in parts]
    variances = np.full((3, reg.y.size), np.nan)
    for rows in blocks:
        chosen = np.flatnonzero(wanted[rows])
        if not len(chosen):
            continue
        own, left = q[rows], _inverse_rows(q[rows], chosen)
        pulled = left @ own  # (I − H_GG)⁻¹q_G
        for k, (kind, _) in enumerate(parts):
            within = kind[rows]
            inside = (pulled @ own[within].T) * units[rows][within]
            total = np.einsum("ij,ij->i", pulled @ grams[k], pulled)
            square = total - np.einsum("ij,ij->i", inside, inside)
            variances[k, rows[chosen]] = np.maximum(square, 0.0)
        variances[2, rows[chosen]] = (left @ rest[rows]) ** 2
    return LeftOutNoise(*(variances * reg.noise**2))


def structure_of(regression: SparseRegression) -> Ints:
    """The structure of every label row; rows are ordered by structure, energies first."""
    return np.cumsum(regression.kind == ENERGY) - 1


def blocks_of(owner: Ints) -> list[Ints]:
    """Rows with the same owner, one array per owner."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(owner[order])) + 1)


def _hat_factor(
    regression: SparseRegression, labels: Floats | None = None
) -> tuple[Floats, Floats]:
    """Q (p, ·) with H = QQᵀ, and the whitened residuals (I − H)Σ^{-1/2}y.

    y are the labels of the regression, or others (p,) or (p, k).
    """
    labels = regression.y if labels is None else labels
    scaled = (labels.T / regression.noise).T
    if regression.few:  # I − H = (I + BBᵀ)⁻¹ = S⁻¹S⁻ᵀ
        rest = solve(regression.s, solve(regression.s, scaled, transposed=True))
        return right_solve(regression.whitened, regression.qr[0]), rest
    q = right_solve(regression.whitened, regression.r)
    return q, scaled - q @ (regression.qr[1] if labels is None else q.T @ scaled)


def _inverse_rows(q: Floats, rows: Ints) -> Floats:
    """Some rows of (I − qqᵀ)⁻¹."""
    p, m = q.shape
    unit = np.zeros((p, len(rows)))
    unit[rows, np.arange(len(rows))] = 1.0
    small = p <= m
    factor, info = lapack.dpotrf(np.eye(min(p, m)) - (q @ q.T if small else q.T @ q), lower=1)
    _check(info)
    if small:
        inverse: Floats = cho_solve((factor, True), unit).T
        return inverse
    return unit.T + q[rows] @ cho_solve((factor, True), q.T)


def _one_block(q: Floats, rest: Floats) -> tuple[Floats, Floats]:
    """(I − qqᵀ)⁻¹ applied to `rest`, and its diagonal minus 1."""
    p, m = q.shape
    if p <= m:
        factor, info = lapack.dpotrf(np.eye(p) - q @ q.T, lower=1, clean=1)
        _check(info)
        inverse = solve_triangular(factor, np.eye(p), lower=True)
        return inverse.T @ (inverse @ rest), np.einsum("ij,ij->j", inverse, inverse) - 1.0
    # Woodbury: (I − qqᵀ)⁻¹ = I + q(I − qᵀq)⁻¹qᵀ.
    factor, info = lapack.dpotrf(np.eye(m) - q.T @ q, lower=1, clean=1)
    _check(info)
    half = solve_triangular(factor, q.T, lower=True)
    return rest + half.T @ (half @ rest), np.einsum("ij,ij->j", half, half)


def _check(info: int) -> None:
    if info:
        raise NuggetError(
            "Without one of the groups of labels the model is undetermined; use smaller groups."
        )


# Trial factors are powers of STEP with whole exponents from −LAST to LAST.
STEP, LAST = 10.0**0.25, 8
_STRUCTURES = 100  # at most, for which leave-one-out residuals are computed


@dataclass(frozen=True)
class NoiseTrial:
    """Mean absolute leave-one-out errors for scaled noise levels."""

    energy: float  # factor on the noise of energies
    force: float  # factor on the noise of forces and stresses
    energy_mae: float  # eV/atom
    force_mae: float  # eV/Å; NaN without forces

    @property
    def score(self) -> float:
        """log MAE of energies plus log MAE of forces, if there are any; independent of units."""
        force = 0.0 if np.isnan(self.force_mae) else np.log(max(self.force_mae, 1e-12))
        return float(np.log(max(self.energy_mae, 1e-12)) + force)


class NoiseSearch:
    """Trials for one regression; `structures` limits the leave-one-out errors to these.

    Rows that are `fixed` keep their noise. With `columns` only the first inducing points are used.
    """

    def __init__(
        self,
        regression: SparseRegression,
        structures: Ints | None = None,
        fixed: Bools | None = None,
        columns: int | None = None,
    ) -> None:
        reg = regression
        self.energy = reg.kind == ENERGY
        self.free = np.ones(len(self.energy), dtype=bool) if fixed is None else ~fixed
        self.b, self.y = reg.whitened[:, :columns], reg.y / reg.noise
        self.noise, self.count = reg.noise, reg.count
        parts = [self.energy & self.free, ~self.energy & self.free]
        parts += [] if self.free.all() else [~self.free]
        self.grams = [self.b[rows].T @ self.b[rows] for rows in parts]
        self.right = [self.b[rows].T @ self.y[rows] for rows in parts]
        blocks = blocks_of(structure_of(reg))
        self.blocks = blocks if structures is None else [blocks[s] for s in structures]

    def trial(self, energy: float, force: float) -> NoiseTrial:
        """Leave-one-out errors with these factors on the noise levels."""
        normal = np.eye(self.b.shape[1])
        right = np.zeros(self.b.shape[1])
        factors = (energy, force, 1.0)[: len(self.grams)]
        for factor, gram, part in zip(factors, self.grams, self.right, strict=True):
            normal += gram / factor**2
            right += part / factor**2
        lower, _ = lapack.dpotrf(normal, lower=1, clean=1)
        beta = cho_solve((lower, True), right)
        scale = np.where(self.free, np.where(self.energy, energy, force), 1.0)
        errors: list[Floats] = [
            self._residual(rows, scale[rows], lower, beta) for rows in self.blocks
        ]
        per_atom = [
            e[self.energy[rows]] / self.count[rows][self.energy[rows]]
            for e, rows in zip(errors, self.blocks, strict=True)
        ]
        forces = [e[~self.energy[rows]] for e, rows in zip(errors, self.blocks, strict=True)]
        return NoiseTrial(energy, force, _mae(per_atom), _mae(forces))

    def _residual(self, rows: Ints, scale: Floats, lower: Floats, beta: Floats) -> Floats:
        b = self.b[rows] / scale[:, None]
        q = solve_triangular(lower, b.T, lower=True)
        rest = self.y[rows] / scale - b @ beta
        hat = np.eye(len(rows)) - q.T @ q
        error: Floats = np.linalg.solve(hat, rest) * scale * self.noise[rows]
        return error

    def best(self) -> NoiseTrial:
        """The best trial on a logarithmic grid, by descent to better neighbours.

        The first steps are factors of √10, the last its square root.
        """
        tried: dict[tuple[int, int], NoiseTrial] = {}

        def at(place: tuple[int, int]) -> NoiseTrial:
            if place not in tried:
                tried[place] = self.trial(STEP ** place[0], STEP ** place[1])
            return tried[place]

        steps = [(1, 0), (-1, 0)]
        if not self.energy.all():
            steps += [(0, 1), (0, -1), (-1, -1), (1, 1)]
        here = (0, 0)
        for size in (2, 1):
            while True:
                around = [(here[0] + size * i, here[1] + size * j) for i, j in steps]
                around = [place for place in around if max(map(abs, place)) <= LAST]
                better = min([here, *around], key=lambda place: at(place).score)
                if better == here:
                    break
                here = better
        return at(here)


def with_best_noise(
    regression: SparseRegression,
    k_mm: Floats,
    labels: Labels,
    rng: np.random.Generator,
    fixed: Bools | None = None,
) -> tuple[NoiseTrial, SparseRegression]:
    """The best factors on the noise levels, and the regression refitted with them.

    Rows that are `fixed` keep their noise.

    Leave-one-out errors are computed for at most a hundred structures, drawn at random.
    """
    structures = int(np.sum(labels.kind == ENERGY))
    sample = np.sort(rng.permutation(structures)[:_STRUCTURES])
    best = NoiseSearch(regression, sample, fixed).best()
    if best.energy == best.force == 1.0:
        return best, regression
    factors = np.where(labels.kind == ENERGY, best.energy, best.force)
    if fixed is not None:
        factors = np.where(fixed, 1.0, factors)
    scaled = replace(labels, noise=factors * labels.noise)
    return best, SparseRegression.fit(k_mm, scaled)


def _mae(parts: Sequence[Floats]) -> float:
    everything = np.concatenate(parts)
    return float(np.mean(np.abs(everything))) if everything.size else float("nan")
