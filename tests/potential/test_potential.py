from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import alloy_slab, gold_cluster

from nugget import CUR, RBF, SOAP, LabelNoise, PivotedCholesky, Potential, ProjectedProcess
from nugget.potential.fitted import environment_points
from nugget.potential.mean_functions.base import SpeciesEnergies
from nugget.potential.mean_functions.pair_terms import Repulsion

UNCERTAINTIES = {
    "exact": LabelNoise(0.01, 0.05, 0.05),
    "sampled": LabelNoise(0.01, 0.05, 0.05, members=10),
    "structures": ProjectedProcess("structures"),
    "environments": ProjectedProcess("environments"),
}


def labelled(atoms: Atoms) -> Atoms:
    """With EMT's energy, forces and (where there is a volume) stress stored."""
    work = atoms.copy()
    work.calc = EMT()
    results = {"energy": work.get_potential_energy(), "forces": work.get_forces()}
    if work.cell.rank == 3:
        results["stress"] = work.get_stress()
    atoms = atoms.copy()
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def small_cell(seed: int) -> Atoms:
    """Two atoms in a cell much smaller than the cutoff."""
    rng = np.random.default_rng(seed)
    atoms = Atoms(
        "CuAu",
        scaled_positions=[[0, 0, 0], [0.5, 0.45, 0.52]],
        cell=np.diag([2.8, 2.9, 3.6]) + rng.normal(0, 0.1, (3, 3)),
        pbc=True,
    )
    atoms.positions += rng.normal(0, 0.05, (2, 3))
    return atoms


KINDS = {
    "cluster": [labelled(gold_cluster(8, s)) for s in range(5)],
    "slab": [labelled(alloy_slab(s)) for s in range(3)],
    "cell": [labelled(small_cell(s)) for s in range(6)],
}
KINDS["mixed"] = [atoms for images in list(KINDS.values()) for atoms in images[:3]]
TESTED = {
    "cluster": gold_cluster(8, 11),
    "slab": alloy_slab(11),
    "cell": small_cell(11),
    "mixed": gold_cluster(5, 12),
}


def fitted(kind: str, uncertainty: str = "exact", **options: object) -> Potential:
    potential = Potential(
        SOAP(["Cu", "Au"], 5.0),
        kernel=RBF(10.0, 1.0),
        inducing=PivotedCholesky(1e-6, 120),
        uncertainty=UNCERTAINTIES[uncertainty],
        prior=[SpeciesEnergies(), Repulsion(reach=1.1)],
    )
    return potential.fit(KINDS[kind], **options)  # type: ignore[arg-type]


def difference(function, atoms: Atoms, i: int, axis: int, h: float = 1e-3) -> float:
    """Fourth-order central difference of a scalar of the structure."""
    values = []
    for step in (2 * h, h, -h, -2 * h):
        moved = atoms.copy()
        moved.positions[i, axis] += step
        values.append(function(moved))
    return (-values[0] + 8 * values[1] - 8 * values[2] + values[3]) / (12 * h)


@pytest.mark.parametrize("uncertainty", sorted(UNCERTAINTIES))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_gradients_are_those_of_differences(kind: str, uncertainty: str) -> None:
    pot = fitted(kind, uncertainty)
    atoms = TESTED[kind]
    found = pot.predict(atoms, uncertainty_gradient=True)
    lcb_gradient = pot.lcb(2.0)([atoms])[1][0]
    surfaces = {
        "E": (lambda a: pot.predict(a, forces=False).energy[0], -found.forces[0]),
        "sigma": (
            lambda a: pot.predict(a, forces=False).energy_uncertainty[0],
            found.uncertainty_gradient[0],
        ),
        "lcb": (lambda a: pot.lcb(2.0)([a])[0][0], lcb_gradient),
    }
    for name, (function, gradient) in surfaces.items():
        scale = np.abs(gradient).max()
        assert scale > 0, name
        for i, axis in [(0, 0), (1, 1), (len(atoms) - 1, 2)]:
            expected = difference(function, atoms, i, axis)
            assert gradient[i, axis] == pytest.approx(expected, abs=1e-5 * scale), name


@pytest.mark.parametrize("kind", ["slab", "cell"])
def test_stress_is_that_of_differences(kind: str) -> None:
    pot = fitted(kind)
    atoms = TESTED[kind].copy()
    stress = pot.predict(atoms, stress=True).stress[0]
    voigt = [(0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1)]
    h = 1e-4
    for component, (a, b) in enumerate(voigt):
        values = []
        for step in (2 * h, h, -h, -2 * h):
            strain = np.eye(3)
            strain[a, b] += 0.5 * step
            strain[b, a] += 0.5 * step
            bent = atoms.copy()
            bent.set_cell(bent.cell.array @ strain.T, scale_atoms=True)
            values.append(pot.predict(bent, forces=False, uncertainty=False).energy[0])
        slope = (-values[0] + 8 * values[1] - 8 * values[2] + values[3]) / (12 * h)
        assert stress[component] * atoms.get_volume() == pytest.approx(
            slope, abs=1e-5 * np.abs(stress).max() * atoms.get_volume()
        )


@pytest.mark.parametrize("uncertainty", ["sampled", "exact", "structures"])
def test_force_uncertainty_is_the_spread_of_forces(uncertainty: str) -> None:
    pot = fitted("cluster", uncertainty).without_domain()
    atoms = TESTED["cluster"]
    found = pot.predict(atoms, forces_uncertainty=True).forces_uncertainty[0]
    fit = pot.fitted
    if uncertainty == "structures":
        # The prior's share against a finite difference of the kernel itself.
        h, total = 1e-3, 0.0
        for a in (1, -1):
            for b in (1, -1):
                one, two = atoms.copy(), atoms.copy()
                one.positions[2, 1] += a * h
                two.positions[2, 1] += b * h
                x, y = pot.descriptor.compute(one), pot.descriptor.compute(two)
                k = pot.kernel.matrix(x.values, x.species, y.values, y.species).sum()
                total += a * b * k / (4 * h * h)
        assert found[2, 1] ** 2 < total
        from nugget.potential.design import prior_force_variance

        prior = prior_force_variance(pot.descriptor.compute(atoms), pot.kernel)
        assert prior[2, 1] == pytest.approx(total, rel=1e-4)
        return
    from nugget.potential.surface import Surface

    rng = np.random.default_rng(0)
    count = None if uncertainty == "sampled" else 4000
    weights, shifts = fit.uncertainty.members(fit.regression.alpha, rng, count)
    mean = pot.predict(atoms).forces[0]
    spread = []
    for w, s in zip(weights, shifts, strict=True):
        spread.append(-Surface(pot.fitted, 0.0, (w, s))([atoms])[1][0] - mean)
    root = np.sqrt(np.mean(np.square(spread), axis=0))
    np.testing.assert_allclose(found, root, rtol=1e-8 if uncertainty == "sampled" else 0.05)


@pytest.mark.parametrize("uncertainty", sorted(UNCERTAINTIES))
def test_a_batch_equals_its_members(uncertainty: str) -> None:
    pot = fitted("mixed", uncertainty)
    images = list(TESTED.values())
    everything = {
        "uncertainty_gradient": True,
        "energies": True,
        "energies_uncertainty": True,
        "forces_uncertainty": True,
    }
    together = pot.predict(images, **everything)
    for s, atoms in enumerate(images):
        alone = pot.predict(atoms, **everything)
        for name in ("energy", "energy_uncertainty"):
            assert getattr(together, name)[s] == pytest.approx(getattr(alone, name)[0], rel=1e-10)
        for name in (
            "forces",
            "energies",
            "uncertainty_gradient",
            "energies_uncertainty",
            "forces_uncertainty",
        ):
            one = getattr(alone, name)[0]
            np.testing.assert_allclose(
                getattr(together, name)[s], one, rtol=1e-10, atol=1e-10 * np.abs(one).max()
            )
        assert alone.energies[0].sum() == pytest.approx(alone.energy[0], rel=1e-12)


@pytest.mark.parametrize("uncertainty", sorted(UNCERTAINTIES))
@pytest.mark.parametrize("kind", ["cluster", "mixed"])
def test_an_answer_does_not_depend_on_what_else_is_asked(kind: str, uncertainty: str) -> None:
    """σ alone, σ beside forces and σ with its gradient are made in different ways."""
    pot = fitted(kind, uncertainty)
    # The projected process subtracts two numbers much larger than σ².
    close = 1e-10 if uncertainty in ("exact", "sampled") else 1e-8
    several = list(TESTED.values()) if kind == "mixed" else [gold_cluster(8, s) for s in range(5)]
    for images in (several[:1], several):
        whole = pot.predict(images, uncertainty_gradient=True)
        beside = pot.predict(images)
        alone = pot.predict(images, forces=False)
        for part in (beside, alone):
            np.testing.assert_allclose(part.energy, whole.energy, rtol=1e-12)
            np.testing.assert_allclose(
                part.energy_uncertainty, whole.energy_uncertainty, rtol=close
            )
        for one, other in zip(beside.forces, whole.forces, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-10 * np.abs(other).max())
        assert beside.uncertainty_gradient is None
        assert alone.forces is None


def test_two_far_copies_double_energy_and_deviations() -> None:
    atoms = TESTED["cluster"]
    twin = atoms.copy()
    twin.positions += [50.0, 0, 0]
    for uncertainty in UNCERTAINTIES:
        pot = fitted("cluster", uncertainty)
        one = pot.predict(atoms)
        two = pot.predict(atoms + twin)
        assert two.energy[0] == pytest.approx(2 * one.energy[0], rel=1e-10)
        # κ and N double, so δ = κW + Nρ does, and so does σ (errors of copies are the same error).
        assert two.energy_uncertainty[0] == pytest.approx(2 * one.energy_uncertainty[0], rel=1e-6)
        np.testing.assert_allclose(two.forces[0][: len(atoms)], one.forces[0], atol=1e-9)


def test_same_seed_same_bits() -> None:
    def one() -> Potential:
        return Potential(
            SOAP(["Au"], 5.0),
            inducing=CUR(25),
            uncertainty=LabelNoise(members=10),
            seed=7,
        ).fit(KINDS["cluster"])

    a, b = one().predict(TESTED["cluster"]), one().predict(TESTED["cluster"])
    assert a.energy[0] == b.energy[0]
    assert a.energy_uncertainty[0] == b.energy_uncertainty[0]
    np.testing.assert_array_equal(a.forces[0], b.forces[0])


@pytest.mark.parametrize("use_stress", [False, True])
@pytest.mark.parametrize("use_forces", [False, None])
@pytest.mark.parametrize("kind", ["cell", "slab"])
def test_update_equals_a_fit_of_everything(kind, use_forces, use_stress) -> None:
    images = KINDS[kind]
    settings = {
        "descriptor": SOAP(["Cu", "Au"], 4.5),
        "inducing": PivotedCholesky(1e-9),
        # A given prior: one that is fitted would differ between a part and the whole.
        "prior": SpeciesEnergies((("Cu", -0.5), ("Au", -0.4))),
    }
    grown = Potential(**settings).fit(images[:2], use_forces=use_forces, use_stress=use_stress)
    for atoms in images[2:]:
        grown.update([atoms])
    assert len(grown.fitted.inducing) > 4
    whole = Potential(**settings).fit(images, use_forces, use_stress, calibrate=None)
    a, b = (p.predict(TESTED[kind], uncertainty_gradient=True) for p in (grown, whole))
    # The two choose inducing points in another order; both describe the data to 1e-9.
    assert a.energy[0] == pytest.approx(b.energy[0], abs=1e-4)
    assert a.energy_uncertainty[0] == pytest.approx(b.energy_uncertainty[0], rel=1e-2)
    np.testing.assert_allclose(a.forces[0], b.forces[0], atol=2e-3)


def test_forces_are_learnt() -> None:
    train, test = KINDS["cluster"][:4], KINDS["cluster"][4]
    errors = {}
    for use in (False, True):
        pot = Potential(SOAP(["Au"], 5.0), RBF(10.0)).fit(train, use_forces=use)
        errors[use] = np.abs(pot.predict(test).forces[0] - test.get_forces()).mean()
    assert errors[True] < 0.7 * errors[False]


def test_per_species_kernels_do_not_mix() -> None:
    pot = fitted("slab")
    env = pot.descriptor.compute(TESTED["slab"])
    rows = pot.fitted.inducing.forward(environment_points(env))
    crossed = env.species[:, None] != pot.fitted.inducing.group[None, :]
    assert crossed.any()
    assert (rows.k[crossed] == 0).all()
