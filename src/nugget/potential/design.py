"""Design rows: energies, forces and stresses as rows of one linear system."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.threads import each
from nugget.descriptors.base import Environments
from nugget.gp.kernels import Inducing, Kernel, KernelRows
from nugget.gp.labels import ENERGY, FORCE, STRESS, Labels
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.potential._gradient_loops import scatter
from nugget.potential.priors import Prior
from nugget.potential.training import Training
from nugget.structures.batch import offsets_of
from nugget.structures.labels import VOIGT

if TYPE_CHECKING:
    from nugget.potential.potential import Fit, Potential

# Stress is a derivative per volume: σ_F per Å² of cell surface, for a cell of about this many Å².
_STRESS_AREA = 25.0


def label_rows(
    training: Training,
    env: Environments,
    inducing: Inducing,
    prior: Prior,
    noise: float,
    force_noise: float,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> Labels:
    """Rows of A, labels minus prior, and their noise, structure by structure.

    Energy, forces, stress of the first structure, then of the second: appending structures appends
    rows, which is what lets a regression grow.
    """
    batch = training.batch
    before = prior.evaluate(batch, env.pairs)
    points = Points(env.values, batch.offsets, env.species)
    y = training.energy - np.add.reduceat(before.energies, batch.offsets[:-1])
    sums = _kernel_sums(inducing, points, threads)
    energies = Labels.energies(sums, y, noise, batch.sizes.astype(float))
    has_forces, has_stress = training.has_forces, training.has_stress
    if not (has_forces.any() or has_stress.any()):
        return energies
    slope = np.zeros_like(batch.positions) if before.gradient is None else before.gradient
    strained = np.zeros((len(batch), 3, 3)) if before.strain is None else before.strain
    kinds = [ENERGY, FORCE, STRESS]
    lengths = np.stack([np.ones(len(batch)), 3 * batch.sizes * has_forces, 6 * has_stress], axis=1)
    lengths = lengths.astype(np.int64)
    ends, m = offsets_of(lengths.sum(axis=1)), len(inducing)
    rows, y = np.empty((int(ends[-1]), m)), np.empty(int(ends[-1]))
    done = count(1)

    def fill(s: int) -> None:
        """Rows and labels of one structure; every structure has a place of its own."""
        places = np.split(np.arange(ends[s], ends[s + 1]), np.cumsum(lengths[s])[:2])
        energy, forces, stress = places
        rows[energy], y[energy] = energies.rows[s], energies.y[s]
        if len(forces) or len(stress):
            found = inducing.forward(points.select([s]))
            grad, strain = gradient_rows(env.select(np.array([s])), found, strain=has_stress[s])
        if len(forces):
            atoms = slice(batch.offsets[s], batch.offsets[s + 1])
            np.negative(grad.reshape(-1, m), out=rows[forces[0] : forces[-1] + 1])
            y[forces] = (training.forces[atoms] + slope[atoms]).ravel()
        if len(stress) and strain is not None:
            volume = abs(np.linalg.det(batch.cells[s]))
            voigt = np.stack([0.5 * (strain[0, a, b] + strain[0, b, a]) for a, b in VOIGT])
            known = np.array([0.5 * (strained[s, a, b] + strained[s, b, a]) for a, b in VOIGT])
            rows[stress], y[stress] = voigt / volume, training.stress[s] - known / volume
        if progress is not None:
            progress(next(done), len(batch))

    each(fill, range(len(batch)), threads)
    kind = np.repeat(np.tile(kinds, len(batch)), lengths.ravel())
    levels = np.array([0.0, force_noise, force_noise / _STRESS_AREA])[kind]
    sizes = np.repeat(batch.sizes, np.diff(ends)).astype(float)
    levels[kind == ENERGY] = energies.noise
    return Labels(rows, y, levels, np.where(kind == ENERGY, sizes, 0.0), kind)


def grown(
    potential: Potential, old: Fit, x: Floats, group: Ints
) -> tuple[Inducing, SparseRegression]:
    """Append inducing points: new columns of K_mm and of all old label rows."""
    kernel, before = potential.kernel, old.inducing
    new = kernel.inducing(x, group)
    env = potential.descriptor.compute(old.training.batch)
    noise = (potential.noise, potential.force_noise)
    rows = label_rows(old.training, env, new, old.prior, *noise).rows
    k_new = np.concatenate([new.matrix(before.z, before.group), new.gram])
    every = np.concatenate([before.z, x]), np.concatenate([before.group, group])
    return kernel.inducing(*every), old.regression.add_inducing(k_new, rows)


def _kernel_sums(inducing: Inducing, points: Points, threads: int | None) -> Floats:
    """Kernel sums of all structures, in pieces that fit the cache."""
    step = max(2**20 // (len(inducing) * max(int(points.sizes.max()), 1)), 1)

    def piece(start: int) -> Floats:
        some = points.select(np.arange(start, min(start + step, len(points))))
        return inducing.forward(some).k_sum

    return np.concatenate(each(piece, range(0, len(points), step), threads))


def gradient_rows(
    env: Environments, rows: KernelRows, *, strain: bool = False
) -> tuple[Floats, Floats | None]:
    """∂k_sum/∂r of every atom (N, 3, m), and ∂k_sum/∂strain (B, 3, 3, m) if asked for.

    Built only for fitting and for the uncertainty of force components. With J = ∂x_i/∂d of a
    pair, ∂k_ij/∂d = g_ij (z̃_j − x̃_i)·J/l: one GEMM of all J with the inducing points.
    """
    jacobian = env.jacobian()
    m = rows.n_inducing
    out = np.zeros((len(env.values), 3, m))
    sheared = np.zeros((len(env.batch), 3, 3, m)) if strain else np.zeros((0, 3, 3, m))
    owner = env.owner
    for part in rows.parts:
        block = part.block
        if part.rows is None:
            chosen = np.arange(len(jacobian.centre))
            local = jacobian.centre
        else:
            position = np.full(len(env.values), -1, dtype=np.int64)
            position[part.rows] = np.arange(len(part.rows))
            chosen = np.flatnonzero(position[jacobian.centre] >= 0)
            local = position[jacobian.centre[chosen]]
        values = jacobian.values[chosen][:, :, part.features]
        tangent = values.reshape(3 * len(chosen), values.shape[2])
        own = np.einsum("pcf,pf->pc", values, part.xs[local])
        scatter(
            (tangent @ block.zt).reshape(len(chosen), 3, len(block.columns)),
            own, part.slopes, block.scale, local,
            jacobian.centre[chosen], jacobian.neighbour[chosen], jacobian.vector[chosen],
            owner, block.columns, out, sheared,
        )  # fmt: skip
    return out, sheared if strain else None


def prior_force_variance(env: Environments, kernel: Kernel) -> Floats:
    """Variance of each force component before any data, (N, 3)."""
    jacobian = env.jacobian()
    batch = env.batch
    out = np.zeros((len(batch.positions), 3))
    for s in range(len(batch)):
        a, b = int(batch.offsets[s]), int(batch.offsets[s + 1])
        mine = np.flatnonzero(env.owner[jacobian.centre] == s)
        tangent = np.zeros((b - a, 3, b - a, env.values.shape[1]))  # atom moved, axis, centre, f
        moved, centre = jacobian.neighbour[mine] - a, jacobian.centre[mine] - a
        for p, row in enumerate(mine):
            tangent[moved[p], :, centre[p]] += jacobian.values[row]
            tangent[centre[p], :, centre[p]] -= jacobian.values[row]
        flat = tangent.reshape(3 * (b - a), b - a, -1)
        out[a:b] = kernel.tangent_variance(env.values[a:b], env.species[a:b], flat).reshape(-1, 3)
    return out
