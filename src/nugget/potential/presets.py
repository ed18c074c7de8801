"""Potentials with settings that were found good, by name (docs/accuracy.md tells how).

`auto` tries several ranges on some of the structures, leaves structures out in turn, and takes the
range with the smallest errors; `Potential.fit(choose_noise=True)` does the same for the noise.
Length scales follow a rule: so many times the median distance between environments. Give `images`
to have it measured; without them the values for gold clusters are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget.descriptors.base import Descriptor
from nugget.descriptors.joined import Joined
from nugget.descriptors.soap import SOAP
from nugget.descriptors.unit_length import UnitLength
from nugget.errors import NuggetError
from nugget.gp.inducing import PivotedCholesky
from nugget.gp.kernels import RBF, Kernel
from nugget.gp.kernels.sum_kernel import SumKernel
from nugget.gp.noise_search import NoiseSearch, NoiseTrial
from nugget.potential.potential import Potential
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs

# At most this many environments are compared with one another.
_SAMPLE = 500
# What `auto` compares ranges on: so many structures, with so many atoms in all.
_STRUCTURES, _ATOMS, _POINTS = 80, 2000, 400
# Neighbours of an atom, on average, up to which a long range is worth its time.
_NEIGHBOURS = 80

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Range:
    """One range of a recipe: a SOAP descriptor, and the kernel on its features.

    The amplitude is a variance in eV². With a length scale of twice the median distance it takes
    100 for features to matter as much as they do; a long range with a small one is forgotten first
    where data end.
    """

    cutoff: float
    gold: float  # length scale for gold clusters, when there are no images to measure it on
    unit: bool = False  # features of unit length
    factor: float = 2.0  # length scale over median distance
    amplitude: float = 100.0
    most: tuple[int, int] = (8, 6)  # n_max and l_max are no larger than this
    sigma: float = 1.0  # width of SOAP's Gaussians, Å

    def descriptor(self, species: Sequence[str]) -> Descriptor:
        n_max, l_max = map(min, basis(len(set(species))), self.most)
        soap = SOAP(tuple(species), self.cutoff, n_max, l_max, self.sigma)
        return UnitLength(soap) if self.unit else soap

    def kernel(self, descriptor: Descriptor, images: Sequence[Atoms] | None) -> RBF:
        length = self.gold if images is None else length_scale(descriptor, images, self.factor)
        return RBF(length, self.amplitude)


def basis(elements: int) -> tuple[int, int]:
    """More elements, fewer functions each: features grow with the square of both."""
    return {1: (8, 6), 2: (6, 4)}.get(elements, (4, 3))


@dataclass(frozen=True)
class Recipe:
    """Ranges whose kernels are added up, and how many inducing points there may be."""

    ranges: tuple[Range, ...]
    tol: float = 1e-10
    points: int = 800
    noise: float = 0.01
    force_noise: float = 0.1

    def potential(self, species: Sequence[str], images: Sequence[Atoms] | None = None) -> Potential:
        parts = [one.descriptor(species) for one in self.ranges]
        kernels = [one.kernel(d, images) for one, d in zip(self.ranges, parts, strict=True)]
        descriptor: Descriptor = parts[0]
        kernel: Kernel = kernels[0]
        if len(parts) > 1:
            descriptor = joined = Joined(tuple(parts))
            kernel = SumKernel(tuple(kernels), joined.widths)
        rule = PivotedCholesky(self.tol, self.points)
        return Potential(descriptor, kernel, rule, self.noise, self.force_noise)


_LONG = Range(10.0, 0.3, unit=True, factor=1.0, amplitude=0.1, most=(6, 4))
RECIPES: dict[str, Recipe] = {
    "quick": Recipe((Range(6.0, 33.0, most=(3, 2)),), 1e-8, 500),
    "balanced": Recipe((Range(5.0, 16.0),), 1e-10, 600),
    "accurate": Recipe((Range(5.0, 0.22, unit=True), _LONG)),
}
#: What `auto` chooses from.
CANDIDATES: dict[str, Recipe] = {
    "4 Å": Recipe((Range(4.0, 7.0),)),
    "5 Å": Recipe((Range(5.0, 16.0),)),
    "6 Å": Recipe((Range(6.0, 32.0),)),
    "5 Å + 10 Å": RECIPES["accurate"],
}


def quick(species: Sequence[str], images: Sequence[Atoms] | None = None) -> Potential:
    """The smallest descriptor, for searches that relax many candidates (forces wanted)."""
    return RECIPES["quick"].potential(species, images)


def balanced(species: Sequence[str], images: Sequence[Atoms] | None = None) -> Potential:
    """One range of 5 Å: half the time of `accurate`."""
    return RECIPES["balanced"].potential(species, images)


def accurate(species: Sequence[str], images: Sequence[Atoms] | None = None) -> Potential:
    """A range of 5 Å, and one of 10 Å with a small amplitude: the lowest errors on clusters.

    In dense crystals a range of 10 Å holds hundreds of atoms: fitting takes long there.
    """
    return RECIPES["accurate"].potential(species, images)


def auto(
    species: Sequence[str],
    images: Sequence[Atoms] | None = None,
    *,
    use_forces: bool | None = None,
    seed: int = 0,
    single: bool = False,
    tell: Progress | None = None,
) -> Potential:
    """The range with the smallest errors on structures left out, each with its best noise levels.

    Ranges are compared on a random sample of the images. The sum of two ranges is tried where the
    shortest range is not the best, and environments are not too large for it; `single` leaves it
    out. `tell` hears what is being tried. `Potential.choices` says what was found.
    """
    if images is None:
        raise NuggetError("The preset 'auto' chooses by data: give it labelled images.")
    sample = _sample(images, seed)
    found: dict[str, NoiseTrial] = {}
    for name, recipe in CANDIDATES.items():
        if len(recipe.ranges) > 1 and (
            single or _best(found) == next(iter(CANDIDATES)) or not _affordable(recipe, sample)
        ):
            continue
        if tell is not None:
            tell(name)
        small = recipe.potential(species, sample)
        small.inducing = PivotedCholesky(recipe.tol, _POINTS)
        found[name] = NoiseSearch(small.fit(sample, use_forces).fitted.regression).best()
    best = _best(found)
    potential = CANDIDATES[best].potential(species, images)
    _set_noise(potential, found[best])
    potential.choices = {
        "range": best,
        "tried_on": len(sample),
        "left_out_mae": {name: [t.energy_mae, t.force_mae] for name, t in found.items()},
    }
    return potential


def _affordable(recipe: Recipe, images: Sequence[Atoms]) -> bool:
    """Whether environments are small enough for the longest range: fitting goes pair by pair."""
    batch = as_batch(images)
    pairs = find_pairs(batch, max(one.cutoff for one in recipe.ranges))
    return 2 * len(pairs.i) <= _NEIGHBOURS * len(batch.positions)


def _best(found: dict[str, NoiseTrial]) -> str:
    return min(found, key=lambda name: found[name].score)


PRESETS: dict[str, Callable[..., Potential]] = {
    "quick": quick,
    "balanced": balanced,
    "accurate": accurate,
    "auto": auto,
}


def _set_noise(potential: Potential, trial: NoiseTrial) -> None:
    potential.noise *= float(trial.energy)
    potential.force_noise *= float(trial.force)


def _sample(images: Sequence[Atoms], seed: int) -> list[Atoms]:
    """Some of the structures at random, in their order, with no more atoms than can be afforded."""
    order = np.random.default_rng(seed).permutation(len(images))[:_STRUCTURES]
    sizes = np.cumsum([len(images[i]) for i in order])
    kept = order[: max(int(np.searchsorted(sizes, _ATOMS, side="right")), min(2, len(order)))]
    return [images[i] for i in np.sort(kept)]


def length_scale(descriptor: Descriptor, images: Sequence[Atoms], factor: float = 2.0) -> float:
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
