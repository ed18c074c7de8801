"""Which known structures new ones are made from: pure functions of features and energies.

All take features (S, f), energies (S,), a random generator and the number n wanted, and give
indices of different structures, the best first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from nugget.descriptors.base import Descriptor
from nugget.errors import NuggetError
from nugget.search.config import SearchConfig

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Selector = Callable[..., Ints]


def _check(features: Floats, energies: Floats, n: int) -> int:
    """Number to return: at most as many as there are structures with a finite energy."""
    if features.ndim != 2 or energies.shape != (len(features),) or n < 1:
        raise NuggetError(
            f"Parents need features (S, f), energies (S,) and n of 1 or more; got "
            f"{features.shape}, {energies.shape} and {n}."
        )
    if not np.isfinite(energies).all() or not np.isfinite(features).all():
        raise NuggetError("An energy or feature is not finite; leave failed structures out.")
    return min(n, len(energies))


def best(features: Floats, energies: Floats, rng: np.random.Generator, n: int) -> Ints:
    """The n lowest energies (the random generator is not used)."""
    n = _check(features, energies, n)
    return np.argsort(energies, kind="stable")[:n].astype(np.int64)


def boltzmann(
    features: Floats, energies: Floats, rng: np.random.Generator, n: int, temperature: float = 1.0
) -> Ints:
    """n structures drawn without replacement, ∝ exp(−E / temperature), temperature in eV.

    Perturbing −E/T by Gumbel noise and taking the largest is that draw, free of underflow.
    """
    n = _check(features, energies, n)
    if not temperature > 0:
        raise NuggetError(f"The temperature is {temperature!r} eV; it must be above 0.")
    keys = -(energies - energies.min()) / temperature + rng.gumbel(size=len(energies))
    chosen = np.argsort(-keys, kind="stable")[:n]
    return chosen[np.argsort(energies[chosen], kind="stable")].astype(np.int64)


def kmeans_labels(features: Floats, rng: np.random.Generator, k: int, iterations: int = 50) -> Ints:
    """Clusters of the rows: k-means++ seeds, then Lloyd's iterations until nothing changes.

    Fewer than k labels come out when there are fewer than k different rows.
    """
    norms = (features**2).sum(axis=1)

    def distances(centres: Floats) -> Floats:
        d2 = norms[:, None] - 2.0 * features @ centres.T + (centres**2).sum(axis=1)
        return np.maximum(d2, 0.0)

    tiny = 1e-12 * max(float(norms.max()), 1e-300)
    centres = features[[int(rng.integers(len(features)))]]
    while len(centres) < k:
        d2 = distances(centres).min(axis=1)
        d2[d2 <= tiny] = 0.0
        if not d2.any():
            break
        new = int(rng.choice(len(features), p=d2 / d2.sum()))
        centres = np.concatenate([centres, features[[new]]])
    labels = distances(centres).argmin(axis=1)
    for _ in range(iterations):
        for c in range(len(centres)):
            if (labels == c).any():
                centres[c] = features[labels == c].mean(axis=0)
        new_labels = distances(centres).argmin(axis=1)
        if np.array_equal(new_labels, labels):
            break
        labels = new_labels
    return labels.astype(np.int64)


def kmeans(features: Floats, energies: Floats, rng: np.random.Generator, n: int) -> Ints:
    """The lowest structure of each of n clusters in feature space: good ones that differ.

    When there are fewer clusters than n, the lowest of the rest fill up.
    """
    n = _check(features, energies, n)
    order = np.argsort(energies, kind="stable")
    labels = kmeans_labels(features[order], rng, min(n, len(order)))
    _, first = np.unique(labels, return_index=True)
    chosen = order[np.sort(first)]
    rest = order[~np.isin(order, chosen)][: n - len(chosen)]
    together = np.concatenate([chosen, rest])
    return together[np.argsort(energies[together], kind="stable")].astype(np.int64)


SELECTORS: dict[str, Selector] = {"kmeans": kmeans, "best": best, "boltzmann": boltzmann}


def choose_parents(
    images: list[Atoms],
    values: Floats,
    descriptor: Descriptor,
    search: SearchConfig,
    rng: np.random.Generator,
    by_atom: bool,
) -> list[Atoms]:
    """Some of the known structures; `by_atom` where they differ in size."""
    if not images:
        return []
    features = descriptor.compute(images)
    means = np.add.reduceat(features.values, features.batch.offsets[:-1], axis=0)
    if by_atom:
        means /= features.batch.sizes[:, None]
    return [images[k] for k in SELECTORS[search.parents](means, values, rng, search.n_parents)]
