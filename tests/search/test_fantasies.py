from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from flights import apart, settings

from nugget.search import Search, make_config
from nugget.search.learner import Learner
from nugget.search.surrogate import with_projected
from nugget.structures.memory import KnownStructures
from nugget.systems import PlacedAtoms

# ----------------------------------------------------------------------------------- fantasies


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Learner:
    config = make_config(settings(1, use_forces=True))
    search = Search.create(config, tmp_path_factory.mktemp("learnt"))
    search.run()
    learner = Learner(config, search.problem)
    for record in search.store.records():
        learner.learn(record)
    return learner


def test_a_kriging_believer_takes_std_away_and_leaves_the_mean(learner: Learner) -> None:
    candidates = learner.candidates(np.random.default_rng(5), [])
    std = learner.predict(candidates)[1]
    images = [candidates[int(np.argmax(std))]]  # of what is known, one energy takes little away
    before = learner.potential.predict(images, forces=False)
    believer = learner._with_pending(images).potential.predict(images, forces=False)
    assert before.energy_uncertainty is not None
    assert believer.energy_uncertainty is not None
    assert believer.energy_uncertainty[0] < 0.8 * before.energy_uncertainty[0]
    # New inducing points may move the mean, by less than what σ allowed.
    moved = abs(believer.energy[0] - before.energy[0])
    assert moved < 0.3 * before.energy_uncertainty[0]
    lcb = [p.energy[0] - 2 * p.energy_uncertainty[0] for p in (before, believer)]
    assert lcb[1] > lcb[0]


def test_pending_structures_leave_the_learner_as_it_is(learner: Learner) -> None:
    fit, known, online = learner.potential.fitted, len(learner.known), learner.bars
    state = learner.potential.rng.bit_generator.state
    alone = learner.propose(12)
    assert alone is not None
    apart = learner.propose(12, [alone.atoms])
    assert apart is not None
    assert learner.potential.fitted is fit
    assert (len(learner.known), learner.bars) == (known, online)
    assert learner.potential.rng.bit_generator.state == state
    # What is written down, and calibrated with, is what the data say, not the fantasies.
    energy, std = learner.predict([apart.atoms])
    assert (apart.predicted, apart.std) == (energy[0], std[0])
    total = with_projected(learner.potential, apart.atoms, std[0])
    factor = learner.bars.displayed(energy[0], total, learner.best_energy)
    assert apart.scale == pytest.approx(factor * total / std[0], rel=1e-12)
    again = learner.propose(12)
    assert again is not None
    np.testing.assert_array_equal(again.atoms.positions, alone.atoms.positions)


def test_what_is_pending_is_not_proposed_again(learner: Learner) -> None:
    """The same seed and the same candidates: only the pending ones make the difference."""
    pending: list[Atoms] = []
    for _ in range(4):
        proposal = learner.propose(12, pending)
        assert proposal is not None
        known = KnownStructures()
        for atoms in pending:
            known.add(atoms)
        assert proposal.atoms not in known
        pending.append(proposal.atoms)


def test_first_structures_differ_though_nothing_is_known() -> None:
    fresh = Learner(make_config(settings()), PlacedAtoms.cluster("Au6"))
    pending: list[Atoms] = []
    for _ in range(4):
        proposal = fresh.propose(0, pending)  # the same random numbers each time
        assert proposal is not None
        assert proposal.predicted is None
        pending.append(proposal.atoms)
    for k in range(4):
        assert all(apart(pending[k], pending[j]) > 0.05 for j in range(k))
