"""Relax many structures in lockstep on any surface that gives values and gradients per batch.

>>> results = relax(images, potential.lcb(kappa=2.0), fmax=0.05, steps=200)
>>> best = min((r for r in results if r.ok), key=lambda r: r.energy)

Structures that have finished leave the batch; the others go on. A structure whose energy is not
finite, or whose atoms run away, is marked as failed and does not disturb the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from ase import Atoms
from ase.constraints import FixAtoms, FixCartesian
from ase.data import covalent_radii

from nugget.errors import NuggetError
from nugget.relax._lbfgs import (
    CONVERGED,
    NOT_FINITE,
    RUNAWAY,
    RUNNING,
    STALLED,
    STEPS,
    Floats,
    Ints,
)
from nugget.relax._lockstep import State, advance
from nugget.relax.confinement import Confinement

Surface = Callable[[Sequence[Atoms]], tuple[Floats, Sequence[Floats]]]
"""images -> (values (B,), gradients: one (N,3) per image). Gradients, not forces."""


class Walk(Protocol):
    """A surface that has met its structures: only positions change from call to call.

    Called with all positions (N_total, 3) and the indices of the structures still running; gives
    their values and the gradients of their atoms, one after the other.
    """

    def __call__(self, positions: Floats, active: Ints) -> tuple[Floats, Floats]: ...


@runtime_checkable
class WalkableSurface(Protocol):
    """A surface with `start(images)`, which saves it building Atoms at every step."""

    def start(self, images: Sequence[Atoms]) -> Walk: ...


@dataclass(frozen=True)
class Relaxed:
    """One relaxed structure.

    `energy` is the surface's value (without the wall's part, `wall_energy`) and `fmax` the largest
    force on a free atom, wall included. `ok` is False when the structure is useless: see `reason`.
    """

    atoms: Atoms
    energy: float
    wall_energy: float
    fmax: float
    evaluations: int
    converged: bool
    ok: bool
    reason: str


_REASONS = {
    CONVERGED: "converged",
    STEPS: "all steps used",
    STALLED: "no lower point was found downhill: energy and gradient disagree",
    NOT_FINITE: "energy or gradient is not finite",
    RUNAWAY: "an atom ran away",
}


class _Plain:
    """A plain surface as a Walk: writes the positions into copies of the images."""

    def __init__(self, surface: Surface, images: Sequence[Atoms]) -> None:
        self.surface = surface
        self.images = [atoms.copy() for atoms in images]
        self.offset = np.concatenate([[0], np.cumsum([len(a) for a in images])])

    def __call__(self, positions: Floats, active: Ints) -> tuple[Floats, Floats]:
        batch = [self.images[b] for b in active]
        for atoms, b in zip(batch, active, strict=True):
            atoms.positions = positions[self.offset[b] : self.offset[b + 1]]
        values, gradients = self.surface(batch)
        return np.asarray(values, dtype=float), np.concatenate(list(gradients))


def on_calculator(calculator: Any) -> Surface:
    """An ASE calculator's energy surface, one structure after the other."""

    def surface(images: Sequence[Atoms]) -> tuple[Floats, list[Floats]]:
        values, gradients = np.empty(len(images)), []
        for k, atoms in enumerate(images):
            values[k] = calculator.get_potential_energy(atoms)
            gradients.append(-calculator.get_forces(atoms))
        return values, gradients

    return surface


def free_mask(atoms: Atoms, name: str = "the structure") -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(N,3) True where a coordinate may move; only FixAtoms and FixCartesian are understood."""
    free = np.ones((len(atoms), 3), dtype=bool)
    for constraint in atoms.constraints:
        if isinstance(constraint, FixAtoms):
            free[constraint.index] = False
        elif isinstance(constraint, FixCartesian):
            free[constraint.index] &= ~np.asarray(constraint.mask, dtype=bool)
        else:
            raise NuggetError(
                f"{name} has a {type(constraint).__name__} constraint, which relax does not know; "
                "use FixAtoms or FixCartesian, or remove it."
            )
    return free


def _confinements(
    confinement: Confinement | Sequence[Confinement | None] | None, n: int
) -> list[Confinement | None]:
    if confinement is None or not isinstance(confinement, Sequence):
        return [confinement] * n
    if len(confinement) != n:
        raise NuggetError(
            f"There are {len(confinement)} confinements for {n} structures; give one, or one each."
        )
    return list(confinement)


def _inverse_cell(atoms: Atoms) -> tuple[Floats, bool]:
    """Cartesian to fractional coordinates, zero columns along axes without periodicity."""
    pbc = np.asarray(atoms.pbc)
    if not pbc.any():
        return np.zeros((3, 3)), False
    return np.where(pbc[None, :], np.linalg.inv(atoms.cell.complete().array), 0.0), True


def _state(
    images: Sequence[Atoms],
    confinement: Confinement | Sequence[Confinement | None] | None,
    memory: int,
    precondition_up_to: int,
) -> State:
    n = len(images)
    free = [free_mask(atoms, f"Structure {k}") for k, atoms in enumerate(images)]
    atoms_at = np.concatenate([[0], np.cumsum([len(a) for a in images])]).astype(np.int64)
    dofs = np.concatenate([[0], np.cumsum([m.sum() for m in free])]).astype(np.int64)
    mask = np.concatenate(free) if n else np.zeros((0, 3), dtype=bool)
    atom, axis = (a.astype(np.int64) for a in np.nonzero(mask))
    feels = np.asarray(mask.any(axis=1))
    kind, stiffness = np.zeros(n, dtype=np.int64), np.zeros(n)
    centre, shape = np.zeros((n, 3)), np.zeros((n, 3, 4))
    cell, inverse, periodic = np.zeros((n, 3, 3)), np.zeros((n, 3, 3)), np.zeros(n, dtype=bool)
    for k, region in enumerate(_confinements(confinement, n)):
        cell[k] = images[k].cell.complete().array if images[k].pbc.any() else 0.0
        inverse[k], periodic[k] = _inverse_cell(images[k])
        if region is not None:
            kind[k], centre[k], shape[k] = region.planes(images[k].positions)
            stiffness[k] = region.stiffness
            feels[atoms_at[k] : atoms_at[k] + region.skip] = False
    x = np.concatenate([a.positions for a in images]) if n else np.zeros((0, 3))
    sizes = np.diff(dofs)
    squares = np.where(sizes <= 3 * precondition_up_to, sizes**2, 0)
    d = len(atom)
    start = x[atom, axis]
    return State(
        atoms=atoms_at, dofs=dofs, atom=atom, axis=axis,
        radii=np.concatenate([covalent_radii[a.numbers] for a in images]) if n else np.zeros(0),
        cell=cell, inverse=inverse, periodic=periodic,
        feels=feels, kind=kind, centre=centre, shape=shape, stiffness=stiffness,
        x=x, start=start, here=start.copy(), g=np.zeros(d), p=np.zeros(d), t=np.zeros(n),
        e=np.full(n, np.nan), walls=np.zeros(n), force=np.full(n, np.nan),
        s=np.zeros(memory * d), y=np.zeros(memory * d), rho=np.zeros((n, memory)),
        pairs=np.zeros(n, dtype=np.int64), head=np.zeros(n, dtype=np.int64),
        squares=np.concatenate([[0], np.cumsum(squares)]).astype(np.int64),
        factor=np.zeros(int(squares.sum())), built=np.zeros(d), bond=np.zeros(n),
        boost=np.ones(n), rejected=np.zeros(n, dtype=np.int64),
        evaluations=np.zeros(n, dtype=np.int64),
        status=np.full(n, RUNNING, dtype=np.int64),
    )  # fmt: skip


def relax(
    images: Sequence[Atoms],
    surface: Surface | WalkableSurface,
    fmax: float = 0.05,
    steps: int = 200,
    confinement: Confinement | Sequence[Confinement | None] | None = None,
    *,
    max_step: float = 0.2,
    memory: int = 10,
    runaway: float = 20.0,
    precondition_up_to: int = 64,
) -> list[Relaxed]:
    """Relax all `images` until the largest force on a free atom is below `fmax` (eV/Å).

    Each structure is evaluated at most `steps` + 1 times, and its result does not depend on the
    other structures. The images are not changed. Parameters:

    - `confinement`: a soft wall (`nugget.relax.confinement`), for all or one per image;
    - `max_step`: the farthest that an atom moves in one step, Å;
    - `memory`: curvature pairs kept per structure;
    - `runaway`: a structure with an atom farther than this from its start, Å, has failed;
    - `precondition_up_to`: structures with more free atoms do without the spring preconditioner,
      whose cost grows with the cube of their number.
    """
    if fmax <= 0 or steps < 0 or max_step <= 0 or memory < 1 or runaway <= 0:
        raise NuggetError(
            "relax needs fmax, max_step and runaway above 0, steps >= 0 and memory >= 1."
        )
    st = _state(images, confinement, memory, precondition_up_to)
    walk: Walk = (
        surface.start(images) if isinstance(surface, WalkableSurface) else _Plain(surface, images)
    )
    active = np.arange(len(images), dtype=np.int64)
    while len(active):
        values, gradients = walk(st.x, active)
        values = np.ascontiguousarray(values, dtype=float)
        gradients = np.ascontiguousarray(gradients, dtype=float)
        total = int((st.atoms[active + 1] - st.atoms[active]).sum())
        if values.shape != (len(active),) or gradients.shape != (total, 3):
            raise NuggetError(
                f"The surface gave values {values.shape} and gradients {gradients.shape} for "
                f"{len(active)} structures with {total} atoms; it must give (B,) and (N,3) each."
            )
        advance(st, active, values, gradients, memory, fmax, steps, max_step, runaway)
        active = active[st.status[active] == RUNNING]
    return _results(images, st)


def _results(images: Sequence[Atoms], st: State) -> list[Relaxed]:
    positions = st.x.copy()
    positions[st.atom, st.axis] = st.here
    results = []
    for b, image in enumerate(images):
        atoms = image.copy()
        # Not set_positions: fixed coordinates have not moved, and constraints need no second look.
        atoms.positions = positions[st.atoms[b] : st.atoms[b + 1]]
        status = int(st.status[b])
        results.append(
            Relaxed(
                atoms=atoms,
                energy=float(st.e[b] - st.walls[b]),
                wall_energy=float(st.walls[b]),
                fmax=float(st.force[b]),
                evaluations=int(st.evaluations[b]),
                converged=status == CONVERGED,
                ok=status not in (NOT_FINITE, RUNAWAY),
                reason=_REASONS[status],
            )
        )
    return results
