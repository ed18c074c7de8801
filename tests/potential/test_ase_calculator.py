from __future__ import annotations

import warnings

import numpy as np
import pytest
from ase import Atoms, units
from ase.calculators.calculator import PropertyNotImplementedError
from ase.calculators.emt import EMT
from ase.calculators.fd import calculate_numerical_forces, calculate_numerical_stress
from ase.calculators.singlepoint import SinglePointCalculator
from ase.calculators.test import gradient_test
from ase.db import connect
from ase.io import read
from ase.md.verlet import VelocityVerlet
from ase.optimize import BFGS
from example_structures import alloy_slab, gold_cluster

from nugget import RBF, SOAP, LabelNoise, NuggetError, PivotedCholesky, Potential
from nugget.potential.calculator import LCBCalculator, NuggetCalculator, UncertaintyWarning
from nugget.potential.mean_functions.base import SpeciesEnergies
from nugget.potential.mean_functions.pair_terms import Repulsion
from nugget.structures.io import attach_uncertainties, read_images, write_images

ALL = ("energy_uncertainty", "energies_uncertainty", "forces_uncertainty")


def labelled(atoms: Atoms) -> Atoms:
    work = atoms.copy()
    work.calc = EMT()
    results = {"energy": work.get_potential_energy(), "forces": work.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def fitted(images: list[Atoms], uncertainty: object = None) -> Potential:
    return Potential(
        SOAP(["Cu", "Au"], 5.0),
        RBF(10.0),
        PivotedCholesky(1e-6, 150),
        uncertainty=uncertainty or LabelNoise(0.01, 0.05, 0.05),
        prior=[SpeciesEnergies(), Repulsion(reach=1.1)],
    ).fit(images)


@pytest.fixture(scope="module")
def cluster_potential() -> Potential:
    return fitted([labelled(gold_cluster(8, s)) for s in range(6)])


@pytest.fixture(scope="module")
def slab_potential() -> Potential:
    return fitted([labelled(alloy_slab(s)) for s in range(3)])


def calculators(potential: Potential) -> list[NuggetCalculator | LCBCalculator]:
    return [NuggetCalculator(potential), LCBCalculator(potential, 2.0)]


def test_results_are_those_of_the_potential(cluster_potential, slab_potential):
    for potential, atoms in (
        (cluster_potential, gold_cluster(9, 30)),
        (slab_potential, alloy_slab(30)),
    ):
        periodic = atoms.cell.rank == 3
        atoms.calc = potential.calculator(uncertainties=ALL)
        expected = potential.predict(
            atoms, energies=True, stress=periodic, energies_uncertainty=True,
            forces_uncertainty=True,
        )  # fmt: skip
        atoms.get_forces()
        results = atoms.calc.results
        for name, value in results.items():
            wanted = expected.energy if name == "free_energy" else getattr(expected, name)
            np.testing.assert_allclose(value, wanted[0], rtol=1e-9, atol=1e-11, err_msg=name)
        assert set(results) == {*atoms.calc.implemented_properties} - (
            set() if periodic else {"stress"}
        )
        assert atoms.get_potential_energy(force_consistent=True) == results["energy"]
        assert atoms.get_potential_energies().sum() == pytest.approx(results["energy"])


def test_lcb_is_that_of_the_potential(slab_potential):
    atoms = alloy_slab(31)
    atoms.calc = LCBCalculator(slab_potential, 3.0)
    value, gradient = slab_potential.lcb(3.0)([atoms])
    assert atoms.get_potential_energy() == pytest.approx(value[0], rel=1e-12)
    np.testing.assert_allclose(atoms.get_forces(), -gradient[0], atol=1e-10)
    mean = slab_potential.without_domain().predict(atoms)
    sigma = atoms.calc.results["energy_uncertainty"]
    assert sigma == pytest.approx(mean.energy_uncertainty[0], rel=1e-9)
    assert value[0] == pytest.approx(mean.energy[0] - 3 * sigma, rel=1e-12)
    atoms.calc = LCBCalculator(slab_potential, 0.0)
    assert atoms.get_potential_energy() == pytest.approx(mean.energy[0], rel=1e-12)
    assert atoms.calc.results["energy_uncertainty"] == pytest.approx(sigma, rel=1e-9)


def test_ase_finds_the_same_forces_and_stress(cluster_potential, slab_potential):
    for potential, atoms in (
        (cluster_potential, gold_cluster(6, 40)),
        (slab_potential, alloy_slab(40)),
    ):
        for calculator in calculators(potential):
            atoms.calc = calculator
            numerical = calculate_numerical_forces(atoms, eps=1e-4, iatoms=[0, 3])
            np.testing.assert_allclose(atoms.get_forces()[[0, 3]], numerical, atol=2e-6)
            if atoms.cell.rank == 3:
                numerical = calculate_numerical_stress(atoms, eps=3e-5)
                np.testing.assert_allclose(atoms.get_stress(), numerical, atol=5e-8)


def test_ase_gradient_test(cluster_potential, capsys):
    for calculator in calculators(cluster_potential):
        atoms = gold_cluster(5, 41)
        atoms.calc = calculator
        gradient_test(atoms)  # prints the largest difference for steps from 0.1 to 1e-8 Å
        lines = capsys.readouterr().out.splitlines()[1:]
        assert min(float(line.split()[1]) for line in lines) < 1e-6


def test_only_what_is_asked_for(cluster_potential):
    atoms = gold_cluster(7, 32)
    atoms.calc = cluster_potential.calculator(uncertainties=())
    atoms.get_potential_energy()
    assert not set(ALL) & set(atoms.calc.results)
    before = atoms.get_forces()
    for name in ALL:
        assert np.all(atoms.calc.get_property(name, atoms) > 0)
    assert set(ALL) <= set(atoms.calc.results)
    np.testing.assert_array_equal(atoms.get_forces(), before)
    atoms.positions[0, 0] += 0.1
    atoms.get_forces()
    assert not set(ALL) & set(atoms.calc.results)


def test_no_stress_without_volume(cluster_potential):
    atoms = gold_cluster(7, 33)
    for calculator in calculators(cluster_potential):
        atoms.calc = calculator
        with pytest.raises(PropertyNotImplementedError):
            atoms.get_stress()


def test_bad_settings(cluster_potential):
    with pytest.raises(NuggetError, match="no uncertainty 'sigma'"):
        NuggetCalculator(cluster_potential, uncertainties=("sigma",))
    with pytest.raises(NuggetError, match="warn_above is -1"):
        NuggetCalculator(cluster_potential, warn_above=-1)
    with pytest.raises(NuggetError, match="kappa is nan"):
        LCBCalculator(cluster_potential, np.nan)
    with pytest.raises(NuggetError, match="has not been fitted"):
        Potential(SOAP(["Au"])).calculator()


@pytest.mark.parametrize("surface", ["mean", "lcb"])
def test_the_warning_comes_once_and_names_sigma(cluster_potential, surface):
    make = NuggetCalculator if surface == "mean" else LCBCalculator
    atoms = gold_cluster(8, 34)
    shown = cluster_potential if surface == "mean" else cluster_potential.without_domain()
    sigma = shown.predict(atoms).energy_uncertainty[0] / len(atoms)
    atoms.calc = make(cluster_potential, warn_above=0.5 * sigma)
    with pytest.warns(UncertaintyWarning, match=f"uncertain by {sigma:.3g} eV/atom"):
        atoms.get_forces()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        atoms.rattle(0.05, seed=1)
        atoms.get_forces()
        for threshold in (2 * sigma, None):
            atoms = gold_cluster(8, 34)
            atoms.calc = make(cluster_potential, warn_above=threshold)
            atoms.get_forces()


def test_pairs_are_kept_between_steps(slab_potential):
    atoms = alloy_slab(35)
    atoms.calc = calculator = slab_potential.calculator()
    rng = np.random.default_rng(0)
    for _ in range(20):
        atoms.positions += rng.normal(0, 0.01, atoms.positions.shape)
        atoms.get_forces()
    assert calculator.verlet.rebuilds < 5
    atoms.positions[0] += [0.6, 0, 0]
    atoms.set_cell(atoms.cell.array * 1.01, scale_atoms=True)
    fresh = slab_potential.predict(atoms)
    np.testing.assert_allclose(atoms.get_forces(), fresh.forces[0], atol=1e-10)
    atoms.symbols[0] = "Au"  # other atoms at the same places
    fresh = slab_potential.predict(atoms)
    assert atoms.get_potential_energy() == pytest.approx(fresh.energy[0], rel=1e-12)


@pytest.mark.parametrize("name", ["x.extxyz", "x.xyz", "x.extxyz.gz", "x.db", "x.json", "x.traj"])
def test_files_keep_the_uncertainties(cluster_potential, tmp_path, name):
    images = [gold_cluster(n, n) for n in (6, 7, 8)]
    for atoms in images:
        atoms.calc = cluster_potential.calculator(uncertainties=ALL)
        atoms.get_forces()
    write_images(tmp_path / name, images)
    again = read_images(tmp_path / name)
    assert len(again) == 3
    for old, new in zip(images, again, strict=True):
        results = old.calc.results
        assert new.get_potential_energy() == pytest.approx(results["energy"], abs=1e-7)
        np.testing.assert_allclose(new.get_forces(), results["forces"], atol=1e-7)
        assert new.info["energy_uncertainty"] == pytest.approx(results["energy_uncertainty"])
        for key in ("energies_uncertainty", "forces_uncertainty"):
            np.testing.assert_allclose(new.arrays[key], results[key], atol=1e-7)
    assert not images[0].info  # writing leaves the originals alone


def test_uncertainties_attached_by_hand_survive_ase(cluster_potential, tmp_path):
    atoms = gold_cluster(6, 3)
    atoms.calc = cluster_potential.calculator(uncertainties=ALL)
    atoms.get_potential_energy()
    sigma = atoms.calc.results["energy_uncertainty"]
    assert attach_uncertainties(atoms) is atoms
    atoms.write(tmp_path / "a.extxyz")
    again = read(tmp_path / "a.extxyz")
    assert again.info["energy_uncertainty"] == pytest.approx(sigma)
    assert again.arrays["forces_uncertainty"].shape == (6, 3)
    # Results of a structure that has moved are not its own.
    atoms.positions[0, 0] += 0.1
    attach_uncertainties(atoms)
    assert not set(ALL) & {*atoms.info, *atoms.arrays}


def test_the_database_can_be_asked_for_sigma(cluster_potential, tmp_path):
    images = [gold_cluster(n, n) for n in (5, 8)]
    for atoms in images:
        atoms.calc = cluster_potential.calculator()
        atoms.get_potential_energy()
    write_images(tmp_path / "x.db", images)
    sigmas = [atoms.calc.results["energy_uncertainty"] for atoms in images]
    rows = list(connect(tmp_path / "x.db").select(f"energy_uncertainty>{np.mean(sigmas)}"))
    assert [row.natoms for row in rows] == [len(images[int(np.argmax(sigmas))])]
    write_images(tmp_path / "x.db", images, append=True)
    assert len(read_images(tmp_path / "x.db")) == 4


def test_relaxation_with_ase(cluster_potential):
    for calculator in calculators(cluster_potential):
        atoms = gold_cluster(8, 36)
        atoms.calc = calculator
        start = atoms.get_potential_energy()
        assert BFGS(atoms, logfile=None).run(fmax=0.02, steps=200)
        assert atoms.get_potential_energy() < start


def test_dynamics_conserve_energy():
    """NVE of Au20 on the mean surface: 2000 steps of 2 fs, drift below 1 meV/atom."""
    rng = np.random.default_rng(0)
    images = []
    for scale in rng.uniform(0.02, 0.35, 20):
        images.append(labelled(gold_cluster(20, 7, 0.0)))
        images[-1].rattle(scale, rng=rng)
        labelled(images[-1])
    potential = Potential(
        SOAP(["Au"], 5.0), RBF(10.0), PivotedCholesky(1e-5, 150),
        prior=[SpeciesEnergies(), Repulsion(reach=0.95)],
    ).fit(images)  # fmt: skip
    atoms = gold_cluster(20, 7, 0.05)
    atoms.calc = potential.calculator(uncertainties=())
    BFGS(atoms, logfile=None).run(fmax=0.05, steps=100)
    spread = np.sqrt(units.kB * 300 * atoms.get_masses())
    atoms.set_momenta(spread[:, None] * rng.standard_normal((20, 3)))
    dynamics = VelocityVerlet(atoms, 2.0 * units.fs)
    totals = []
    dynamics.attach(lambda: totals.append(atoms.get_total_energy() / len(atoms)), interval=5)
    start = atoms.positions.copy()
    dynamics.run(2000)
    assert np.abs(atoms.positions - start).max() > 0.3  # it did move
    totals = np.array(totals)
    drift = np.polyfit(np.linspace(0, 1, len(totals)), totals, 1)[0]
    print(
        f"drift {drift:.2e} range {np.ptp(totals):.2e} eV/atom, {atoms.calc.verlet.rebuilds} lists"
    )
    assert abs(drift) < 2e-4
    assert np.ptp(totals) < 1e-3
    assert atoms.calc.verlet.rebuilds < 400
