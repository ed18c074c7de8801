"""One step of many L-BFGS minimisations: take the values at the trial points, set the next ones.

All structures advance in lockstep, one evaluation each. A step is accepted when the energy does not
rise. Otherwise it is shortened (to the minimum of the cubic through both values and slopes). When
shortening does not help, the history is dropped and the next step goes down the gradient. A point
whose value or gradient is not finite counts as a rise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget._compiled.jit import FAST, njit
from nugget.relax._lbfgs import (
    CONVERGED,
    E_RISE,
    FIRST,
    MAX_REJECT,
    NOT_FINITE,
    REBUILD,
    RUNAWAY,
    RUNNING,
    STALLED,
    STEPS,
    direction,
    dot,
    forward,
    longest,
    springs,
    wall,
)


class State(NamedTuple):
    """All minimisations as flat arrays: B structures, N atoms, D free degrees, M pairs kept."""

    atoms: Ints  # (B+1) first atom of each structure
    dofs: Ints  # (B+1) first free degree of each structure
    atom: Ints  # (D) atom of each free degree, ascending
    axis: Ints  # (D) its Cartesian axis
    radii: Floats  # (N) covalent radii
    cell: Floats  # (B,3,3)
    inverse: Floats  # (B,3,3), zero columns along axes that are not periodic
    periodic: Bools  # (B)
    feels: Bools  # (N) feels the wall
    kind: Ints  # (B) 0 no wall, 1 sphere, 2 box
    centre: Floats  # (B,3)
    shape: Floats  # (B,3,4)
    stiffness: Floats  # (B)
    x: Floats  # (N,3) trial positions, the ones that get evaluated
    start: Floats  # (D)
    here: Floats  # (D) the last point that was kept
    g: Floats  # (D) its gradient, wall included
    p: Floats  # (D) the step being tried is t·p
    t: Floats  # (B)
    e: Floats  # (B) energy of the kept point, wall included
    walls: Floats  # (B) the wall's part of it
    force: Floats  # (B) largest force on a free atom
    s: Floats  # (M·D) pairs of structure b: rows of s[M·dofs[b] : M·dofs[b+1]]
    y: Floats  # (M·D)
    rho: Floats  # (B,M)
    pairs: Ints  # (B) pairs held
    head: Ints  # (B) where the next pair goes
    squares: Ints  # (B+1) first element of each U, P = UᵀU; no room means no preconditioner
    factor: Floats
    built: Floats  # (D) positions at which P was built
    bond: Floats  # (B) typical bond length then; 0 before the first
    boost: Floats  # (B) the next step is lengthened by this
    rejected: Ints  # (B) rises in a row
    evaluations: Ints  # (B)
    status: Ints  # (B)


@njit(fastmath={"contract"})
def all_finite(e: float, g: Floats) -> bool:
    ok = np.isfinite(e)
    for i in range(g.shape[0]):
        ok = ok and np.isfinite(g[i])
    return bool(ok)


@njit
def cubic_minimum(e0: float, e1: float, d0: float, d1: float) -> float:
    """Minimum in (0,1) of the cubic with values e0, e1 and slopes d0 < 0, d1 at 0 and 1."""
    theta = 3.0 * (e0 - e1) + d0 + d1
    w = np.sqrt(max(theta * theta - d0 * d1, 0.0))
    below = d1 - d0 + 2.0 * w
    z = 1.0 - (d1 + w - theta) / below if below > 0.0 else 0.5
    return min(max(z, 0.1), 0.6)


@njit(fastmath=FAST)
def remember(st: State, b: int, g_new: Floats, s: Floats, y: Floats) -> None:
    """Keep the pair (t·p, Δg) when it shows positive curvature.

    Otherwise no finite step is known to be right, and steps grow until the surface curves upwards:
    an atom far out would crawl home for ever otherwise.
    """
    lo, hi = st.dofs[b], st.dofs[b + 1]
    row = st.head[b]
    ss = yy = sy = 0.0
    for k in range(hi - lo):
        dx = st.t[b] * st.p[lo + k]
        dg = g_new[k] - st.g[lo + k]
        s[row, k] = dx
        y[row, k] = dg
        ss += dx * dx
        yy += dg * dg
        sy += dx * dg
    # A row that is not kept here belonged to the oldest pair: give it up too.
    if sy > 1e-8 * np.sqrt(ss * yy):
        st.rho[b, row] = 1.0 / sy
        st.head[b] = (row + 1) % s.shape[0]
        st.pairs[b] = min(st.pairs[b] + 1, s.shape[0])
        st.boost[b] = 1.0
    else:
        st.pairs[b] = min(st.pairs[b], s.shape[0] - 1)
        st.boost[b] *= 2.0


@njit(fastmath=FAST)
def set_trial(st: State, b: int) -> None:
    for k in range(st.dofs[b], st.dofs[b + 1]):
        st.x[st.atom[k], st.axis[k]] = st.here[k] + st.t[b] * st.p[k]


@njit(fastmath=FAST)
def next_step(st: State, b: int, s: Floats, y: Floats, max_step: float) -> None:
    """The quasi-Newton step from the kept point, no atom moving farther than max_step."""
    lo, hi = st.dofs[b], st.dofs[b + 1]
    n = hi - lo
    g, p = st.g[lo:hi], st.p[lo:hi]
    room = st.squares[b + 1] - st.squares[b]
    preconditioned = room > 0
    factor = st.factor[st.squares[b] : st.squares[b + 1]].reshape(
        (n, n) if preconditioned else (0, 0)
    )
    atom = st.atom[lo:hi]
    if preconditioned:
        moved = longest(st.here[lo:hi] - st.built[lo:hi], atom)
        if st.bond[b] == 0.0 or moved > REBUILD * st.bond[b]:
            a0, a1 = st.atoms[b], st.atoms[b + 1]
            st.bond[b] = springs(
                st.x[a0:a1], a0, st.radii[a0:a1], st.cell[b], st.inverse[b], st.periodic[b],
                atom, st.axis[lo:hi], factor,
            )  # fmt: skip
            for k in range(lo, hi):
                st.built[k] = st.here[k]
    gamma = FIRST
    if st.pairs[b] > 0:
        i = (st.head[b] - 1) % s.shape[0]
        if preconditioned:
            v = np.empty(n)
            forward(factor, y[i], v)
            gamma = 1.0 / (st.rho[b, i] * dot(v, v))
        else:
            gamma = 1.0 / (st.rho[b, i] * dot(y[i], y[i]))
    direction(g, s, y, st.rho[b], st.pairs[b], st.head[b], gamma, factor, preconditioned, p)
    if not dot(p, g) < -1e-9 * np.sqrt(dot(p, p) * dot(g, g)):
        st.pairs[b] = 0
        for k in range(n):
            p[k] = -FIRST * g[k]
    far = longest(p, atom)
    scale = min(st.boost[b], max_step / far)
    for k in range(n):
        p[k] *= scale
    st.t[b] = 1.0
    set_trial(st, b)


@njit(fastmath=FAST)
def step_back(st: State, b: int, e: float, g: Floats, finite: bool, max_step: float) -> None:
    """The trial point was higher (or not finite): try a shorter step, later another direction."""
    lo, hi = st.dofs[b], st.dofs[b + 1]
    st.rejected[b] += 1
    st.boost[b] = 1.0
    if st.rejected[b] > MAX_REJECT:
        if st.pairs[b] == 0:
            st.status[b] = STALLED if finite else NOT_FINITE
            return
        st.pairs[b] = 0
        st.rejected[b] = 0
        far = FIRST * longest(st.g[lo:hi], st.atom[lo:hi])
        scale = FIRST * min(1.0, 0.1 * max_step / far)
        for k in range(lo, hi):
            st.p[k] = -scale * st.g[k]
        st.t[b] = 1.0
    elif finite:
        p = st.p[lo:hi]
        d0 = st.t[b] * dot(p, st.g[lo:hi])
        d1 = st.t[b] * dot(p, g)
        st.t[b] *= cubic_minimum(st.e[b], e, d0, d1)
    else:
        st.t[b] *= 0.25
    set_trial(st, b)


@njit(fastmath=FAST)
def advance(
    st: State, active: Ints, values: Floats, gradients: Floats, memory: int, fmax: float,
    steps: int, max_step: float, runaway: float,
) -> None:  # fmt: skip
    """Accept or reject the trial points st.x and set the next ones, in place.

    `values` has one number per active structure, `gradients` the rows of their atoms in order.
    """
    begin = 0
    for k in range(active.shape[0]):
        b = active[k]
        a0, a1 = st.atoms[b], st.atoms[b + 1]
        lo, hi = st.dofs[b], st.dofs[b + 1]
        full = gradients[begin : begin + a1 - a0].copy()
        begin += a1 - a0
        push = wall(
            st.x[a0:a1], 0, a1 - a0, st.feels[a0:a1], st.kind[b], st.centre[b], st.shape[b],
            st.stiffness[b], full,
        )  # fmt: skip
        e = values[k] + push
        g = np.empty(hi - lo)
        for i in range(hi - lo):
            g[i] = full[st.atom[lo + i] - a0, st.axis[lo + i]]
        finite = all_finite(e, g)
        st.evaluations[b] += 1
        last = st.evaluations[b] > steps
        # Round-off is forgiven in a full step, but not in one that was shortened to go down.
        slack = 1e-12 * abs(st.e[b]) + (E_RISE if st.rejected[b] == 0 else 0.0)
        s = st.s[memory * lo : memory * hi].reshape((memory, hi - lo))
        y = st.y[memory * lo : memory * hi].reshape((memory, hi - lo))

        if st.evaluations[b] == 1:
            if not finite:
                st.status[b] = NOT_FINITE
                continue
        elif not finite or e > st.e[b] + slack:
            step_back(st, b, e, g, finite, max_step)
            if last and st.status[b] == RUNNING:
                st.status[b] = STEPS
            continue
        else:
            remember(st, b, g, s, y)

        for i in range(hi - lo):
            st.here[lo + i] = st.x[st.atom[lo + i], st.axis[lo + i]]
            st.g[lo + i] = g[i]
        st.e[b] = e
        st.walls[b] = push
        st.rejected[b] = 0
        st.force[b] = longest(g, st.atom[lo:hi])
        if st.force[b] < fmax:
            st.status[b] = CONVERGED
        elif longest(st.here[lo:hi] - st.start[lo:hi], st.atom[lo:hi]) > runaway:
            st.status[b] = RUNAWAY
        elif last:
            st.status[b] = STEPS
        else:
            next_step(st, b, s, y, max_step)
