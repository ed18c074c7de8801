"""Relaxation on an expensive surface: each evaluation teaches a local model where to go next.

`LearningRelaxation` proposes structures and is given what an engine says of them; whoever runs the
engine decides where and when. All it knows are these results, in order: one that is broken off is
continued by giving them to a new one. Only the engine decides what is converged, and what is lower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms
from scipy.optimize import minimize

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError
from nugget.relax._state import free_mask
from nugget.relax.local_surrogate import Choice, Point, Surrogate
from nugget.relax.pair_features import SKIN, PairFeatures

KAPPA = 3.0  # pessimism: steps go to the minimum of E + κσ
FIRST, LONGEST, SHORTEST = 0.3, 0.6, 2e-3  # Å: how far a coordinate may move in one step
RISE = 1e-3  # eV: less is an engine's round-off
MAX_LABELS = 2000  # numbers that the model learns from; more would cost more than they tell
MAX_FAILURES = 4


@dataclass(frozen=True, eq=False)
class EngineRelaxed:
    """One structure relaxed with an engine.

    `atoms` carries the engine's energy and forces, unless the engine gave none at all. `fmax` is
    the largest force on a free atom. `reason` says why the relaxation ended.
    """

    atoms: Atoms
    energy: float
    fmax: float
    evaluations: int
    converged: bool
    reason: str


class LearningRelaxation:
    """One relaxation: `propose`, have it evaluated, `observe`; until `done`."""

    def __init__(self, atoms: Atoms, fmax: float = 0.05, max_evaluations: int = 200) -> None:
        if not fmax > 0 or max_evaluations < 1:
            raise NuggetError("A relaxation needs fmax above 0 and at least one evaluation.")
        self.fmax, self.max_evaluations = fmax, max_evaluations
        self.free = free_mask(atoms)
        self.best = atoms.copy()  # the lowest structure so far
        self.points: list[Point] = []
        self.evaluations = 0
        self.reason = ""
        self._lowest: Point | None = None
        self._reach = FIRST
        self._failures = 0
        self._choice = Choice()
        self._features: PairFeatures | None = None

    @property
    def done(self) -> bool:
        return bool(self.reason)

    def propose(self) -> Atoms:
        """The structure to evaluate next, without results."""
        atoms = self.best.copy()
        if self._lowest is not None:
            atoms.positions[self.free] = self._next(self._lowest)
        return atoms

    def observe(self, atoms: Atoms | None) -> None:
        """Take in the engine's word on the last proposal; None if it failed."""
        self.evaluations += 1
        if atoms is None:
            self._failed()
        else:
            self._learn(atoms)
        if not self.done and self.evaluations >= self.max_evaluations:
            self.reason = "all evaluations used"

    def result(self) -> EngineRelaxed:
        """Where the relaxation has come to."""
        if self._lowest is None:
            nan = float("nan")
            return EngineRelaxed(self.best, nan, nan, self.evaluations, False, self.reason)
        lowest = self._lowest
        converged = self.reason == "converged"
        return EngineRelaxed(
            self.best, lowest.energy, self._largest(lowest.gradient), self.evaluations, converged,
            self.reason or "not finished",
        )  # fmt: skip

    def _failed(self) -> None:
        self._failures += 1
        self._reach *= 0.5
        if self._lowest is None:
            self.reason = "the engine failed on the first structure"
        elif self._failures >= MAX_FAILURES:
            self.reason = f"the engine failed {MAX_FAILURES} times in a row"

    def _learn(self, atoms: Atoms) -> None:
        results = atoms.calc.results
        self._failures = 0
        x = atoms.positions[self.free]
        point = Point(x, float(results["energy"]), -np.asarray(results["forces"])[self.free])
        self.points.append(point)
        before, largest = self._lowest, self._largest(point.gradient)
        if before is None or point.energy < before.energy:
            if before is not None:
                self._reach = min(1.5 * self._reach, LONGEST)
            self._lowest, self.best = point, atoms
        elif largest <= self.fmax and point.energy <= before.energy + RISE:
            self._lowest, self.best = point, atoms
        else:
            self._reach = 0.5 * min(self._reach, float(np.max(np.abs(x - before.x))))
            if self._reach < SHORTEST:
                self.reason = "no lower point was found downhill: energies and forces disagree"
        if self._lowest is point and largest <= self.fmax:
            self.reason = "converged"

    def _largest(self, gradient: Floats) -> float:
        forces = np.zeros(self.free.shape)
        forces[self.free] = gradient
        return float(np.sqrt(np.max(np.sum(forces**2, axis=1), initial=0.0)))

    def _next(self, lowest: Point) -> Floats:
        """The minimum of E + κσ around the lowest point, no coordinate moving beyond the reach."""
        surrogate = Surrogate(self._pairs(lowest), self._known(lowest), KAPPA, self._choice)
        self._choice = surrogate.choice
        bounds = np.column_stack([lowest.x - self._reach, lowest.x + self._reach])
        found = minimize(
            surrogate, lowest.x, jac=True, method="L-BFGS-B", bounds=bounds,
            options={"maxiter": 200, "gtol": 0.1 * self.fmax},
        )  # fmt: skip
        if np.max(np.abs(found.x - lowest.x)) > 1e-4 and np.isfinite(found.x).all():
            return np.asarray(found.x)
        # The model sees no way down, but the engine's forces do: a short step along them.
        step = min(self._reach, 0.01) / np.max(np.abs(lowest.gradient))
        return lowest.x - step * lowest.gradient

    def _pairs(self, lowest: Point) -> PairFeatures:
        """The list of pairs, made anew when atoms have moved by half its skin."""
        old = self._features
        if old is None or np.max(np.abs(old.positions[self.free] - lowest.x)) > 0.5 * SKIN:
            self._features = old = PairFeatures(self.best, self.free)
        return old

    def _known(self, lowest: Point) -> list[Point]:
        """The last points, and the lowest in any case."""
        room = max(MAX_LABELS // (1 + len(lowest.x)), 3)
        kept = self.points[-room:]
        return kept if any(point is lowest for point in kept) else [lowest, *kept[1:]]


Evaluate = Callable[[Atoms], Atoms | None]


def relax_with_engine(
    images: Sequence[Atoms], evaluate: Evaluate, fmax: float = 0.05, max_evaluations: int = 200
) -> list[EngineRelaxed]:
    """Relax structures one after the other until the engine's largest force is below `fmax`.

    `evaluate` gives a structure with energy and forces, or None when the engine has failed.
    Cells are kept; FixAtoms and FixCartesian are respected.
    """
    results = []
    for image in images:
        run = LearningRelaxation(image, fmax, max_evaluations)
        while not run.done:
            run.observe(evaluate(run.propose()))
        results.append(run.result())
    return results
