"""Presets: potentials with tested settings, by name (see docs/evidence/accuracy.md).

`auto` compares several ranges by their leave-one-out errors on a sample of the structures, and
decides in the same way whether a mean function of cohesion is used;
`Potential.fit(choose_noise=True)` chooses the noise levels. The length scale of a
kernel is a multiple of the median distance between environments. It is measured on `images`, if
they are given; otherwise the value for gold clusters is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from ase import Atoms

from nugget.descriptors.base import Descriptor
from nugget.descriptors.combined import Joined, UnitLength
from nugget.descriptors.soap import SOAP
from nugget.errors import NuggetError
from nugget.gp.cross_validation import NoiseSearch, NoiseTrial
from nugget.gp.inducing import PivotedCholesky
from nugget.gp.kernels import RBF, Kernel
from nugget.gp.kernels.sum_kernel import SumKernel
from nugget.potential.builder import ModelSettings, PartSettings
from nugget.potential.mean_choice import with_mean
from nugget.potential.mean_functions.base import MeanFunction, as_mean_function
from nugget.potential.mean_functions.bond_order import BondOrder
from nugget.potential.mean_functions.fitted_form import unexplained
from nugget.potential.mean_functions.second_moment import SecondMoment
from nugget.potential.potential import DEFAULT_MEAN, Potential
from nugget.potential.training import Noise, Training, TrainingData
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs

__all__ = ["CANDIDATES", "PRESETS", "accurate", "auto", "balanced", "length_scale", "quick"]

# Environments per element between which distances are measured.
_SAMPLE = 500

# Limits of the sample on which `auto` compares ranges: structures, atoms, inducing points.
_STRUCTURES, _ATOMS, _POINTS = 80, 2000, 400

# Narrower widths of SOAP's Gaussians that `auto` tries in turn, Å, until one is no better.
_WIDTHS = (0.7, 0.5)

# Mean functions of cohesion: structures and atoms they are fitted to, and the largest number of
# elements; the largest share of the rms force that they may leave on other structures; and by how
# much the score of leave-one-out errors must be better without one, since its value lies outside of
# the training set.
_COHESION_STRUCTURES, _COHESION_ATOMS, _COHESION_ELEMENTS = 24, 2500, 3
_UNEXPLAINED, _BETTER = 0.5, 0.15

# Bond orders are tried where they leave less than this share of what the second moment leaves.
_ANGLES = 0.7

# Mean number of neighbours up to which a second, long range is affordable.
_NEIGHBOURS = 80


Tell = Callable[[str], None]
Cohesion = SecondMoment | BondOrder

# Structures, or a training set whose features are computed once and shared with the fit.
Images = Sequence[Atoms] | TrainingData


@dataclass(frozen=True)
class Range:
    """One range of a recipe: a SOAP descriptor, and the kernel on its features.

    The amplitude is a variance in eV². A large one suits a length scale of twice the median
    distance. A long range with a small amplitude decays first outside the data.
    """

    cutoff: float
    gold: float  # length scale for gold clusters, used without images
    unit: bool = False  # whether features are normalised to unit length
    factor: float = 2.0  # length scale over median distance
    amplitude: float = 100.0
    most: tuple[int, int] = (8, 6)  # largest n_max and l_max
    sigma: float = SOAP.sigma  # width of SOAP's Gaussians, Å

    def descriptor(self, species: Sequence[str]) -> Descriptor:
        n_max, l_max = map(min, basis(len(set(species))), self.most)
        soap = SOAP(tuple(species), self.cutoff, n_max, l_max, self.sigma)
        return UnitLength(soap) if self.unit else soap

    def kernel(self, descriptor: Descriptor, images: Images | None) -> RBF:
        length = self.gold if images is None else length_scale(descriptor, images, self.factor)
        return RBF(length, self.amplitude)


def basis(elements: int) -> tuple[int, int]:
    """n_max and l_max; smaller for more elements, since features grow with the square of both."""
    return {1: (8, 6), 2: (6, 4)}.get(elements, (4, 3))


@dataclass(frozen=True)
class Recipe:
    """Ranges whose kernels are added, and the limits of the inducing points."""

    ranges: tuple[Range, ...]
    tol: float = 1e-10
    points: int = 800
    noise: Noise = field(default_factory=Noise)

    def settings(self, species: Sequence[str], images: Images | None = None) -> ModelSettings:
        """Settings with the length scales for `images`."""
        parts = [one.descriptor(species) for one in self.ranges]
        kernels = [one.kernel(d, images) for one, d in zip(self.ranges, parts, strict=True)]
        descriptor: Descriptor = parts[0]
        kernel: Kernel = kernels[0]
        if len(parts) > 1:
            descriptor = joined = Joined(tuple(parts))
            kernel = SumKernel(tuple(kernels), joined.widths)
        limits = {"tol": self.tol, "max_points": self.points}
        rule = PartSettings("PivotedCholesky", limits)
        return ModelSettings(descriptor, kernel, rule, noise=self.noise)

    def potential(self, species: Sequence[str], images: Images | None = None) -> Potential:
        """The potential, not yet fitted."""
        return self.settings(species, images).build()


_LONG = Range(10.0, 0.3, unit=True, factor=1.0, amplitude=0.1, most=(6, 4))

RECIPES: dict[str, Recipe] = {
    "quick": Recipe((Range(SOAP.cutoff, 33.0, most=(SOAP.n_max, SOAP.l_max)),), 1e-8, 500),
    "balanced": Recipe((Range(5.0, 16.0),), 1e-10, 600),
    "accurate": Recipe((Range(5.0, 0.22, unit=True), _LONG)),
}

#: Ranges that `auto` compares.
CANDIDATES: dict[str, Recipe] = {
    "4 Å": Recipe((Range(4.0, 7.0),)),
    "5 Å": Recipe((Range(5.0, 16.0),)),
    "6 Å": Recipe((Range(6.0, 32.0),)),
    "5 Å + 10 Å": RECIPES["accurate"],
}


def quick(species: Sequence[str], images: Images | None = None) -> Potential:
    """The smallest descriptor, for searches that relax many candidates."""
    return RECIPES["quick"].potential(species, images)


def balanced(species: Sequence[str], images: Images | None = None) -> Potential:
    """One range of 5 Å, at half the cost of `accurate`."""
    return RECIPES["balanced"].potential(species, images)


def accurate(species: Sequence[str], images: Images | None = None) -> Potential:
    """A range of 5 Å and one of 10 Å with a small amplitude; the lowest errors for clusters.

    In dense crystals an environment of 10 Å holds hundreds of atoms, and fitting is slow.
    """
    return RECIPES["accurate"].potential(species, images)


def auto(
    species: Sequence[str],
    images: Sequence[Atoms] | None = None,
    *,
    use_forces: bool | None = None,
    seed: int = 0,
    single: bool = False,
    data: TrainingData | None = None,
    tell: Tell | None = None,
    mean_function: MeanFunction | None = None,
    cohesion: bool = True,
) -> Potential:
    """The range with the smallest leave-one-out errors, each range with its best noise levels.

    Ranges are compared on a random sample of the images. The sum of two ranges is tried unless the
    shortest range is the best, environments are too large, or `single` is set. The best single
    range is tried with narrower Gaussians of SOAP too. `data` is the training set of the images, if
    it is available. `tell` is called with the name of each range. `Potential.choices` records the
    result.

    With `cohesion`, all ranges are tried with the second moment, bond orders or each of them beside
    `mean_function`, as these explain the forces. The best one is then tried without them as well.
    """
    if images is None:
        raise NuggetError("The preset 'auto' chooses by data: give it labelled images.")
    sample = _sample(images, seed)
    trials = _Trials(species, sample, use_forces, single, tell)
    plain = mean = as_mean_function(DEFAULT_MEAN) if mean_function is None else mean_function
    forms = _cohesion(sample, use_forces) if cohesion else []
    if forms:
        best, form = trials.of_forms(plain, forms)
        mean = with_mean(plain, form)
        without = f"{best}, no {form.name}"
        trials.attempt(without, trials.recipes[best], plain)
        if trials.score(without) < trials.score(best) - _BETTER:
            best, mean = without, plain
    else:
        best = trials.of_ranges(plain)
    potential = trials.recipes[best].potential(species, images if data is None else data)
    potential.prior = mean
    chosen = trials.results[best]
    factors = float(chosen.energy), float(chosen.force)
    potential.noise_levels = potential.noise_levels.scaled(*factors)
    potential.choices = {
        "range": best,
        "tried_on": len(sample),
        "left_out_mae": {name: [t.energy_mae, t.force_mae] for name, t in trials.results.items()},
    }
    return potential


@dataclass
class _Trials:
    """Leave-one-out errors of potentials on a sample, by name."""

    species: Sequence[str]
    sample: Sequence[Atoms]
    use_forces: bool | None
    single: bool
    tell: Tell | None
    results: dict[str, NoiseTrial] = field(default_factory=dict)
    recipes: dict[str, Recipe] = field(default_factory=dict)

    def score(self, name: str) -> float:
        return self.results[name].score

    def attempt(self, name: str, recipe: Recipe, mean: MeanFunction) -> None:
        if self.tell is not None:
            self.tell(name)
        small = recipe.potential(self.species, self.sample)
        small.inducing, small.domain = PivotedCholesky(recipe.tol, _POINTS), False
        small.prior = mean
        fitted = small.fit(self.sample, self.use_forces, calibrate=None).fitted
        self.results[name] = NoiseSearch(fitted.regression).best()
        self.recipes[name] = recipe

    def of_ranges(self, mean: MeanFunction, ending: str = "") -> str:
        """The best of all ranges, which is tried with narrower Gaussians of SOAP too."""
        names: list[str] = []

        def best() -> str:
            return min(names, key=self.score)

        def attempt(name: str, recipe: Recipe) -> None:
            names.append(name + ending)
            self.attempt(names[-1], recipe, mean)

        for name, recipe in CANDIDATES.items():
            joined = len(recipe.ranges) > 1
            if not joined or (best() != names[0] and self._affordable(recipe)):
                attempt(name, recipe)
        for width in _WIDTHS:
            recipe = self.recipes[best()]
            only, *others = recipe.ranges
            if others:
                break
            narrow = replace(recipe, ranges=(replace(only, sigma=width),))
            attempt(f"{best().split(',')[0]}, σ {width} Å", narrow)
            if best() != names[-1]:
                break
        return best()

    def of_forms(self, plain: MeanFunction, forms: Sequence[Cohesion]) -> tuple[str, Cohesion]:
        """The best of all ranges with any of the mean functions, and this mean function."""
        first, *others = forms
        best = {self.of_ranges(with_mean(plain, first)): first}
        for form in others:
            best[self.of_ranges(with_mean(plain, form), f", {form.name}")] = form
        name = min(best, key=self.score)
        return name, best[name]

    def _affordable(self, recipe: Recipe) -> bool:
        """Whether the number of pairs within the longest range is affordable."""
        if self.single:
            return False
        batch = as_batch(self.sample)
        pairs = find_pairs(batch, max(one.cutoff for one in recipe.ranges))
        return 2 * len(pairs.i) <= _NEIGHBOURS * len(batch.positions)


def _cohesion(sample: Sequence[Atoms], use_forces: bool | None) -> list[Cohesion]:
    """Mean functions fitted to some structures that explain the forces on the others."""
    elements = {symbol for atoms in sample for symbol in set(atoms.symbols)}
    if use_forces is False or len(elements) > _COHESION_ELEMENTS:
        return []
    labelled = [a for a in sample if a.calc is not None and "forces" in a.calc.results]
    # The sample is in the order of the file, so every other structure is of every kind.
    own = labelled[:: max(2, -(-len(labelled) // _COHESION_STRUCTURES))]
    sizes = np.cumsum([len(a) for a in own])
    own = own[: max(int(np.searchsorted(sizes, _COHESION_ATOMS)), 1)]
    chosen = {id(a) for a in own}
    others = [a for a in labelled if id(a) not in chosen]
    if not own or not others:
        return []
    data, rest = Training.read(own, True, False), Training.read(others, True, False)
    pairs, angles = SecondMoment.fitted_to(data), BondOrder.fitted_to(data)
    left, left_by_angles = unexplained(pairs, rest), unexplained(angles, rest)
    forms: list[Cohesion] = [pairs] if left <= _UNEXPLAINED else []
    if left_by_angles <= min(_UNEXPLAINED, _ANGLES * left):
        forms.append(angles)
    return forms


PRESETS: dict[str, Callable[..., Potential]] = {
    "quick": quick,
    "balanced": balanced,
    "accurate": accurate,
    "auto": auto,
}


def _sample(images: Sequence[Atoms], seed: int) -> list[Atoms]:
    """A random sample of the structures, in their order, with a limited number of atoms."""
    order = np.random.default_rng(seed).permutation(len(images))[:_STRUCTURES]
    sizes = np.cumsum([len(images[i]) for i in order])
    number = max(int(np.searchsorted(sizes, _ATOMS, side="right")), min(2, len(order)))
    return [images[i] for i in np.sort(order[:number])]


def length_scale(descriptor: Descriptor, images: Images, factor: float = 2.0) -> float:
    """`factor` times the median distance between environments of the same central element."""
    if isinstance(images, TrainingData):
        env = images.environments(descriptor)
    else:
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
    # Round-off in d² is about 1e-16 |x|², so smaller distances are not significant.
    if median <= 1e-6 * float(np.abs(env.values).max()):
        raise NuggetError(
            f"The environments of these {len(env.batch)} structures are all alike, so they define "
            "no length scale: give more varied images, or none to use the value for gold clusters."
        )
    return factor * median
