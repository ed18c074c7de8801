"""A climbing-image NEB that learns: relax on the surrogate, call the engine, and again.

Calls go to the image with the largest σ of a force; where σ is small along the whole path, to the
highest image. The path is found when the engine's own forces there are small. All calls are
written down first: a run that was killed repeats none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget._compiled.arrays import Floats
from nugget._compiled.threads import one_blas_thread
from nugget.errors import NuggetError
from nugget.onthefly.band import Band, evaluated, interpolated, relaxed
from nugget.onthefly.calculator import free_components
from nugget.onthefly.config import NEBConfig
from nugget.onthefly.directory import create, finish, read_run
from nugget.onthefly.model import FIRST, OnlineModel
from nugget.onthefly.record import RecordedEngine
from nugget.onthefly.vibrations import imaginary_modes
from nugget.relax.learning import LearningRelaxation
from nugget.structures.files import locked
from nugget.structures.io import write_images
from nugget.structures.sealed import write_sealed

MODEL, PATH, RESULT = "learned.model", "path.extxyz", "result.json"
# Where the engine is called before there is a model: shares of the path.
_LOOKS = (0.5, 0.25, 0.75, 0.125, 0.875, 0.375, 0.625)

_DOWNHILL = "has no barrier: it lies below its higher end everywhere; is that end a minimum?"

Watch = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Saddle:
    """The engine at the highest image, beside what the model had said."""

    image: int
    atoms: Atoms  # with the engine's results
    fmax: float  # eV/Å
    miss: float  # model minus engine, before the model learned it, eV


@dataclass(frozen=True, eq=False)
class NEBResult:
    """A path and its barrier; energies in eV."""

    band: Band
    start: Atoms
    end: Atoms
    saddle: Saddle | None
    calls: int
    end_calls: int  # of these, for relaxing the ends
    converged: bool
    reason: str
    imaginary: int | None = None  # modes of the model that fall at the saddle

    @property
    def barrier(self) -> float:
        """From the start to the saddle, both as the engine has them."""
        if self.saddle is None:
            return float("nan")
        return float(self.saddle.atoms.get_potential_energy() - self.start.get_potential_energy())

    @property
    def image(self) -> int | None:
        """The image of the path that is the saddle."""
        return None if self.saddle is None else self.saddle.image

    @property
    def reaction_energy(self) -> float:
        return float(self.end.get_potential_energy() - self.start.get_potential_energy())

    @property
    def error(self) -> float:
        """Of the barrier: how wrong the model was at the saddle, or how far its forces reach.

        A force f left over on a path that is known to about 0.1 Å is worth f·0.1 Å.
        """
        if self.saddle is None:
            return float("nan")
        return max(abs(self.saddle.miss), 0.1 * self.saddle.fmax)


class NEBRun:
    """One path; `create` or `resume` it, then `run`."""

    def __init__(self, directory: Path, config: NEBConfig, start: Atoms, end: Atoms) -> None:
        self.directory, self.config, self.start, self.end = directory, config, start, end

    @classmethod
    def create(cls, start: Atoms, end: Atoms, config: NEBConfig, directory: Path) -> NEBRun:
        """A new run in a new directory."""
        interpolated(start, end, 3)  # refuses what does not fit
        create(directory, "neb", config, start, end)
        return cls(directory, config, start, end)

    @classmethod
    def resume(cls, directory: Path) -> NEBRun:
        """A run that was stopped or killed."""
        settings, (start, end) = read_run(directory, "neb")
        return cls(directory, NEBConfig.model_validate(settings), start, end)

    @one_blas_thread()
    def run(self, watch: Watch | None = None) -> NEBResult:
        """Find the path; files are in the directory."""
        with locked(self.directory), RecordedEngine(self.config.engine, self.directory) as engine:
            result, model = find_path(self.start, self.end, engine, self.config, watch)
            finish(self.directory, MODEL, model)
            write_images(self.directory / PATH, path_images(result.band))
            write_sealed(self.directory / RESULT, {"image": result.image, **report_of(result)})
        return result


def find_path(
    start: Atoms,
    end: Atoms,
    engine: RecordedEngine | Callable[[Atoms], Atoms | None],
    config: NEBConfig,
    watch: Watch | None = None,
) -> tuple[NEBResult, OnlineModel]:
    """The path between two structures, and the model that was learned on the way."""
    tell = watch or (lambda text: None)
    search = _PathSearch(engine, config, tell)
    ends = [search.end_point(atoms, name) for atoms, name in ((start, "start"), (end, "end"))]
    return search.run(*ends), search.model


class _PathSearch:
    """The loop, step by step."""

    def __init__(
        self, engine: Callable[[Atoms], Atoms | None], config: NEBConfig, tell: Watch
    ) -> None:
        self.engine, self.config, self.tell = engine, config, tell
        self.model = OnlineModel(None, config.max_force_error, config.preset, growth=1.0)
        self.calls = self.failed = 0

    def call(self, atoms: Atoms) -> Atoms | None:
        """Call the engine and learn."""
        bare = atoms.copy()
        bare.calc = None
        found = self.engine(bare)
        self.calls += 1
        if found is not None:
            self.model.learn(found)
        return found

    def end_point(self, atoms: Atoms, name: str) -> Atoms:
        """An end of the path, relaxed with the engine unless it is already."""
        most = 200 if self.config.relax_ends else 1
        run = LearningRelaxation(atoms, self.config.fmax, most)
        while not run.done:
            run.observe(self.call(run.propose()))
        result = run.result()
        if not run.points or (self.config.relax_ends and not result.converged):
            raise NuggetError(f"The {name} could not be relaxed: {result.reason}.")
        self.tell(f"{name}: {result.energy:.4f} eV, {result.evaluations} calls")
        return result.atoms

    def run(self, start: Atoms, end: Atoms) -> NEBResult:
        config, end_calls = self.config, self.calls
        path = interpolated(start, end, config.images)
        for share in _LOOKS:
            if len(self.model.images) >= FIRST and share != _LOOKS[0]:
                break
            self.call(path[round(share * (config.images - 1))])
        if self.model.potential is None:
            raise NuggetError("The engine failed on too many structures of the first path.")
        saddle: Saddle | None = None
        reason, highest = "all calls used", max(a.get_potential_energy() for a in (start, end))
        while self.calls < config.max_calls:
            potential = self.model.potential
            path = relaxed(path, potential, config.fmax, config.max_force_error)
            band = evaluated(path, potential, config.max_force_error)
            image = self._next(band)
            found = self.call(path[image])
            if found is None:
                self.failed += 1
                if self.failed > config.engine.max_failures:
                    reason = "the engine failed too often"
                    break
                path = interpolated(start, end, config.images)
                continue
            force = largest_force(found)
            miss = float(band.energy[image]) - found.get_potential_energy()
            self.tell(
                f"call {self.calls}: image {image}, σ {band.std[image]:.3f} eV/Å, "
                f"missed by {1e3 * miss:+.0f} meV, engine's force {force:.3f} eV/Å"
            )
            if image == band.top:
                saddle = Saddle(image, found, force, miss)
                if band.std.max() <= config.max_force_error:
                    if force <= config.fmax:
                        reason = "converged"
                        break
                    if found.get_potential_energy() < highest:
                        reason = _DOWNHILL
                        break
        potential = self.model.potential
        band = evaluated(path, potential, config.max_force_error)
        modes = imaginary_modes(saddle.atoms, potential) if config.vibrations and saddle else None
        converged = reason == "converged"
        return NEBResult(band, start, end, saddle, self.calls, end_calls, converged, reason, modes)

    def _next(self, band: Band) -> int:
        """The image to call: the least certain one, or the highest where all are certain."""
        inner = band.std[1:-1]
        if inner.max() > self.config.max_force_error:
            return 1 + int(np.argmax(inner))
        return band.top


def largest_force(atoms: Atoms) -> float:
    """The largest force of the engine on an atom, fixed components left out, eV/Å."""
    forces: Floats = np.where(free_components(atoms), atoms.calc.results["forces"], 0.0)
    return float(np.sqrt(np.max(np.sum(forces**2, axis=1))))


def path_images(band: Band) -> list[Atoms]:
    """The path with the model's energies, forces and uncertainties."""
    images = []
    for k, atoms in enumerate(band.images):
        copy = atoms.copy()
        results = {"energy": float(band.energy[k]), "forces": band.forces[k]}
        copy.calc = SinglePointCalculator(copy, **results)
        copy.info["energy_uncertainty"] = float(band.energy_std[k])
        copy.arrays["forces_uncertainty"] = band.forces_std[k]
        images.append(copy)
    return images


def report_of(result: NEBResult) -> dict[str, Any]:
    """The path as plain data."""
    return {
        "barrier": result.barrier,
        "error": result.error,
        "barrier_back": result.barrier - result.reaction_energy,
        "reaction_energy": result.reaction_energy,
        "saddle_fmax": float("nan") if result.saddle is None else result.saddle.fmax,
        "calls": result.calls,
        "end_calls": result.end_calls,
        "converged": result.converged,
        "reason": result.reason,
        "imaginary_modes": result.imaginary,
    }
