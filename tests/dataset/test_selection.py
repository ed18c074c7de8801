"""Choices of structures to label, against refits of the whole posterior."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster

from nugget import RBF, SOAP, NuggetError, Posterior, Potential
from nugget.dataset import selection
from nugget.dataset.selection import farthest, pivoted, reduce_variance, select
from nugget.gp.linalg import inverse_gram


def labelled(atoms: Atoms) -> Atoms:
    work = atoms.copy()
    work.calc = EMT()
    atoms.calc = SinglePointCalculator(
        atoms, energy=work.get_potential_energy(), forces=work.get_forces()
    )
    return atoms


@pytest.fixture(scope="module")
def pool() -> list[Atoms]:
    return [gold_cluster(n, seed) for seed, n in enumerate([5, 6, 7, 8] * 3)]


def small(**more) -> Potential:
    parts = {"uncertainty": Posterior(prior=0.0), "domain": False} | more
    return Potential(SOAP(("Au",), 5.0), RBF(12.0, 4.0), **parts)


@pytest.fixture(scope="module")
def model(pool) -> Potential:
    return small().fit([labelled(atoms.copy()) for atoms in pool[:2]])


def variance(r: int, rows: list[np.ndarray], targets: np.ndarray) -> float:
    """tr(G (I + ΣBᵀB)⁻¹) by a plain inverse."""
    return float(np.trace(targets @ np.linalg.inv(np.eye(r) + sum(b.T @ b for b in rows))))


@pytest.mark.parametrize("size", [1, 4])
def test_greedy_choice_is_that_of_refits(size):
    rng = np.random.default_rng(3)
    r, n = 7, 9
    blocks = [rng.normal(size=(size, r)) for _ in range(n)]
    rows = rng.normal(size=(20, r))
    targets = rows.T @ rows / 20
    labels = np.stack([block[0] for block in blocks])
    state = selection.Posterior(np.eye(r, order="F"), targets, labels)
    shortlist = 1 if size == 1 else n
    picks = list(reduce_variance(state, blocks.__getitem__, np.arange(n), 4, np.ones(n), shortlist))
    known: list[np.ndarray] = []
    for s, reduction in picks:
        before = variance(r, known, targets)
        falls = [before - variance(r, [*known, block], targets) for block in blocks]
        free = [k for k in range(n) if not any(block is blocks[k] for block in known)]
        assert s == max(free, key=lambda k: falls[k])
        assert reduction == pytest.approx(falls[s], rel=1e-9)
        known.append(blocks[s])
    assert state.variance == pytest.approx(variance(r, known, targets), rel=1e-9)


@pytest.mark.parametrize("size", [1, 3])
def test_scores_of_single_labels_stay_accurate(size):
    """Large differences in scale, so that the covariance is made again on the way."""
    rng = np.random.default_rng(0)
    r, n = 12, 40
    labels = 1e3 * rng.normal(size=(n, r)) * np.logspace(0, -4, r)
    targets = labels.T @ labels / n
    state = selection.Posterior(np.eye(r, order="F"), targets, labels)
    known: list[np.ndarray] = []
    for _ in range(6):
        rows = 30 * rng.normal(size=(size, r)) * np.logspace(0, -2, r)
        state.learn(rows)
        known.append(rows)
        before = variance(r, known, targets)
        falls = [before - variance(r, [*known, one[None]], targets) for one in labels]
        assert np.allclose(state.scores, falls, rtol=1e-5, atol=1e-7 * before)
        assert state.reduction(labels[:1]) == pytest.approx(falls[0], rel=1e-5)


def test_reductions_are_those_of_models_that_were_fitted_again(pool, model):
    """σ of the pool after the labels have been calculated is the σ that was expected."""
    found = select(pool, 3, model, forces=True)
    assert not {0, 1} & set(found.indices)
    chosen = [labelled(pool[s].copy()) for s in found.indices]
    env = model.descriptor.compute(pool)
    space = selection.Space.of(model, [env])
    grown = small(inducing=model.inducing)
    training = [*(labelled(a.copy()) for a in pool[:2]), *chosen]
    grown = grown.fit(training, calibrate=None)
    # The fit has inducing points of its own structures only; those of the pool describe more.
    assert len(grown.fitted.inducing) <= len(space.inducing)
    std = grown.predict(pool, forces=False).energy_uncertainty
    sizes = np.array([len(atoms) for atoms in pool])
    known = [*found.indices, 0, 1]
    expected = _stds(model, pool, known)
    assert np.allclose(std[known] / sizes[known], expected[known], rtol=0.05, atol=1e-5)
    assert found.choices[-1].after == pytest.approx(np.sqrt(np.mean(expected**2)), rel=1e-6)


def _stds(model: Potential, pool: list[Atoms], known: list[int]) -> np.ndarray:
    """σ per atom of the pool after labels of `known`, in one step."""
    env = model.descriptor.compute(pool)
    past = model.descriptor.compute(pool[:2])
    space = selection.Space.of(model, [env, past])
    part = model.descriptor.compute([pool[s] for s in known])
    p = inverse_gram(space.factor([(part, np.full(len(known), True))]))
    rows = space.energies(env) / env.batch.sizes[:, None]
    return np.sqrt(np.einsum("sr,rq,sq->s", rows, p, rows))


def test_greedy_is_close_to_the_best_pair(pool):
    found = select(pool, 2, small(), forces=False)
    env = small().descriptor.compute(pool)
    space = selection.Space.of(small(), [env])
    energies, sizes = space.energies(env), env.batch.sizes
    rows = energies / (small().noise * np.sqrt(sizes))[:, None]
    targets = space.targets(env, energies, "energy")
    r = len(space.inducing)
    best = min(
        variance(r, [rows[a : a + 1], rows[b : b + 1]], targets)
        for a, b in combinations(range(len(pool)), 2)
    )
    assert found.choices[-1].after ** 2 <= 1.5 * best


@pytest.mark.parametrize("by", ["energy", "forces", "atoms"])
def test_uncertainty_falls_with_each_label(pool, by):
    found = select(pool, 5, small(), by=by)
    assert len(set(found.indices)) == 5
    ends = [found.start, *(choice.after for choice in found.choices)]
    assert all(a > b for a, b in pairwise(ends))
    told = found.to_dict()
    assert told["unit"] == {"energy": "eV/atom", "forces": "eV/Å", "atoms": "eV"}[by]
    assert 0 <= told["worthwhile"] <= 5
    assert found.worthwhile(2.0) == 0


def test_copies_are_not_chosen_twice(pool):
    twins = [pool[0], pool[0].copy(), pool[0].copy(), pool[1], pool[2]]
    for atoms in twins[1:3]:
        atoms.rotate(50, "x")
    found = select(twins, 3, small(), forces=True)
    assert len({min(s, 3) if s > 2 else 0 for s in found.indices}) == 2
    assert sorted(0 if s < 3 else s for s in found.indices) == [0, 3, 4]


def test_cost_prefers_small_structures(pool):
    by_structure = select(pool, 4, small(), forces=False)
    by_atom = select(pool, 4, small(), forces=False, cost="atoms")
    assert sum(c.atoms for c in by_atom.choices) <= sum(c.atoms for c in by_structure.choices)


def test_masks_training_set_and_learned_structures(pool, model):
    allowed = np.ones(len(pool), dtype=bool)
    allowed[5:] = False
    found = select(pool, 20, model, learned=[pool[4]], allowed=allowed)
    assert sorted(found.indices) == [2, 3]
    assert found.considered == 2
    with pytest.raises(NuggetError, match="No structure is left"):
        select(pool[:2], 1, model)
    with pytest.raises(NuggetError, match="at least 1"):
        select(pool, 0)
    with pytest.raises(NuggetError, match="has no Cu"):
        select([Atoms("Cu2", [[0, 0, 0], [0, 0, 2.5]])], 1, model)


def test_without_a_model(pool):
    found = select(pool, 4, method="variance")
    others = {m: select(pool, 4, method=m) for m in ("pivoted", "farthest", "random")}
    assert all(found.choices[-1].after <= 1.05 * o.choices[-1].after for o in others.values())
    assert select(pool, 4, method="random", seed=1).indices == (
        select(pool, 4, method="random", seed=1).indices
    )


def test_pivoted_and_farthest_rules():
    x = np.array([[0.0, 0.0], [4.0, 0.0], [4.1, 0.0], [0.0, 1.0], [9.0, 9.0]])
    allowed = np.arange(4)
    assert farthest(x, x[:1], allowed, 2) == [2, 3]
    assert farthest(x, x[:0], allowed, 1)[0] in (0, 1, 2, 3)
    chosen = pivoted(x, np.eye(2), allowed, 3, np.ones(5))
    assert chosen[:2] == [2, 3]
