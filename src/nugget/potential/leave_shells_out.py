"""Leave-shells-out: errors of a model of the core of the training set on the shell around it.

The structures of a shell are predicted without their labels and without the inducing points that
they contributed. Leave-one-out inside the domain cannot measure errors of this kind. They determine
the amplitudes of σ_out (`potential.domain`) in two ways.

- Structures are ordered by the distance of their most unusual atom from a seed structure, in the
  coordinates of the training domain. These shells determine the amplitude a of the near term.
- Structures are ordered by their lowest coordination. These shells come closest to the missing
  neighbours of vacancies and surfaces, which training sets of crystals do not contain. The
  amplitude b has a log-normal prior distribution, because these shells are smaller steps than
  those.

In whitened coordinates, dropping inducing points is a projection. With K = UᵀU and K' = U'ᵀU' of
the remaining points, M = U[:, kept] U'⁻¹ has orthonormal columns, and the whitened label rows
become B' = BM. A level therefore costs one Cholesky factor and no kernel rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from nugget.calibration.leave_one_out import Level, mean_function_error
from nugget.descriptors.base import Environments
from nugget.gp.cross_validation import structure_of
from nugget.gp.labels import ENERGY
from nugget.gp.linalg import cholesky
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.potential.cohesive_energies import BOND_ENERGY
from nugget.potential.domain import MISSING, Neighbourhood, TrainingDomain, nearest
from nugget.potential.fitted import FittedState
from nugget.potential.mean_functions.zbl import RELATIVE_ERROR, ZBL
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs, find_pairs

# Shares of the structures in the core, by distance from a seed and by coordination; and the number
# of seeds.
_FRACTIONS, _BY_COORDINATION, _SEEDS = (0.3, 0.6, 0.85), (0.7, 0.85), 2

# Smallest core, and smallest training set.
_CORE, FEWEST = 5, 20

# Independent errors per level, since the structures of a shell err together.
_INDEPENDENT = 3.0

# Trial amplitudes a, eV, and the width of a weak prior distribution around 0.
_AMPLITUDES = np.concatenate([[0.0], np.geomspace(0.003, 3.0, 41)])
_WIDTH = 1.0

# Trial amplitudes b, and the width of the prior distribution of log b around `MISSING`.
_TRIALS = np.geomspace(0.005, 1.0, 61)
_SPREAD = 0.6

_FREEDOM = 4.0  # of Student's t, because errors have heavier tails than a Gaussian

_OTHER_ELEMENT = 5.0  # distance of an atom whose element the seed does not contain


class Shell(NamedTuple):
    """Energies of the structures of a shell: errors, and the parts of σ²."""

    residual: Floats  # label minus prediction, eV
    variance: Floats  # σ² of the calibrated posterior and of the mean function
    far: Floats  # σ_out without the terms below
    near: Floats  # Σ n(D)
    missing: Floats  # Σ E u/Z, eV

    def loss(self, near: float, missing: float) -> float:
        """Negative log likelihood of Student's t for amplitudes a and b."""
        out = self.far + near * self.near + missing * self.missing
        square = self.variance + out**2
        tails = 0.5 * (_FREEDOM + 1.0) * np.log1p(self.residual**2 / square / _FREEDOM)
        return _INDEPENDENT * float(np.mean(0.5 * np.log(square) + tails))


def amplitudes(state: FittedState, level: Level, env: Environments) -> tuple[float, float]:
    """The amplitudes a of the near term, eV, and b of missing neighbours.

    a is 0 where the calibrated σ covers the shells. `level` is the factor and the floor of the
    calibrated posterior of energies.
    """
    assert state.domain is not None
    batch, domain = state.training.batch, state.domain
    pairs = env.pairs
    if pairs is None or pairs.reach < domain.cutoff:
        pairs = find_pairs(batch, domain.cutoff)
    around = Neighbourhood.of(batch, domain.elements, pairs, domain.cutoff, domain.bond)
    source = _sources(state, env)

    def shells(cores: Iterator[Bools]) -> list[Shell]:
        return [
            _shell(state, level, core, gram, source, around, pairs)
            for core, gram in _with_grams(state, cores)
            if ((source < 0) | core[source]).any()
        ]

    unusual = shells(_cores(batch, around.t))
    near = [0.5 * (a / _WIDTH) ** 2 + sum(s.loss(a, 0.0) for s in unusual) for a in _AMPLITUDES]
    best = float(_AMPLITUDES[int(np.argmin(near))])
    sparse = shells(_coordinated_cores(batch, around.number))
    missing = [
        0.5 * (np.log(b / MISSING) / _SPREAD) ** 2 + sum(s.loss(best, b) for s in sparse)
        for b in _TRIALS
    ]
    return best, float(_TRIALS[int(np.argmin(missing))])


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


def _coordinated_cores(batch: Batch, number: Floats) -> Iterator[Bools]:
    """The structures of highest lowest coordination, as masks (B,)."""
    order = np.argsort(-np.minimum.reduceat(number, batch.offsets[:-1]), kind="stable")
    for fraction in _BY_COORDINATION:
        core = np.zeros(len(batch), dtype=bool)
        core[order[: max(int(fraction * len(batch)), _CORE)]] = True
        yield core


def _with_grams(state: FittedState, cores: Iterator[Bools]) -> Iterator[tuple[Bools, Floats]]:
    """The cores, with BᵀB of the labels of each.

    The cores of a seed grow, so that rows are added to the matrix of the last one. Subtracting the
    rows of the shell from BᵀB of all labels would lose all digits where these dominate.
    """
    reg = state.regression
    owner = structure_of(reg)
    before, gram = np.zeros(len(state.training.batch), dtype=bool), np.zeros((0, 0))
    for core in cores:
        grows = before.any() and not (before & ~core).any()
        rows = reg.whitened[(core & ~before if grows else core)[owner]]
        gram = gram + rows.T @ rows if grows else rows.T @ rows
        before = core
        yield core, gram


def _most_unusual(batch: Batch, t: Floats, seed: int) -> Floats:
    """Distance of each structure's most unusual atom from the atoms of the seed structure (B,)."""
    own = slice(batch.offsets[seed], batch.offsets[seed + 1])
    distance = np.full(len(t), _OTHER_ELEMENT)
    for element in np.unique(batch.numbers[own]):
        rows = batch.numbers == element
        distance[rows] = nearest(t[rows], t[own][batch.numbers[own] == element])
    return np.maximum.reduceat(distance, batch.offsets[:-1])


def _shell(
    state: FittedState, level: Level, core: Bools, gram: Floats, source: Ints,
    around: Neighbourhood, pairs: Pairs,
) -> Shell:  # fmt: skip
    batch, domain = state.training.batch, state.domain
    assert domain is not None
    inner = batch.select(np.flatnonzero(core))
    small = TrainingDomain.of_coordinates(
        around.select(core[batch.owner]), inner, domain.elements, domain.scale
    ).with_amplitudes(0.0, 0.0)
    shell = np.flatnonzero(~core)
    outer = batch.select(shell)
    values = small.evaluate(outer, pairs.select(batch, shell))
    near = np.add.reduceat(values.near, outer.offsets[:-1])
    energies = BOND_ENERGY[outer.numbers] * values.missing_share
    missing = np.add.reduceat(energies, outer.offsets[:-1])
    residual, variance, shift = _predicted(state, core, gram, source)
    prior = mean_function_error(state.regression)
    square = level.std(variance, outer.sizes.astype(float)) ** 2 + (prior * shift) ** 2
    repulsion = ZBL().extended(inner).evaluate(outer).totals(outer)
    square += (RELATIVE_ERROR * repulsion) ** 2
    return Shell(residual - repulsion, square, values.std, near, missing)


def _predicted(
    state: FittedState, core: Bools, gram: Floats, source: Ints
) -> tuple[Floats, Floats, Floats]:
    """Residuals, posterior variances and N − κCn of the energies of the shell."""
    reg = state.regression
    inner = core[structure_of(reg)]
    points = np.flatnonzero((source < 0) | core[source])
    upper, _ = cholesky(state.inducing.gram[np.ix_(points, points)])
    projection = solve_triangular(upper, reg.upper[:, points].T, trans="T").T
    b = reg.whitened[inner]
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
