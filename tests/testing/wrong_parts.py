"""Parts that break their contract, each in one way: the checks must find them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from ase.calculators.emt import EMT
from nugget_example.acquisition import GreedyAfter
from nugget_example.descriptor import RadialShells, Shells
from nugget_example.generator import Swing
from nugget_example.kernel import Matern52
from nugget_example.prior import Springs
from nugget_example.uncertainty import Distance, Fitted

from nugget import CUR, Random
from nugget.descriptors.base import Jacobian
from nugget.potential.mean_functions.base import PriorValues


@dataclass(frozen=True)
class WrongSign(Matern52):
    def profile(self, u):
        value, first, second = super().profile(u)
        return value, -first, second


@dataclass(frozen=True)
class WrongCurvature(Matern52):
    def profile(self, u):
        value, first, second = super().profile(u)
        return value, first, 0.5 * second


@dataclass(frozen=True)
class NotACovariance(Matern52):
    def profile(self, u):
        return np.cos(3 * u), -3 * np.sin(3 * u), -9 * np.cos(3 * u)


def _as(kind, env, values=None):
    return kind(
        env.descriptor, env.batch, env.pairs, env.species, env.values if values is None else values
    )


class _NoStrain(Shells):
    def pullback_strain(self, grad):
        positions, strain = super().pullback_strain(grad)
        return positions, np.zeros_like(strain)


@dataclass(frozen=True)
class NoStrain(RadialShells):
    def compute(self, images, pairs=None, *, strict=True):
        return _as(_NoStrain, super().compute(images, pairs, strict=strict))


class _WrongForces(Shells):
    def jacobian(self):
        j = super().jacobian()
        return Jacobian(j.centre, j.neighbour, j.vector, -j.values)


@dataclass(frozen=True)
class WrongForces(RadialShells):
    def compute(self, images, pairs=None, *, strict=True):
        return _as(_WrongForces, super().compute(images, pairs, strict=strict))


@dataclass(frozen=True)
class SeesTheNumbering(RadialShells):
    def compute(self, images, pairs=None, *, strict=True):
        env = super().compute(images, pairs, strict=strict)
        return _as(Shells, env, env.values + np.arange(len(env.values))[:, None])


@dataclass(frozen=True)
class EndsAbruptly(RadialShells):
    def shape(self, r):
        width = self.radii[1] - self.radii[0]
        away = (r[:, None] - self.radii) / width
        gauss = np.exp(-0.5 * away**2)
        return gauss, -gauss * away / width


class _NotExtensive(Fitted):
    def std(self, rows, sizes, prior_variance=None):
        return super().std(rows, np.ones(len(rows)))


@dataclass(frozen=True)
class NotExtensive(Distance):
    def fit(self, *args):
        fitted = super().fit(*args)
        return _NotExtensive(fitted.settings, fitted.upper, fitted.basis)


class _WrongWeights(Fitted):
    def std_and_weights(self, *args):
        mean, std, weights = super().std_and_weights(*args)
        return mean, std, -weights


@dataclass(frozen=True)
class WrongWeights(Distance):
    def fit(self, *args):
        fitted = super().fit(*args)
        return _WrongWeights(fitted.settings, fitted.upper, fitted.basis)


@dataclass(frozen=True)
class Forgetful(Distance):
    def from_state(self, state):
        return replace(super().from_state(state), scale=2.0)


@dataclass(frozen=True)
class Lucky(Distance):
    def fit(self, regression, rng, environments, noise):
        fitted = super().fit(regression, rng, environments, noise)
        return fitted.with_scale(np.random.default_rng().uniform(0.5, 2.0))


@dataclass(frozen=True)
class PushesTheWrongWay(Springs):
    name: ClassVar[str] = "pushes-the-wrong-way"

    def evaluate(self, batch, pairs=None):
        found = super().evaluate(batch, pairs)
        return PriorValues(found.energies, -found.gradient, found.strain)


@dataclass(frozen=True)
class StrainForgotten(Springs):
    name: ClassVar[str] = "strain-forgotten"

    def evaluate(self, batch, pairs=None):
        found = super().evaluate(batch, pairs)
        return PriorValues(found.energies, found.gradient, None)


@dataclass(frozen=True)
class PerStructure(Springs):
    name: ClassVar[str] = "per-structure"

    def evaluate(self, batch, pairs=None):
        found = super().evaluate(batch, pairs)
        share = np.repeat(7.0 / batch.sizes, batch.sizes)
        return PriorValues(found.energies + share, found.gradient, found.strain)


@dataclass(frozen=True)
class Again(CUR):
    """Chooses points that are there already."""

    def select(self, points, kernel, rng, existing=None):
        return super().select(points, kernel, rng, None)


@dataclass(frozen=True)
class Dice(Random):
    def select(self, points, kernel, rng, existing=None):
        return super().select(points, kernel, np.random.default_rng(), existing)


@dataclass(frozen=True, kw_only=True)
class Unseeded(Swing):
    name: ClassVar[str] = "unseeded"

    def propose(self, rng, problem, parents):
        yield from super().propose(np.random.default_rng(), problem, parents)


@dataclass(frozen=True, kw_only=True)
class ChangesParents(Swing):
    name: ClassVar[str] = "changes-parents"

    def __call__(self, rng, problem, parents=()):
        made = super().__call__(rng, problem, parents)
        for atoms in parents:
            atoms.positions += 0.1
        return made


@dataclass(frozen=True, kw_only=True)
class Collides(Swing):
    name: ClassVar[str] = "collides"

    def __call__(self, rng, problem, parents=()):
        made = super().__call__(rng, problem, parents)
        if hasattr(made, "positions"):
            made.positions[0] = made.positions[1] + 0.01
        return made


@dataclass(frozen=True)
class LikesHighEnergies(GreedyAfter):
    def score(self, energy, std, context):
        return -energy


@dataclass(frozen=True)
class Gambles(GreedyAfter):
    def surface(self, potential, rng, context):
        return potential.lcb(np.random.default_rng().uniform(0, 5))


@dataclass(frozen=True)
class NeverSatisfied(GreedyAfter):
    def is_worthwhile(self, energy, std, gain, context):
        return False


class TwiceTheForce(EMT):
    def calculate(self, *args, **kwargs):
        super().calculate(*args, **kwargs)
        self.results["forces"] = 2.0 * self.results["forces"]


class NoStress(EMT):
    def calculate(self, *args, **kwargs):
        super().calculate(*args, **kwargs)
        self.results["stress"] = np.zeros(6)


class Noisy(EMT):
    def calculate(self, *args, **kwargs):
        super().calculate(*args, **kwargs)
        self.results["energy"] += np.random.default_rng().normal()
