"""relax: every structure reaches its own minimum, alone or in company, or says why not."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms, FixBondLength, FixCartesian

from nugget.errors import NuggetError
from nugget.relax import on_calculator, relax
from nugget.relax.lockstep import C_STAB, TAU, W_MAX, A, cholesky, springs, wall
from nugget.structures.regions import Box, Sphere

SIGMA = 2.5


def lennard_jones(x, sigma=SIGMA, eps=0.4):
    d = x[:, None] - x[None]
    r2 = (d**2).sum(-1) + np.eye(len(x))
    q = (sigma**2 / r2) ** 3
    np.fill_diagonal(q, 0.0)
    gradient = -24 * eps * (((2 * q * q - q) / r2)[:, :, None] * d).sum(axis=1)
    return 2 * eps * (q * q - q).sum(), gradient


def surface_of(function):
    def surface(images):
        pairs = [function(a.positions) for a in images]
        return np.array([p[0] for p in pairs]), [p[1] for p in pairs]

    return surface


lj = surface_of(lennard_jones)


def random_cluster(rng, n, scale=1.0):
    """Atoms on a jittered grid: never too close, never in a minimum."""
    grid = np.array(list(np.ndindex(4, 4, 4)))[rng.permutation(64)[:n]]
    grid = grid[np.argsort(np.abs(grid - grid.mean(axis=0)).sum(axis=1))]
    return Atoms(f"Au{n}", scale * (2.9 * grid + rng.uniform(-0.4, 0.4, (n, 3))))


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return [random_cluster(rng, n) for n in (13, 2, 7, 20, 13)]


def test_reaches_minima_of_mixed_sizes_and_leaves_the_images_alone(images):
    before = [a.positions.copy() for a in images]
    results = relax(images, lj, fmax=1e-3, steps=500)
    assert all(r.converged and r.ok and r.reason == "converged" for r in results)
    for r, a, x in zip(results, images, before, strict=True):
        assert np.array_equal(a.positions, x)
        energy, gradient = lennard_jones(r.atoms.positions)
        assert np.linalg.norm(gradient, axis=1).max() < 1e-3
        assert r.energy == pytest.approx(energy, abs=1e-12)
        assert r.energy < lennard_jones(x)[0]
    assert results[1].energy == pytest.approx(-0.4, abs=1e-6)  # a dimer: the well's depth
    assert results[1].atoms.get_distance(0, 1) == pytest.approx(2 ** (1 / 6) * SIGMA, abs=1e-3)


def test_results_do_not_depend_on_the_company(images):
    together = relax(images, lj, steps=60)
    for image, r in zip(images, together, strict=True):
        alone = relax([image], lj, steps=60)[0]
        assert alone.energy == r.energy
        assert alone.evaluations == r.evaluations
        assert np.array_equal(alone.atoms.positions, r.atoms.positions)


def test_without_the_preconditioner_too(images):
    plain = relax(images, lj, fmax=1e-3, steps=800, precondition_up_to=0)
    springy = relax(images, lj, fmax=1e-3, steps=800)
    assert all(r.converged for r in plain)
    # What the springs are for: clearly fewer evaluations.
    assert sum(r.evaluations for r in springy) < 0.8 * sum(r.evaluations for r in plain)


def test_energy_never_rises_from_one_kept_point_to_the_next(images):
    energies = [relax(images, lj, fmax=1e-6, steps=k) for k in range(0, 40, 3)]
    table = np.array([[r.energy for r in row] for row in energies])
    assert (np.diff(table, axis=0) <= 1e-6).all()


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_counts_evaluations(images, steps):
    calls = np.zeros(len(images), dtype=int)

    class Counting:
        def start(self, images):
            offset = np.concatenate([[0], np.cumsum([len(a) for a in images])])

            def evaluate(positions, active):
                calls[active] += 1
                pairs = [lennard_jones(positions[offset[b] : offset[b + 1]]) for b in active]
                return np.array([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])

            return evaluate

    results = relax(images, Counting(), fmax=1e-9, steps=steps)
    assert (calls == steps + 1).all()
    assert [r.evaluations for r in results] == calls.tolist()
    assert not any(r.converged for r in results)
    assert all(r.ok and r.reason == "all steps used" for r in results)
    plain = relax(images, lj, fmax=1e-9, steps=steps)
    assert [r.energy for r in plain] == [r.energy for r in results]


def test_finished_structures_leave_the_batch(images):
    sizes = []

    def surface(batch):
        sizes.append(len(batch))
        return lj(batch)

    relax(images, surface, steps=500)
    assert sizes[0] == len(images)
    assert sizes[-1] < len(images)
    assert sizes == sorted(sizes, reverse=True)


def test_fixed_atoms_and_coordinates_stay(images):
    atoms = images[0]
    atoms.set_constraint([FixAtoms([0, 5]), FixCartesian([3], mask=(True, False, True))])
    r = relax([atoms], lj, fmax=1e-3, steps=500)[0]
    moved = r.atoms.positions - atoms.positions
    assert np.array_equal(moved[[0, 5]], np.zeros((2, 3)))
    assert np.array_equal(moved[3, [0, 2]], np.zeros(2))
    assert abs(moved[3, 1]) > 1e-3
    gradient = lennard_jones(r.atoms.positions)[1]
    assert r.converged
    assert np.linalg.norm(gradient[[0, 5]], axis=1).max() > 1e-3  # held, not at rest
    gradient[[0, 5]] = 0.0
    gradient[3, [0, 2]] = 0.0
    assert np.linalg.norm(gradient, axis=1).max() < 1e-3


def test_all_fixed_is_converged_at_once(images):
    images[2].set_constraint(FixAtoms(range(len(images[2]))))
    r = relax(images, lj, steps=3)[2]
    assert r.converged
    assert r.evaluations == 1


def test_other_constraints_are_refused_by_name(images):
    images[1].set_constraint(FixBondLength(0, 1))
    with pytest.raises(NuggetError, match="Structure 1 has a FixBondLength"):
        relax(images, lj)


def test_not_finite_at_the_start_does_not_disturb_the_others(images):
    def surface(batch):
        values, gradients = lj(batch)
        for k, a in enumerate(batch):
            if len(a) == 7:
                values[k] = np.nan
        return values, gradients

    results = relax(images, surface, steps=300)
    assert [r.ok for r in results] == [True, True, False, True, True]
    assert results[2].reason == "energy or gradient is not finite"
    assert np.array_equal(results[2].atoms.positions, images[2].positions)
    clean = relax(images, lj, steps=300)
    assert [r.energy for r in results if r.ok] == [r.energy for k, r in enumerate(clean) if k != 2]


def test_backs_off_from_a_region_that_is_not_finite():
    def half_blind(x):
        e, g = ((x - 1.0) ** 2).sum(), 2 * (x - 1.0)
        return (np.nan, g) if x[0, 0] > 1.05 else (e, g)

    start = Atoms("Au", [[0.0, 0.0, 0.0]])
    r = relax([start], surface_of(half_blind), fmax=1e-4, max_step=2.0)[0]
    assert r.converged
    assert r.atoms.positions == pytest.approx(np.ones((1, 3)), abs=1e-3)


def test_gradient_of_the_wrong_sign_is_found_out(images):
    def surface(batch):
        values, gradients = lj(batch)
        return values, [-g for g in gradients]

    results = relax(images, surface, fmax=1e-6, steps=500)
    assert all(not r.converged for r in results)
    assert any("disagree" in r.reason for r in results)


def slope(x):
    """Every atom is pulled along z by 2 eV/Å, for ever."""
    return -2.0 * x[:, 2].sum(), np.tile([0.0, 0.0, -2.0], (len(x), 1))


def test_runaway_is_flagged():
    r = relax([Atoms("Au2", [[0, 0, 0], [3, 0, 0]])], surface_of(slope), steps=500)[0]
    assert not r.ok
    assert r.reason == "an atom ran away"


def test_walls_hold_evaporating_atoms():
    atoms = Atoms("Au3", [[0, 0, 0], [3, 0, 0], [0, 3, 0]])
    atoms.set_constraint(FixAtoms([1]))
    box = Box((-5, -5, -5), ((10, 0, 0), (0, 10, 0), (0, 0, 10)), stiffness=20.0)
    r = relax([atoms], surface_of(slope), fmax=1e-4, confinement=box)[0]
    assert r.converged
    assert r.atoms.positions[[0, 2], 2] == pytest.approx(5.1, abs=1e-4)  # F/k beyond the wall
    assert r.atoms.positions[1, 2] == 0.0
    assert r.wall_energy == pytest.approx(2 * 0.5 * 20 * 0.1**2, rel=1e-3)
    assert r.energy == pytest.approx(slope(r.atoms.positions)[0])
    sphere = Sphere(4.0, centre=(0.0, 0.0, 0.0), skip=1)
    s = relax([atoms], surface_of(slope), fmax=1e-4, confinement=sphere, runaway=8.0)[0]
    assert not s.ok  # the first atom does not feel the sphere
    both = relax([atoms, atoms], surface_of(slope), confinement=[box, sphere], steps=500)
    assert [b.ok for b in both] == [True, False]
    periodic = Box(box.origin, box.cell, periodic=(False, False, True))
    assert not relax([atoms], surface_of(slope), confinement=periodic, steps=500)[0].ok
    with pytest.raises(NuggetError, match="2 confinements for 1"):
        relax([atoms], surface_of(slope), confinement=[box, sphere])


@pytest.mark.parametrize(
    "region",
    [
        Sphere(1.5, centre=(0.2, 0.1, -0.3), stiffness=7.0),
        Box((-1, -1, -1), ((2, 0.3, 0), (0.5, 1.8, 0), (0.2, -0.4, 2.2)), stiffness=7.0),
    ],
)
def test_wall_gradient_is_the_derivative_of_its_energy(region):
    x = np.random.default_rng(3).uniform(-4, 4, (8, 3))
    feels = np.ones(8, dtype=bool)

    def energy(y):
        gradient = np.zeros_like(y)
        return wall(y, feels, *region.planes(y), region.stiffness, gradient), gradient

    e, gradient = energy(x)
    assert e > 0
    assert (~region.inside(x)).any()
    h = 1e-5
    for i, c in np.ndindex(8, 3):
        d = np.zeros_like(x)
        d[i, c] = h
        assert (energy(x + d)[0] - energy(x - d)[0]) / (2 * h) == pytest.approx(
            gradient[i, c], abs=1e-6
        )
    inside = region.sample(np.random.default_rng(0), 50)
    assert region.inside(inside).all()
    assert energy(inside[:8])[0] == pytest.approx(0.0, abs=1e-20)


def test_confinements_refuse_nonsense():
    with pytest.raises(NuggetError, match="radius"):
        Sphere(-1.0)
    with pytest.raises(NuggetError, match="no volume"):
        Box((0, 0, 0), ((1, 0, 0), (2, 0, 0), (0, 0, 1)))


def test_bad_requests_and_bad_surfaces(images):
    with pytest.raises(NuggetError, match="fmax"):
        relax(images, lj, fmax=0.0)
    with pytest.raises(NuggetError, match="The surface gave"):
        relax(images, lambda batch: (np.zeros(1), [np.zeros((3, 3))]))
    assert relax([], lj) == []


def test_springs_match_their_formula():
    """P = Σ w [(1−τ) ûûᵀ + τ 1] ⊗ … + c, built densely here; fixed degrees are left out."""
    rng = np.random.default_rng(5)
    x = random_cluster(rng, 9).positions
    n = len(x)
    radii = rng.uniform(1.0, 1.5, n)
    free = rng.random((n, 3)) < 0.7
    atom, axis = np.nonzero(free)
    d = x[:, None] - x[None]
    r = np.linalg.norm(d, axis=-1) + 1e9 * np.eye(n)
    q = r / (radii[:, None] + radii[None])
    near = np.sort(q.min(axis=1))[3 * n // 4]
    w = np.where(q <= 1.8 * near, np.minimum(np.exp(-A * (q / near - 1)), W_MAX), 0.0)
    u = d / r[..., None]
    block = w[..., None, None] * ((1 - TAU) * u[..., :, None] * u[..., None, :] + TAU * np.eye(3))
    p = -block.transpose(0, 2, 1, 3).reshape(3 * n, 3 * n)
    p += np.einsum("ij,iab->iajb", np.eye(n), block.sum(axis=1)).reshape(3 * n, 3 * n)
    p = (p + C_STAB * np.eye(3 * n))[np.ix_(free.ravel(), free.ravel())]
    out = np.empty((len(atom), len(atom)))
    none = np.zeros((3, 3))
    bond = springs(x, 0, radii, none, none, False, atom, axis, out)
    upper = np.triu(out)
    np.testing.assert_allclose(upper.T @ upper, p, atol=1e-10)
    assert bond == pytest.approx(2 * near * radii.mean())
    m = p[:4, :4].copy()  # even and odd sizes
    cholesky(m)
    np.testing.assert_allclose(np.triu(m), np.linalg.cholesky(p[:4, :4]).T, atol=1e-12)


def test_periodic_slab_with_an_ase_calculator():
    slab = fcc111("Cu", (2, 2, 3), vacuum=6.0)
    slab.set_constraint(FixAtoms([a.index for a in slab if a.tag > 1]))
    slab.rattle(0.15, seed=1)
    crossing = slab.copy()
    crossing.positions += 0.5 * slab.cell[0]
    crossing.wrap()  # the same slab, other images
    first, second = relax([slab, crossing], on_calculator(EMT()), fmax=1e-3)
    assert first.converged
    assert second.converged
    assert first.energy == pytest.approx(second.energy, abs=1e-5)
    assert first.evaluations < 40


def test_the_middle_of_a_region():
    assert Sphere(3.0).middle is None
    assert Sphere(3.0, (1, 2, 3)).middle.tolist() == [1, 2, 3]
    box = Box((1, 0, -2), ((4, 0, 0), (2, 6, 0), (0, 0, 8)))
    assert box.middle.tolist() == [4, 3, 2]
    assert box.inside(box.middle[None]).all()
