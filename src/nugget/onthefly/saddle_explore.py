"""The lowest ways out of a minimum: saddle points around it, products and rates.

A potential (SOAP) learns every engine call. In each round, structures displaced from the minimum
along its soft modes and in random directions climb on this potential; the lowest saddle that is not
known yet is then searched with the engine. The potential is the mean function of that search, so
that few calls remain. Both sides of a new saddle are relaxed on the potential; one of them must be
the minimum, and the other is relaxed with the engine. The exploration ends when several rounds
found nothing lower than the ways that were asked for.

Rates are those of harmonic transition-state theory with Vineyard's prefactor,

    k = (Π ν_i / Π' ν_i') exp(−ΔE/k_B T),

where the frequencies ν at the minimum and ν' at the saddle are those of the potential.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ase import Atoms
from ase.geometry import find_mic
from ase.units import _amu, _e, kB

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.onthefly.learning_calculator import Label
from nugget.onthefly.online_model import OnlineModel
from nugget.onthefly.run_settings import SaddleConfig
from nugget.onthefly.saddle_search import SaddleSearch, run_search
from nugget.onthefly.saddle_surface import Modes, PotentialSurface, climb
from nugget.potential.potential import Potential
from nugget.relax.engine_relaxation import LearningRelaxation
from nugget.relax.lockstep import movable
from nugget.relax.relaxation import relax
from nugget.structures.geometry import largest_force
from nugget.structures.identity import DistanceFingerprint

STARTS = 12  # displaced structures that climb on the potential in a round
PATIENCE = 3  # rounds without a new low saddle after which an exploration ends
FIRST_COPIES, RATTLE = 6, 0.08  # copies of the minimum for the first potential; their σ in Å
SOFT, LOCAL = 0.6, (0.5, 1.2)  # Å: displacement along a mode, and of one atom at random
NEAR = 3.5  # Å: neighbours of an atom
JITTER = 0.05  # Å: σ of the displacement of all other atoms
UNSURE = 0.4  # eV: σ at which a climb on the potential ends
AROUND = 3.0  # Å: a climb that displaces an atom further has left the minimum
SAME_ENERGY, SAME_DISTANCE = 5e-3, 0.15  # eV, Å: of one saddle found twice
RETURNED = 0.3  # Å: a side this close to the minimum is the minimum
SIDE = 0.2  # Å: displacement along the mode before a side is relaxed
MAX_CALLS, MAX_LABELS = 25, 500  # of one search
_TO_HZ = np.sqrt(_e / _amu) * 1e10 / (2 * np.pi)  # √(eV/Å²/amu) to 1/s
Watch = Callable[[str], None]


@dataclass(eq=False)
class WayOut:
    """A saddle next to the minimum and the minimum behind it; energies in eV."""

    saddle: Atoms
    mode: Floats  # (N, 3)
    product: Atoms
    barrier: float
    back: float  # from the product to the saddle
    error: float  # of the barrier
    prefactor: float = float("nan")  # 1/s
    rate: float = float("nan")  # 1/s
    count: int = 1  # how often it was found, with its symmetric copies

    def rate_limits(self, temperature: float) -> tuple[float, float]:
        """The rate with the barrier one error higher and lower, 1/s."""
        factor = float(np.exp(self.error / (kB * temperature)))
        return self.rate / factor, self.rate * factor


@dataclass(eq=False)
class Exploration:
    """The ways out of a minimum, lowest first."""

    minimum: Atoms
    temperature: float
    ways: list[WayOut] = field(default_factory=list)
    calls: int = 0
    searches: int = 0
    complete: bool = False  # whether several rounds found nothing lower


def explore(
    start: Atoms, engine: Label, config: SaddleConfig, watch: Watch | None = None
) -> Exploration:
    """The `config.explore` lowest ways out of the minimum near a structure."""
    return _Exploring(start, engine, config, watch or (lambda text: None)).run()


class _Exploring:
    """The loop, step by step."""

    def __init__(self, start: Atoms, engine: Label, config: SaddleConfig, tell: Watch) -> None:
        self.engine, self.config, self.tell = engine, config, tell
        self.rng = np.random.default_rng(config.seed)
        self.model = OnlineModel(None)
        self.calls = 0
        result = LearningRelaxation(start, config.fmax).run(self.call)
        if not result.converged:
            raise NuggetError(f"The minimum could not be relaxed: {result.reason}.")
        self.found = Exploration(result.atoms, config.temperature)
        self.energy = result.energy
        self.free = movable(result.atoms)
        tell(f"minimum: {result.energy:.4f} eV, {self.calls} calls")
        self._tried: list[tuple[float, DistanceFingerprint]] = []
        while self.model.potential is None or len(self.model.images) < FIRST_COPIES:
            if self.calls > 4 * FIRST_COPIES + result.evaluations:
                raise NuggetError("The engine failed on displaced copies of the minimum.")
            copy = self._bare(result.atoms)
            copy.positions[self.free] += self.rng.normal(0.0, RATTLE, int(self.free.sum()))
            self.call(copy)

    @staticmethod
    def _bare(atoms: Atoms) -> Atoms:
        copy = atoms.copy()
        copy.calc = None
        return copy

    @property
    def potential(self) -> Potential:
        assert self.model.potential is not None
        return self.model.potential

    def call(self, atoms: Atoms) -> Atoms | None:
        """Call the engine and update the model."""
        labelled = self.engine(self._bare(atoms))
        self.calls += 1
        if labelled is not None:
            self.model.learn(labelled)
        return labelled

    def run(self) -> Exploration:
        fruitless = 0
        while self.calls < self.config.max_calls:
            if len(self.found.ways) >= self.config.explore and fruitless >= PATIENCE:
                self.found.complete = True
                break
            if fruitless >= 3 * PATIENCE:  # fewer ways out than asked for
                self.found.complete = True
                break
            candidate = self._candidate()
            new = candidate is not None and self._search(*candidate)
            fruitless = 0 if new else fruitless + 1
        self.found.calls = self.calls
        self._rates()
        self.found.ways.sort(key=lambda way: way.barrier)
        return self.found

    def _candidate(self) -> tuple[Atoms, Floats] | None:
        """The lowest unknown saddle of the potential, from displaced starts, and its mode."""
        minimum, potential = self.found.minimum, self.potential.copy()
        surface = PotentialSurface(minimum, potential)
        x = minimum.positions[self.free]
        soft = surface.modes(x, surface.hessian(x))
        candidates = []
        for number in range(STARTS):
            start = self._soft(x, soft) if number % 2 else self._local()
            reached = self._climb(surface, x, start)
            if reached is not None:
                candidates.append(reached)
        for _, atoms, mode in sorted(candidates, key=lambda one: one[0]):
            if self._is_worthwhile(atoms, potential):
                return atoms, mode
        return None

    def _climb(
        self, surface: PotentialSurface, minimum: Floats, start: Floats
    ) -> tuple[float, Atoms, Floats] | None:
        """Optimistic energy, structure and mode at the end of a climb; None if it leaves."""
        followed = (start - minimum) / np.linalg.norm(start - minimum)

        def choose(modes: Modes) -> int:
            # The direction of the displacement decides until a mode is negative.
            if modes.values[0] < 0:
                return 0
            return int(np.argmax(np.abs(modes.vectors.T @ followed)))

        def outside(x: Floats) -> bool:
            return bool(np.max(np.abs(x - minimum)) > AROUND or surface.std(x) > UNSURE)

        end = climb(surface, start, choose, self._largest, 0.5 * self.config.fmax, outside)
        modes = surface.modes(end.x, end.hessian)
        away = self._largest(end.x - minimum)
        if not np.isfinite(end.energy) or away > AROUND or away < RETURNED:
            return None
        displacements = np.zeros(self.free.shape)
        displacements[self.free] = modes.vectors[:, 0]
        return end.energy - surface.std(end.x), surface.placed(end.x), displacements

    def _largest(self, vector: Floats) -> float:
        parts = np.zeros(self.free.shape)
        parts[self.free] = vector
        return float(np.sqrt(np.max(np.sum(parts**2, axis=1))))

    def _soft(self, x: Floats, modes: Modes) -> Floats:
        """Displaced along a soft mode; softer ones are more frequent."""
        stiffness = np.maximum(modes.values, 0.05)
        number = int(self.rng.choice(len(stiffness), p=stiffness**-1 / np.sum(stiffness**-1)))
        direction = modes.vectors[:, number] * self.rng.choice([-1.0, 1.0])
        return x + SOFT / self._largest(direction) * direction

    def _local(self) -> Floats:
        """An atom with few neighbours displaced far, and all others a little."""
        atoms = self.found.minimum
        movers = np.flatnonzero(self.free.any(axis=1))
        distances = atoms.get_all_distances(mic=bool(atoms.pbc.any()))
        neighbours = (distances[movers] < NEAR).sum(axis=1)
        weights = np.exp(-(neighbours - neighbours.min()) / 2.0)
        centre = int(self.rng.choice(movers, p=weights / weights.sum()))
        shift = self.rng.normal(0.0, JITTER, atoms.positions.shape)
        direction = self.rng.normal(size=3)
        shift[centre] = self.rng.uniform(*LOCAL) / np.linalg.norm(direction) * direction
        return np.asarray((atoms.positions + shift)[self.free])

    def _is_worthwhile(self, atoms: Atoms, potential: Potential) -> bool:
        """Whether no search began at this structure, and it may be one of the lowest ways."""
        predicted = potential.predict(atoms, forces=False)
        assert predicted.energy_uncertainty is not None
        energy, std = float(predicted.energy[0]), float(predicted.energy_uncertainty[0])
        if len(self.found.ways) >= self.config.explore:
            highest = sorted(way.barrier for way in self.found.ways)[self.config.explore - 1]
            if energy - std - self.energy > highest:
                return False
        mark = DistanceFingerprint.of(atoms)
        return not any(
            abs(energy - other) < SAME_ENERGY + std and mark.difference(past) < SAME_DISTANCE
            for other, past in self._tried
        )

    def _search(self, atoms: Atoms, mode: Floats) -> bool:
        """Search a saddle with the engine; whether a new way out was found."""
        self.found.searches += 1
        frozen = self.potential.copy()

        def baseline(positions: Floats) -> tuple[float, Floats]:
            moved = atoms.copy()
            moved.positions = positions
            predicted = frozen.predict(moved, uncertainty=False)
            assert predicted.forces is not None
            return float(predicted.energy[0]), -predicted.forces[0]

        most = min(MAX_CALLS, max(self.config.max_calls - self.calls, 2))
        search = SaddleSearch(atoms, self.config.fmax, most, baseline, mode, MAX_LABELS)
        run_search(search, self.call)
        predicted = float(frozen.predict(atoms, forces=False).energy[0])
        self._tried.append((predicted, DistanceFingerprint.of(atoms)))
        if not search.converged or search.mode is None:
            self.tell(f"search {self.found.searches}: {search.end.value}, {search.calls} calls")
            return False
        energy = float(search.best.get_potential_energy())
        mark = DistanceFingerprint.of(search.best)
        self._tried.append((energy, mark))
        text = f"search {self.found.searches}: {energy - self.energy:.4f} eV, {search.calls} calls"
        for way in self.found.ways:
            same = abs(way.barrier + self.energy - energy) < SAME_ENERGY
            if same and DistanceFingerprint.of(way.saddle).difference(mark) < SAME_DISTANCE:
                way.count += 1
                self.tell(f"{text}, found before")
                return False
        product = self._other_side(search.best, search.mode)
        if product is None:
            self.tell(f"{text}, not connected with the minimum")
            return False
        self.tell(f"{text}, new")
        miss = 0.0 if np.isnan(search.miss) else abs(search.miss)
        error = max(miss, 0.1 * largest_force(search.best))
        back = energy - float(product.get_potential_energy())
        self.found.ways.append(
            WayOut(search.best, search.mode, product, energy - self.energy, back, error)
        )
        lowest = sorted(way.barrier for way in self.found.ways)[: self.config.explore]
        return energy - self.energy <= lowest[-1]

    def _other_side(self, saddle: Atoms, mode: Floats) -> Atoms | None:
        """The minimum behind the saddle; None if neither side is the explored minimum."""
        step = SIDE / np.max(np.linalg.norm(mode, axis=1)) * mode
        sides = []
        for sign in (-1.0, 1.0):
            moved = self._bare(saddle)
            moved.positions += sign * step
            sides.append(moved)
        relaxed = [one.atoms for one in relax(sides, self.potential.lcb(0.0), fmax=0.02)]
        returned = [self._distance(one) < RETURNED for one in relaxed]
        if sum(returned) != 1:
            return None
        other = relaxed[returned.index(False)]
        result = LearningRelaxation(self._bare(other), self.config.connect_fmax).run(self.call)
        return result.atoms if result.converged else None

    def _distance(self, atoms: Atoms) -> float:
        """Largest displacement of an atom from the minimum, Å."""
        minimum = self.found.minimum
        shift = atoms.positions - minimum.positions
        if self.free.all():
            shift = shift - shift.mean(axis=0)
        return float(find_mic(shift, minimum.cell, minimum.pbc)[1].max())

    def _rates(self) -> None:
        """Prefactors and rates from the frequencies of the potential."""
        if not self.found.ways:
            return
        minimum = PotentialSurface(self.found.minimum, self.potential)
        low = minimum.squared_frequencies(self.found.minimum.positions[self.free])
        for way in self.found.ways:
            surface = PotentialSurface(way.saddle, self.potential)
            high = surface.squared_frequencies(way.saddle.positions[self.free])
            way.prefactor = vineyard(low, high)
            way.rate = way.prefactor * float(np.exp(-way.barrier / (kB * self.found.temperature)))


def vineyard(minimum: Floats, saddle: Floats) -> float:
    """Vineyard's prefactor (1/s) from squared frequencies in eV/Å²/amu; NaN if they do not fit.

    All modes of the minimum and all but the lowest of the saddle must be positive.
    """
    if minimum[0] <= 0 or saddle[1] <= 0:
        return float("nan")
    logarithm = 0.5 * (np.sum(np.log(minimum)) - np.sum(np.log(saddle[1:])))
    return float(_TO_HZ * np.exp(logarithm))


def table_of(found: Exploration) -> list[dict[str, Any]]:
    """The ways out as plain data, lowest first."""
    rows = []
    for way in found.ways:
        low, high = way.rate_limits(found.temperature)
        rows.append({
            "barrier": way.barrier, "error": way.error, "barrier_back": way.back,
            "reaction_energy": way.barrier - way.back, "prefactor": way.prefactor,
            "rate": way.rate, "rate_low": low, "rate_high": high, "count": way.count,
        })  # fmt: skip
    return rows
