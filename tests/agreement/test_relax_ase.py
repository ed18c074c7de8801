"""relax against ASE's optimisers on the same surfaces: same minima, fewer evaluations."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import add_adsorbate, fcc111, minimize_rotation_and_translation
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.cluster import Icosahedron
from ase.constraints import FixAtoms
from ase.optimize import BFGS, LBFGS

from nugget.generators.random_cluster import RandomCluster
from nugget.relax import on_calculator, relax
from nugget.systems import PlacedAtoms


def with_ase(optimiser, atoms, calculator, fmax, steps=1000):
    atoms = atoms.copy()
    atoms.calc = calculator
    opt = optimiser(atoms, logfile=None)
    assert opt.run(fmax=fmax, steps=steps)
    return atoms, opt.nsteps + 1


def aligned_distance(a, b):
    a = a.copy()
    minimize_rotation_and_translation(b, a)
    return np.linalg.norm(a.positions - b.positions, axis=1).max()


def rattled_clusters():
    for seed in range(4):
        atoms = Icosahedron("Au", 2)
        atoms.rattle(0.2, seed=seed)
        yield atoms


@pytest.mark.slow
def test_same_minima_as_bfgs_from_disturbed_clusters():
    images = [Atoms(a.numbers, a.positions) for a in rattled_clusters()]
    for image, r in zip(images, relax(images, on_calculator(EMT()), fmax=1e-4), strict=True):
        reference, _ = with_ase(BFGS, image, EMT(), 1e-4)
        assert r.converged
        assert r.energy == pytest.approx(reference.get_potential_energy(), abs=1e-6)
        assert aligned_distance(r.atoms, reference) < 1e-3


def test_same_minimum_as_bfgs_on_a_fixed_slab():
    slab = fcc111("Cu", (3, 3, 3), vacuum=7.0)
    add_adsorbate(slab, "Au", 2.2, position=(1.0, 0.4))
    slab.set_constraint(FixAtoms([a.index for a in slab if a.tag > 1]))
    reference, evaluations = with_ase(BFGS, slab, EMT(), 1e-4)
    r = relax([slab], on_calculator(EMT()), fmax=1e-4)[0]
    assert np.linalg.norm(r.atoms.positions - reference.positions, axis=1).max() < 1e-3
    assert r.evaluations <= evaluations


@pytest.mark.parametrize(
    ("formula", "make"),
    [("Au13", EMT), ("Ar13", lambda: LennardJones(sigma=3.4, epsilon=0.4, rc=30.0))],
)
def test_random_clusters_need_no_more_evaluations_than_lbfgs(formula, make):
    rng = np.random.default_rng(4)
    problem = PlacedAtoms.cluster(formula, min_ratio=0.85)
    images = [RandomCluster()(rng, problem) for _ in range(4)]
    ours = relax(images, on_calculator(make()), fmax=0.02, steps=500)
    theirs = [with_ase(LBFGS, a, make(), 0.02)[1] for a in images]
    assert all(r.converged for r in ours)
    assert sum(r.evaluations for r in ours) <= sum(theirs)
    # A random start has many minima in reach; that ours is one is judged by BFGS staying there.
    for r in relax([r.atoms for r in ours], on_calculator(make()), fmax=1e-5, steps=500):
        after, _ = with_ase(BFGS, r.atoms, make(), 1e-6)
        assert aligned_distance(r.atoms, after) < 1e-3
        assert r.energy == pytest.approx(after.get_potential_energy(), abs=1e-6)
