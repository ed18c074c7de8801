"""What a search knows, as a fold over its records, and what it would evaluate next.

`learn(record)` for all records in order gives the learner that the search had after the last of
them, to the last bit. `propose(ordinal, pending)` depends only on that learner, the seed and the
structures that are being evaluated at the time. Restarting needs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.generators import Crystal, Failure, Mixer, Problem, make_generator, suits
from nugget.potential.priors import FixedPrior
from nugget.potential.surface import Surface
from nugget.search.acquisition import Acquisition, choose_acquisition, make_acquisition
from nugget.search.acquisition.expected_improvement import log_improvement
from nugget.search.baseline import has_value, knowing
from nugget.search.believer import believing
from nugget.search.config import Config
from nugget.search.error_bars import ErrorBars
from nugget.search.first import ROUNDS, propose_first
from nugget.search.goal import make_goal
from nugget.search.knowledge import START, Knowledge
from nugget.search.model import fit, learns_stress, length_is_due, make_potential
from nugget.search.parents import choose_parents
from nugget.search.proposal import Proposal
from nugget.search.relaxing import relax_candidates
from nugget.search.stop import Meetings, write_draws
from nugget.search.store import Purpose, Record
from nugget.search.walkers import walk_always, walk_on

# An improvement that is worth an evaluation, eV.
_GAIN = 0.02


class Learner:
    """Model, known structures and generator weights of one search.

    `knowledge` is what was known before it began.
    """

    def __init__(
        self, config: Config, problem: Problem | Crystal, knowledge: Knowledge | None = None
    ) -> None:
        self.config, self.problem, self.goal = config, problem, make_goal(config.system)
        knowledge = knowledge or Knowledge()
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
        self.potential = make_potential(config.model, problem, search.seed, knowledge.directory)
        self.baseline = knowing(self.potential.prior)
        self.bars = ErrorBars(search.calibrate, problem.variable_cell)
        self.known, self._failed = self.goal.memory(), self.goal.memory()
        self.start, self.learned = knowledge.start, knowledge.learned
        self.records: list[Record] = []
        self.improved: list[bool] = []  # was each of them lower than all before?
        self.stand: Floats | None = None  # where the walkers stand
        self.explored = 0  # evaluations to explore since the last improvement
        self.meetings = Meetings(self.learned)
        self.pending: tuple[Atoms, ...] = ()  # what a learner that believes takes for known
        for record in self.learned:
            self.known.add(record.atoms, record.energy)
            self.goal = self.goal.informed(record.atoms, record.energy)
        self._labelled = [atoms for atoms in knowledge.labelled if has_value(self.baseline, atoms)]
        if self._labelled:
            self._fit()

    @property
    def good(self) -> list[Record]:
        """The evaluations that succeeded."""
        return [record for record in self.records if record.ok]

    @property
    def best(self) -> Record | None:
        """The lowest so far."""
        return min(self.good, key=self._order, default=None)

    def _order(self, record: Record) -> tuple[float, float]:
        return self.goal.order(record.atoms, record.energy)

    def value(self, record: Record) -> float:
        """What is minimised, of an evaluation that succeeded."""
        return self.goal.value(record.atoms, record.energy)

    @property
    def all_known(self) -> list[Record]:
        """What is known, from before and from here."""
        return [*self.learned, *self.good]

    @property
    def lowest(self) -> Record | None:
        """The lowest that is known, here or from before."""
        return min([*self.good, *self.learned], key=self._order, default=None)

    def learn(self, record: Record) -> None:
        """Take in one evaluation; the next one is `propose`d from it."""
        best = self.best_energy
        lower = record.ok and self.value(record) < best
        self.records.append(record)
        self.improved.append(lower)
        self.meetings.add(record)
        self.stand = self.stand if record.walkers is None else record.walkers
        self.explored = 0 if lower else self.explored + (record.purpose == "explore")
        if not record.ok:
            # One failure may be an accident; a second one of the same structure is believed.
            (self.known if record.atoms in self._failed else self._failed).add(record.atoms)
            self._credit(record, 0.0)
            return
        self.known.add(record.atoms, record.energy)
        self._credit(record, 1.0 if lower else 0.0)
        self.goal = self.goal.informed(record.atoms, record.energy)
        if record.predicted is not None and record.std:
            self.bars = self.bars.met(record.predicted, record.std, record.energy, best)
        if not has_value(self.baseline, record.atoms):
            return
        self._labelled.append(record.atoms)
        due = length_is_due(self.config, len(self._labelled))
        if self.potential.is_fitted and not due:
            stress = learns_stress(self.config.model, [record.atoms], self.problem.variable_cell)
            self.potential.update([record.atoms], use_stress=stress)
        elif self.potential.is_fitted or len(self._labelled) >= self.config.search.initial:
            self._fit()

    def _fit(self) -> None:
        first = not self.potential.is_fitted
        fit(self.potential, self.config.model, list(self._labelled), self.problem.variable_cell)
        if first:
            self.bars = self.bars.begun(self.potential, self.config.search.usual_force)

    @property
    def acquisition(self) -> Acquisition:
        """What decides between candidates, once there is a model."""
        return choose_acquisition(self.config.search, self.potential.fitted.uncertainty.has_members)

    @property
    def best_energy(self) -> float:
        """The lowest value that is known; infinite before there is one."""
        return min(map(self.value, self.all_known), default=np.inf)

    def _credit(self, record: Record, success: float) -> None:
        if record.generator in self.mixer.generators:
            self.mixer.credit(record.generator, success)

    def propose(self, ordinal: int, pending: Sequence[Atoms] = ()) -> Proposal | None:
        """The structure to evaluate next: a function of the records, seed, `ordinal` and `pending`.

        `ordinal` counts the proposals of a search; `pending` are those still being evaluated.
        None when every candidate is already known.
        """
        if ordinal < len(self.start):
            return Proposal(self.start[ordinal].copy(), START)
        if not pending:
            return self._propose(ordinal)
        proposal = self._believing(pending)._propose(ordinal)
        if proposal is None or proposal.predicted is None:
            return proposal
        # The record gets σ from the data alone: with fantasies every error would look too large.
        energy, std = self.predict([proposal.atoms])
        mean, sigma = float(energy[0]), float(std[0])
        scale = self.bars.shown(mean, sigma, self.best_energy)
        return replace(proposal, predicted=mean, std=sigma, scale=scale)

    def _believing(self, pending: Sequence[Atoms]) -> Learner:
        """This learner, as if the pending structures had the energies that it predicts."""
        other = copy(self)
        other.known, other.pending = self.known.copy(), tuple(pending)
        for atoms in pending:
            other.known.add(atoms)
        if self.potential.is_fitted:
            other.potential = believing(self.potential, pending)
        return other

    def _propose(self, ordinal: int) -> Proposal | None:
        search = self.config.search
        rng = np.random.default_rng([search.seed, ordinal])
        if not self.potential.is_fitted:
            return propose_first(self, rng)
        parents = self._parents(rng)
        surface = self.acquisition.surface(self.potential, self.bars.bold, rng, self.best_energy)
        rounds = search.explore if search.kappa else 0
        pool, draws = list[Atoms](), list[str]()
        stand: Floats | None = None
        for k in range(1, ROUNDS + 1):
            start = self.candidates(rng, parents if k % 2 else [])
            relaxed = self.relaxed(start, surface)
            draws += self._draws(relaxed)
            if k == 1 and walk_always(self.config):
                walk = walk_on(self, rng, surface, relaxed)
                relaxed, stand = relaxed + walk.met, walk.positions
            for _ in range(search.hops):
                relaxed += self.relaxed(self._hop(rng, relaxed), surface)
            pool += relaxed
            proposal = self._choose(pool)
            if proposal is not None and (not rounds or self._promises(proposal)):
                return replace(proposal, draws=" ".join(draws), walkers=stand)
            if k >= rounds:
                if proposal is not None and search.walkers and stand is None:
                    walk = walk_on(self, rng, surface, pool)
                    pool, stand = pool + walk.met, walk.positions
                proposal = (proposal and self._choose(pool, "explore")) or self._choose(start)
                if proposal is not None:
                    return replace(proposal, draws=" ".join(draws), walkers=stand)
        return None

    def _draws(self, relaxed: list[Atoms]) -> list[str]:
        """What candidates without parents have met; see `stop`. Crystals, molecules: nothing."""
        needs = {name: made.needs for name, made in self.mixer.generators.items()}
        images = [atoms for atoms in relaxed if not needs[str(atoms.info["generator"])]]
        if not images or self.problem.variable_cell or self.problem.units:
            return []
        return write_draws(images, self.predict(images)[0], self.best_energy, self.meetings.keys)

    def _promises(self, proposal: Proposal) -> bool:
        """May this be lower than all that is known, as far as the model can tell?"""
        assert proposal.predicted is not None and proposal.std is not None  # noqa: PT018
        images, bar = [proposal.atoms], self.config.search.kappa * self.bars.bold * proposal.std
        gain = self.goal.stds(images, np.array([bar - _GAIN]))[0]
        return bool(self.goal.value(proposal.atoms, proposal.predicted) - gain < self.best_energy)

    def candidates(self, rng: np.random.Generator, parents: list[Atoms]) -> list[Atoms]:
        """New structures, as many as could be made."""
        problem = self._informed_problem().lacking(self.under_way)
        made = (self.mixer(rng, problem, parents) for _ in range(self.config.search.candidates))
        return [atoms for atoms in made if not isinstance(atoms, Failure)]

    def _informed_problem(self) -> Problem | Crystal:
        """The problem with the volumes and distances that the evaluations suggest."""
        known = self.all_known
        return self.problem.learned([r.atoms for r in known], [r.energy for r in known])

    @property
    def under_way(self) -> list[Atoms]:
        """What is known or being evaluated."""
        return [*(record.atoms for record in self.all_known), *self.pending]

    def _parents(self, rng: np.random.Generator) -> list[Atoms]:
        images, values = [r.atoms for r in self.all_known], [*map(self.value, self.all_known)]
        how = (self.potential.descriptor, self.config.search, rng, self.problem.variable_cell)
        return choose_parents(images, np.array(values), *how)

    def relaxed(self, images: list[Atoms], surface: Surface | FixedPrior) -> list[Atoms]:
        """Relaxed structures that are still sensible."""
        return relax_candidates(self._informed_problem(), images, surface, self.config.search)

    def _hop(self, rng: np.random.Generator, pool: list[Atoms]) -> list[Atoms]:
        """New starts from the best of the pool: basin hopping on the surrogate."""
        if len(pool) < 2:
            return []
        order = np.argsort(self.score(pool, *self.predict(pool)))[: max(2, len(pool) // 4)]
        return self.candidates(rng, [pool[k] for k in order])

    def predict(self, images: list[Atoms]) -> tuple[Floats, Floats]:
        found = self.potential.predict(images, forces=False)
        assert found.energy_uncertainty is not None
        return found.energy, found.energy_uncertainty

    def score(self, images: list[Atoms], energy: Floats, std: Floats) -> Floats:
        values, stds = self.goal.values(images, energy), self.goal.stds(images, std)
        return self.acquisition.score(values, self.bars.bold * stds, self.best_energy)

    def explore_score(self, images: list[Atoms], energy: Floats, std: Floats) -> Floats:
        """−ln of the expected improvement, with a σ that a well-known funnel does not shrink."""
        values, stds = self.goal.values(images, energy), self.goal.stds(images, std)
        return -log_improvement(values, self.bars.wary * stds, self.best_energy)

    def _choose(self, pool: list[Atoms], purpose: Purpose = "improve") -> Proposal | None:
        """The best of the pool that is not known yet; None if all are.

        To explore is to expect an improvement where the model knows little.
        """
        if not pool:
            return None
        energy, std = self.predict(pool)
        scores = (self.explore_score if purpose == "explore" else self.score)(pool, energy, std)
        for k in np.argsort(scores, kind="stable"):
            mean, sigma = float(energy[k]), float(std[k])
            if np.isfinite(mean) and self.known.find(pool[k], mean, predicted=True) is None:
                return Proposal(
                    atoms=pool[k],
                    generator=str(pool[k].info["generator"]),
                    predicted=mean,
                    std=sigma,
                    scale=self.bars.shown(mean, sigma, self.best_energy),
                    acquisition=float(scores[k]),
                    purpose=purpose,
                )
        return None
