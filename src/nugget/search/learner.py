"""What a search knows, as a fold over its records, and what it would evaluate next.

`learn(record)` for all records in order gives the learner that the search had after the last of
them, to the last bit. `propose(ordinal, pending)` depends only on that learner, the seed and the
structures that are being evaluated at the time. Restarting needs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget._compiled.arrays import Floats
from nugget.calibration import OnlineScale
from nugget.errors import NuggetError
from nugget.generators import Failure, Mixer, Problem, make_generator, suits
from nugget.generators.crystal import Crystal
from nugget.potential.presets import length_scale
from nugget.potential.priors import PairWell
from nugget.potential.surface import Surface
from nugget.relax import relax
from nugget.search.acquisition import Acquisition, choose_acquisition, make_acquisition
from nugget.search.config import Config
from nugget.search.crystals import relax_crystals
from nugget.search.goal import make_goal
from nugget.search.model import make_potential
from nugget.search.parents import SELECTORS
from nugget.search.store import Record

# Rounds of new candidates before a search says that there is nothing new to find.
_ROUNDS = 10


@dataclass(frozen=True, eq=False)
class Proposal:
    """A structure that should be evaluated, and what the model expects of it."""

    atoms: Atoms
    generator: str
    predicted: float | None = None
    std: float | None = None  # before rescaling
    scale: float = 1.0
    acquisition: float | None = None


class Learner:
    """Model, known structures and generator weights of one search."""

    def __init__(self, config: Config, problem: Problem | Crystal) -> None:
        self.config, self.problem = config, problem
        self.goal = make_goal(config.system)
        search = config.search
        made = [
            make_generator(name, **search.generator_options.get(name, {}))
            for name, weight in search.generators.items()
            if weight > 0
        ]
        suited = [generator for generator in made if suits(generator, problem)]
        self.mixer = Mixer(suited, {one.name: search.generators[one.name] for one in suited})
        if search.acquisition != "auto":
            make_acquisition(search, search.acquisition)  # mistakes are found now
        self.potential = make_potential(config.model, problem, config.search.seed)
        self.online = OnlineScale()
        self.known = self.goal.memory()
        self.records: list[Record] = []

    @property
    def good(self) -> list[Record]:
        """The evaluations that succeeded."""
        return [record for record in self.records if record.ok]

    @property
    def best(self) -> Record | None:
        """The lowest so far."""
        return min(self.good, key=self.value, default=None)

    def value(self, record: Record) -> float:
        """What is minimised, of an evaluation that succeeded."""
        return self.goal.value(record.atoms, record.energy)

    def learn(self, record: Record) -> None:
        """Take in one evaluation; the next one is `propose`d from it."""
        best = self.best
        self.records.append(record)
        self.known.add(record.atoms, record.energy if record.ok else None)
        if not record.ok:
            self._credit(record, 0.0)
            return
        improved = best is None or self.value(record) < self.value(best)
        self._credit(record, 1.0 if improved else 0.0)
        if record.predicted is not None and record.std:
            self.online = self.online.update(record.predicted, record.std, record.energy)
        if self.potential.is_fitted and not self._due:
            self.potential.update([record.atoms], use_stress=self._stress([record.atoms]))
        elif self.potential.is_fitted or len(self.good) >= self.config.search.initial:
            self._fit([one.atoms for one in self.good])

    @property
    def _due(self) -> bool:
        """Is it time to measure the kernel's length again? After 2, 4, 8 times the first data."""
        times, rest = divmod(len(self.good), self.config.search.initial)
        return self.config.model.length_factor is not None and not rest and times & (times - 1) == 0

    def _fit(self, images: list[Atoms]) -> None:
        model = self.config.model
        if model.length_factor is not None:
            length = length_scale(self.potential.descriptor, images, model.length_factor)
            kernel: Any = self.potential.kernel
            self.potential.kernel = replace(kernel, length_scale=length)
        self.potential.fit(images, model.use_forces, self._stress(images))

    def _stress(self, images: Sequence[Atoms]) -> bool:
        """Learn from stress? With forces, of crystals, if the engine gives it."""
        wanted = self.problem.variable_cell and self.config.model.use_forces
        return wanted and all("stress" in atoms.calc.results for atoms in images)

    @property
    def acquisition(self) -> Acquisition:
        """What decides between candidates, once there is a model."""
        has_members = self.potential.fitted.uncertainty.has_members
        return choose_acquisition(self.config.search, has_members)

    @property
    def best_energy(self) -> float:
        """The lowest value so far; there is one as soon as there is a model."""
        return min(self.value(record) for record in self.good)

    def _credit(self, record: Record, success: float) -> None:
        if record.generator in self.mixer.generators:
            self.mixer.credit(record.generator, success)

    def propose(self, ordinal: int, pending: Sequence[Atoms] = ()) -> Proposal | None:
        """The structure to evaluate next: a function of the records, seed, `ordinal` and `pending`.

        `ordinal` counts the proposals of a search; `pending` are those still being evaluated.
        None when every candidate is already known.
        """
        if not pending:
            return self._propose(ordinal)
        proposal = self._believing(pending)._propose(ordinal)
        if proposal is None or proposal.predicted is None:
            return proposal
        # The record, and later the calibration, get σ from the data alone. σ with the fantasies is
        # smaller, so every error would look too large.
        energy, std = self._predict([proposal.atoms])
        return replace(proposal, predicted=float(energy[0]), std=float(std[0]))

    def _believing(self, pending: Sequence[Atoms]) -> Learner:
        """This learner, as if the pending structures had the energies that it predicts.

        The "kriging believer" (Ginsbourger et al. 2010): a label equal to the mean leaves the mean
        as it is but takes σ away there, so E − κσ rises at and around what is pending and the next
        proposal goes elsewhere. A label at the bound E − κσ itself would pull the mean down with σ
        and so push nothing away. New inducing points, which fantasies bring as data would, move the
        mean a little. No forces: the mean's would take away far more σ than one energy does.
        """
        other = copy(self)
        other.known = self.known.copy()
        for atoms in pending:
            other.known.add(atoms)
        if self.potential.is_fitted:
            energy = self.potential.predict(pending, forces=False, uncertainty=False).energy
            fantasies = [atoms.copy() for atoms in pending]
            for atoms, e in zip(fantasies, energy, strict=True):
                atoms.calc = SinglePointCalculator(atoms, energy=float(e))
            other.potential = self.potential.copy().update(fantasies, False, use_stress=False)
        return other

    def _propose(self, ordinal: int) -> Proposal | None:
        rng = np.random.default_rng([self.config.search.seed, ordinal])
        if not self.potential.is_fitted:
            return self._unlearned(rng)
        parents = self._parents(rng)
        surface = self.acquisition.surface(self.potential, self.scale, rng, self.best_energy)
        for _ in range(_ROUNDS):
            start = self._candidates(rng, parents)
            pool = self._relax(start, surface)
            for _ in range(self.config.search.hops):
                pool += self._relax(self._hop(rng, pool), surface)
            proposal = self._choose(pool) or self._choose(start)
            if proposal is not None:
                return proposal
        return None

    def _candidates(self, rng: np.random.Generator, parents: list[Atoms]) -> list[Atoms]:
        problem = self._current_problem
        made = (self.mixer(rng, problem, parents) for _ in range(self.config.search.candidates))
        return [atoms for atoms in made if not isinstance(atoms, Failure)]

    @property
    def _current_problem(self) -> Problem | Crystal:
        """The problem, with the volume that the evaluations suggest if it is a crystal."""
        if isinstance(self.problem, Problem):
            return self.problem
        return self.problem.learned([r.atoms for r in self.good], [r.energy for r in self.good])

    @property
    def scale(self) -> float:
        """Factor on σ that makes the search's own past predictions calibrated."""
        return self.online.scale if self.config.search.calibrate else 1.0

    def _unlearned(self, rng: np.random.Generator) -> Proposal | None:
        """Before there is a model: a generated structure that is new."""
        reason = "nothing fitted"
        for _ in range(_ROUNDS):
            made = [self.mixer(rng, self.problem) for _ in range(5)]
            start = [atoms for atoms in made if isinstance(atoms, Atoms)]
            reason = next((m.reason for m in made if isinstance(m, Failure)), reason)
            for atoms in [*self._relax(start, PairWell()), *start]:
                if atoms not in self.known:
                    return Proposal(atoms, str(atoms.info["generator"]))
        if len(self.known):
            return None
        raise NuggetError(
            f"No valid structure of {self.config.system.formula} could be generated ({reason}): "
            "enlarge system.radius, system.height, system.cell or system.volume."
        )

    def _parents(self, rng: np.random.Generator) -> list[Atoms]:
        good = self.good
        features = self.potential.descriptor.compute([r.atoms for r in good])
        means = np.add.reduceat(features.values, features.batch.offsets[:-1], axis=0)
        if self.problem.variable_cell:  # crystals of different sizes are compared per atom
            means /= features.batch.sizes[:, None]
        energies = np.array([self.value(r) for r in good])
        select = SELECTORS[self.config.search.parents]
        return [good[k].atoms for k in select(means, energies, rng, self.config.search.n_parents)]

    def _relax(self, images: list[Atoms], surface: Surface | PairWell) -> list[Atoms]:
        """Relaxed structures that are still sensible."""
        if not images:
            return []
        search = self.config.search
        if isinstance(self.problem, Crystal):
            return relax_crystals(self.problem, images, surface, search)
        done = relax(
            images, surface, search.fmax, search.relax_steps, self.problem.region, runaway=10.0
        )
        valid = []
        for before, after in zip(images, done, strict=True):
            if after.ok and self.problem.fault(after.atoms.positions) is None:
                after.atoms.info["generator"] = before.info["generator"]
                valid.append(after.atoms)
        return valid

    def _hop(self, rng: np.random.Generator, pool: list[Atoms]) -> list[Atoms]:
        """New starts from the best of the pool: basin hopping on the surrogate."""
        if len(pool) < 2:
            return []
        energy, std = self._predict(pool)
        order = np.argsort(self._score(pool, energy, std))[: max(2, len(pool) // 4)]
        return self._candidates(rng, [pool[k] for k in order])

    def _predict(self, images: list[Atoms]) -> tuple[Floats, Floats]:
        found = self.potential.predict(images, forces=False)
        assert found.energy_uncertainty is not None
        return found.energy, found.energy_uncertainty

    def _score(self, images: list[Atoms], energy: Floats, std: Floats) -> Floats:
        values, stds = self.goal.values(images, energy), self.goal.stds(images, std)
        return self.acquisition.score(values, self.scale * stds, self.best_energy)

    def _choose(self, pool: list[Atoms]) -> Proposal | None:
        """The best of the pool that is not known yet; None if all are."""
        if not pool:
            return None
        energy, std = self._predict(pool)
        scores = self._score(pool, energy, std)
        order = np.argsort(scores, kind="stable")
        for k in order:
            if self.known.find(pool[k], float(energy[k])) is None:
                return Proposal(
                    atoms=pool[k],
                    generator=str(pool[k].info["generator"]),
                    predicted=float(energy[k]),
                    std=float(std[k]),
                    scale=self.scale,
                    acquisition=float(scores[k]),
                )
        return None
