"""Relax many structures in lockstep on any surface that gives values and gradients per batch.

>>> results = relax(images, potential.lcb(kappa=2.0), fmax=0.05, steps=200)
>>> best = min((r for r in results if r.ok), key=lambda r: r.energy)

Structures that have finished leave the batch; the others go on. A structure whose energy is not
finite, or whose atoms run away, is marked as failed and does not disturb the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Ints
from nugget._compiled.threads import each, number
from nugget.errors import NuggetError
from nugget.relax._lbfgs import CONVERGED, NOT_FINITE, RUNAWAY, RUNNING, STALLED, STEPS
from nugget.relax._lockstep import State, advance
from nugget.relax._state import initial_state
from nugget.relax.confinement import Confinement
from nugget.relax.surfaces import BatchEvaluator, BatchSurface, PlainSurface, concurrent, start


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


_SEVERAL = 8  # structures from which on a second thread is worth the trouble
_REASONS = {
    CONVERGED: "converged",
    STEPS: "all steps used",
    STALLED: "no lower point was found downhill: energy and gradient disagree",
    NOT_FINITE: "energy or gradient is not finite",
    RUNAWAY: "an atom ran away",
}


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
    st = initial_state(images, confinement, memory, precondition_up_to)
    cores = number(getattr(surface, "threads", None)) if concurrent(surface) else 1

    def some(group: Ints) -> None:
        evaluate = start(surface, images)
        minimise(st, evaluate, fmax, steps, max_step, memory, runaway, group)

    each(some, _groups(len(images), cores), cores)
    positions = st.x.copy()
    positions[st.atom, st.axis] = st.here
    relaxed = []
    for b, image in enumerate(images):
        atoms = image.copy()
        # Not set_positions: fixed coordinates have not moved, and constraints need no second look.
        atoms.positions = positions[st.atoms[b] : st.atoms[b + 1]]
        relaxed.append(atoms)
    return as_results(relaxed, st)


def minimise(
    st: State,
    evaluate: BatchEvaluator,
    fmax: float,
    steps: int,
    max_step: float,
    memory: int,
    runaway: float,
    group: Ints | None = None,
) -> None:
    """Advance all minimisations (those of a group) to their ends, in place."""
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
        advance(st, active, values, gradients, memory, fmax, steps, max_step, runaway)
        active = active[st.status[active] == RUNNING]


def _groups(structures: int, cores: int) -> list[Ints]:
    """Every so many structures together: each group relaxes on its own, from start to end.

    Results do not depend on the group. Groups that waited for each other at every step would gain
    little, since a step takes 1 ms. Several groups per core even out how long they take.
    """
    several = 1
    if cores > 1 and structures >= _SEVERAL:
        several = cores * min(max(structures // (2 * _SEVERAL * cores), 1), 4)
    return [np.arange(k, structures, several) for k in range(min(several, structures))]


def as_results(relaxed: Sequence[Atoms], st: State) -> list[Relaxed]:
    """The relaxed structures with what the minimisation says of them."""
    results = []
    for b, atoms in enumerate(relaxed):
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
