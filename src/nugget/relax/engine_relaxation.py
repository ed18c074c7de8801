"""Relaxation with an expensive engine.

A relaxation proposes structures and observes the engine's results; the caller runs the engine. Its
state depends on these results only, so that it is resumed by passing them to a new object in the
same order. Only results of the engine decide which structure is lower, and convergence.
`LearningRelaxation` fits a local surrogate to all results, `CellRelaxation` relaxes atoms and cell,
and `relax_through` runs several relaxations through a queue of evaluations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from ase import Atoms
from scipy.optimize import minimize

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.relax.cell_relaxation import CellCoordinates, enthalpy_terms, strain_of
from nugget.relax.local_surrogate import (
    SKIN,
    Baseline,
    Choice,
    CorrectedSurrogate,
    PairFeatures,
    Point,
    Surrogate,
    softest_mode,
)
from nugget.relax.lockstep import Limits, RelaxationEnd, advance, initial_state, movable
from nugget.relax.relaxation import Relaxed

KAPPA = 3.0  # steps go to the minimum of E + κσ, which avoids unknown regions
FIRST, LONGEST, SHORTEST = 0.3, 0.6, 2e-3  # Å: trust radius of one coordinate
RISE = 1e-3  # eV: a smaller rise is round-off of the engine
MAX_LABELS = 2000  # labels of the surrogate; more would cost more than they improve it
MAX_FAILURES = 4  # in a row
ABSURD = 50.0  # ratio of forces at a lower energy that indicates a wrong calculation
_EACH = 6  # points up to which hyperparameters of the surrogate are chosen after each one
GAIN = 5e-3  # eV: a minimum has converged if the surrogate predicts no larger gain
FEW = 3  # points up to which the surrogate's predicted gain is not trusted
PROBE = 0.15  # Å: displacement along a soft mode that tests for a saddle point
MEMORY, MAX_STEP = 40, 0.2  # of L-BFGS with a cell: curvature pairs, Å


Evaluate = Callable[[Atoms], Atoms | None]

STIFFNESS = 70.0  # eV/Å²: first Hessian of a quasi-Newton descent, that of a stiff bond


class QuasiNewton:
    """BFGS in Cartesian coordinates, which takes over where the local surrogate fails.

    It accepts every point, so that small errors of energies do not stop it.
    """

    def __init__(self, start: Point) -> None:
        self._here, self._hessian = start, STIFFNESS * np.eye(len(start.x))

    def learn(self, point: Point) -> None:
        """Move to the point and update the Hessian by the change of the gradient."""
        s, y = point.x - self._here.x, point.gradient - self._here.gradient
        hs = self._hessian @ s
        sy, shs = float(s @ y), float(s @ hs)
        if abs(sy) > 1e-12 and abs(shs) > 1e-12:
            self._hessian += np.outer(y, y) / sy - np.outer(hs, hs) / shs
        self._here = point

    def next(self) -> Floats:
        """The Newton step with the absolute values of all curvatures, limited to MAX_STEP."""
        curvatures, modes = np.linalg.eigh(self._hessian)
        along = modes.T @ self._here.gradient / np.maximum(np.abs(curvatures), 1e-6)
        step = -modes @ along
        return np.asarray(self._here.x + step * min(1.0, MAX_STEP / np.max(np.abs(step))))


def _is_chosen_anew(number: int) -> bool:
    """Whether the surrogate's hyperparameters are chosen with this number of points.

    They are up to six points, and then each time that the number has grown by a quarter. The
    likelihood of one choice costs as much as a fit, and a choice takes about ten of them.
    """
    last = min(number, _EACH)
    while last < number:
        last = max(last + 2, last + last // 4)
    return last == number


class EngineRelaxation(ABC):
    """One relaxation of a structure: `propose`, evaluate, `observe`, until `done`."""

    def __init__(self, atoms: Atoms, fmax: float, max_evaluations: int) -> None:
        if not fmax > 0 or max_evaluations < 1:
            raise NuggetError("A relaxation needs fmax above 0 and at least one evaluation.")
        self.fmax, self.max_evaluations = fmax, max_evaluations
        self.best = atoms.copy()  # the lowest structure so far
        self.points: list[Point] = []  # all observations
        self.evaluations = 0
        self.end = RelaxationEnd.RUNNING

    @property
    def done(self) -> bool:
        return self.end is not RelaxationEnd.RUNNING

    @abstractmethod
    def propose(self) -> Atoms:
        """The structure to evaluate next, without results."""

    @abstractmethod
    def observe(self, atoms: Atoms | None) -> None:
        """Use the engine's result for the last proposal; None if the evaluation failed."""

    @abstractmethod
    def result(self) -> Relaxed:
        """The lowest structure so far."""

    def run(self, evaluate: Evaluate) -> Relaxed:
        """Relax to the end; `evaluate` returns None after a failure."""
        while not self.done:
            self.observe(evaluate(self.propose()))
        return self.result()


class LearningRelaxation(EngineRelaxation):
    """A relaxation of atoms, which fits a local surrogate to all results.

    Small forces also occur at saddle points and on nearly flat slopes. With `probes`, the
    relaxation continues at small forces while the surrogate predicts a gain above GAIN, and
    displaces atoms along up to that number of soft modes to test whether the energy rises. With a
    `baseline` the surrogate describes the difference between the engine and this mean function.
    """

    def __init__(
        self,
        atoms: Atoms,
        fmax: float = 0.05,
        max_evaluations: int = 200,
        probes: int = 0,
        baseline: Baseline | None = None,
    ) -> None:
        super().__init__(atoms, fmax, max_evaluations)
        self._baseline = baseline
        self.free, self.probes = movable(atoms), probes
        self._lowest: Point | None = None
        self._reach = FIRST  # trust radius
        self._failures = 0
        self._features = PairFeatures(atoms, self.free)
        self._probed: list[Floats] = []
        self._trial: Floats | None = None  # the next proposal, if it is chosen already
        self._probing = False  # whether it tests a soft mode
        self._newton: QuasiNewton | None = None  # once steps of the surrogate have failed
        # The surrogate with its number of points.
        self._fitted: tuple[int, Surrogate | CorrectedSurrogate] | None = None
        self._choice: Choice | None = None  # of its hyperparameters

    def propose(self) -> Atoms:
        atoms = self.best.copy()
        if self._lowest is not None:
            trial = self._next(self._lowest) if self._trial is None else self._trial
            atoms.positions[self.free] = trial
        return atoms

    def observe(self, atoms: Atoms | None) -> None:
        self.evaluations += 1
        if atoms is None:
            self._failed()
        else:
            self._learn(atoms)
        if not self.done and self.evaluations >= self.max_evaluations:
            self.end = RelaxationEnd.STEPS
        if self.done and self._small:  # also if a search for a lower point was interrupted
            self.end = RelaxationEnd.CONVERGED

    def result(self) -> Relaxed:
        energy = fmax = float("nan")
        if self._lowest is not None:
            energy, fmax = self._lowest.energy, self._largest(self._lowest.gradient)
        return Relaxed(self.best, energy, fmax, self.evaluations, self.end)

    def _failed(self) -> None:
        self._failures += 1
        self._reach *= 0.5
        self._trial = None
        if self._lowest is None or self._small or self._failures >= MAX_FAILURES:
            self.end = RelaxationEnd.ENGINE_FAILED

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
        if self._newton is not None:
            self._newton.learn(point)
            if self._largest(point.gradient) <= self.fmax and point.energy > self._energy + RISE:
                self.end = RelaxationEnd.STALLED  # a stationary point above the lowest one
        allowed = RISE if self._largest(point.gradient) <= self.fmax else 0.0
        if before is None or point.energy < before.energy + allowed:
            self._reach = min(1.5 * self._reach, LONGEST) if before is not None else FIRST
            self._move(point, atoms)
        elif not self._probing:
            self._reach = 0.5 * min(self._reach, float(np.max(np.abs(x - before.x))))
            if self._reach < SHORTEST:
                self._stall(before)
        self._trial, self._probing = None, False
        if not self.done and self._newton is None and _is_chosen_anew(len(self.points)):
            # Here, and not when it is needed: a resumed relaxation only observes again.
            self._choose(self._lowest or point)
        if not self.done and self._small:
            self._trial = self._lower_point(self._lowest or point) if self.probes else None
            if self._trial is None:
                self.end = RelaxationEnd.CONVERGED

    def _stall(self, lowest: Point) -> None:
        """No step of the surrogate lowers the energy: continue by quasi-Newton steps, once."""
        if self._newton is None:
            self._newton = QuasiNewton(self.points[0])
            for point in [*self.points[1:], lowest]:
                self._newton.learn(point)
        self._reach = FIRST

    def _absurd(self, point: Point, before: Point) -> bool:
        """Whether a lower point has disproportionate forces, which no step downhill leads to."""
        fmax = self._largest(point.gradient)
        return point.energy < before.energy and fmax > ABSURD * max(
            self._largest(before.gradient), 1.0
        )

    @property
    def _energy(self) -> float:
        """The energy of the lowest structure."""
        return np.inf if self._lowest is None else self._lowest.energy

    @property
    def _small(self) -> bool:
        """Whether the forces on the lowest structure are below the limit."""
        return self._lowest is not None and self._largest(self._lowest.gradient) <= self.fmax

    def _move(self, point: Point, atoms: Atoms) -> None:
        """Set a new lowest point, and update the pairs after large displacements."""
        self._lowest, self.best = point, atoms
        moved = np.abs(self._features.positions[self.free] - point.x)
        if np.max(moved, initial=0.0) > 0.5 * SKIN:
            self._features = PairFeatures(atoms, self.free)

    def _lower_point(self, lowest: Point) -> Floats | None:
        """At small forces: a point predicted to be lower, a soft mode to test, or None."""
        if not self._features.n_pairs:
            return None
        model = self._model(lowest)
        mode = softest_mode(model, lowest.x)
        step = PROBE * mode / np.max(np.abs(mode))
        kappa = 0.0 if len(self.points) > FEW else KAPPA
        minima = [self._minimum(model, lowest, kappa, start) for start in (0.0, step, -step)]
        predicted, x = min(minima, key=lambda pair: pair[0])
        if predicted < lowest.energy - GAIN:
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
        """The minimum of E + κσ around the lowest point, or a quasi-Newton step."""
        if self._newton is not None:
            return self._newton.next()
        if self._features.n_pairs:
            _, x = self._minimum(self._model(lowest), lowest, KAPPA)
            if np.max(np.abs(x - lowest.x)) > 1e-4 and np.isfinite(x).all():
                return x
        # The surrogate predicts no gain, so take a short step along the engine's forces.
        step = min(self._reach, 0.01) / np.max(np.abs(lowest.gradient))
        return lowest.x - step * lowest.gradient

    def _minimum(
        self,
        model: Surrogate | CorrectedSurrogate,
        lowest: Point,
        kappa: float,
        start: Floats | float = 0.0,
    ) -> tuple[float, Floats]:
        """Minimum of E + κσ within the trust radius, and its position."""
        bounds = np.column_stack([lowest.x - self._reach, lowest.x + self._reach])
        optimum = minimize(
            model, np.clip(lowest.x + start, *bounds.T), (kappa,), jac=True, method="L-BFGS-B",
            bounds=bounds, options={"maxiter": 200, "gtol": 0.1 * self.fmax},
        )  # fmt: skip
        return float(optimum.fun), np.asarray(optimum.x)

    def _choose(self, lowest: Point) -> None:
        """Choose the hyperparameters of the surrogate by its likelihood."""
        if self._features.n_pairs:
            model = self._surrogate(lowest, None)
            self._fitted, self._choice = (len(self.points), model), model.choice

    def _model(self, lowest: Point) -> Surrogate | CorrectedSurrogate:
        """The surrogate of all observations."""
        number = len(self.points)
        if self._fitted is None or self._fitted[0] != number:
            self._fitted = (number, self._surrogate(lowest, self._choice))
        return self._fitted[1]

    def _surrogate(self, lowest: Point, choice: Choice | None) -> Surrogate | CorrectedSurrogate:
        points = self._training_points(lowest)
        if self._baseline is None:
            return Surrogate(self._features, points, choice)
        return CorrectedSurrogate(self._features, points, self._baseline, choice)

    def _training_points(self, lowest: Point) -> list[Point]:
        """The last points, always including the lowest."""
        number = max(MAX_LABELS // (1 + len(lowest.x)), 3)
        kept = self.points[-number:]
        return kept if any(point is lowest for point in kept) else [lowest, *kept[1:]]


def relax_with_engine(
    images: Sequence[Atoms],
    evaluate: Evaluate,
    fmax: float = 0.05,
    max_evaluations: int = 200,
    probes: int = 0,
) -> list[Relaxed]:
    """Relax structures one after the other until the engine's largest force is below `fmax`.

    `evaluate` returns a structure with energy and forces, or None after a failure. Cells are kept;
    FixAtoms and FixCartesian are respected. For `probes` see LearningRelaxation.
    """
    runs = (LearningRelaxation(image, fmax, max_evaluations, probes) for image in images)
    return [run.run(evaluate) for run in runs]


class CellRelaxation(EngineRelaxation):
    """A relaxation of atoms and cell on E + pV.

    The steps are those of the lockstep minimiser (L-BFGS in `CellCoordinates`). `pressure` is in
    eV/Å³. The relaxation has converged when the forces, and the stress (minus the pressure) times
    the volume over √N Å, are below `fmax` in eV/Å.
    """

    def __init__(
        self, atoms: Atoms, fmax: float = 0.05, max_evaluations: int = 200, pressure: float = 0.0
    ) -> None:
        super().__init__(atoms, fmax, max_evaluations)
        if atoms.constraints:
            raise NuggetError("A crystal with constraints cannot be relaxed with its cell.")
        self.pressure, self.coordinates = pressure, CellCoordinates.of([atoms])
        self._limits = Limits(fmax, max_evaluations - 1, MAX_STEP, MEMORY, runaway=1e6)
        self._state = initial_state(self.coordinates.start(), None, MEMORY, precondition_up_to=0)
        self._one = np.zeros(1, dtype=np.int64)

    def propose(self) -> Atoms:
        here = self.coordinates.decode(self._state.x, self._one).batch
        atoms = self.best.copy()
        atoms.set_cell(here.cells[0])
        atoms.positions = here.positions
        return atoms

    def observe(self, atoms: Atoms | None) -> None:
        self.evaluations += 1
        st = self._state
        if atoms is not None and "stress" not in atoms.calc.results:
            self.best, self.end = atoms, RelaxationEnd.NO_STRESS
            return
        value, gradient = np.array([np.nan]), np.zeros_like(st.x)
        if atoms is not None:
            value, gradient = self._read(atoms)
        advance(st, self._one, value, gradient, self._limits)
        if atoms is not None and st.e[0] == value[0]:  # the point was accepted
            self.best = atoms
        end = RelaxationEnd(int(st.status[0]))
        self.end = RelaxationEnd.ENGINE_FAILED if end is RelaxationEnd.NOT_FINITE else end

    def result(self) -> Relaxed:
        """The lowest structure so far; its energy is E, without pV."""
        calc = self.best.calc
        energy = float("nan") if calc is None else float(calc.results["energy"])
        fmax = float(self._state.force[0])
        return Relaxed(self.best, energy, fmax, self.evaluations, self.end)

    def _read(self, atoms: Atoms) -> tuple[Floats, Floats]:
        """E + pV and its gradient with respect to the coordinates."""
        results = atoms.calc.results
        here = self.coordinates.decode(self._state.x, self._one)
        work, by_strain = enthalpy_terms(here.batch, self.pressure)
        strain = strain_of(results["stress"], atoms.get_volume()) + by_strain
        value = float(results["energy"]) + work
        gradient = here.gradient(-np.asarray(results["forces"], dtype=float), strain)
        self.points.append(Point(self._state.x.ravel().copy(), float(value[0]), gradient.ravel()))
        return value, gradient


class Queue(Protocol):
    """Evaluations in flight, each with a number as its key; results have `ok` and `atoms`."""

    width: int

    def __len__(self) -> int: ...

    def submit(self, key: int, atoms: Atoms) -> None: ...

    def next(self) -> tuple[int, Any]: ...


def relax_through(
    queue: Queue,
    runs: Mapping[int, EngineRelaxation],
    seen: Callable[[int, Any], None],
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Advance relaxations until all are done, or until `stopping` and nothing is in flight.

    `seen` is called with the number of a relaxation and the outcome of its evaluation, before the
    relaxation observes it.
    """
    waiting = [key for key, run in runs.items() if not run.done]
    while True:
        while waiting and len(queue) < queue.width and not stopping():
            key = waiting.pop(0)
            queue.submit(key, runs[key].propose())
        if not len(queue):
            return
        key, outcome = queue.next()
        seen(key, outcome)
        runs[key].observe(outcome.atoms if outcome.ok else None)
        if not runs[key].done:
            waiting.insert(0, key)  # those given first are finished first
