"""Preconditioned L-BFGS for many structures at once, one compiled loop over the structures.

The result of a structure does not depend on the other structures of the batch. Vectors contain only
the free degrees of freedom.

The two-loop recursion starts from H₀ = γ P⁻¹, γ = sᵀy / yᵀP⁻¹y. P is the Hessian of a network of
springs between neighbours,

    P = Σ_{i<j} w_ij [(1−τ) ûûᵀ + τ 1] ⊗ (e_i − e_j)(e_i − e_j)ᵀ + c 1,
    w_ij = exp(−A (q_ij/q₀ − 1)),   q_ij = r_ij / (R_i + R_j),

where R are covalent radii and q₀ is the typical nearest-neighbour ratio of the structure, without
any assumed unit of length. γ sets the overall stiffness. P is a sum of positive terms for any
geometry, and is rebuilt when an atom has moved by REBUILD·(bond length). On random clusters this
needs about two thirds of the evaluations of the same method with P = 1, which needs half of those
of a fixed H₀.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from ase import Atoms
from ase.constraints import FixAtoms, FixCartesian

from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.numerics.jit import FAST, njit
from nugget.structures.batch import offsets_of
from nugget.structures.geometry import RADII, free_mask
from nugget.structures.regions import Confinement

# Compiled code uses plain integers.
RUNNING, CONVERGED, STEPS, STALLED, NOT_FINITE, RUNAWAY = range(6)


class RelaxationEnd(IntEnum):
    """Why a relaxation ended, on a surface or with an engine; `text` is for people."""

    text: str

    def __new__(cls, value: int, text: str = "") -> RelaxationEnd:
        end = int.__new__(cls, value)
        end._value_, end.text = value, text
        return end

    RUNNING = RUNNING, "not finished"
    CONVERGED = CONVERGED, "converged"
    STEPS = STEPS, "all steps used"
    STALLED = STALLED, "no step lowers the energy: energies and forces disagree"
    NOT_FINITE = NOT_FINITE, "energy or gradient is not finite"
    RUNAWAY = RUNAWAY, "an atom ran away"
    ENGINE_FAILED = 6, "the engine failed"
    NO_STRESS = 7, "the engine gives no stress, so the cell cannot be relaxed"


# Springs of the preconditioner.
A, TAU, C_STAB, W_MAX, Q_CUT = 5.0, 0.03, 0.03, 20.0, 1.8
REBUILD = 0.2  # bond lengths that an atom moves before the preconditioner is rebuilt
FIRST = 1.0 / 70.0  # Å²/eV: scale of the first step, which has no curvature information
E_RISE = 1e-6  # eV: a smaller rise is round-off, not a failed step
MAX_REJECT = 8  # rejected steps before the history is dropped


@njit(fastmath=FAST)
def dot(a: Floats, b: Floats) -> float:
    """a·b in a fixed order with four running sums (independent of BLAS and its threads)."""
    n = a.shape[0]
    s0 = s1 = s2 = s3 = 0.0
    k = n - n % 4
    for i in range(0, k, 4):
        s0 += a[i] * b[i]
        s1 += a[i + 1] * b[i + 1]
        s2 += a[i + 2] * b[i + 2]
        s3 += a[i + 3] * b[i + 3]
    for i in range(k, n):
        s0 += a[i] * b[i]
    return (s0 + s1) + (s2 + s3)


@njit(fastmath=FAST)
def longest(v: Floats, atom: Ints) -> float:
    """Largest per-atom norm of a vector over free degrees of freedom (`atom` is sorted)."""
    best = 0.0
    total = 0.0
    last = -1
    for i in range(v.shape[0]):
        if atom[i] != last:
            best = max(best, total)
            total = 0.0
            last = atom[i]
        total += v[i] * v[i]
    return np.sqrt(max(best, total))


@njit(fastmath=FAST)
def wall(
    x: Floats, moves: Bools, kind: int, centre: Floats, shape: Floats, stiffness: float,
    grad: Floats,
) -> float:  # fmt: skip
    """Energy of the confinement of one structure; its gradient is added to `grad`."""
    energy = 0.0
    if kind == 0:
        return energy
    for i in range(x.shape[0]):
        if not moves[i]:
            continue
        dx, dy, dz = x[i, 0] - centre[0], x[i, 1] - centre[1], x[i, 2] - centre[2]
        if kind == 1:
            r = np.sqrt(dx * dx + dy * dy + dz * dz)
            out = r - shape[0, 0]
            if out > 0:
                energy += 0.5 * stiffness * out * out
                f = stiffness * out / r
                grad[i, 0] += f * dx
                grad[i, 1] += f * dy
                grad[i, 2] += f * dz
        else:
            for a in range(3):
                if shape[a, 3] == 0.0:
                    continue
                h = shape[a, 0] * dx + shape[a, 1] * dy + shape[a, 2] * dz
                out = min(h, 0.0) + max(h - shape[a, 3], 0.0)
                if out != 0.0:
                    energy += 0.5 * stiffness * out * out
                    for c in range(3):
                        grad[i, c] += stiffness * out * shape[a, c]
    return energy


@njit(fastmath=FAST)
def cholesky(m: Floats) -> None:
    """Overwrite the upper triangle of the positive definite m with U, m = UᵀU.

    Two pivots at a time: the rows are short (60 for Au20), and this halves the passes over them.
    """
    n = m.shape[0]
    r0, r1 = np.empty(n), np.empty(n)
    for k in range(0, n - 1, 2):
        p = 1.0 / np.sqrt(m[k, k])
        for j in range(k, n):
            r0[j] = m[k, j] * p
            m[k, j] = r0[j]
        f = r0[k + 1]
        for j in range(k + 1, n):
            r1[j] = m[k + 1, j] - f * r0[j]
        p = 1.0 / np.sqrt(r1[k + 1])
        for j in range(k + 1, n):
            r1[j] *= p
            m[k + 1, j] = r1[j]
        for i in range(k + 2, n):
            f, g = r0[i], r1[i]
            for j in range(i, n):
                m[i, j] -= f * r0[j] + g * r1[j]
    if n % 2:
        m[n - 1, n - 1] = np.sqrt(m[n - 1, n - 1])


@njit(fastmath=FAST)
def quantile(values: Floats, k: int) -> float:
    """The k-th smallest value. Sorts in place by insertion: it compiles sooner than np.sort."""
    for i in range(1, len(values)):
        value, j = values[i], i
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value
    return float(values[k])


@njit(fastmath=FAST)
def springs(
    x: Floats, begin: int, radii: Floats, cell: Floats, inverse: Floats, periodic: bool,
    atom: Ints, axis: Ints, out: Floats,
) -> float:  # fmt: skip
    """Write U with P = UᵀU of one structure to `out`; return its typical bond length.

    Periodic neighbours by rounding fractional coordinates: in a very oblique cell a farther image
    may be taken, which makes P a little worse but never indefinite.
    """
    n = x.shape[0]
    f = atom.shape[0]
    at = np.full((n, 3), -1, dtype=np.int64)
    for k in range(f):
        at[atom[k] - begin, axis[k]] = k
    pairs = n * (n - 1) // 2
    q = np.empty(pairs)
    u = np.empty((pairs, 3))
    nearest = np.full(n, np.inf)
    k = 0
    for i in range(n):
        for j in range(i):
            d0, d1, d2 = x[i, 0] - x[j, 0], x[i, 1] - x[j, 1], x[i, 2] - x[j, 2]
            if periodic:
                w0 = np.rint(d0 * inverse[0, 0] + d1 * inverse[1, 0] + d2 * inverse[2, 0])
                w1 = np.rint(d0 * inverse[0, 1] + d1 * inverse[1, 1] + d2 * inverse[2, 1])
                w2 = np.rint(d0 * inverse[0, 2] + d1 * inverse[1, 2] + d2 * inverse[2, 2])
                d0 -= w0 * cell[0, 0] + w1 * cell[1, 0] + w2 * cell[2, 0]
                d1 -= w0 * cell[0, 1] + w1 * cell[1, 1] + w2 * cell[2, 1]
                d2 -= w0 * cell[0, 2] + w1 * cell[1, 2] + w2 * cell[2, 2]
            r = np.sqrt(d0 * d0 + d1 * d1 + d2 * d2) + 1e-12
            q[k] = r / (radii[i] + radii[j])
            u[k, 0], u[k, 1], u[k, 2] = d0 / r, d1 / r, d2 / r
            nearest[i] = min(nearest[i], q[k])
            nearest[j] = min(nearest[j], q[k])
            k += 1
    near = quantile(nearest, (3 * n) // 4) if n > 1 else 1.0
    out[:, :] = 0.0
    for k in range(f):
        out[k, k] = C_STAB
    k = -1
    for i in range(n):
        for j in range(i):
            k += 1
            if q[k] > Q_CUT * near:
                continue
            w = min(np.exp(-A * (q[k] / near - 1.0)), W_MAX)
            for a in range(3):
                ia, ja = at[i, a], at[j, a]
                for b in range(3):
                    ib, jb = at[i, b], at[j, b]
                    value = w * (1.0 - TAU) * u[k, a] * u[k, b]
                    if a == b:
                        value += w * TAU
                    if ia >= 0 and ib >= 0:
                        out[ia, ib] += value
                    if ja >= 0 and jb >= 0:
                        out[ja, jb] += value
                    if ia >= 0 and jb >= 0:
                        out[ia, jb] -= value
                        out[jb, ia] -= value
    cholesky(out)
    bond = 0.0
    for i in range(n):
        bond += radii[i]
    return 2.0 * near * bond / n


@njit(fastmath=FAST)
def forward(u: Floats, b: Floats, z: Floats) -> None:
    """Solve Uᵀz = b."""
    n = b.shape[0]
    for i in range(n):
        z[i] = b[i]
    for i in range(n):
        z[i] /= u[i, i]
        f = z[i]
        for j in range(i + 1, n):
            z[j] -= f * u[i, j]


@njit(fastmath=FAST)
def backward(u: Floats, z: Floats, out: Floats) -> None:
    """Solve U out = z."""
    for i in range(z.shape[0] - 1, -1, -1):
        out[i] = (z[i] - dot(u[i, i + 1 :], out[i + 1 :])) / u[i, i]


@njit(fastmath=FAST)
def direction(
    g: Floats, s: Floats, y: Floats, rho: Floats, count: int, head: int, gamma: float,
    u: Floats, preconditioned: bool, out: Floats,
) -> None:  # fmt: skip
    """Two-loop recursion: out = −H g. Pairs are a ring, the newest at head−1."""
    m = s.shape[0]
    n = g.shape[0]
    alpha = np.empty(m)
    q = g.copy()
    z = np.empty(n)
    for t in range(count):
        i = (head - 1 - t) % m
        alpha[i] = rho[i] * dot(s[i], q)
        for k in range(n):
            q[k] -= alpha[i] * y[i, k]
    if preconditioned:
        forward(u, q, z)
        backward(u, z, out)
    else:
        for k in range(n):
            out[k] = q[k]
    for k in range(n):
        out[k] *= gamma
    for t in range(count - 1, -1, -1):
        i = (head - 1 - t) % m
        beta = alpha[i] - rho[i] * dot(y[i], out)
        for k in range(n):
            out[k] += beta * s[i, k]
    for k in range(n):
        out[k] = -out[k]


# The minimisations. All structures advance in lockstep, one evaluation each. A step is accepted
# when the energy does not rise. Otherwise it is shortened to the minimum of the cubic through both
# values and slopes. When shortening does not help, the history is dropped and the next step follows
# the gradient. A point whose value or gradient is not finite counts as a rise.


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
    feels: Bools  # (N) whether the wall acts on the atom
    kind: Ints  # (B) 0 no wall, 1 sphere, 2 box
    centre: Floats  # (B,3)
    shape: Floats  # (B,3,4)
    stiffness: Floats  # (B)
    x: Floats  # (N,3) trial positions, which are evaluated
    start: Floats  # (D)
    here: Floats  # (D) the last accepted point
    g: Floats  # (D) its gradient, wall included
    p: Floats  # (D) the step being tried is t·p
    t: Floats  # (B)
    e: Floats  # (B) energy of the accepted point, wall included
    walls: Floats  # (B) contribution of the wall
    force: Floats  # (B) largest force on a free atom
    s: Floats  # (M·D) pairs of structure b: rows of s[M·dofs[b] : M·dofs[b+1]]
    y: Floats  # (M·D)
    rho: Floats  # (B,M)
    pairs: Ints  # (B) number of stored pairs
    head: Ints  # (B) row of the next pair
    squares: Ints  # (B+1) first element of each U, P = UᵀU; size zero without preconditioner
    factor: Floats
    built: Floats  # (D) positions at which P was built
    bond: Floats  # (B) typical bond length at that point; 0 before the first
    boost: Floats  # (B) factor that lengthens the next step
    rejected: Ints  # (B) rejected steps in a row
    evaluations: Ints  # (B)
    status: Ints  # (B)


class Limits(NamedTuple):
    """When a minimisation ends, and how it steps."""

    fmax: float  # eV/Å
    steps: int  # evaluations after the first
    max_step: float  # Å, of one atom
    memory: int  # curvature pairs kept per structure
    runaway: float  # Å; an atom that is farther from its start has run away


@njit(fastmath={"contract"})
def all_finite(e: float, g: Floats) -> bool:
    """Whether a value and its gradient are finite."""
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
    """Store the pair (t·p, Δg) if its curvature is positive.

    Otherwise steps grow until the surface curves upwards, so that a distant atom returns quickly.
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
    # A rejected pair has overwritten the row of the oldest pair, which is dropped as well.
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
    """Set the trial point to the accepted point plus t·p."""
    for k in range(st.dofs[b], st.dofs[b + 1]):
        st.x[st.atom[k], st.axis[k]] = st.here[k] + st.t[b] * st.p[k]


@njit(fastmath=FAST)
def next_step(st: State, b: int, s: Floats, y: Floats, max_step: float) -> None:
    """The quasi-Newton step from the accepted point; no atom moves farther than max_step."""
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
    """After a higher (or not finite) trial point, try a shorter step, later the gradient."""
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
def advance(st: State, active: Ints, values: Floats, gradients: Floats, limits: Limits) -> None:
    """Accept or reject the trial points st.x and set the next ones, in place.

    `values` has one number per active structure, `gradients` the rows of their atoms in order.
    """
    begin, memory = 0, limits.memory
    for k in range(active.shape[0]):
        b = active[k]
        a0, a1 = st.atoms[b], st.atoms[b + 1]
        lo, hi = st.dofs[b], st.dofs[b + 1]
        full = gradients[begin : begin + a1 - a0].copy()
        begin += a1 - a0
        push = wall(
            st.x[a0:a1], st.feels[a0:a1], st.kind[b], st.centre[b], st.shape[b], st.stiffness[b],
            full,
        )  # fmt: skip
        e = values[k] + push
        g = np.empty(hi - lo)
        for i in range(hi - lo):
            g[i] = full[st.atom[lo + i] - a0, st.axis[lo + i]]
        finite = all_finite(e, g)
        st.evaluations[b] += 1
        last = st.evaluations[b] > limits.steps
        # Round-off is tolerated in a full step, but not in one that was shortened.
        slack = 1e-12 * abs(st.e[b]) + (E_RISE if st.rejected[b] == 0 else 0.0)
        s = st.s[memory * lo : memory * hi].reshape((memory, hi - lo))
        y = st.y[memory * lo : memory * hi].reshape((memory, hi - lo))

        if st.evaluations[b] == 1:
            if not finite:
                st.status[b] = NOT_FINITE
                continue
        elif not finite or e > st.e[b] + slack:
            step_back(st, b, e, g, finite, limits.max_step)
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
        if st.force[b] < limits.fmax:
            st.status[b] = CONVERGED
        elif longest(st.here[lo:hi] - st.start[lo:hi], st.atom[lo:hi]) > limits.runaway:
            st.status[b] = RUNAWAY
        elif last:
            st.status[b] = STEPS
        else:
            next_step(st, b, s, y, limits.max_step)


# Initial arrays.


def movable(atoms: Atoms, name: str = "the structure") -> Bools:
    """(N,3) True where a coordinate may move; NuggetError for constraints other than these."""
    for constraint in atoms.constraints:
        if not isinstance(constraint, FixAtoms | FixCartesian):
            raise NuggetError(
                f"{name} has a {type(constraint).__name__} constraint, which relax does not "
                "support; use FixAtoms or FixCartesian, or remove it."
            )
    return free_mask(atoms)


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


def initial_state(
    images: Sequence[Atoms],
    confinement: Confinement | Sequence[Confinement | None] | None,
    memory: int,
    precondition_up_to: int,
) -> State:
    """Images, constraints and walls as flat arrays, before the first evaluation."""
    n = len(images)
    free = [movable(atoms, f"Structure {k}") for k, atoms in enumerate(images)]
    atoms_at = offsets_of([len(atoms) for atoms in images])
    dofs = offsets_of([int(mask.sum()) for mask in free])
    mask = np.concatenate([np.zeros((0, 3), dtype=bool), *free])
    atom, axis = (a.astype(np.int64) for a in np.nonzero(mask))
    feels = np.asarray(mask.any(axis=1))
    kind, stiffness = np.zeros(n, dtype=np.int64), np.zeros(n)
    centre, shape = np.zeros((n, 3)), np.zeros((n, 3, 4))
    cell, inverse, periodic = np.zeros((n, 3, 3)), np.zeros((n, 3, 3)), np.zeros(n, dtype=bool)
    for k, region in enumerate(_confinements(confinement, n)):
        if images[k].pbc.any():
            periodic[k], cell[k] = True, images[k].cell.complete().array
            inverse[k] = np.where(images[k].pbc[None, :], np.linalg.inv(cell[k]), 0.0)
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
