"""A saddle search in its run directory: baseline, checks of the saddle, the minima on both sides.

All engine calls are recorded before they are used, so that a resumed run repeats none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from nugget.engines.engine import Electrons, get_engine
from nugget.engines.engine_settings import EngineConfig
from nugget.engines.execution import one_thread
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.onthefly.learning_calculator import Label
from nugget.onthefly.run_directory import LABELLED, DirectoryRun, RecordedEngine
from nugget.onthefly.run_settings import SaddleConfig
from nugget.onthefly.saddle_explore import Exploration, explore, table_of
from nugget.onthefly.saddle_search import SaddleEnd, SaddleSearch, run_search
from nugget.onthefly.saddle_surface import NEGATIVE, Baseline, internal_space, modes_of
from nugget.potential.mean_functions.foundation import engine_mean
from nugget.relax.engine_relaxation import LearningRelaxation
from nugget.relax.local_surrogate import PairFeatures
from nugget.relax.lockstep import movable
from nugget.storage.files import write_sealed
from nugget.structures.batch import as_batch
from nugget.structures.geometry import largest_force
from nugget.structures.io import write_images

SADDLE, WAYS, RESULT = "saddle.extxyz", "ways.extxyz", "result.json"
MOLECULES = "gfn2-xtb"  # the baseline of molecules
_STEP = 0.01  # Å, of finite differences with the engine
_SIDE = 0.15  # Å: displacement along the mode before a relaxation
Watch = Callable[[str], None]


def baseline_name(config: SaddleConfig, atoms: Atoms) -> str | None:
    """The engine of the mean function; None for none."""
    if config.baseline != "auto":
        return None if config.baseline == "none" else config.baseline
    engine = get_engine(config.engine.name)
    molecule = not atoms.pbc.any() and not any(_is_metal(int(z)) for z in atoms.numbers)
    return MOLECULES if molecule and not engine.cheap and engine.name != "emt" else None


def _is_metal(number: int) -> bool:
    """Whether an element belongs to the d or f block, or is heavier than radon."""
    blocks = (range(21, 31), range(39, 49), range(57, 81))
    return number > 86 or any(number in block for block in blocks)


class CalculatorBaseline:
    """Energy and gradient of an engine in this process, without state between structures."""

    def __init__(self, name: str, engine: EngineConfig, atoms: Atoms) -> None:
        cheap = get_engine(name)
        electrons = Electrons(engine.charge, engine.spin)
        self._atoms = atoms.copy()
        self._mean = engine_mean(name, tuple(cheap.full_options({}, electrons).items()))

    def __call__(self, positions: Floats) -> tuple[float, Floats]:
        self._atoms.positions = positions
        with one_thread():
            values = self._mean.evaluate(as_batch(self._atoms))
        assert values.gradient is not None
        return float(values.energies.sum()), values.gradient


@dataclass(frozen=True, eq=False)
class SaddleResult:
    """A saddle point and what was found around it; energies in eV."""

    start: Atoms
    search: SaddleSearch
    calls: int  # of all parts
    engine_modes: Floats | None = None  # lowest eigenvalues of the engine's Hessian, eV/Å²
    sides: tuple[Atoms, ...] = ()  # the minima on both sides

    @property
    def converged(self) -> bool:
        return self.search.converged and (
            self.engine_modes is None or int(np.sum(self.engine_modes < -NEGATIVE)) == 1
        )

    @property
    def atoms(self) -> Atoms:
        """The last evaluated structure of the search."""
        return self.search.best

    @property
    def energy(self) -> float:
        return float(self.atoms.get_potential_energy())

    @property
    def barriers(self) -> tuple[float, ...]:
        """From the minimum on each side to the saddle."""
        return tuple(self.energy - float(side.get_potential_energy()) for side in self.sides)

    @property
    def error(self) -> float:
        """Error of the energy: that of the model at the last call, at least 0.1 Å times fmax."""
        miss = 0.0 if np.isnan(self.search.miss) else abs(self.search.miss)
        return max(miss, 0.1 * largest_force(self.atoms))


def find_saddle(
    start: Atoms,
    engine: Label,
    config: SaddleConfig,
    mode: Floats | None = None,
    watch: Watch | None = None,
) -> SaddleResult:
    """The saddle point near a structure, with the checks that the settings ask for."""
    tell = watch or (lambda text: None)
    name = baseline_name(config, start)
    baseline: Baseline | None = None
    if name is not None:
        baseline = CalculatorBaseline(name, config.engine, start)
        tell(f"baseline: {name}")
    calls = 0

    def call(atoms: Atoms) -> Atoms | None:
        nonlocal calls
        calls += 1
        return engine(atoms)

    search = SaddleSearch(start, config.fmax, config.max_calls, baseline, mode)
    run_search(search, call, lambda one: tell(_line(one)))
    if not search.points:
        raise NuggetError("The engine failed on the start; see the log of its calls.")
    modes: Floats | None = None
    sides: tuple[Atoms, ...] = ()
    if baseline is not None and search.baseline is None:
        tell(f"{name} failed on an evaluated structure; the search continued without it")
    if search.converged and config.check_modes:
        modes = engine_modes(search.best, call)
        tell(f"modes of the engine: {np.round(modes[:3], 2)} eV/Å²")
    if search.converged and config.connect:
        sides = _sides(search, call, config.connect_fmax, tell)
    return SaddleResult(start, search, calls, modes, sides)


def _line(search: SaddleSearch) -> str:
    if not search.points:
        return f"call {search.calls}: failed"
    point = search.points[-1]
    text = f"call {search.calls}: {point.energy:.4f} eV, force {search.largest(point.gradient):.3f}"
    if not np.isnan(search.miss):
        text += f" eV/Å, error {1e3 * search.miss:+.0f} meV"
    return text


def engine_modes(atoms: Atoms, engine: Label) -> Floats:
    """Eigenvalues of the engine's Hessian from central differences, without rigid motions."""
    free = movable(atoms)
    places = np.argwhere(free)
    matrix = np.empty((len(places), len(places)))
    for k, (atom, axis) in enumerate(places):
        forces = []
        for sign in (1.0, -1.0):
            moved = atoms.copy()
            moved.calc = None
            moved.positions[atom, axis] += sign * _STEP
            labelled = engine(moved)
            if labelled is None:
                raise NuggetError("The engine failed on a displaced copy of the saddle point.")
            forces.append(np.asarray(labelled.calc.results["forces"])[free])
        matrix[k] = (forces[1] - forces[0]) / (2 * _STEP)
    space = internal_space(PairFeatures(atoms, free), atoms.positions[free])
    return modes_of(0.5 * (matrix + matrix.T), space).values


def _sides(search: SaddleSearch, engine: Label, fmax: float, tell: Watch) -> tuple[Atoms, ...]:
    """The minima that are reached from the saddle along its mode, in both directions."""
    mode = search.mode
    assert mode is not None
    step = _SIDE * mode / np.sqrt(np.max(np.sum(mode**2, axis=1)))
    minima = []
    for sign in (-1.0, 1.0):
        moved = search.best.copy()
        moved.calc = None
        moved.positions += sign * step
        result = LearningRelaxation(moved, fmax).run(engine)
        if not result.converged:
            raise NuggetError(f"A side of the saddle could not be relaxed: {result.reason}.")
        tell(f"minimum: {result.energy:.4f} eV, {result.evaluations} calls")
        minima.append(result.atoms)
    return tuple(minima)


class SaddleRun(DirectoryRun[SaddleConfig]):
    """The search for one saddle point; a given mode is a second, displaced structure."""

    kind, settings = "saddle", SaddleConfig

    @classmethod
    def create(
        cls, start: Atoms, config: SaddleConfig, directory: Path, mode: Floats | None = None
    ) -> SaddleRun:
        """A new run in a new directory."""
        structures = [start]
        if mode is not None:
            if mode.shape != start.positions.shape or not np.any(mode):
                raise NuggetError("The mode must have one displacement per atom, not all zero.")
            moved = start.copy()
            moved.positions += mode
            structures.append(moved)
        return cls.begin(directory, config, *structures)

    def explore(self, watch: Watch | None = None) -> Exploration:
        """Find the lowest ways out of a minimum; files are in the directory."""
        with self.alone(), RecordedEngine(self.config.engine, self.directory) as engine:
            found = explore(self.structures[0], engine, self.config, watch)
            write_images(self.directory / LABELLED, engine.good)
            write_images(self.directory / WAYS, way_images(found))
            write_sealed(self.directory / RESULT, report_of_ways(found))
        return found

    def run(self, watch: Watch | None = None) -> SaddleResult:
        """Find the saddle; files are in the directory."""
        start, *moved = self.structures
        mode = moved[0].positions - start.positions if moved else None
        with self.alone(), RecordedEngine(self.config.engine, self.directory) as engine:
            result = find_saddle(start, engine, self.config, mode, watch)
            write_images(self.directory / LABELLED, engine.good)
            write_images(self.directory / SADDLE, saddle_images(result))
            write_sealed(self.directory / RESULT, report_of(result))
        return result


def saddle_images(result: SaddleResult) -> list[Atoms]:
    """The saddle point with its mode, between the minima on both sides if they are known."""
    saddle = result.atoms.copy()
    saddle.calc = result.atoms.calc
    saddle.info |= {"converged": result.converged, "energy_uncertainty": result.error}
    if result.search.mode is not None:
        saddle.arrays["mode"] = result.search.mode
    return [*result.sides[:1], saddle, *result.sides[1:]]


def report_of(result: SaddleResult) -> dict[str, Any]:
    """The saddle as plain data."""
    search = result.search
    modes = None if search.modes is None else search.modes.values[:3].tolist()
    engine = None if result.engine_modes is None else result.engine_modes[:3].tolist()
    first = search.points[0].energy
    return {
        "energy": result.energy,
        "error": result.error,
        "above_start": result.energy - first,
        "fmax": largest_force(result.atoms),
        "search_calls": search.calls,
        "calls": result.calls,
        "converged": result.converged,
        "reason": (search.end if result.converged or not search.converged
                   else SaddleEnd.WRONG_MODES).value,
        "model_modes": modes,
        "engine_modes": engine,
        "minima": [float(side.get_potential_energy()) for side in result.sides],
        "barriers": list(result.barriers),
    }  # fmt: skip


def way_images(found: Exploration) -> list[Atoms]:
    """The minimum, then the saddle with its mode and the product of every way out."""
    images = [found.minimum]
    for number, way in enumerate(found.ways, start=1):
        saddle, product = way.saddle.copy(), way.product.copy()
        saddle.calc, product.calc = way.saddle.calc, way.product.calc
        saddle.arrays["mode"] = way.mode
        saddle.info |= {"way": number, "role": "saddle", "energy_uncertainty": way.error}
        product.info |= {"way": number, "role": "product"}
        images += [saddle, product]
    return images


def report_of_ways(found: Exploration) -> dict[str, Any]:
    """An exploration as plain data."""
    return {
        "minimum": float(found.minimum.get_potential_energy()),
        "temperature": found.temperature,
        "ways": table_of(found),
        "calls": found.calls,
        "searches": found.searches,
        "complete": found.complete,
    }
