"""Minimum-mode following on a local surrogate, from one structure to a saddle point.

After every engine call, the surface of `saddle_surface` is fitted to all results. Steps on it climb
along the followed mode and descend along all others. They end where the surrogate's forces vanish,
or at the trust radius around the evaluated structures; there the engine is called. Only the
engine's forces decide about convergence: they vanish at the saddle, and further calls at displaced
copies show that its lowest mode is negative.

A cheap engine as a mean function knows the modes from the beginning. Without one, the lowest mode
of the start is found first, as in Davidson's method: the engine is called at a copy that is
displaced along the lowest mode of the surrogate, until a call has shown that mode before. This is
repeated where the forces increase far from the last such structure. At the saddle the second mode
is confirmed in the same way.

The state depends on the engine's results alone, so that a search is resumed by repeating them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats
from nugget.onthefly.saddle_surface import (
    NEGATIVE,
    Baseline,
    BaselineFailed,
    BaselineMean,
    Modes,
    SpringMean,
    Surface,
    climb,
)
from nugget.relax.local_surrogate import SKIN, PairFeatures, Point
from nugget.relax.lockstep import movable

FIRST, LONGEST, SHORTEST = 0.5, 0.7, 0.05  # Å: trust radius, the displacement of one atom
FIRST_BARE = 0.2  # Å: first trust radius without a baseline
GOOD, BAD = 0.4, 0.8  # errors of predicted forces, relative to those before the step, that
# enlarge and reduce the trust radius
TIGHT = 0.2  # of fmax: forces of the surrogate at which its steps end
PROBE = 0.1  # Å: displacement from a stationary point with a wrong number of negative modes
MAX_PROBES = 5
CONFIRM = 0.05  # Å: displacement along the mode with which the engine confirms its curvature
MAX_FAILURES = 4  # of the engine in a row
MAX_LABELS = 1500  # of the surrogate; more would cost more than they improve it
WINDOW = 5.0  # eV: points this far above the centre do not train the surrogate
SMALL = 5.0  # of fmax: smaller errors of forces do not reduce the trust radius
MAX_ROTATIONS = 8  # calls that find the lowest mode of a structure
TURN = 0.3  # Å: the lowest mode may be another one after this displacement
CLOSE = 0.2  # Å: points that show curvatures of a structure
MAX_CHECKS = 4  # calls that confirm the modes of a saddle
JUMP = 0.15  # eV: energies and forces that disagree by more belong to two states of the engine
PATIENCE = 30  # calls after which a search with forces above FAR begins again, with shorter steps
FAR = 0.1  # eV/Å
MAX_ATTEMPTS = 3
ALIKE = 0.9  # cosine from which on a direction counts as one that was evaluated


class SaddleEnd(StrEnum):
    """Why a search ended; the values are the texts in files and messages."""

    RUNNING = "running"
    CONVERGED = "converged"
    CALLS = "all calls used"
    WRONG_MODES = "ended at a stationary point that has not exactly one negative mode"
    ENGINE_FAILED = "the engine failed too often"


class SaddleSearch:
    """`propose` a structure, evaluate it with the engine, `observe` the result, until `done`.

    mode : displacements (N, 3) of the mode to follow; None follows the lowest mode.
    max_labels : energies and gradient components that train the surrogate, the nearest ones.
    """

    def __init__(
        self,
        atoms: Atoms,
        fmax: float,
        max_calls: int,
        baseline: Baseline | None = None,
        mode: Floats | None = None,
        max_labels: int = MAX_LABELS,
    ) -> None:
        self.fmax, self.max_calls, self.baseline = fmax, max_calls, baseline
        self._max_labels = max_labels
        self.free: Bools = movable(atoms)
        if self.free.sum() < 2:
            raise NuggetError("A saddle search needs at least two free coordinates.")
        self.best = atoms.copy()  # the last evaluated structure
        self.points: list[Point] = []
        self.centre: Point | None = None  # the last accepted point, where the next steps begin
        self.calls = 0
        self.end = SaddleEnd.RUNNING
        self.miss = float("nan")  # eV, surrogate minus engine at the last call
        self.forecast: tuple[float, float] | None = None  # predicted energy and σ, eV
        self._predicted: Floats | None = None  # the gradient there
        self.modes: Modes | None = None  # of the surrogate at the end
        self._given = None if mode is None else np.asarray(mode[self.free], dtype=float)
        self._followed = self._given
        self._features = PairFeatures(atoms, self.free)
        if not self._features.n_pairs:
            raise NuggetError("A saddle search needs atoms with neighbours.")
        self._reach = FIRST if baseline is not None else FIRST_BARE
        self._longest = LONGEST
        self._attempts, self._begun = 1, 0  # and the calls before this attempt
        self._failures = self._probes = 0
        self._next: Floats | None = None
        self._rotating = baseline is None  # while the lowest mode of the centre is not known
        self._turned: Floats | None = None  # where it was found last
        self._stationary: tuple[Atoms, Point] | None = None  # waits for the engine's curvatures
        self._checked: list[Floats] = []  # directions of these curvatures

    @property
    def done(self) -> bool:
        return self.end is not SaddleEnd.RUNNING

    @property
    def converged(self) -> bool:
        return self.end is SaddleEnd.CONVERGED

    @property
    def mode(self) -> Floats | None:
        """The followed mode at the end, as displacements (N, 3) of unit length."""
        if self.modes is None:
            return None
        displacements = np.zeros(self.free.shape)
        displacements[self.free] = self.modes.vectors[:, 0]
        return displacements

    def propose(self) -> Atoms:
        """The structure to evaluate next, without results."""
        atoms = self.best.copy()
        atoms.calc = None
        if self.points:
            if self._next is None and self._rotating:
                self._next = self._rotation()
                self._rotating = self._next is not None
            if self._next is None:
                self._next = self._follow()
            atoms.positions[self.free] = self._next
        return atoms

    def observe(self, atoms: Atoms | None) -> None:
        """Use the engine's result for the last proposal; None if the evaluation failed."""
        self.calls += 1
        self._next = None
        if atoms is None:
            self._stationary = None
            self._failures += 1
            self._reach = max(0.5 * self._reach, 0.02)
            if not self.points or self._failures >= MAX_FAILURES:
                self.end = SaddleEnd.ENGINE_FAILED
        else:
            self._learn(atoms)
        if self._strayed:
            self._begin_again()
        if not self.done and self.calls >= self.max_calls:
            self.end = SaddleEnd.CALLS

    @property
    def _strayed(self) -> bool:
        """Whether this attempt leads nowhere."""
        if self.centre is None or self._attempts >= MAX_ATTEMPTS:
            return False
        if self.end is SaddleEnd.WRONG_MODES:
            return True
        late = not self.done and self.calls - self._begun >= PATIENCE
        return late and self._stationary is None and self.largest(self.centre.gradient) > FAR

    def _begin_again(self) -> None:
        """Return to the start with half of the steps, and with everything that was learnt."""
        self._longest = 0.5**self._attempts * FIRST
        self._attempts, self._begun = self._attempts + 1, self.calls
        self._reach, self._probes, self.end = 0.5 * self._longest, 0, SaddleEnd.RUNNING
        self.centre, self._next, self._stationary = self.points[0], None, None
        self._followed, self.forecast, self._turned = self._given, None, None
        self._rotating = self.baseline is None

    def largest(self, vector: Floats) -> float:
        """The largest norm of an atom's part of a vector in the free coordinates."""
        parts = np.zeros(self.free.shape)
        parts[self.free] = vector
        return float(np.sqrt(np.max(np.sum(parts**2, axis=1))))

    def surface(self) -> Surface:
        """The surrogate, fitted to the last results."""
        assert self.centre is not None
        number = max(self._max_labels // (1 + int(self.free.sum())), 3)
        highest, features = self.centre.energy + WINDOW, self._features
        points = [point for point in self.points if point.energy <= highest]
        if len(points) > number:
            away = [self.largest(point.x - self.centre.x) for point in points]
            points = [points[k] for k in np.sort(np.argsort(away, kind="stable")[:number])]
        if self.baseline is not None:
            try:
                return Surface(features, points, BaselineMean(self.baseline, features))
            except BaselineFailed:
                self.baseline = None  # `saddle_run` reports it
        return Surface(features, points, SpringMean(features, self.points, self.centre.x))

    def _learn(self, atoms: Atoms) -> None:
        if self._stationary is None:
            self._failures = 0
        results = atoms.calc.results
        x = np.array(atoms.positions[self.free])
        point = Point(x, float(results["energy"]), -np.asarray(results["forces"])[self.free])
        self.points.append(point)
        self.best = atoms
        if self._stationary is not None:
            self._check(*self._stationary, point)
            return
        if np.max(np.abs(self._features.positions[self.free] - x)) > 0.5 * SKIN:
            self._features = PairFeatures(atoms, self.free)
        if self.centre is None or not self._rotating:
            self._accept(point)
            if self.largest(point.gradient) <= self.fmax and not self._rotating:
                self._judge(x)

    def _accept(self, point: Point) -> None:
        """Move the centre to a new point, and adapt the trust radius to the error of its forces.

        A point with badly predicted and larger forces than before only trains the surrogate.
        """
        before = self.centre
        if self.forecast is not None and self._predicted is not None and before is not None:
            self.miss = self.forecast[0] - point.energy
            force, error = (
                self.largest(point.gradient),
                self.largest(point.gradient - self._predicted),
            )
            limit = self.largest(before.gradient)
            if error < GOOD * limit:
                self._reach = min(1.2 * self._reach, self._longest)
            elif error > max(BAD * limit, SMALL * self.fmax):
                step = self.largest(point.x - before.x)
                self._reach = max(0.5 * min(self._reach, step), SHORTEST)
                if force > limit:
                    return
        self.centre = point
        if self.baseline is None and before is not None and self._turned is not None:
            rises = self.largest(point.gradient) > max(self.largest(before.gradient), self.fmax)
            self._rotating = rises and self.largest(point.x - self._turned) > TURN

    def _judge(self, x: Floats) -> None:
        """At small forces: let the engine confirm one negative mode, or leave along a mode."""
        surface = self.surface()
        self.modes = surface.modes(x, surface.hessian(x))
        negative = self.modes.negative
        if negative == 1:
            self._stationary, self._checked = (self.best, self.points[-1]), []
            self._failures = 0
            self._displace(x, self.modes.vectors[:, 0], CONFIRM)
        else:
            # Too many negative modes: go down the second. None: climb the softest.
            self._leave(x, self.modes.vectors[:, 1 if negative else 0])

    def _leave(self, x: Floats, direction: Floats) -> None:
        """Leave a stationary point that is no saddle."""
        self._probed()
        if not self.done:
            self._displace(x, direction, PROBE)

    def _probed(self) -> None:
        """Count a stationary point that is no saddle; too many of them end the search."""
        self._probes += 1
        if self._probes > MAX_PROBES:
            self.end = SaddleEnd.WRONG_MODES

    def _displace(self, x: Floats, direction: Floats, length: float) -> None:
        """Propose a copy in which the atom that moves most is displaced by `length`."""
        self._next = x + length / self.largest(direction) * direction
        self.forecast = None

    def _check(self, atoms: Atoms, stationary: Point, probe: Point) -> None:
        """Use the engine's curvature along a mode of the stationary point.

        The first mode must be negative. Without a baseline the next one, which the surrogate may
        not know, must not be.
        """
        step = probe.x - stationary.x
        slopes = 0.5 * (probe.gradient + stationary.gradient) @ step
        if abs(probe.energy - stationary.energy - slopes) > JUMP:
            self._try_otherwise(stationary, probe)
            return
        curvature = float((probe.gradient - stationary.gradient) @ step / (step @ step))
        lowest = not self._checked
        self._checked.append(step / np.linalg.norm(step))
        if lowest == (curvature >= -NEGATIVE):
            self._stationary, self.centre = None, probe
            self._probed()
            if not (lowest or self.done):
                self._displace(stationary.x, step, PROBE)
            return
        if self.baseline is None and len(self._checked) < MAX_CHECKS:
            surface = self.surface()
            self.modes = surface.modes(stationary.x, surface.hessian(stationary.x))
            second = self.modes.vectors[:, 1]
            if not _within(second, self._checked):
                self._displace(stationary.x, second, CONFIRM)
                return
        self.best, self.end = atoms, SaddleEnd.CONVERGED

    def _try_otherwise(self, stationary: Point, probe: Point) -> None:
        """The engine reached another electronic state: displace to the other side, then less."""
        self.points.pop()
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            self.end = SaddleEnd.ENGINE_FAILED
            return
        factor = -1.0 if self._failures % 2 else -0.5
        self._next, self.forecast = stationary.x + factor * (probe.x - stationary.x), None

    def _rotation(self) -> Floats | None:
        """The next displaced copy of the centre; None if its lowest mode is known.

        The first one is displaced along the gradient and shows how stiff the structure is.
        """
        assert self.centre is not None
        here = self.centre
        steps = [point.x - here.x for point in self.points]
        seen = [step for step in steps if 0 < self.largest(step) < CLOSE]
        if len(self.points) == 1 and self.largest(here.gradient) > self.fmax:
            self._displace(here.x, -here.gradient, CONFIRM)
            return self._next
        surface = self.surface()
        modes = surface.modes(here.x, surface.hessian(here.x))
        mode = modes.vectors[:, self._choose(modes)]
        if len(seen) >= MAX_ROTATIONS or _within(mode, seen):
            self._turned = here.x
            return None
        self._displace(here.x, mode if mode @ here.gradient > 0 else -mode, CONFIRM)
        return self._next

    def _follow(self) -> Floats:
        """Steps on the surrogate from the centre, until its forces vanish or the trust ends."""
        assert self.centre is not None
        start, surface = self.centre.x, self.surface()

        def outside(x: Floats) -> bool:
            return self.largest(x - start) > self._reach

        end = climb(surface, start, self._choose, self.largest, TIGHT * self.fmax, outside)
        x, energy = end.x, end.energy
        if x is start:  # the surrogate has no smaller forces to offer, so test the softest mode
            modes = surface.modes(x, end.hessian)
            x = x + 0.01 / self.largest(modes.vectors[:, 0]) * modes.vectors[:, 0]
            energy = surface(x)[0]
        self.forecast, self._predicted = (energy, surface.std(x)), surface(x)[1]
        return x

    def _choose(self, modes: Modes) -> int:
        """The mode to follow: the lowest, or the one most similar to the one before."""
        if self._followed is None:
            return 0
        number = int(np.argmax(np.abs(modes.vectors.T @ self._followed)))
        self._followed = modes.vectors[:, number]
        return number


def _within(direction: Floats, others: list[Floats]) -> bool:
    """Whether a unit vector lies nearly in the space that other directions span."""
    if not others:
        return False
    basis = np.linalg.qr(np.array(others).T)[0]
    return bool(np.linalg.norm(basis.T @ direction) > ALIKE)


Evaluate = Callable[[Atoms], Atoms | None]


def run_search(
    search: SaddleSearch, evaluate: Evaluate, watch: Callable[[SaddleSearch], None] | None = None
) -> SaddleSearch:
    """Run a search to its end; `evaluate` returns None after a failure."""
    while not search.done:
        search.observe(evaluate(search.propose()))
        if watch is not None:
            watch(search)
    return search
