"""Leave-shells-out: errors of a model of the core of the training set on the shell around it.

Structures are ordered by the distance of their most unusual atom from a seed structure, in the
coordinates of the training domain. The structures nearest to the seed are the core, all others the
shell, which is predicted without its labels and without the inducing points that it contributed.
Leave-one-out inside the domain cannot measure errors of this kind. They determine the amplitude a
of the near term of σ_out (`potential.domain`).

In whitened coordinates, dropping inducing points is a projection. With K = UᵀU and K' = U'ᵀU' of
the remaining points, M = U[:, kept] U'⁻¹ has orthonormal columns, and the whitened label rows
become B' = BM. A level therefore costs one Cholesky factor and no kernel rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from nugget.descriptors.base import Environments
from nugget.gp.cross_validation import structure_of
from nugget.gp.labels import ENERGY
from nugget.gp.linalg import cholesky
from nugget.gp.uncertainty import Posterior
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.potential.domain import TrainingDomain, coordinates, nearest
from nugget.potential.fitted import FittedState
from nugget.potential.mean_functions.zbl import RELATIVE_ERROR, ZBL
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs, find_pairs

# Shares of the structures in the core, and the number of seeds.
_FRACTIONS, _SEEDS = (0.3, 0.6, 0.85), 3

# Smallest core, and smallest training set.
_CORE, FEWEST = 5, 20

# Independent errors per level, since the structures of a shell err together.
_INDEPENDENT = 3.0

# Trial amplitudes, eV, and the width of a weak prior distribution around 0.
_AMPLITUDES = np.concatenate([[0.0], np.geomspace(0.003, 3.0, 41)])
_WIDTH = 1.0

_FREEDOM = 4.0  # of Student's t, because errors have heavier tails than a Gaussian

_OTHER_ELEMENT = 5.0  # distance of an atom whose element the seed does not contain


class Shell(NamedTuple):
    """Energies of the structures of a shell: errors, and the parts of σ²."""

    residual: Floats  # label minus prediction, eV
    variance: Floats  # σ² of the calibrated posterior and of the mean function
    far: Floats  # σ_out without the near term
    near: Floats  # Σ n(D)


def near_amplitude(state: FittedState, settings: Posterior, env: Environments) -> float:
    """The amplitude a of the near term, eV; 0 where the calibrated σ covers the shells.

    `settings` are those of the calibrated posterior, before σ_p is raised to the bond energy.
    """
    assert state.domain is not None
    batch, cutoff = state.training.batch, state.domain.cutoff
    pairs = env.pairs
    if pairs is None or pairs.reach < cutoff:
        pairs = find_pairs(batch, cutoff)
    t = coordinates(batch, state.domain.elements, pairs, cutoff)
    source = _sources(state, env)
    shells = [
        _shell(state, settings, core, source, t, pairs)
        for core in _cores(batch, t)
        if ((source < 0) | core[source]).any()
    ]
    return float(_AMPLITUDES[int(np.argmin([_loss(a, shells) for a in _AMPLITUDES]))])


def _loss(amplitude: float, shells: list[Shell]) -> float:
    """Negative log likelihood of Student's t, all levels alike, with a weak prior."""
    total = 0.5 * (amplitude / _WIDTH) ** 2
    for shell in shells:
        square = shell.variance + (shell.far + amplitude * shell.near) ** 2
        tails = 0.5 * (_FREEDOM + 1.0) * np.log1p(shell.residual**2 / square / _FREEDOM)
        total += _INDEPENDENT * float(np.mean(0.5 * np.log(square) + tails))
    return total


def _sources(state: FittedState, env: Environments) -> Ints:
    """The training structure of each inducing point (−1 for a point from elsewhere)."""
    first = {row.tobytes(): int(env.owner[i]) for i, row in reversed(list(enumerate(env.values)))}
    return np.array([first.get(z.tobytes(), -1) for z in state.inducing.z])


def _cores(batch: Batch, t: Floats) -> Iterator[Bools]:
    """The structures of the cores of all levels, as masks (B,)."""
    n = len(batch)
    seed, closest = int(np.random.default_rng(0).integers(n)), np.full(n, np.inf)
    for _ in range(_SEEDS):
        distance = _most_unusual(batch, t, seed)
        order = np.argsort(distance, kind="stable")
        for fraction in _FRACTIONS:
            core = np.zeros(n, dtype=bool)
            core[order[: max(int(fraction * n), _CORE)]] = True
            yield core
        closest = np.minimum(closest, distance)
        seed = int(np.argsort(closest, kind="stable")[int(0.8 * (n - 1))])  # unusual, no outlier


def _most_unusual(batch: Batch, t: Floats, seed: int) -> Floats:
    """Distance of each structure's most unusual atom from the atoms of the seed structure (B,)."""
    own = slice(batch.offsets[seed], batch.offsets[seed + 1])
    distance = np.full(len(t), _OTHER_ELEMENT)
    for element in np.unique(batch.numbers[own]):
        rows = batch.numbers == element
        distance[rows] = nearest(t[rows], t[own][batch.numbers[own] == element])
    return np.maximum.reduceat(distance, batch.offsets[:-1])


def _shell(
    state: FittedState, settings: Posterior, core: Bools, source: Ints, t: Floats, pairs: Pairs
) -> Shell:
    batch, domain = state.training.batch, state.domain
    assert domain is not None
    kept = np.flatnonzero(core)
    small = TrainingDomain.of_coordinates(
        t[core[batch.owner]], batch.select(kept), domain.elements, domain.cutoff
    )
    shell = np.flatnonzero(~core)
    outer = batch.select(shell)
    values = small.evaluate(outer, pairs.select(batch, shell))
    near = np.add.reduceat(values.near, outer.offsets[:-1])
    residual, variance, shift = _predicted(state, core, source)
    s = settings
    square = s.energy**2 * variance + (s.energy_floor * outer.sizes) ** 2 + (s.prior * shift) ** 2
    repulsion = ZBL().extended(batch.select(kept)).evaluate(outer).totals(outer)
    square += (RELATIVE_ERROR * repulsion) ** 2
    return Shell(residual - repulsion, square, values.std, near)


def _predicted(state: FittedState, core: Bools, source: Ints) -> tuple[Floats, Floats, Floats]:
    """Residuals, posterior variances and N − κCn of the energies of the shell."""
    reg = state.regression
    inner = core[structure_of(reg)]
    points = np.flatnonzero((source < 0) | core[source])
    upper, _ = cholesky(state.inducing.gram[np.ix_(points, points)])
    projection = solve_triangular(upper, reg.upper[:, points].T, trans="T").T
    b = reg.whitened[inner]
    if reg.few or 2 * inner.sum() <= len(inner):
        gram = b.T @ b
    else:
        rest = reg.whitened[~inner]
        gram = reg.r.T @ reg.r - np.eye(len(reg.r)) - rest.T @ rest
    normal = projection.T @ gram @ projection
    normal.flat[:: len(normal) + 1] += 1.0
    factor = cho_factor(normal, lower=True)
    scaled = np.stack([reg.y, reg.count], axis=1) / reg.noise[:, None]
    beta = cho_solve(factor, projection.T @ (b.T @ scaled[inner]))
    rows = ~inner & (reg.kind == ENERGY)
    outer, noise = reg.whitened[rows] @ projection, reg.noise[rows]
    v = solve_triangular(factor[0], outer.T, lower=True)
    predicted = (outer @ beta) * noise[:, None]
    variance = np.einsum("ij,ij->j", v, v) * noise**2
    return reg.y[rows] - predicted[:, 0], variance, reg.count[rows] - predicted[:, 1]
