"""Potentials with settings that were found good, by name (docs/accuracy.md tells how).

The settings were chosen by cross-validation on 225 gold clusters. What carries over to other
systems is a rule: a length scale of about twice the median distance between environments. Give
`images` to have it measured; without them the value for gold clusters is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from ase import Atoms

from nugget.descriptors.soap import SOAP
from nugget.errors import NuggetError
from nugget.gp.inducing import PivotedCholesky
from nugget.gp.kernels import RBF
from nugget.potential.potential import Potential

# Prior standard deviation 10 eV per environment: with a length scale this long it takes such an
# amplitude for features to matter as much as they do; the error is flat around it.
_AMPLITUDE = 100.0
# At most this many environments are compared with one another.
_SAMPLE = 500


def quick(species: Sequence[str], images: Sequence[Atoms] | None = None) -> Potential:
    """The smallest descriptor, for searches that relax many candidates (forces wanted)."""
    return _potential(SOAP(tuple(species)), 33.0, 1e-8, 500, images)


def balanced(species: Sequence[str], images: Sequence[Atoms] | None = None) -> Potential:
    """Fewer than half of the features of `accurate`; the same warning holds."""
    return _potential(SOAP(tuple(species), 8.0, 6, 4), 73.0, 1e-8, 700, images)


def accurate(species: Sequence[str], images: Sequence[Atoms] | None = None) -> Potential:
    """The lowest errors found on structures of the sizes that were trained on.

    Its long reach does not carry over to larger clusters: for those, a cutoff of 6 Å is better.
    """
    return _potential(SOAP(tuple(species), 8.0, 8, 6), 70.0, 1e-9, 1000, images)


PRESETS: dict[str, Callable[..., Potential]] = {
    "quick": quick,
    "balanced": balanced,
    "accurate": accurate,
}


def length_scale(descriptor: SOAP, images: Sequence[Atoms], factor: float = 2.0) -> float:
    """`factor` times the median distance between environments of the same central element."""
    env = descriptor.compute(images)
    distances = []
    for element in np.unique(env.species):
        rows = np.flatnonzero(env.species == element)
        x = env.values[rows[:: -(-len(rows) // _SAMPLE)]]
        squares = np.einsum("if,if->i", x, x)
        d2 = np.add.outer(squares, squares) - 2.0 * x @ x.T
        distances.append(np.sqrt(np.maximum(d2[np.triu_indices(len(x), 1)], 0.0)))
    together = np.concatenate(distances)
    median = float(np.median(together)) if len(together) else 0.0
    # Round-off in d² is about 1e-16 |x|²: anything near its root is no distance.
    if median <= 1e-6 * float(np.abs(env.values).max()):
        raise NuggetError(
            f"The environments of these {len(env.batch)} structures are all alike, so they tell no "
            "length scale: give more varied images, or none to take the value for gold clusters."
        )
    return factor * median


def _potential(
    descriptor: SOAP, length: float, tol: float, points: int, images: Sequence[Atoms] | None
) -> Potential:
    if images is not None:
        length = length_scale(descriptor, images)
    return Potential(
        descriptor,
        kernel=RBF(length, _AMPLITUDE),
        inducing=PivotedCholesky(tol, points),
        noise=0.01,
        force_noise=0.1,
    )
