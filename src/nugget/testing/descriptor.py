"""The conformance check of descriptors."""

from __future__ import annotations

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.descriptors.base import Descriptor
from nugget.errors import NuggetError
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs
from nugget.testing import _compare as ref


def check_descriptor(descriptor: Descriptor, seed: int = 0) -> None:
    """Raise ConformanceError unless the descriptor keeps its contract (`nugget.descriptors.base`).

    Invariances, locality, batches, and all derivatives by positions and strain, on a mixed cluster,
    a periodic cell smaller than the cutoff and a slab.
    """
    ref.plain_settings(descriptor, "descriptor")
    rng = np.random.default_rng(seed)
    structures = ref.random_structures(descriptor.species, seed)
    for name, atoms in structures.items():
        _check_values(descriptor, atoms, name, rng)
        _check_derivatives(descriptor, atoms, name, rng)
    _check_batch(descriptor, list(structures.values()))
    _check_locality(descriptor, structures["cluster"])
    _check_refusals(descriptor, structures["cluster"])


def _check_values(
    descriptor: Descriptor, atoms: Atoms, name: str, rng: np.random.Generator
) -> None:
    env = descriptor.compute([atoms])
    shape = (len(atoms), descriptor.n_features)
    ref.require(
        env.values.shape == shape, f"Features of the {name} have shape (atoms, n_features)."
    )
    ref.require(bool(np.isfinite(env.values).all()), f"Features of the {name} are finite.")
    expected = [descriptor.species.index(symbol) for symbol in atoms.symbols]
    ref.require(
        env.species.tolist() == expected, "`species` is each atom's index among the species."
    )
    turned = atoms.copy()
    turned.rotate(rng.uniform(20, 160), rng.normal(size=3), rotate_cell=True)
    turned.positions += rng.normal(size=3)
    ref.close(
        descriptor.compute([turned]).values, env.values, f"Turning the {name}, no change", 1e-8
    )
    order = rng.permutation(len(atoms))
    ref.close(
        descriptor.compute([atoms[order]]).values, env.values[order],
        f"Renumbering the atoms of the {name} renumbers the features", 1e-9,
    )  # fmt: skip
    if atoms.pbc.any():
        repeat = tuple(np.where(atoms.pbc, 2, 1))
        larger = descriptor.compute([atoms.repeat(repeat)]).values[: len(atoms)]
        ref.close(
            larger, env.values, f"A larger cell of the {name} has the same environments", 1e-8
        )


def _check_derivatives(
    descriptor: Descriptor, atoms: Atoms, name: str, rng: np.random.Generator
) -> None:
    env = descriptor.compute([atoms])
    grad = rng.normal(size=(2, *env.values.shape))
    positions, strain = env.pullback_strain(grad)
    one, bent = env.pullback_strain(grad[0])
    ref.close(one, positions[0], "One cotangent and several give the same gradients", 1e-9)
    ref.close(bent, strain[0], "One cotangent and several give the same strain derivatives", 1e-9)
    ref.close(
        env.pullback(grad), positions, "`pullback` is the first part of `pullback_strain`", 1e-9
    )
    for r in range(2):
        direction = rng.normal(size=atoms.positions.shape)

        def value(other: Atoms, r: int = r) -> float:
            return float(np.sum(grad[r] * descriptor.compute([other]).values))

        slope = ref.derivative(lambda t, d=direction, r=r: value(ref.moved(atoms, d, t), r))  # type: ignore[misc]
        ref.close(
            np.sum(positions[r] * direction), slope,
            f"pullback of the {name} is the gradient by positions", 1e-5,
        )  # fmt: skip
        if atoms.cell.rank == 3 and atoms.pbc.all():
            slopes = [
                ref.derivative(lambda t, c=c, r=r: value(ref.strained(atoms, c, t), r), 5e-4)  # type: ignore[misc]
                for c in range(6)
            ]
            ref.close(
                ref.voigt(strain[r, 0]), np.array(slopes),
                f"pullback_strain of the {name} is the derivative by strain", 1e-5,
            )  # fmt: skip
    jacobian = env.jacobian()
    pull = np.einsum("pf,pcf->pc", grad[0][jacobian.centre], jacobian.values)
    by_pairs = np.zeros_like(positions[0])
    np.add.at(by_pairs, jacobian.neighbour, pull)
    np.subtract.at(by_pairs, jacobian.centre, pull)
    ref.close(by_pairs, positions[0], f"The Jacobian of the {name} agrees with its pullback", 1e-8)
    by_strain = np.einsum("pa,pb->ab", pull, jacobian.vector)
    ref.close(
        by_strain, strain[0, 0], f"The Jacobian's vectors of the {name} give its strain", 1e-8
    )


def _check_batch(descriptor: Descriptor, images: list[Atoms]) -> None:
    env = descriptor.compute(images)
    alone = [descriptor.compute([atoms]).values for atoms in images]
    ref.close(
        env.values, np.concatenate(alone), "A batch has the features of its structures", 1e-10
    )
    some = env.select(np.array([2, 0]))
    expected = np.concatenate([alone[2], alone[0]])
    ref.close(some.values, expected, "`select` keeps the features of the named structures", 1e-10)
    batch = as_batch(images)
    longer = descriptor.compute(batch, find_pairs(batch, descriptor.cutoff + 0.7))
    ref.close(longer.values, env.values, "Pairs beyond the cutoff change nothing", 1e-10)


def _check_locality(descriptor: Descriptor, cluster: Atoms) -> None:
    """An atom that leaves through the cutoff changes the features continuously, to nothing."""
    pair = cluster[[0, 1]]

    def at(distance: float) -> Floats:
        other = pair.copy()
        other.positions[:] = [[0, 0, 0], [distance, 0, 0]]
        return descriptor.compute([other]).values[0]

    beyond = at(descriptor.cutoff + 0.5)
    scale = float(np.max(np.abs(at(0.5 * descriptor.cutoff) - beyond))) or 1.0
    jump = float(np.max(np.abs(at(descriptor.cutoff - 1e-4) - beyond))) / scale
    ref.require(jump < 1e-3, f"Features are continuous at the cutoff (they jump by {jump:.1e}).")


def _check_refusals(descriptor: Descriptor, cluster: Atoms) -> None:
    foreign = cluster.copy()
    foreign.symbols[0] = next(s for s in ("Xe", "Rn", "Ne") if s not in descriptor.species)
    try:
        descriptor.compute([foreign])
    except NuggetError:
        pass
    else:
        ref.require(False, "An element that is not described raises NuggetError.")
    crashed = cluster.copy()
    crashed.positions[1] = crashed.positions[0]
    env = descriptor.compute([crashed], strict=False)
    ref.require(
        bool(env.has_coincident) or bool(np.isfinite(env.values).all()),
        "With strict=False, atoms on top of each other are named, or the features stay finite.",
    )
