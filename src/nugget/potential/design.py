"""Design rows: energies, forces and stresses as rows of one linear system.

The rows of A are k_s for an energy, −∂k_s/∂r for a force component and a strain derivative for a
stress component. Gradient rows come from products of the descriptor's Jacobian with the inducing
points. They are needed for fitting and for the uncertainty of force and stress components only.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np

from nugget.descriptors.base import Environments
from nugget.gp.cross_validation import structure_of
from nugget.gp.kernels import Inducing, Kernel, KernelRows
from nugget.gp.labels import ENERGY, FORCE, STRESS, Labels
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.jit import FAST, njit
from nugget.numerics.threads import each
from nugget.potential.mean_functions.base import MeanFunction, label_values, require_energies
from nugget.potential.training import Noise, Training
from nugget.structures.batch import Batch, offsets_of
from nugget.structures.labels import voigt


def label_rows(
    training: Training,
    env: Environments,
    inducing: Inducing,
    mean_function: MeanFunction,
    noise: Noise,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> Labels:
    """Rows of A, labels minus mean function, and their noise levels.

    The rows stand structure by structure (energy, forces, stress), so that further structures
    append rows to a regression.
    """
    batch = training.batch
    mean = label_values(mean_function, batch, env.pairs)
    require_energies(mean_function, batch, mean.totals(batch))
    points = Points(env.values, batch.offsets, env.species)
    y = training.energy - np.add.reduceat(mean.energies, batch.offsets[:-1])
    sums = _kernel_sums(inducing, points, threads)
    own_levels = training.noise_levels(noise)
    energies = Labels.energies(sums, y, own_levels[:, 0], batch.sizes.astype(float))
    has_forces, has_stress = training.has_forces, training.has_stress
    if not (has_forces.any() or has_stress.any()):
        return energies
    slope = np.zeros_like(batch.positions) if mean.gradient is None else mean.gradient
    strained = np.zeros((len(batch), 3, 3)) if mean.strain is None else mean.strain
    kinds = [ENERGY, FORCE, STRESS]
    lengths = np.stack([np.ones(len(batch)), 3 * batch.sizes * has_forces, 6 * has_stress], axis=1)
    lengths = lengths.astype(np.int64)
    ends, m = offsets_of(lengths.sum(axis=1)), len(inducing)
    rows, y = np.empty((int(ends[-1]), m)), np.empty(int(ends[-1]))
    done = count(1)

    def fill(s: int) -> None:
        """Write the rows and labels of one structure to their place."""
        number, start = lengths[s].tolist(), int(ends[s])
        forces = slice(start + number[0], start + number[0] + number[1])
        energy, stress = slice(start, forces.start), slice(forces.stop, int(ends[s + 1]))
        rows[energy], y[energy] = energies.rows[s], energies.y[s]
        if number[1] or number[2]:
            kernel_rows = inducing.forward(points.select([s]))
            grad, strain = gradient_rows(
                env.select(np.array([s])), kernel_rows, strain=has_stress[s]
            )
        if number[1]:
            atoms = slice(batch.offsets[s], batch.offsets[s + 1])
            np.negative(grad.reshape(-1, m), out=rows[forces])
            y[forces] = (training.forces[atoms] + slope[atoms]).ravel()
        if number[2] and strain is not None:
            volume = abs(np.linalg.det(batch.cells[s]))
            rows[stress] = voigt(strain[0]) / volume
            y[stress] = training.stress[s] - voigt(strained[s]) / volume
        if progress is not None:
            progress(next(done), len(batch))

    each(fill, range(len(batch)), threads)
    kind = np.repeat(np.tile(kinds, len(batch)), lengths.ravel())
    levels = own_levels[np.repeat(np.arange(len(batch)), np.diff(ends)), kind]
    sizes = np.repeat(batch.sizes, np.diff(ends)).astype(float)
    levels[kind == ENERGY] = energies.noise
    return Labels(rows, y, levels, np.where(kind == ENERGY, sizes, 0.0), kind)


def _kernel_sums(inducing: Inducing, points: Points, threads: int | None) -> Floats:
    """Kernel sums of all structures, in parts that fit into the cache."""
    step = max(2**20 // (len(inducing) * max(int(points.sizes.max()), 1)), 1)

    def part(start: int) -> Floats:
        some = points.select(np.arange(start, min(start + step, len(points))))
        return inducing.forward(some).k_sum

    return np.concatenate(each(part, range(0, len(points), step), threads))


def gradient_rows(
    env: Environments, rows: KernelRows, *, strain: bool = False
) -> tuple[Floats, Floats | None]:
    """∂k_sum/∂r of every atom (N, 3, m), and ∂k_sum/∂strain (B, 3, 3, m) if `strain`.

    The Jacobian ∂x_i/∂d of each pair holds the tangents along which the kernel's blocks give
    derivatives.
    """
    jacobian = env.jacobian()
    m = rows.n_inducing
    out = np.zeros((len(env.values), 3, m))
    sheared = np.zeros((len(env.batch), 3, 3, m)) if strain else np.zeros((0, 3, 3, m))
    owner = env.owner
    for part in rows.parts:
        chosen: slice | Ints
        if part.rows is None:
            chosen = slice(None)  # no copy
            local = jacobian.centre
        else:
            position = np.full(len(env.values), -1, dtype=np.int64)
            position[part.rows] = np.arange(len(part.rows))
            chosen = np.flatnonzero(position[jacobian.centre] >= 0)
            local = position[jacobian.centre[chosen]]
        scatter(
            *part.derivatives(jacobian.values[chosen], local), local,
            jacobian.centre[chosen], jacobian.neighbour[chosen], jacobian.vector[chosen],
            owner, part.block.columns, out, sheared,
        )  # fmt: skip
    return out, sheared if strain else None


def prior_force_variance(env: Environments, kernel: Kernel) -> Floats:
    """Prior variance of each force component, (N, 3)."""
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


# Structures whose force components get a prior variance for leave-one-out.
_FORCE_STRUCTURES = 20


def open_variance(
    batch: Batch, env: Environments, kernel: Kernel, regression: SparseRegression, seed: int
) -> Floats:
    """Prior variance of each label (p,) that the inducing points leave open, k − κK_mm⁻¹κᵀ.

    Forces have one in some structures only, since it needs all pairs of atoms of a structure; other
    labels have NaN.
    """
    reg, owner = regression, structure_of(regression)
    prior = np.full(len(owner), np.nan)
    points = Points(env.values, batch.offsets, env.species)
    prior[reg.kind == ENERGY] = kernel.self_sum(points).value
    sample = np.random.default_rng(seed).permutation(len(batch))[:_FORCE_STRUCTURES]
    for s in sample:
        rows = np.flatnonzero((owner == s) & (reg.kind == FORCE))
        if len(rows):
            prior[rows] = prior_force_variance(env.select(np.array([s])), kernel).ravel()
    square = np.einsum("ij,ij->i", reg.whitened, reg.whitened) * reg.noise**2
    return np.maximum(prior - square, 0.0)


@njit(fastmath=FAST)
def scatter(
    product: Floats,
    own: Floats,
    slopes: Floats,
    scale: float,
    local: Ints,
    centre: Ints,
    neighbour: Ints,
    vector: Floats,
    owner: Ints,
    columns: Ints,
    out: Floats,
    sheared: Floats,
) -> None:
    """out[b] += line and out[a] −= line for the pair (a, b), line = (J·z̃ − J·x̃)·g·scale.

    Sums are stored contiguously for the columns of a block and scattered to all columns at the end.
    """
    n_columns = len(columns)
    line = np.empty(n_columns)
    rows = np.zeros((len(out), 3, n_columns))
    by_strain = np.zeros((len(sheared), 3, 3, n_columns))
    for p in range(len(centre)):
        a, b = centre[p], neighbour[p]
        kernel = slopes[local[p]]
        for axis in range(3):
            source, offset = product[p, axis], own[p, axis]
            to_b, to_a = rows[b, axis], rows[a, axis]
            for q in range(n_columns):
                line[q] = (source[q] - offset) * kernel[q] * scale
            for q in range(n_columns):
                to_b[q] += line[q]
            for q in range(n_columns):
                to_a[q] -= line[q]
            if len(sheared) > 0:
                for other in range(3):
                    target, d = by_strain[owner[a], axis, other], vector[p, other]
                    for q in range(n_columns):
                        target[q] += line[q] * d
    for atom in range(len(out)):
        for axis in range(3):
            for q in range(n_columns):
                out[atom, axis, columns[q]] += rows[atom, axis, q]
    for s in range(len(sheared)):
        for axis in range(3):
            for other in range(3):
                for q in range(n_columns):
                    sheared[s, axis, other, columns[q]] += by_strain[s, axis, other, q]
