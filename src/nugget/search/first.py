"""The first proposals of a search: there is no model yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.generators import Failure
from nugget.potential.priors import FixedPrior, PairWell
from nugget.search.proposal import Proposal

if TYPE_CHECKING:
    from nugget.search.learner import Learner

# Rounds of new candidates before a search says that there is nothing new to find.
ROUNDS = 10


def propose_first(learner: Learner, rng: np.random.Generator) -> Proposal | None:
    """A new structure: the lowest by a baseline that knows the system, or else a random one."""
    found = None
    if learner.baseline is not None:
        found = _lowest_of_baseline(learner, learner.baseline, rng)
    return found or _random(learner, rng)


def _lowest_of_baseline(
    learner: Learner, baseline: FixedPrior, rng: np.random.Generator
) -> Proposal | None:
    """After as many rounds of candidates as an exploration takes: they cost no evaluation."""
    pool: list[Atoms] = []
    for k in range(1, ROUNDS + 1):
        pool += learner.relaxed(learner.candidates(rng, []), baseline)
        if k < learner.config.search.explore or not pool:
            continue
        energy = baseline(pool)[0]
        for j in np.argsort(energy, kind="stable"):
            if np.isfinite(energy[j]) and pool[j] not in learner.known:
                return Proposal(pool[j], str(pool[j].info["generator"]))
    return None


def _random(learner: Learner, rng: np.random.Generator) -> Proposal | None:
    reason = "nothing fitted"
    problem = learner.problem.lacking(learner.under_way)
    for _ in range(ROUNDS):
        made = [learner.mixer(rng, problem) for _ in range(5)]
        start = [atoms for atoms in made if isinstance(atoms, Atoms)]
        reason = next((m.reason for m in made if isinstance(m, Failure)), reason)
        for atoms in [*learner.relaxed(start, PairWell()), *start]:
            if atoms not in learner.known:
                return Proposal(atoms, str(atoms.info["generator"]))
    if len(learner.known):
        return None
    raise NuggetError(
        f"No valid structure of {learner.config.system.formula} could be generated ({reason}): "
        "enlarge system.radius, system.height or system.cell."
    )
