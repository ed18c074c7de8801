"""A climbing-image nudged elastic band (NEB) with on-the-fly learning.

The band is relaxed on the surrogate, then the engine is called at the image with the largest σ of a
force, or at the highest image where σ is small along the whole path; this is repeated until the
engine's forces at the highest image are small. All calls are recorded first, so that a resumed run
repeats none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.geometry import find_mic
from ase.mep import NEB
from ase.optimize import FIRE

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.onthefly.learning_calculator import Label, force_std, largest
from nugget.onthefly.online_model import FIRST, OnlineModel
from nugget.onthefly.run_directory import DirectoryRun, RecordedEngine, finish
from nugget.onthefly.run_settings import NEBConfig
from nugget.onthefly.saddle_surface import NEGATIVE, PotentialSurface
from nugget.potential.evaluate import MEAN, value_and_grad
from nugget.potential.potential import Potential
from nugget.relax.engine_relaxation import LearningRelaxation
from nugget.storage.files import write_sealed
from nugget.structures.batch import as_batch
from nugget.structures.geometry import free_mask, largest_force
from nugget.structures.io import write_images

# Eigenvalues of translations and rotations are smaller than this, due to residual forces.
_SMALL = 0.5  # eV/Å²


def hessian(atoms: Atoms, potential: Potential) -> Floats:
    """Hessian of the model in the free coordinates, from central differences, eV/Å²."""
    surface = PotentialSurface(atoms, potential)
    return surface.hessian(atoms.positions[surface.free])


def imaginary_modes(atoms: Atoms, potential: Potential) -> int:
    """The number of imaginary modes; a saddle point has one."""
    return int(np.sum(np.linalg.eigvalsh(hessian(atoms, potential)) < -_SMALL))


# The band on the surrogate: ASE's climbing-image NEB with all images evaluated in one batch.

# Steps without and with climbing; steps between checks of σ.
_STEPS, _LOOK = (60, 200), 5

# A band is relaxed while σ of its forces is below this multiple of the limit.
_FAR = 2.0
_HALVINGS = 5  # bisection steps of `_retreat`


@dataclass(frozen=True, eq=False)
class Band:
    """Images with the model's energies (eV), and the largest σ of a force component of each."""

    images: list[Atoms]
    energy: Floats
    std: Floats
    forces: list[Floats]
    forces_std: list[Floats]
    energy_std: Floats

    @property
    def top(self) -> int:
        """The highest image between the ends."""
        return 1 + int(np.argmax(self.energy[1:-1]))


class SurrogateNEB(NEB):
    """ASE's NEB whose forces come from one evaluation of all images."""

    def __init__(self, images: Sequence[Atoms], potential: Potential, **options: Any) -> None:
        super().__init__(list(images), method="improvedtangent", **options)
        self.potential = potential

    def get_forces(self) -> Floats:
        attach(self.images, self.potential)
        return np.asarray(super().get_forces())


def attach(images: Sequence[Atoms], potential: Potential) -> None:
    """Attach the model's energies and forces to all images, from one batch."""
    predicted = potential.predict(images, uncertainty=False)
    assert predicted.forces is not None
    for atoms, energy, forces in zip(images, predicted.energy, predicted.forces, strict=True):
        atoms.calc = SinglePointCalculator(atoms, energy=float(energy), forces=forces)


def interpolated(start: Atoms, end: Atoms, number: int) -> list[Atoms]:
    """Images between two structures by the image dependent pair potential (IDPP)."""
    if not np.array_equal(start.numbers, end.numbers):
        raise NuggetError("START and END must contain the same atoms in the same order.")
    if not np.allclose(start.cell.array, end.cell.array):
        raise NuggetError("START and END must have the same cell.")
    images = [start.copy() for _ in range(number - 1)] + [end.copy()]
    for atoms in images:
        atoms.calc = None
    NEB(images, method="improvedtangent").interpolate(method="idpp", mic=True)
    nearest, _ = find_mic(end.positions - start.positions, start.cell, start.pbc)
    images[-1].positions = images[0].positions + nearest
    return images


def relaxed(
    images: Sequence[Atoms], potential: Potential, fmax: float, limit: float
) -> list[Atoms]:
    """The band relaxed on the surrogate, first without climbing, then with.

    The relaxation ends early where σ of a force far exceeds the limit.
    """
    band = [atoms.copy() for atoms in images]
    safe = [atoms.positions.copy() for atoms in band]
    for climb, steps in zip((False, True), _STEPS, strict=True):
        neb = SurrogateNEB(band, potential, climb=climb)
        run = FIRE(neb, logfile=None, maxstep=0.1)
        for k, converged in enumerate(run.irun(fmax=0.5 * fmax, steps=steps)):
            if k % _LOOK == 0 or converged:
                if evaluated(band, potential, limit).std.max() > _FAR * limit:
                    _retreat(band, safe, potential, limit)
                    return band
                safe = [atoms.positions.copy() for atoms in band]
    return band


def _retreat(
    band: Sequence[Atoms], safe: Sequence[Floats], potential: Potential, limit: float
) -> None:
    """Return towards `safe` until σ is moderately above the limit, where a call is informative.

    Returning to `safe` itself would lead to the same structures again.
    """
    ahead = [atoms.positions.copy() for atoms in band]
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        share = 0.5 * (low + high)
        _place(band, safe, ahead, share)
        std = evaluated(band, potential, limit).std.max()
        if limit < std <= _FAR * limit:
            return
        low, high = (share, high) if std <= limit else (low, share)
    _place(band, safe, ahead, high)


def _place(
    band: Sequence[Atoms], start: Sequence[Floats], end: Sequence[Floats], share: float
) -> None:
    for atoms, a, b in zip(band, start, end, strict=True):
        atoms.positions = a + share * (b - a)


def bent(path: Sequence[Atoms], displacements: Floats) -> list[Atoms]:
    """The path displaced between its ends, most in its middle."""
    images = [atoms.copy() for atoms in path]
    for k, atoms in enumerate(images):
        atoms.positions += np.sin(np.pi * k / (len(images) - 1)) * displacements
    return images


def evaluated(images: Sequence[Atoms], potential: Potential, limit: float) -> Band:
    """Energies, forces and σ along the path."""
    batch = as_batch(images)
    result = value_and_grad(potential.fitted, batch, MEAN, keep_rows=True)
    assert result.std is not None
    std = batch.split(force_std(result, limit))
    peak = [largest(s, free_mask(a)) for s, a in zip(std, images, strict=True)]
    forces = batch.split(-result.gradients[0])
    return Band(list(images), result.energy, np.array(peak), forces, std, result.std)


# The learning loop.

PATH, RESULT = "path.extxyz", "result.json"

# A symmetric path stays symmetric. If the second mode at its saddle is softer than _SOFT (eV/Å²), a
# call at a copy displaced by _ASIDE (Å) shows its curvature. If that is negative, the path is bent
# along this mode by _BEND (Å), at most _BENDS times.
_SOFT, _ASIDE, _BEND, _BENDS = 0.2, 0.1, 0.3, 3

# Fractions of the path at which the engine is called before there is a model.
_FIRST_CALLS = (0.5, 0.25, 0.75, 0.125, 0.875, 0.375, 0.625)
Watch = Callable[[str], None]


class PathEnd(StrEnum):
    """Why a path search ended; the values are the texts in files and messages."""

    CONVERGED = "converged"
    CALLS = "all calls used"
    ENGINE_FAILED = "the engine failed too often"
    NO_BARRIER = "has no barrier: it lies below its higher end everywhere; is that end a minimum?"


@dataclass(frozen=True, eq=False)
class Saddle:
    """The engine's results at the highest image, and the error of the model."""

    image: int
    atoms: Atoms  # with the engine's results
    fmax: float  # eV/Å
    miss: float  # model minus engine before the update, eV


@dataclass(frozen=True, eq=False)
class NEBResult:
    """A path and its barrier; energies in eV."""

    band: Band
    start: Atoms
    end: Atoms
    saddle: Saddle | None
    calls: int
    end_calls: int  # of these, for relaxing the ends
    why: PathEnd
    imaginary: int | None = None  # imaginary modes of the model at the saddle

    @property
    def converged(self) -> bool:
        """Whether the engine's forces at the saddle are below the limit."""
        return self.why is PathEnd.CONVERGED

    @property
    def reason(self) -> str:
        """Why the search ended, in words."""
        return self.why.value

    @property
    def barrier(self) -> float:
        """From the start to the saddle, both evaluated with the engine."""
        if self.saddle is None:
            return float("nan")
        return float(self.saddle.atoms.get_potential_energy() - self.start.get_potential_energy())

    @property
    def image(self) -> int | None:
        """Number of the image at the saddle."""
        return None if self.saddle is None else self.saddle.image

    @property
    def reaction_energy(self) -> float:
        return float(self.end.get_potential_energy() - self.start.get_potential_energy())

    @property
    def error(self) -> float:
        """Error of the barrier: that of the model at the saddle before the last update.

        It is at least 0.1 Å times the residual force, for a path that is accurate to 0.1 Å.
        """
        if self.saddle is None:
            return float("nan")
        return max(abs(self.saddle.miss), 0.1 * self.saddle.fmax)


class NEBRun(DirectoryRun[NEBConfig]):
    """The search for one path."""

    kind, settings = "neb", NEBConfig

    @classmethod
    def create(cls, start: Atoms, end: Atoms, config: NEBConfig, directory: Path) -> NEBRun:
        """A new run in a new directory."""
        interpolated(start, end, 3)  # refuses what does not fit
        return cls.begin(directory, config, start, end)

    def run(self, watch: Watch | None = None) -> NEBResult:
        """Find the path; files are in the directory."""
        start, end = self.structures
        with self.alone(), RecordedEngine(self.config.engine, self.directory) as engine:
            result, model = find_path(start, end, engine, self.config, watch)
            finish(self.directory, model)
            write_images(self.directory / PATH, path_images(result.band))
            write_sealed(self.directory / RESULT, {"image": result.image, **report_of(result)})
        return result


def find_path(
    start: Atoms,
    end: Atoms,
    engine: Label,
    config: NEBConfig,
    watch: Watch | None = None,
) -> tuple[NEBResult, OnlineModel]:
    """The path between two structures, and the model trained on it."""
    tell = watch or (lambda text: None)
    search = _PathSearch(engine, config, tell)
    ends = [search.end_point(atoms, name) for atoms, name in ((start, "start"), (end, "end"))]
    return search.run(*ends), search.model


class _PathSearch:
    """The loop, step by step."""

    def __init__(self, engine: Label, config: NEBConfig, tell: Watch) -> None:
        self.engine, self.config, self.tell = engine, config, tell
        self.model = OnlineModel(
            None, config.max_force_error, config.preset, growth=1.0, domain=config.domain,
            mean=config.mean,
        )  # fmt: skip
        self.calls = self.failed = self.bends = 0

    def call(self, atoms: Atoms) -> Atoms | None:
        """Call the engine and update the model."""
        bare = atoms.copy()
        bare.calc = None
        labelled = self.engine(bare)
        self.calls += 1
        if labelled is not None:
            self.model.learn(labelled)
        return labelled

    def end_point(self, atoms: Atoms, name: str) -> Atoms:
        """An end of the path, relaxed with the engine."""
        most = 200 if self.config.relax_ends else 1
        run = LearningRelaxation(atoms, self.config.fmax, most)
        result = run.run(self.call)
        if not run.points or (self.config.relax_ends and not result.converged):
            raise NuggetError(f"The {name} could not be relaxed: {result.reason}.")
        self.tell(f"{name}: {result.energy:.4f} eV, {result.evaluations} calls")
        return result.atoms

    def run(self, start: Atoms, end: Atoms) -> NEBResult:
        config, end_calls = self.config, self.calls
        path = interpolated(start, end, config.images)
        for share in _FIRST_CALLS:
            if len(self.model.images) >= FIRST and share != _FIRST_CALLS[0]:
                break
            self.call(path[round(share * (config.images - 1))])
        if self.model.potential is None:
            raise NuggetError("The engine failed on too many structures of the first path.")
        saddle: Saddle | None = None
        why, highest = PathEnd.CALLS, max(a.get_potential_energy() for a in (start, end))
        while self.calls < config.max_calls:
            potential = self.model.potential
            path = relaxed(path, potential, config.fmax, config.max_force_error)
            band = evaluated(path, potential, config.max_force_error)
            image = self._next(band)
            labelled = self.call(path[image])
            if labelled is None:
                self.failed += 1
                if self.failed > config.engine.max_failures:
                    why = PathEnd.ENGINE_FAILED
                    break
                path = interpolated(start, end, config.images)
                continue
            force = largest_force(labelled)
            miss = float(band.energy[image]) - labelled.get_potential_energy()
            self.tell(
                f"call {self.calls}: image {image}, σ {band.std[image]:.3f} eV/Å, "
                f"error {1e3 * miss:+.0f} meV, engine's force {force:.3f} eV/Å"
            )
            if image == band.top:
                saddle = Saddle(image, labelled, force, miss)
                if band.std.max() <= config.max_force_error:
                    # Forces can be small on a path that only falls: at another minimum on it.
                    if labelled.get_potential_energy() < highest:
                        why = PathEnd.NO_BARRIER
                        break
                    if force <= config.fmax:
                        aside = self._way_aside(labelled)
                        if aside is None:
                            why = PathEnd.CONVERGED
                            break
                        path = bent(path, aside)
        potential = self.model.potential
        band = evaluated(path, potential, config.max_force_error)
        modes = imaginary_modes(saddle.atoms, potential) if config.vibrations and saddle else None
        return NEBResult(band, start, end, saddle, self.calls, end_calls, why, modes)

    def _way_aside(self, saddle: Atoms) -> Floats | None:
        """Displacements (N, 3) along a second negative mode; None at a saddle of first order."""
        assert self.model.potential is not None
        surface = PotentialSurface(saddle, self.model.potential)
        x = saddle.positions[surface.free]
        modes = surface.modes(x, surface.hessian(x))
        if self.bends >= _BENDS or len(modes.values) < 2 or modes.values[1] > _SOFT:
            return None
        direction = np.zeros(surface.free.shape)
        direction[surface.free] = modes.vectors[:, 1]
        direction /= np.linalg.norm(direction, axis=1).max()
        moved = saddle.copy()
        moved.positions += _ASIDE * direction
        labelled = self.call(moved)
        if labelled is None:
            return None
        change = labelled.get_forces() - saddle.get_forces()
        curvature = -float(np.sum(change * direction)) / (_ASIDE * float(np.sum(direction**2)))
        self.tell(f"call {self.calls}: second mode at the saddle {curvature:.2f} eV/Å²")
        if curvature >= -NEGATIVE:
            return None
        self.bends += 1
        return _BEND * direction

    def _next(self, band: Band) -> int:
        """The image to evaluate: the most uncertain one, or the highest if σ is small."""
        inner = band.std[1:-1]
        if inner.max() > self.config.max_force_error:
            return 1 + int(np.argmax(inner))
        return band.top


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
