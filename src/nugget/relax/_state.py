"""The arrays that many relaxations in lockstep start from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ase import Atoms
from ase.constraints import FixAtoms, FixCartesian

from nugget._compiled.arrays import Bools, Floats
from nugget.errors import NuggetError
from nugget.relax._lbfgs import RUNNING
from nugget.relax._lockstep import State
from nugget.relax.confinement import Confinement
from nugget.structures.batch import offsets_of
from nugget.structures.bonds import RADII


def free_mask(atoms: Atoms, name: str = "the structure") -> Bools:
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


def initial_state(
    images: Sequence[Atoms],
    confinement: Confinement | Sequence[Confinement | None] | None,
    memory: int,
    precondition_up_to: int,
) -> State:
    """Images, constraints and walls as flat arrays, before the first evaluation."""
    n = len(images)
    free = [free_mask(atoms, f"Structure {k}") for k, atoms in enumerate(images)]
    atoms_at = offsets_of([len(atoms) for atoms in images])
    dofs = offsets_of([int(mask.sum()) for mask in free])
    mask = np.concatenate([np.zeros((0, 3), dtype=bool), *free])
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
    x = np.concatenate([np.zeros((0, 3)), *(atoms.positions for atoms in images)])
    numbers = np.concatenate([np.zeros(0, dtype=np.int64), *(atoms.numbers for atoms in images)])
    sizes = np.diff(dofs)
    squares = offsets_of(np.where(sizes <= 3 * precondition_up_to, sizes**2, 0))
    d = len(atom)
    start = x[atom, axis]
    return State(
        atoms=atoms_at, dofs=dofs, atom=atom, axis=axis, radii=RADII[numbers],
        cell=cell, inverse=inverse, periodic=periodic,
        feels=feels, kind=kind, centre=centre, shape=shape, stiffness=stiffness,
        x=x, start=start, here=start.copy(), g=np.zeros(d), p=np.zeros(d), t=np.zeros(n),
        e=np.full(n, np.nan), walls=np.zeros(n), force=np.full(n, np.nan),
        s=np.zeros(memory * d), y=np.zeros(memory * d), rho=np.zeros((n, memory)),
        pairs=np.zeros(n, dtype=np.int64), head=np.zeros(n, dtype=np.int64),
        squares=squares, factor=np.zeros(int(squares[-1])), built=np.zeros(d), bond=np.zeros(n),
        boost=np.ones(n), rejected=np.zeros(n, dtype=np.int64),
        evaluations=np.zeros(n, dtype=np.int64),
        status=np.full(n, RUNNING, dtype=np.int64),
    )  # fmt: skip
