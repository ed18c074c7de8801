"""What a search knows, as a fold over its records, and what it would evaluate next.

`learn(record)` for all records in order gives the learner that the search had after the last of
them, to the last bit. `propose(ordinal, pending)` depends only on that learner, the seed and the
structures that are being evaluated at the time. Restarting needs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.data import chemical_symbols
from numpy.typing import NDArray

from nugget.calibration import OnlineScale
from nugget.descriptors.soap import SOAP
from nugget.errors import NuggetError
from nugget.generators import Failure, Mixer, Problem, make_generator
from nugget.gp.inducing import PivotedCholesky
from nugget.gp.kernels.rbf import RBF
from nugget.gp.uncertainty.label_noise import LabelNoise
from nugget.gp.uncertainty.projected import ProjectedProcess
from nugget.identity import KnownStructures
from nugget.potential.potential import Potential
from nugget.potential.priors import PairWell, Prior, Repulsion, SpeciesEnergies
from nugget.potential.surface import Surface
from nugget.relax import relax
from nugget.search import acquisition
from nugget.search.config import Config, ModelConfig
from nugget.search.parents import SELECTORS
from nugget.search.store import Record

Floats = NDArray[np.float64]

# Rounds of new candidates before a search says that there is nothing new to find.
_ROUNDS = 10

# A pair well under the model keeps early searches from crushing or boiling structures that no
# data speak about: on Au13 (EMT, two seeds) 5 of 38 evaluations were above 9 eV instead of 27.
BASELINES: dict[str, list[Prior]] = {
    "pair-well": [PairWell()],
    "repulsion": [Repulsion()],
    "none": [],
}


@dataclass(frozen=True, eq=False)
class Proposal:
    """A structure that should be evaluated, and what the model expects of it."""

    atoms: Atoms
    generator: str
    predicted: float | None = None
    std: float | None = None  # before rescaling
    scale: float = 1.0
    acquisition: float | None = None
    candidates: int = 0
    valid: int = 0
    new: int = 0


class Learner:
    """Model, known structures and generator weights of one search."""

    def __init__(self, config: Config, problem: Problem) -> None:
        self.config, self.problem = config, problem
        weights = {
            name: weight
            for name, weight in config.search.generators.items()
            if weight > 0 and make_generator(name).suits(problem)
        }
        self.mixer = Mixer([make_generator(name) for name in weights], weights)
        self.acquisition = acquisition.chosen(config)
        self.potential = make_potential(config.model, problem, config.search.seed)
        self.online = OnlineScale()
        self.known = KnownStructures()
        self.records: list[Record] = []
        self._waiting: list[Atoms] = []  # labelled structures from before the first model

    @property
    def good(self) -> list[Record]:
        """The evaluations that succeeded."""
        return [record for record in self.records if record.ok]

    @property
    def best(self) -> Record | None:
        """The lowest energy so far."""
        return min(self.good, key=lambda record: record.energy, default=None)

    def learn(self, record: Record) -> None:
        """Take in one evaluation; the next one is `propose`d from it."""
        best = self.best
        self.records.append(record)
        self.known.add(record.atoms, record.energy if record.ok else None)
        if not record.ok:
            self._credit(record, 0.0)
            return
        improved = best is None or record.energy < best.energy
        self._credit(record, 1.0 if improved else 0.0)
        if record.predicted is not None and record.std:
            self.online = self.online.update(record.predicted, record.std, record.energy)
        if self.potential.is_fitted:
            self.potential.update([record.atoms])
        else:
            self._waiting.append(record.atoms)
            if len(self._waiting) >= self.config.search.initial:
                self.potential.fit(self._waiting, use_forces=self.config.model.use_forces)
                self._waiting = []

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
            other.potential = self.potential.copy().update(fantasies, use_forces=False)
        return other

    def _propose(self, ordinal: int) -> Proposal | None:
        rng = np.random.default_rng([self.config.search.seed, ordinal])
        if not self.potential.is_fitted:
            return self._unlearned(rng)
        parents = self._parents(rng)
        surface = self._surface(rng)
        for _ in range(_ROUNDS):
            start = self._candidates(rng, parents)
            pool = self._relax(start, surface)
            for _ in range(self.config.search.hops):
                pool += self._relax(self._hop(rng, pool), surface)
            proposal = self._choose(pool, len(start)) or self._choose(start, len(start))
            if proposal is not None:
                return proposal
        return None

    def _candidates(self, rng: np.random.Generator, parents: list[Atoms]) -> list[Atoms]:
        made = (
            self.mixer(rng, self.problem, parents) for _ in range(self.config.search.candidates)
        )
        return [atoms for atoms in made if not isinstance(atoms, Failure)]

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
            "enlarge system.radius, system.height or system.cell."
        )

    def _parents(self, rng: np.random.Generator) -> list[Atoms]:
        good = self.good
        features = self.potential.descriptor.compute([r.atoms for r in good])
        means = np.add.reduceat(features.values, features.batch.offsets[:-1], axis=0)
        energies = np.array([r.energy for r in good])
        select = SELECTORS[self.config.search.parents]
        return [good[k].atoms for k in select(means, energies, rng, self.config.search.n_parents)]

    def _surface(self, rng: np.random.Generator) -> Surface:
        search = self.config.search
        if self.acquisition == "thompson":
            return acquisition.thompson_surface(self.potential, rng, self.scale)
        # Expected improvement is flat far from the best: candidates walk on the LCB for it too.
        return self.potential.lcb(search.kappa * self.scale)

    def _relax(self, images: list[Atoms], surface: Surface | PairWell) -> list[Atoms]:
        """Relaxed structures that are still sensible."""
        if not images:
            return []
        search = self.config.search
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
        order = np.argsort(self._score(energy, std))[: max(2, len(pool) // 4)]
        return self._candidates(rng, [pool[k] for k in order])

    def _predict(self, images: list[Atoms]) -> tuple[Floats, Floats]:
        found = self.potential.predict(images, forces=False)
        assert found.energy_uncertainty is not None
        return found.energy, found.energy_uncertainty

    def _score(self, energy: Floats, std: Floats) -> Floats:
        search = self.config.search
        if self.acquisition == "ei" and self.best is not None:
            return acquisition.expected_improvement(self.best.energy)(energy, self.scale * std)
        kappa = search.kappa if self.acquisition == "lcb" else 0.0
        return acquisition.lower_confidence_bound(kappa * self.scale)(energy, std)

    def _choose(self, pool: list[Atoms], generated: int) -> Proposal | None:
        """The best of the pool that is not known yet; None if all are."""
        if not pool:
            return None
        energy, std = self._predict(pool)
        scores = self._score(energy, std)
        order = np.argsort(scores, kind="stable")
        fresh = [int(k) for k in order if self.known.find(pool[k], float(energy[k])) is None]
        if not fresh:
            return None
        k = fresh[0]
        return Proposal(
            atoms=pool[k],
            generator=str(pool[k].info["generator"]),
            predicted=float(energy[k]),
            std=float(std[k]),
            scale=self.scale,
            acquisition=float(scores[k]),
            candidates=generated,
            valid=len(pool),
            new=len(fresh),
        )


def make_potential(model: ModelConfig, problem: Problem, seed: int) -> Potential:
    """The surrogate that the settings describe, not yet fitted."""
    species = sorted({chemical_symbols[z] for z in problem.numbers})
    uncertainty: LabelNoise | ProjectedProcess = ProjectedProcess()
    if model.uncertainty == "label-noise":
        uncertainty = LabelNoise(model.label, model.prior, model.force, model.members)
    return Potential(
        SOAP(tuple(species), model.cutoff, model.n_max, model.l_max, model.sigma),
        kernel=RBF(model.length_scale),
        inducing=PivotedCholesky(max_points=model.max_points),
        noise=model.noise,
        force_noise=model.force_noise,
        uncertainty=uncertainty,
        prior=[SpeciesEnergies(), *BASELINES[model.baseline]],
        seed=seed,
    )
