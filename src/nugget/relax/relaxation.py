"""Relax many structures in lockstep on any surface that gives values and gradients per batch.

>>> results = relax(images, potential.lcb(kappa=2.0), fmax=0.05, steps=200)
>>> best = min((r for r in results if r.ok), key=lambda r: r.energy)

Structures that have finished leave the batch. A structure whose energy is not finite, or whose
atoms run away, is marked as failed and does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.threads import each, number
from nugget.relax.lockstep import RUNNING, Limits, RelaxationEnd, State, advance, initial_state
from nugget.structures.batch import offsets_of
from nugget.structures.regions import Confinement

PlainSurface = Callable[[Sequence[Atoms]], tuple[Floats, Sequence[Floats]]]

"""images -> (values (B,), gradients: one (N,3) per image). Gradients, not forces."""


class BatchEvaluator(Protocol):
    """A surface bound to its structures, of which only the positions change.

    The arguments are all positions (N_total, 3) and the indices of the active structures; the
    results are their values (B_active,) and the gradients of their atoms (N_active, 3).
    """

    def __call__(self, positions: Floats, active: Ints) -> tuple[Floats, Floats]: ...


@runtime_checkable
class BatchSurface(Protocol):
    """A surface with `start(images)`, which avoids Atoms objects and keeps neighbour lists."""

    def start(self, images: Sequence[Atoms]) -> BatchEvaluator: ...


class ImageEvaluator:
    """A plain surface as a BatchEvaluator, with copies of the images."""

    def __init__(self, surface: PlainSurface, images: Sequence[Atoms]) -> None:
        self.surface = surface
        self.images = [atoms.copy() for atoms in images]
        self.offsets = offsets_of([len(atoms) for atoms in images])

    def __call__(self, positions: Floats, active: Ints) -> tuple[Floats, Floats]:
        batch = [self.images[b] for b in active]
        for atoms, b in zip(batch, active, strict=True):
            atoms.positions = positions[self.offsets[b] : self.offsets[b + 1]]
        values, gradients = self.surface(batch)
        return np.asarray(values, dtype=float), np.concatenate(list(gradients))


def start(surface: PlainSurface | BatchSurface, images: Sequence[Atoms]) -> BatchEvaluator:
    """The surface bound to these structures."""
    if isinstance(surface, BatchSurface):
        return surface.start(images)
    return ImageEvaluator(surface, images)


def concurrent(surface: PlainSurface | BatchSurface) -> bool:
    """Whether several threads may evaluate this surface, from its attribute `concurrent`.

    ASE calculators may not.
    """
    return bool(getattr(surface, "concurrent", False))


def on_calculator(calculator: Any) -> PlainSurface:
    """An ASE calculator's energy surface, one structure after the other."""

    def surface(images: Sequence[Atoms]) -> tuple[Floats, list[Floats]]:
        values, gradients = np.empty(len(images)), []
        for k, atoms in enumerate(images):
            values[k] = calculator.get_potential_energy(atoms)
            gradients.append(-calculator.get_forces(atoms))
        return values, gradients

    return surface


@dataclass(frozen=True, eq=False)
class Relaxed:
    """One structure relaxed on a surface or with an engine.

    `energy` is the value of the surface (without that of the confinement, `wall_energy`) and `fmax`
    the largest force on a free atom, confinement included. After a relaxation with an engine
    `atoms` has its energy and forces, unless every evaluation failed.
    """

    atoms: Atoms
    energy: float
    fmax: float
    evaluations: int
    end: RelaxationEnd
    wall_energy: float = 0.0

    @property
    def converged(self) -> bool:
        """Whether all forces are below the limit."""
        return self.end is RelaxationEnd.CONVERGED

    @property
    def ok(self) -> bool:
        """Whether the structure can be used, converged or not."""
        return self.end not in (RelaxationEnd.NOT_FINITE, RelaxationEnd.RUNAWAY)

    @property
    def reason(self) -> str:
        """Why the relaxation ended, in words."""
        return self.end.text


_SEVERAL = 8  # fewer structures are not worth a second thread


def relax(
    images: Sequence[Atoms],
    surface: PlainSurface | BatchSurface,
    fmax: float = 0.05,
    steps: int = 200,
    confinement: Confinement | Sequence[Confinement | None] | None = None,
    *,
    max_step: float = 0.2,
    memory: int = 10,
    runaway: float = 20.0,
    precondition_up_to: int = 64,
) -> list[Relaxed]:
    """Relax copies of `images` until the largest force on a free atom is below `fmax` (eV/Å).

    Each structure is evaluated at most `steps` + 1 times, and its result does not depend on the
    other structures. Parameters:

    - `confinement`: a soft wall (`nugget.structures.regions`), for all or one per image;
    - `max_step`: largest displacement of an atom in one step, Å;
    - `memory`: curvature pairs kept per structure;
    - `runaway`: a structure with an atom farther than this from its start, Å, has failed;
    - `precondition_up_to`: structures with more free atoms are relaxed without the spring
      preconditioner, whose cost grows with the cube of their number.
    """
    if fmax <= 0 or steps < 0 or max_step <= 0 or memory < 1 or runaway <= 0:
        raise NuggetError(
            "relax needs fmax, max_step and runaway above 0, steps >= 0 and memory >= 1."
        )
    limits = Limits(fmax, steps, max_step, memory, runaway)
    st = initial_state(images, confinement, memory, precondition_up_to)
    cores = number(getattr(surface, "threads", None)) if concurrent(surface) else 1

    def some(group: Ints) -> None:
        minimise(st, start(surface, images), limits, group)

    each(some, _groups(len(images), cores), cores)
    positions = st.x.copy()
    positions[st.atom, st.axis] = st.here
    relaxed = []
    for b, image in enumerate(images):
        atoms = image.copy()
        # Not set_positions, since fixed coordinates have not moved.
        atoms.positions = positions[st.atoms[b] : st.atoms[b + 1]]
        relaxed.append(atoms)
    return as_results(relaxed, st)


def minimise(
    st: State, evaluate: BatchEvaluator, limits: Limits, group: Ints | None = None
) -> None:
    """Advance all minimisations (or those of a group) until they end, in place."""
    active = np.arange(len(st.status), dtype=np.int64) if group is None else group
    while len(active):
        values, gradients = evaluate(st.x, active)
        values = np.ascontiguousarray(values, dtype=float)
        gradients = np.ascontiguousarray(gradients, dtype=float)
        total = int((st.atoms[active + 1] - st.atoms[active]).sum())
        if values.shape != (len(active),) or gradients.shape != (total, 3):
            raise NuggetError(
                f"The surface gave values {values.shape} and gradients {gradients.shape} for "
                f"{len(active)} structures with {total} atoms; it must give (B,) and (N,3) each."
            )
        advance(st, active, values, gradients, limits)
        active = active[st.status[active] == RUNNING]


def _groups(structures: int, cores: int) -> list[Ints]:
    """Groups of structures that are relaxed independently, with equal results.

    Synchronising threads at every step would gain little, since a step takes 1 ms. Several groups
    per core balance the load.
    """
    several = 1
    if cores > 1 and structures >= _SEVERAL:
        several = cores * min(max(structures // (2 * _SEVERAL * cores), 1), 4)
    return [np.arange(k, structures, several) for k in range(min(several, structures))]


def as_results(relaxed: Sequence[Atoms], st: State) -> list[Relaxed]:
    """The relaxed structures with the results of their minimisations."""
    return [
        Relaxed(
            atoms, float(st.e[b] - st.walls[b]), float(st.force[b]), int(st.evaluations[b]),
            RelaxationEnd(int(st.status[b])), float(st.walls[b]),
        )
        for b, atoms in enumerate(relaxed)
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Springs:
    """A surface plus springs that keep molecules nearly rigid.

    E = ½ k Σ (|r_i − r_j| − d_ij)² over pairs (p, 2) with lengths d (p,), equal in all images and
    without periodic images.
    """

    surface: PlainSurface | BatchSurface
    pairs: Ints
    lengths: Floats
    stiffness: float  # eV/Å²

    @property
    def concurrent(self) -> bool:
        return concurrent(self.surface)

    @property
    def threads(self) -> int | None:
        threads: int | None = getattr(self.surface, "threads", None)
        return threads

    def start(self, images: Sequence[Atoms]) -> BatchEvaluator:
        """Bind the surface; all images must have the same number of atoms."""
        size = len(images[0])
        inner = start(self.surface, images)

        def evaluate(positions: Floats, active: Ints) -> tuple[Floats, Floats]:
            values, gradients = inner(positions, active)
            x = positions.reshape(-1, size, 3)[active]
            energy, gradient = self.evaluate(x)
            return values + energy, gradients + gradient.reshape(-1, 3)

        return evaluate

    def evaluate(self, x: Floats) -> tuple[Floats, Floats]:
        """Energies (B,) and gradients (B, N, 3) at positions (B, N, 3)."""
        i, j = self.pairs.T
        away = x[:, i] - x[:, j]
        r = np.linalg.norm(away, axis=2)
        stretch = r - self.lengths
        pull = (self.stiffness * stretch / np.maximum(r, 1e-9))[..., None] * away
        ends = np.zeros((x.shape[1], len(i)))  # +1 for the first atom of a pair, −1 for the second
        ends[i, np.arange(len(i))] += 1.0
        ends[j, np.arange(len(i))] -= 1.0
        gradient = np.einsum("np,bpc->bnc", ends, pull)
        return 0.5 * self.stiffness * (stretch**2).sum(axis=1), gradient
