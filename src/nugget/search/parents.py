"""Which evaluated structures new candidates are made from: low ones that differ.

K-means clusters the structures by their mean descriptors, and the lowest of each cluster becomes a
parent. The clustering is our own, because its random numbers must come from the search's generator
for a search to be resumed bit-identically with any version of scikit-learn.
"""

from __future__ import annotations

import numpy as np
from ase import Atoms

from nugget.descriptors.base import Descriptor
from nugget.numerics.arrays import Floats, Ints


def kmeans_labels(features: Floats, rng: np.random.Generator, k: int, iterations: int = 50) -> Ints:
    """Clusters of the rows, by k-means++ seeds and Lloyd's iterations until convergence.

    There are fewer than k labels if there are fewer than k different rows.
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
    """Indices of the lowest structure in each of n clusters of `features` (S, f), lowest first.

    If there are fewer clusters than n, the lowest remaining structures are added.
    """
    n = min(n, len(energies))
    order = np.argsort(energies, kind="stable")
    labels = kmeans_labels(features[order], rng, min(n, len(order)))
    _, first = np.unique(labels, return_index=True)
    chosen = order[np.sort(first)]
    rest = order[~np.isin(order, chosen)][: n - len(chosen)]
    together = np.concatenate([chosen, rest])
    return together[np.argsort(energies[together], kind="stable")].astype(np.int64)


def choose_parents(
    images: list[Atoms],
    values: Floats,
    descriptor: Descriptor,
    number: int,
    rng: np.random.Generator,
    per_atom: bool,
) -> list[Atoms]:
    """Parents among the evaluated structures; `per_atom` if these differ in size."""
    if not images:
        return []
    features = descriptor.compute(images)
    means = np.add.reduceat(features.values, features.batch.offsets[:-1], axis=0)
    if per_atom:
        means /= features.batch.sizes[:, None]
    return [images[k] for k in kmeans(means, values, rng, number)]
