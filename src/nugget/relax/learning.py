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
from nugget.relax.local_surrogate import Point, Surrogate
from nugget.relax.pair_features import SKIN, PairFeatures
from nugget.relax.softest import softest_mode

KAPPA = 3.0  # pessimism: steps go to the minimum of E + κσ
FIRST, LONGEST, SHORTEST = 0.3, 0.6, 2e-3  # Å: how far a coordinate may move in one step
RISE = 1e-3  # eV: less is an engine's round-off
MAX_LABELS = 2000  # numbers that the model learns from; more would cost more than they tell
MAX_FAILURES = 4
ABSURD = 50.0  # times larger forces at a lower energy: a calculation that went astray
GAIN = 5e-3  # eV: a minimum is one where the model promises no more than this
FEW = 3  # points from which a model promises nothing yet
PROBE = 0.15  # Å: how far atoms are moved along a soft mode to see whether it is one of a saddle


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
    """One relaxation: `propose`, have it evaluated, `observe`; until `done`.

    Small forces may belong to a saddle or a slope that is nearly flat. With `probes`, where they
    are small, the relaxation goes on while the model promises more than GAIN, and displaces up to
    that many of the softest modes to see whether the energy rises along them.
    """

    def __init__(
        self, atoms: Atoms, fmax: float = 0.05, max_evaluations: int = 200, probes: int = 0
    ) -> None:
        if not fmax > 0 or max_evaluations < 1:
            raise NuggetError("A relaxation needs fmax above 0 and at least one evaluation.")
        self.fmax, self.max_evaluations, self.probes = fmax, max_evaluations, probes
        self.free = free_mask(atoms)
        self.best = atoms.copy()  # the lowest structure so far
        self.points: list[Point] = []
        self.evaluations = 0
        self.reason = ""
        self._lowest: Point | None = None
        self._reach = FIRST
        self._failures = 0
        self._features = PairFeatures(atoms, self.free)
        self._probed: list[Floats] = []
        self._trial: Floats | None = None  # chosen already
        self._probing = False  # it is a look at a soft mode, not a step

    @property
    def done(self) -> bool:
        return bool(self.reason)

    def propose(self) -> Atoms:
        """The structure to evaluate next, without results."""
        atoms = self.best.copy()
        if self._lowest is not None:
            trial = self._next(self._lowest) if self._trial is None else self._trial
            atoms.positions[self.free] = trial
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
        if self.done and self._small:  # whatever kept it from looking for a lower place
            self.reason = "converged"

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
        self._trial = None
        if self._lowest is None:
            self.reason = "the engine failed on the first structure"
        elif self._small or self._failures >= MAX_FAILURES:
            self.reason = f"the engine failed {self._failures} times in a row"

    def _learn(self, atoms: Atoms) -> None:
        results = atoms.calc.results
        x = atoms.positions[self.free]
        point = Point(x, float(results["energy"]), -np.asarray(results["forces"])[self.free])
        before = self._lowest
        if before is not None and self._absurd(point, before):
            self._failed()
            return
        self._failures = 0
        self.points.append(point)
        allowed = RISE if self._largest(point.gradient) <= self.fmax else 0.0
        if before is None or point.energy < before.energy + allowed:
            self._reach = min(1.5 * self._reach, LONGEST) if before is not None else FIRST
            self._move(point, atoms)
        elif not self._probing:
            self._reach = 0.5 * min(self._reach, float(np.max(np.abs(x - before.x))))
            if self._reach < SHORTEST:
                self.reason = "no lower point was found downhill: energies and forces disagree"
        self._trial, self._probing = None, False
        if not self.done and self._small:
            self._trial = self._doubt(self._lowest or point) if self.probes else None
            if self._trial is None:
                self.reason = "converged"

    def _absurd(self, point: Point, before: Point) -> bool:
        """Lower, with forces out of all proportion: no way down ends on a slope like that."""
        fmax = self._largest(point.gradient)
        return point.energy < before.energy and fmax > ABSURD * max(
            self._largest(before.gradient), 1.0
        )

    @property
    def _small(self) -> bool:
        """Are the forces on the lowest structure small enough?"""
        return self._lowest is not None and self._largest(self._lowest.gradient) <= self.fmax

    def _move(self, point: Point, atoms: Atoms) -> None:
        """A new lowest point; the list of pairs is made anew when atoms have moved far."""
        self._lowest, self.best = point, atoms
        moved = np.abs(self._features.positions[self.free] - point.x)
        if np.max(moved, initial=0.0) > 0.5 * SKIN:
            self._features = PairFeatures(atoms, self.free)

    def _doubt(self, lowest: Point) -> Floats | None:
        """Forces are small: a lower point that the model promises, a soft mode to try, or None."""
        if not self._features.n_pairs:
            return None
        model = self._model(lowest)
        mode = softest_mode(model, lowest.x)
        step = PROBE * mode / np.max(np.abs(mode))
        kappa = 0.0 if len(self.points) > FEW else KAPPA
        found = [self._minimum(model, lowest, kappa, start) for start in (0.0, step, -step)]
        promise, x = min(found, key=lambda pair: pair[0])
        if promise < lowest.energy - GAIN:
            return x
        new = all(abs(float(mode @ other)) < 0.9 for other in self._probed)
        if len(self._probed) >= self.probes or not new:
            return None
        self._probed.append(mode)
        self._probing = True
        return lowest.x + step

    def _largest(self, gradient: Floats) -> float:
        forces = np.zeros(self.free.shape)
        forces[self.free] = gradient
        return float(np.sqrt(np.max(np.sum(forces**2, axis=1), initial=0.0)))

    def _next(self, lowest: Point) -> Floats:
        """The minimum of E + κσ around the lowest point."""
        if self._features.n_pairs:
            _, x = self._minimum(self._model(lowest), lowest, KAPPA)
            if np.max(np.abs(x - lowest.x)) > 1e-4 and np.isfinite(x).all():
                return x
        # The model sees no way down, but the engine's forces do: a short step along them.
        step = min(self._reach, 0.01) / np.max(np.abs(lowest.gradient))
        return lowest.x - step * lowest.gradient

    def _minimum(
        self, model: Surrogate, lowest: Point, kappa: float, start: Floats | float = 0.0
    ) -> tuple[float, Floats]:
        """Lowest E + κσ and where; no coordinate moves beyond the reach."""
        bounds = np.column_stack([lowest.x - self._reach, lowest.x + self._reach])
        found = minimize(
            model, np.clip(lowest.x + start, *bounds.T), (kappa,), jac=True, method="L-BFGS-B",
            bounds=bounds, options={"maxiter": 200, "gtol": 0.1 * self.fmax},
        )  # fmt: skip
        return float(found.fun), np.asarray(found.x)

    def _model(self, lowest: Point) -> Surrogate:
        return Surrogate(self._features, self._known(lowest))

    def _known(self, lowest: Point) -> list[Point]:
        """The last points, and the lowest in any case."""
        room = max(MAX_LABELS // (1 + len(lowest.x)), 3)
        kept = self.points[-room:]
        return kept if any(point is lowest for point in kept) else [lowest, *kept[1:]]


Evaluate = Callable[[Atoms], Atoms | None]


def relax_with_engine(
    images: Sequence[Atoms],
    evaluate: Evaluate,
    fmax: float = 0.05,
    max_evaluations: int = 200,
    probes: int = 0,
) -> list[EngineRelaxed]:
    """Relax structures one after the other until the engine's largest force is below `fmax`.

    `evaluate` gives a structure with energy and forces, or None when the engine has failed.
    Cells are kept; FixAtoms and FixCartesian are respected. For `probes` see LearningRelaxation.
    """
    results = []
    for image in images:
        run = LearningRelaxation(image, fmax, max_evaluations, probes)
        while not run.done:
            run.observe(evaluate(run.propose()))
        results.append(run.result())
    return results
