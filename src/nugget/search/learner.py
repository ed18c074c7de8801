"""The state of a search as a fold over its records, and the proposal of the next structure.

`Learner.learn(record)`, called for all records in order, reproduces the state of the search after
the last of them bit-identically: the surrogate, the known structures, the weights of the
generators, the calibration and the positions of the walkers. `Learner.propose(ordinal, pending)`
depends only on that state, the seed and the structures in flight. A search therefore resumes from
its records alone.

One iteration: choose parents, generate candidates, relax them on the acquisition's surface, rank
them, and either propose the best one or, if it is not worth an evaluation, explore with walkers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.errors import NuggetError
from nugget.generators import Failure, Mixer, make_generator, suits
from nugget.numerics.arrays import Floats
from nugget.numerics.jit import compile_seconds
from nugget.potential.mean_functions.base import FixedPrior
from nugget.potential.mean_functions.pair_terms import REACH, WELL, PairWell
from nugget.potential.potential import Potential
from nugget.potential.surface import Surface
from nugget.search.acquisition import (
    Acquisition,
    AcquisitionContext,
    choose_acquisition,
    make_acquisition,
)
from nugget.search.error_bars import ErrorBars
from nugget.search.knowledge import START, Knowledge
from nugget.search.parents import choose_parents
from nugget.search.record import Check, Proposal, Purpose, Record, amended, energy_of
from nugget.search.search_settings import Config, SearchConfig
from nugget.search.stop import RediscoveryCounter, write_draws
from nugget.search.surrogate import (
    fit,
    has_value,
    knowing,
    learns_stress,
    length_is_due,
    make_potential,
    with_projected,
)
from nugget.search.training_labels import TrainingSet, failures_before, teaches
from nugget.search.walkers import MAX_HOPS, Walk, Walkers, walk_always
from nugget.structures.geometry import radii_of
from nugget.systems.base import System
from nugget.systems.system_settings import make_goal

#: Rounds of new candidates before the search gives up because all of them are known.
ROUNDS = 10

#: The smallest improvement that is worth an evaluation, eV.
LEAST_GAIN = 0.02

#: Largest force at which the relaxation of a candidate ends, eV/Å. The surrogate's forces are not
#: more accurate than this.
CANDIDATE_FMAX = 0.05

#: Springs that hold bonds and angles of molecules while candidates relax on the surrogate, eV/Å²:
#: stiff enough that young models do not break molecules, soft compared with real bonds.
MOLECULE_STIFFNESS = 100.0

#: Random structures that are generated at a time before there is a model.
_RANDOM_BATCH = 5


class Stopwatch:
    """Adds up the seconds spent inside `with`, without compilation, until `take` resets it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def take(self) -> float:
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def __enter__(self) -> None:
        self._begun = time.perf_counter() - compile_seconds()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - compile_seconds() - self._begun


def kriging_believer(potential: Potential, pending: Sequence[Atoms]) -> Potential:
    """A copy that was also trained on the pending structures, labelled with its own predictions.

    This is the kriging believer of Ginsbourger et al. (2010). A label equal to the mean leaves the
    mean unchanged and reduces σ, so E − κσ rises around pending structures and the next proposal
    is made elsewhere. A label at the bound E − κσ would lower the mean together with σ and repel
    nothing. The inducing points that are added change the mean slightly. Forces are not used as
    labels, because they would reduce σ far more than one energy does.
    """
    energy = potential.predict(pending, forces=False, uncertainty=False).energy
    labelled = [atoms.copy() for atoms in pending]
    for atoms, e in zip(labelled, energy, strict=True):
        atoms.calc = SinglePointCalculator(atoms, energy=float(e))
    return potential.copy().update(labelled, False, use_stress=False)


class Learner:
    """Surrogate, known structures, calibration and generator weights of one search.

    `knowledge` is the data that the search had before its first evaluation.
    """

    def __init__(self, config: Config, problem: System, knowledge: Knowledge | None = None) -> None:
        self.config, self.problem, self.goal = config, problem, make_goal(config.system)
        self.knowledge = knowledge = knowledge or Knowledge()
        search = config.search
        self.mixer = _make_mixer(search, problem)
        if search.acquisition != "auto":
            make_acquisition(search, search.acquisition)  # reports wrong options at once
        self._informed: tuple[int, System] | None = None  # with the number of evaluations
        self._acquisition: Acquisition | None = None  # "auto" depends on the fitted model
        self._potential = make_potential(config.model, problem, search.seed, knowledge.directory)
        self.baseline = knowing(self._potential.prior)
        self._is_0_2 = search.rules == 0  # follows the rules of version 0.2
        self._bars = ErrorBars(search.calibrate, problem.several_sizes and self._is_0_2)
        self._untrained: list[tuple[Record, float]] = []  # with the best value before each
        self.verdicts = 0  # applied by `amend`
        self.known, self._failed = self.goal.memory(), self.goal.memory()
        self.start, self.learned = knowledge.start, knowledge.learned
        self.records: list[Record] = []
        self.improved: list[bool] = []  # for each record: was it lower than all before?
        self.walker_positions: Floats | None = None
        self.explored = 0  # exploration steps since the last improvement
        self.rediscoveries = RediscoveryCounter(self.learned)
        self.pending: tuple[Atoms, ...] = ()  # structures that a kriging believer assumes evaluated
        for record in self.learned:
            self.known.add(record.atoms, record.energy)
            self.goal = self.goal.informed(record.atoms, record.energy)
        labelled = [atoms for atoms in knowledge.labelled if has_value(self.baseline, atoms)]
        self._training = TrainingSet(self.goal, self._is_0_2, labelled)
        if labelled:
            self._fit()

    def amend(self, verdicts: Sequence[Check]) -> None:
        """Learn everything again with all verdicts so far about evaluations."""
        records = amended(self.records, verdicts)
        self.__init__(self.config, self.problem, self.knowledge)  # type: ignore[misc]
        for record in records:
            self.learn(record)
        self.verdicts = len(verdicts)

    # The state, and how a record changes it.

    @property
    def good(self) -> list[Record]:
        """The evaluations that succeeded."""
        return [record for record in self.records if record.ok]

    @property
    def all_known(self) -> list[Record]:
        """Results from before the search, and the evaluations that succeeded."""
        return [*self.learned, *self.good]

    @property
    def best(self) -> Record | None:
        """The lowest evaluation of this search."""
        return min(self.good, key=self._order, default=None)

    @property
    def lowest(self) -> Record | None:
        """The lowest structure, including those from before the search."""
        return min([*self.good, *self.learned], key=self._order, default=None)

    def _order(self, record: Record) -> tuple[float, float]:
        return self.goal.order(record.atoms, record.energy)

    def value(self, record: Record) -> float:
        """The minimised quantity of an evaluation that succeeded."""
        return self.goal.value(record.atoms, record.energy)

    @property
    def best_energy(self) -> float:
        """The lowest value so far; infinite before there is one."""
        return min(map(self.value, self.all_known), default=np.inf)

    def learn(self, record: Record) -> None:
        """Add one evaluation to the state."""
        best = self.best_energy
        lower = record.ok and self.value(record) < best
        self.records.append(record)
        self.improved.append(lower)
        self.rediscoveries.add(record)
        if record.walkers is not None:
            self.walker_positions = record.walkers
        self.explored = 0 if lower else self.explored + (record.purpose == Purpose.EXPLORE)
        self._credit(record, 1.0 if lower else 0.0)
        if not record.ok:
            # One failure may be accidental; after a second one the structure is not tried again.
            (self.known if record.atoms in self._failed else self._failed).add(record.atoms)
            if teaches(record, failures_before(self.records)):
                self._untrained.append((record, best))
            return
        self.known.add(record.atoms, record.energy)
        self.goal = self.goal.informed(record.atoms, record.energy)
        self._untrained.append((record, best))

    @property
    def potential(self) -> Potential:
        """The surrogate."""
        self._catch_up()
        return self._potential

    @property
    def bars(self) -> ErrorBars:
        """The calibration of the surrogate's error bars."""
        self._catch_up()
        return self._bars

    @property
    def last_scale(self) -> float:
        """The factor on σ when the surrogate was trained last."""
        return self._bars.scale

    def restore(self, potential: Potential, count: int, start: float) -> None:
        """Use a surrogate that was trained on the first `count` evaluations already.

        `start` is the initial factor of the displayed error bars (`ErrorBars.online`).
        """
        self._potential = potential
        self._bars = replace(self._bars, online=replace(self._bars.online, start=start))
        has_members = potential.fitted.uncertainty.has_members
        self._acquisition = choose_acquisition(self.config.search, has_members)
        while self._untrained and self._untrained[0][0].iteration < count:
            self._take(*self._untrained.pop(0))

    def training_up_to(self, count: int) -> TrainingSet:
        """The training set after the first `count` evaluations."""
        other = copy(self)
        other._training, other._untrained = self._training.copy(), list(self._untrained)
        while other._untrained and other._untrained[0][0].iteration < count:
            other._take(*other._untrained.pop(0))
        return other._training

    def _take(self, record: Record, best: float) -> Atoms | None:
        """Add a record to the calibration and to the training set; its labels, if it has any."""
        if not has_value(self.baseline, record.atoms):
            self._calibrate(record, best)
            return None
        if not record.ok:
            earlier = self.records[: record.iteration + 1]
            return self._training.reject(record, failures_before(earlier))
        labelled = self._training.add(record.atoms)
        self._calibrate(record, best, energy_of(labelled))
        return labelled

    def _calibrate(self, record: Record, best: float, energy: float | None = None) -> None:
        """Compare a prediction with the label that the model learns."""
        if record.ok and record.predicted is not None and record.std:
            energy = record.energy if energy is None else energy
            bar = None if self._is_0_2 else record.scale * record.std
            self._bars = self._bars.updated(record.predicted, record.std, energy, best, bar)

    def _displayed(self, atoms: Atoms, energy: float, std: float) -> float:
        """The factor that turns σ of a prediction into its error bar."""
        if self._is_0_2:
            return self.bars.displayed(energy, std, self.best_energy)
        if not std > 0:
            return self.bars.scale
        total = with_projected(self.potential, atoms, std)
        value, share = self.goal.value(atoms, energy), self.goal.stds([atoms], np.array([total]))[0]
        return self.bars.displayed(value, float(share), self.best_energy) * total / std

    def _catch_up(self) -> None:
        """Train on all evaluations, one after the other; a search at its end never needs this."""
        while self._untrained:
            record, best = self._untrained.pop(0)
            if (labelled := self._take(record, best)) is not None:
                self._train(labelled, record.ok)

    def _credit(self, record: Record, success: float) -> None:
        if record.generator in self.mixer.generators:
            self.mixer.credit(record.generator, success)

    def _train(self, atoms: Atoms, evaluated: bool) -> None:
        """Learn the last structure of the training set; update the surrogate or fit it anew."""
        count, potential = len(self._training), self._potential
        due = evaluated and length_is_due(self.config, count)
        if potential.is_fitted and not due:
            stress = learns_stress(self.config.model, [atoms], self.problem.variable_cell)
            potential.update([atoms], use_stress=stress)
        elif evaluated and (potential.is_fitted or count >= self.config.search.initial):
            self._fit()

    def _fit(self) -> None:
        potential, first = self._potential, not self._potential.is_fitted
        fit(potential, self.config.model, self._training.images(), self.problem.variable_cell)
        if first:
            self._bars = self._bars.initialised(potential)
            has_members = potential.fitted.uncertainty.has_members
            self._acquisition = choose_acquisition(self.config.search, has_members)

    @property
    def acquisition(self) -> Acquisition:
        """The acquisition of the settings, which is chosen with the first model."""
        self._catch_up()
        assert self._acquisition is not None
        return self._acquisition

    @property
    def context(self) -> AcquisitionContext:
        """The state of the search as the acquisition gets it."""
        return AcquisitionContext(
            evaluations=len(self.records),
            budget=self.config.search.budget,
            best=self.best_energy,
            std_scale=self.bars.acquisition_scale,
            exploration_scale=self.bars.exploration_scale,
            in_flight=len(self.pending),
        )

    def predict(self, images: list[Atoms]) -> tuple[Floats, Floats]:
        """Energies and their standard deviations before calibration, eV."""
        prediction = self.potential.predict(images, forces=False)
        assert prediction.energy_uncertainty is not None
        return prediction.energy, prediction.energy_uncertainty

    # The proposal of the next structure.

    def propose(self, ordinal: int, pending: Sequence[Atoms] = ()) -> Proposal | None:
        """The structure to evaluate next, a function of the records, the seed and the arguments.

        `ordinal` counts the proposals of a search; `pending` are the structures in flight. None if
        every candidate is known.
        """
        if ordinal < len(self.start):
            return Proposal(self.start[ordinal].copy(), START)
        proposal = (self._with_pending(pending) if pending else self)._propose(ordinal)
        if proposal is None or proposal.predicted is None:
            return proposal
        mean, sigma = proposal.predicted, proposal.std or 0.0
        if pending:
            # Records hold the prediction of the data alone. A kriging believer's σ is too small.
            energy, std = self.predict([proposal.atoms])
            mean, sigma = float(energy[0]), float(std[0])
        scale = self._displayed(proposal.atoms, mean, sigma)
        return replace(proposal, predicted=mean, std=sigma, scale=scale)

    def _with_pending(self, pending: Sequence[Atoms]) -> Learner:
        """A copy that treats the pending structures as evaluated (kriging believer)."""
        self._catch_up()
        other = copy(self)
        other.known, other.pending = self.known.copy(), tuple(pending)
        for atoms in pending:
            other.known.add(atoms)
        if self.potential.is_fitted:
            other._potential = kriging_believer(self.potential, pending)
        return other

    def _propose(self, ordinal: int) -> Proposal | None:
        rng = np.random.default_rng([self.config.search.seed, ordinal])
        if self.potential.is_fitted:
            return self._propose_with_model(rng)
        proposal = None
        if self.baseline is not None:
            proposal = self._lowest_of_baseline(self.baseline, rng)
        return proposal or self._first_random(rng)

    def _propose_with_model(self, rng: np.random.Generator) -> Proposal | None:
        """Generate, relax and rank candidates until one is worth an evaluation, else explore."""
        search, context = self.config.search, self.context
        parents = self._parents(rng)
        surface = self.acquisition.surface(self.potential, rng, context)
        rounds = search.explore if self.acquisition.explores(context) else 0
        pool, draws = list[Atoms](), list[str]()
        positions: Floats | None = None
        for k in range(1, ROUNDS + 1):
            start = self.candidates(rng, parents if k % 2 else [])  # every other round at random
            relaxed = self.relaxed(start, surface)
            draws += self._draws(relaxed)
            if k == 1 and walk_always(self.config):
                walk = self._walk(rng, surface, relaxed)
                relaxed, positions = relaxed + walk.visited, walk.positions
            pool += relaxed
            proposal = self._choose(pool)
            if proposal is not None and (not rounds or self._is_worthwhile(proposal)):
                return replace(proposal, draws=" ".join(draws), walkers=positions)
            if k >= rounds:
                if proposal is not None and search.walkers and positions is None:
                    walk = self._walk(rng, surface, pool)
                    pool, positions = pool + walk.visited, walk.positions
                explored = self._choose(pool, Purpose.EXPLORE) if proposal is not None else None
                proposal = explored or self._choose(start)
                if proposal is not None:
                    return replace(proposal, draws=" ".join(draws), walkers=positions)
        return None

    def _is_worthwhile(self, proposal: Proposal) -> bool:
        """Does the acquisition consider this proposal worth an evaluation?"""
        assert proposal.predicted is not None and proposal.std is not None  # noqa: PT018
        std, gain = self.goal.stds(
            [proposal.atoms] * 2, np.array([self.bars.acquisition_scale * proposal.std, LEAST_GAIN])
        )
        value = self.goal.value(proposal.atoms, proposal.predicted)
        return bool(self.acquisition.is_worthwhile(value, float(std), float(gain), self.context))

    def candidates(self, rng: np.random.Generator, parents: list[Atoms]) -> list[Atoms]:
        """New structures; fewer than search.candidates where generators fail."""
        problem = self._informed_problem().required_first(self.under_way)
        number = self.config.search.candidates
        generated = (self.mixer(rng, problem, parents) for _ in range(number))
        return [atoms for atoms in generated if not isinstance(atoms, Failure)]

    def relaxed(
        self, images: list[Atoms], surface: Surface | FixedPrior, fitted: bool = True
    ) -> list[Atoms]:
        """Relaxed structures that are still valid; `fitted` unless on a mean function."""
        cutoff = None
        if fitted:  # neighbour lists serve the descriptor and the pair well
            well = 2 * REACH[WELL] * float(radii_of(self.problem.numbers).max())
            cutoff = max(self.potential.descriptor.cutoff, well)
        steps = self.config.search.relax_steps
        return self._informed_problem().relax(
            images, surface, CANDIDATE_FMAX, steps, cutoff, MOLECULE_STIFFNESS
        )

    def _informed_problem(self) -> System:
        """The problem with volumes and distances estimated from the evaluations."""
        if self._is_0_2 and not self.problem.variable_cell:
            return self.problem
        known = self.all_known
        if self._informed is None or self._informed[0] != len(known):
            updated = self.problem.updated([r.atoms for r in known], [r.energy for r in known])
            self._informed = (len(known), updated)
        return self._informed[1]

    @property
    def under_way(self) -> list[Atoms]:
        """Structures that are known or in flight."""
        return [*(record.atoms for record in self.all_known), *self.pending]

    def _parents(self, rng: np.random.Generator) -> list[Atoms]:
        known, values = self.all_known, np.array([*map(self.value, self.all_known)])
        return choose_parents(
            [record.atoms for record in known], values, self.potential.descriptor,
            self.config.search.n_parents, rng, self.problem.several_sizes,
        )  # fmt: skip

    def _draws(self, relaxed: list[Atoms]) -> list[str]:
        """Relaxed candidates that count as draws for `stop`; none for crystals and molecules."""
        counted = {
            name
            for name, generator in self.mixer.generators.items()
            if not (generator.needs or getattr(generator, "few_results", False))
        }
        images = [atoms for atoms in relaxed if atoms.info["generator"] in counted]
        if not images or not self.problem.counts_rediscoveries:
            return []
        keys = self.rediscoveries.keys
        return write_draws(images, self.predict(images)[0], self.best_energy, keys)

    def _walk(self, rng: np.random.Generator, surface: Surface, fresh: list[Atoms]) -> Walk:
        """Continue the walkers on the present surface."""

        def score(images: list[Atoms]) -> tuple[Floats, Floats]:
            energy, std = self.predict(images)
            return self._scores(images, energy, std, Purpose.EXPLORE), energy

        def is_known(atoms: Atoms, energy: float) -> bool:
            return self.known.find(atoms, energy, predicted=True) is not None

        walkers = Walkers(
            self.problem,
            [generator for generator in self.mixer.generators.values() if generator.needs == 1],
            lambda images: self.relaxed(images, surface),
            score,
            is_known,
            self.config.search.walkers,
            MAX_HOPS if walk_always(self.config) else min(MAX_HOPS, 1 + self.explored),
        )
        return walkers.walk(rng, self.walker_positions, fresh)

    def _scores(self, images: list[Atoms], energy: Floats, std: Floats, purpose: Purpose) -> Floats:
        """Scores of the acquisition; the lowest is best."""
        values, stds = self.goal.values(images, energy), self.goal.stds(images, std)
        context = self.context
        if purpose == Purpose.EXPLORE:
            return self.acquisition.explore_score(values, context.exploration_scale * stds, context)
        return self.acquisition.score(values, context.std_scale * stds, context)

    def _choose(self, pool: list[Atoms], purpose: Purpose = Purpose.IMPROVE) -> Proposal | None:
        """The structure with the best score that is not known yet; None if all are known."""
        if not pool:
            return None
        energy, std = self.predict(pool)
        scores = self._scores(pool, energy, std, purpose)
        for k in np.argsort(scores, kind="stable"):
            mean, sigma = float(energy[k]), float(std[k])
            if np.isfinite(mean) and self.known.find(pool[k], mean, predicted=True) is None:
                return Proposal(
                    atoms=pool[k],
                    generator=str(pool[k].info["generator"]),
                    predicted=mean,
                    std=sigma,
                    kappa=self.acquisition.kappa_at(self.context),
                    acquisition=float(scores[k]),
                    purpose=purpose,
                )
        return None

    # Proposals before there is a model.

    def _lowest_of_baseline(
        self, baseline: FixedPrior, rng: np.random.Generator
    ) -> Proposal | None:
        """The candidate with the lowest energy by a mean function that describes the system.

        There are as many rounds of candidates as before an exploration; they cost no evaluation.
        """
        pool: list[Atoms] = []
        for k in range(1, ROUNDS + 1):
            pool += self.relaxed(self.candidates(rng, []), baseline, fitted=False)
            if k < self.config.search.explore or not pool:
                continue
            energy = baseline(pool)[0]
            for j in np.argsort(energy, kind="stable"):
                if np.isfinite(energy[j]) and pool[j] not in self.known:
                    return Proposal(pool[j], str(pool[j].info["generator"]))
        return None

    def _first_random(self, rng: np.random.Generator) -> Proposal | None:
        """A random structure that is not known yet, relaxed on a pair well if that succeeds."""
        reason = "all generated structures are known"
        problem = self.problem.required_first(self.under_way)
        for _ in range(ROUNDS):
            generated = [self.mixer(rng, problem) for _ in range(_RANDOM_BATCH)]
            start = [atoms for atoms in generated if isinstance(atoms, Atoms)]
            reason = next((one.reason for one in generated if isinstance(one, Failure)), reason)
            for atoms in [*self.relaxed(start, PairWell(), fitted=False), *start]:
                if atoms not in self.known:
                    return Proposal(atoms, str(atoms.info["generator"]))
        if len(self.known):
            return None
        raise NuggetError(
            f"No valid structure of {self.config.system.formula} could be generated ({reason}): "
            "enlarge system.radius, system.height or system.cell."
        )


def _make_mixer(search: SearchConfig, problem: System) -> Mixer:
    """The generators of the settings that suit the system, with their weights."""
    generators = [
        make_generator(name, **search.generator_options.get(name, {}))
        for name, weight in search.generators.items()
        if weight > 0
    ]
    suitable = [generator for generator in generators if suits(generator, problem)]
    return Mixer(suitable, {one.name: search.generators[one.name] for one in suitable})
