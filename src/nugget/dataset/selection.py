"""Selection of the structures whose labels improve a potential most.

The posterior covariance of the weights depends on the positions of the labelled structures, not on
their labels, so the effect of a label can be computed before the label is calculated. In
coordinates in which the prior covariance is the identity, a structure s has the rows
B_s = Σ^{-1/2}A_sU⁻¹ (its energy, and its force components if the engine gives them). The covariance
is P = (I + ΣBᵀB)⁻¹ with a sum over all labelled structures, and the mean variance of the
predictions for the pool is tr(GP), where G is the mean of the outer products of their rows. A label
of s lowers it by

    tr[(I + B_s P B_sᵀ)⁻¹ B_s P G P B_sᵀ].

`reduce_variance` repeatedly selects the structure with the largest reduction and updates P, so that
each choice takes all earlier ones into account. Labels with forces have many rows; their reductions
are evaluated only for structures whose energies alone would reduce the variance most. `pivoted` and
`farthest` are two common alternatives in the same coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from ase import Atoms

from nugget.descriptors.base import Environments
from nugget.errors import NuggetError
from nugget.gp.inducing import PivotedCholesky
from nugget.gp.kernels import Inducing
from nugget.gp.linalg import cholesky, inverse_gram, right_solve, stacked_qr
from nugget.gp.points import Points
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.numerics.threads import one_blas_thread
from nugget.potential.design import gradient_rows
from nugget.potential.potential import Potential
from nugget.potential.training import Training
from nugget.presets import balanced
from nugget.structures.batch import Batch, as_batch

By = Literal["energy", "forces", "atoms"]
Method = Literal["variance", "pivoted", "farthest", "random"]
Cost = Literal["structure", "atoms"]

# Inducing points that describe pool and training set, beyond those that a model has already.
POINTS = 600

# Environments among which these points are chosen, and rows of forces that stand for those of the
# whole pool. Larger pools are thinned out evenly.
_ENVIRONMENTS, _FORCE_ROWS = 20_000, 12_000

# P and M are recomputed when the variance has fallen to this share, because updates lose digits.
_DIGITS = 1e-2

# Structures whose labels, forces included, are compared with one another for each choice.
SHORTLIST = 32

# A label is worthwhile if it reduces the expected error by at least this share.
WORTH = 0.005


@dataclass(frozen=True)
class Choice:
    """A structure of the pool, and what its label is expected to do."""

    index: int  # place in the pool
    reduction: float  # of the mean variance of the pool's predictions
    before: float  # standard deviation (root mean square over the pool) without this label
    after: float  # with it
    atoms: int

    @property
    def relative(self) -> float:
        """Share by which the expected error is reduced."""
        return 1.0 - self.after / self.before if self.before > 0 else 0.0


@dataclass(frozen=True)
class Selection:
    """The choices in their order."""

    choices: tuple[Choice, ...]
    by: By
    method: Method
    considered: int  # structures of the pool that could be chosen
    points: int  # inducing points
    start: float  # standard deviation before the first label

    @property
    def indices(self) -> list[int]:
        return [choice.index for choice in self.choices]

    def worthwhile(self, worth: float = WORTH) -> int:
        """The number of choices up to the last one that reduces the expected error by `worth`.

        Smaller reductions between larger ones therefore do not end the list.
        """
        numbers = [k for k, choice in enumerate(self.choices, 1) if choice.relative >= worth]
        return max(numbers, default=0)

    def to_dict(self, worth: float = WORTH) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "by": self.by,
            "method": self.method,
            "unit": UNITS[self.by],
            "considered": self.considered,
            "inducing_points": self.points,
            "start": self.start,
            "worthwhile": self.worthwhile(worth),
            "choices": [
                {**vars(choice), "relative": choice.relative, "number": k}
                for k, choice in enumerate(self.choices, 1)
            ],
        }


UNITS: dict[By, str] = {"energy": "eV/atom", "forces": "eV/Å", "atoms": "eV"}


# --------------------------------------------------------------------------- linear algebra


class Posterior:
    """The covariance P (r, r) of the whitened weights, M = P G P, and scores of single labels.

    P = R⁻¹R⁻ᵀ, where R is updated by QR and stays accurate. P, M and the scores are updated by
    subtraction, which loses digits, and recomputed from R from time to time.
    """

    def __init__(self, factor: Floats, targets: Floats, labels: Floats) -> None:
        """`factor` is R; `targets` is G, the mean outer product of the rows to be predicted.

        `labels` (n, r) are rows of labels in units of their noise, one of each structure.
        """
        self.factor, self.targets, self.labels = factor, targets, labels
        self._refresh()

    def _refresh(self) -> None:
        self.covariance = inverse_gram(self.factor)
        self.products = self.covariance @ self.targets @ self.covariance
        self.variance = self._reference = float(np.sum(self.targets * self.covariance))
        self._own = np.einsum("sr,sr->s", self.labels @ self.covariance, self.labels)
        self._shared = np.einsum("sr,sr->s", self.labels @ self.products, self.labels)

    @property
    def scores(self) -> Floats:
        """Reductions of tr(GP) by each of the single labels (n,)."""
        return self._shared / (1.0 + self._own)

    def reduction(self, rows: Floats) -> float:
        """Reduction of tr(GP) by labels with these rows (p, r), in units of their noise."""
        inner = np.eye(len(rows)) + rows @ self.covariance @ rows.T
        return float(np.trace(np.linalg.solve(inner, rows @ self.products @ rows.T)))

    def learn(self, rows: Floats) -> float:
        """Add labels with these rows; returns the reduction of tr(GP)."""
        before = self.variance
        self.factor = grown_factor(self.factor, rows)
        gain, left = rows @ self.covariance, rows @ self.products  # (p, r)
        inner = np.eye(len(rows)) + gain @ rows.T
        solved, core = np.linalg.solve(inner, gain), left @ rows.T
        cross = left.T @ solved
        self.covariance -= gain.T @ solved
        self.products += solved.T @ core @ solved - cross - cross.T
        self.variance = float(np.sum(self.targets * self.covariance))
        if self.variance < _DIGITS * self._reference:
            self._refresh()
        else:
            by_gain, by_left, by_solved = (self.labels @ m.T for m in (gain, left, solved))
            self._own -= np.einsum("sp,sp->s", by_gain, by_solved)
            self._shared += np.einsum("sp,sp->s", by_solved @ core - 2.0 * by_left, by_solved)
        return before - self.variance


def grown_factor(factor: Floats, rows: Floats) -> Floats:
    """R after further labels with rows B: RᵀR = R₀ᵀR₀ + BᵀB."""
    empty = np.zeros((len(factor), 0)), np.zeros((len(rows), 0))
    return stacked_qr(factor, empty[0], rows, empty[1])[0]


def reduce_variance(
    posterior: Posterior,
    rows: Callable[[int], Floats],
    allowed: Ints,
    count: int,
    price: Floats,
    shortlist: int = SHORTLIST,
) -> Iterator[tuple[int, float]]:
    """Greedily chosen structures and their reductions, the largest per price first.

    `rows(s)` are the rows of all labels of structure s. Its reduction is evaluated for the
    structures with the highest scores of a single label, as many as `shortlist` says.
    """
    free = np.zeros(len(price), dtype=bool)
    free[allowed] = True
    for _ in range(min(count, len(allowed))):
        scores = np.where(free, posterior.scores / price, -np.inf)
        best = int(np.argmax(scores))
        if shortlist > 1:
            top = np.argsort(-scores, kind="stable")[: min(shortlist, int(free.sum()))]
            reductions = [posterior.reduction(rows(int(s))) / price[s] for s in top]
            best = int(top[int(np.argmax(reductions))])
        free[best] = False
        yield best, posterior.learn(rows(best))


def pivoted(
    rows: Floats, covariance: Floats, allowed: Ints, count: int, price: Floats
) -> list[int]:
    """Pivoted Cholesky: repeatedly the structure with the largest remaining variance.

    `rows` (n, r) are those of the energies per atom.
    """
    variance = np.einsum("sr,sr->s", rows @ covariance, rows)
    factor = np.zeros((0, len(rows)))
    free = np.zeros(len(rows), dtype=bool)
    free[allowed] = True
    chosen: list[int] = []
    for _ in range(min(count, len(allowed))):
        s = int(np.argmax(np.where(free, variance / price, -np.inf)))
        free[s] = False
        chosen.append(s)
        if variance[s] > 0:
            column = rows @ (covariance @ rows[s]) - factor[:, s] @ factor
            factor = np.concatenate([factor, column[None] / np.sqrt(variance[s])])
            variance = variance - factor[-1] ** 2
    return chosen


def farthest(features: Floats, known: Floats, allowed: Ints, count: int) -> list[int]:
    """Farthest-point sampling: the structure farthest from all `known` and chosen ones.

    Without known features, the first one is nearest to the mean of the pool.
    """
    if len(known):
        distance = np.min(
            np.linalg.norm(features[:, None] - known[None], axis=2)
            if len(features) * known.size < 2**24
            else np.stack([np.linalg.norm(features - one, axis=1) for one in known], axis=1),
            axis=1,
        )
    else:
        distance = -np.linalg.norm(features - features[allowed].mean(axis=0), axis=1)
    free = np.zeros(len(features), dtype=bool)
    free[allowed] = True
    chosen: list[int] = []
    for turn in range(min(count, len(allowed))):
        s = int(np.argmax(np.where(free, distance, -np.inf)))
        free[s] = False
        chosen.append(s)
        step = np.linalg.norm(features - features[s], axis=1)
        distance = step if turn == 0 and not len(known) else np.minimum(distance, step)
    return chosen


# --------------------------------------------------------------------------- structures as rows


@dataclass(frozen=True, eq=False)
class Space:
    """Structures as rows over inducing points, in coordinates with the prior covariance I."""

    potential: Potential
    inducing: Inducing
    upper: Floats  # U, UᵀU = K_mm

    @classmethod
    def of(cls, potential: Potential, parts: Sequence[Environments]) -> Space:
        """Inducing points of the potential, if it has any, and further ones among `parts`."""
        points = Points.concatenate([_thinned(env) for env in parts])
        rule = potential.inducing
        tol = rule.tol if isinstance(rule, PivotedCholesky) else PivotedCholesky.tol
        existing = None
        if potential.is_fitted:
            old = potential.fitted.inducing
            existing = (old.z, old.group)
        most = POINTS + (0 if existing is None else len(existing[0]))
        chosen = PivotedCholesky(tol, most).select(
            points, potential.kernel, np.random.default_rng(0), existing
        )
        x, group = points.x[chosen], points.group[chosen]
        if existing is not None:
            x = np.concatenate([existing[0], x])
            group = np.concatenate([existing[1], group])
        inducing = potential.kernel.inducing(x, group)
        return cls(potential, inducing, cholesky(inducing.gram)[0])

    def energies(self, env: Environments) -> Floats:
        """Rows of the energies (n, r)."""
        points = _points(env)
        step = max(2**20 // (len(self.inducing) * max(int(points.sizes.max()), 1)), 1)
        sums = [
            self.inducing.forward(points.select(np.arange(k, min(k + step, len(points))))).k_sum
            for k in range(0, len(points), step)
        ]
        return right_solve(np.concatenate(sums), self.upper)

    def forces(self, env: Environments, s: int) -> Floats:
        """Rows of the force components of structure s (3N, r)."""
        one = env.select(np.array([s]))
        slopes, _ = gradient_rows(one, self.inducing.forward(_points(one)))
        return right_solve(-slopes.reshape(-1, len(self.inducing)), self.upper)

    def labels(self, env: Environments, s: int, energy: Floats, forces: bool) -> Floats:
        """Rows of the labels of structure s, in units of their noise; the first is its energy."""
        row = energy[None] / (self.potential.noise * np.sqrt(env.batch.sizes[s]))
        if not forces:
            return row
        return np.concatenate([row, self.forces(env, s) / self.potential.force_noise])

    def factor(self, learned: Sequence[tuple[Environments, Bools]]) -> Floats:
        """R (r, r) after the labels of structures, with forces where the flags say so."""
        r = np.eye(len(self.inducing), order="F")
        for env, has_forces in learned:
            energies = self.energies(env)
            for s, flag in enumerate(has_forces):
                r = grown_factor(r, self.labels(env, s, energies[s], bool(flag)))
        return r

    def targets(self, env: Environments, energies: Floats, by: By) -> Floats:
        """G (r, r): the mean outer product of the rows of what is to be predicted well."""
        if by == "energy":
            per_atom = energies / env.batch.sizes[:, None]
            return per_atom.T @ per_atom / len(per_atom)
        total, count = np.zeros((len(self.inducing),) * 2), 0
        for rows in self._forces_of(env) if by == "forces" else self._atoms_of(env):
            total += rows.T @ rows
            count += len(rows)
        return total / count

    def _forces_of(self, env: Environments) -> Iterator[Floats]:
        step = -(-3 * len(env.values) // _FORCE_ROWS)
        return (self.forces(env, s) for s in range(0, len(env.batch), step))

    def _atoms_of(self, env: Environments) -> Iterator[Floats]:
        for k in range(0, len(env.values), 1024):
            some = self.inducing.matrix(env.values[k : k + 1024], env.species[k : k + 1024])
            yield right_solve(some, self.upper)


def _points(env: Environments) -> Points:
    return Points(env.values, env.batch.offsets, env.species)


def _thinned(env: Environments) -> Points:
    step = -(-len(env.values) // _ENVIRONMENTS)
    return _points(env).select(np.arange(0, len(env.batch), step))


# --------------------------------------------------------------------------- the choice


@one_blas_thread()
def select(
    pool: Sequence[Atoms],
    count: int,
    potential: Potential | None = None,
    *,
    by: By = "energy",
    method: Method = "variance",
    forces: bool | None = None,
    cost: Cost = "structure",
    learned: Sequence[Atoms] = (),
    allowed: Bools | None = None,
    seed: int = 0,
) -> Selection:
    """Choose `count` structures of the pool to label.

    `potential` gives descriptor, kernel, noise levels and, if it is fitted, its training set;
    without one, the preset `balanced` is fitted to the pool's length scale. `by` selects the
    variance that is reduced: of the energies per atom of the pool's structures, of their force
    components, or of the energies of their atoms. `forces` says whether labels contain forces; by
    default they do if `by` is "forces". For energies of gold clusters, choices were better without
    them. With the cost "atoms", the reduction per atom decides. `learned` are structures that have
    a label already or will get one anyway. Neither they nor the training set nor structures that
    `allowed` excludes are chosen.
    """
    if count < 1:
        raise NuggetError(f"The number of structures to choose is {count}; choose at least 1.")
    forces = by == "forces" if forces is None else forces
    potential = _ready(potential, pool, learned)
    env = potential.descriptor.compute(as_batch(pool))
    past = _learned(potential, learned, forces)
    free = _free(pool, allowed, [batch for batch, _ in past])
    before = [(potential.descriptor.compute(batch), flags) for batch, flags in past]
    space = Space.of(potential, [env, *(old for old, _ in before)])
    energies, sizes = space.energies(env), env.batch.sizes
    labels = energies / (potential.noise * np.sqrt(sizes))[:, None]
    posterior = Posterior(space.factor(before), space.targets(env, energies, by), labels)
    price = sizes.astype(float) if cost == "atoms" else np.ones(len(sizes))
    start = np.sqrt(max(posterior.variance, 0.0))

    def rows(s: int) -> Floats:
        return space.labels(env, s, energies[s], forces)

    picks: Iterator[tuple[int, float]]
    if method == "variance":
        shortlist = SHORTLIST if forces else 1
        picks = reduce_variance(posterior, rows, free, count, price, shortlist)
    else:
        order = _other(method, space, env, before, posterior, energies, free, count, price, seed)
        picks = learn_in_order(posterior, rows, order)
    variance, choices = start**2, []
    for s, reduction in picks:
        after = max(variance - reduction, 0.0)
        ends = (float(np.sqrt(variance)), float(np.sqrt(after)))
        choices.append(Choice(s, reduction, *ends, int(sizes[s])))
        variance = after
    return Selection(tuple(choices), by, method, len(free), len(space.inducing), float(start))


def learn_in_order(
    posterior: Posterior, rows: Callable[[int], Floats], order: Sequence[int]
) -> Iterator[tuple[int, float]]:
    """The reduction of the variance by each label, in the given order."""
    for s in order:
        yield s, posterior.learn(rows(s))


def _other(
    method: Method, space: Space, env: Environments, before: list[tuple[Environments, Bools]],
    posterior: Posterior, energies: Floats, free: Ints, count: int, price: Floats, seed: int,
) -> list[int]:  # fmt: skip
    if method == "random":
        order = np.random.default_rng(seed).permutation(free)
        return [int(s) for s in order[:count]]
    per_atom = energies / env.batch.sizes[:, None]
    if method == "pivoted":
        return pivoted(per_atom, posterior.covariance, free, count, price)
    known = [space.energies(old) / old.batch.sizes[:, None] for old, _ in before]
    return farthest(per_atom, np.concatenate([per_atom[:0], *known]), free, count)


def _ready(
    potential: Potential | None, pool: Sequence[Atoms], learned: Sequence[Atoms]
) -> Potential:
    """The potential, or a preset for these structures."""
    species = sorted({str(symbol) for atoms in (*pool, *learned) for symbol in set(atoms.symbols)})
    if potential is None:
        return balanced(species, _some(pool))
    unknown = [symbol for symbol in species if symbol not in potential.descriptor.species]
    if unknown:
        raise NuggetError(
            f"The model has no {unknown[0]}, which the pool contains; choose without a model, or "
            "fit one with these elements."
        )
    if potential.is_fitted and potential.fitted.lean:
        raise NuggetError(
            "A lean model has no training set, which the choice depends on; use the full model."
        )
    return potential


def _some(pool: Sequence[Atoms], most: int = 200) -> list[Atoms]:
    step = -(-len(pool) // most)
    return list(pool[::step])


def _learned(
    potential: Potential, learned: Sequence[Atoms], forces: bool
) -> list[tuple[Batch, Bools]]:
    """Structures whose labels are known or ordered, and which of them have forces."""
    found = []
    if potential.is_fitted:
        training = potential.fitted.training
        found.append((training.batch, training.has_forces & forces))
    if learned:
        found.append((as_batch(learned), np.full(len(learned), forces)))
    return found


def _free(pool: Sequence[Atoms], allowed: Bools | None, past: Sequence[Batch]) -> Ints:
    """Structures that may be chosen, without those whose labels are known."""
    mask = np.ones(len(pool), dtype=bool) if allowed is None else np.asarray(allowed, bool).copy()
    if mask.shape != (len(pool),):
        raise NuggetError(f"The mask has shape {mask.shape} for {len(pool)} structures.")
    for batch in past:
        mask &= ~_unlabelled(batch).contains(pool)
    free = np.flatnonzero(mask)
    if not len(free):
        raise NuggetError("No structure is left to choose: all are excluded or labelled already.")
    return free


def _unlabelled(batch: Batch) -> Training:
    n, atoms = len(batch), len(batch.positions)
    nothing = (np.full(n, np.nan), np.full((atoms, 3), np.nan), np.full((n, 6), np.nan))
    return Training(batch, *nothing, None, False)
