"""The training domain: σ outside the data, its gradients, and the repulsion of close atoms."""

import warnings

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, fcc111
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from nugget import (
    RBF,
    SOAP,
    LabelNoise,
    NuggetError,
    PivotedCholesky,
    Posterior,
    Potential,
    ProjectedProcess,
)
from nugget.gp.regression import SparseRegression
from nugget.potential import leave_shells_out
from nugget.potential.calculator import LCBCalculator, OutsideError, UncertaintyWarning
from nugget.potential.cohesive_energies import BOND_ENERGY
from nugget.potential.design import label_rows
from nugget.potential.domain import TrainingDomain
from nugget.potential.evaluate import value_and_grad
from nugget.potential.fitted import environment_points
from nugget.potential.mean_functions.base import (
    SpeciesEnergies,
    SumMeanFunction,
    relative_error,
)
from nugget.potential.mean_functions.second_moment import SecondMoment
from nugget.potential.mean_functions.zbl import ZBL
from nugget.potential.training import TrainingData
from nugget.presets import balanced, length_scale
from nugget.structures.batch import as_batch

UNCERTAINTIES = {
    "posterior": Posterior(),
    "exact": LabelNoise(),
    "sampled": LabelNoise(members=10),
    "projected": ProjectedProcess(),
}


def labelled(atoms):
    atoms = atoms.copy()
    atoms.calc = EMT()
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    return with_results(atoms, energy=energy, forces=forces)


def with_results(atoms, **results):
    copy = atoms.copy()
    copy.calc = SinglePointCalculator(copy, **results)
    return copy


def scaled(atoms, factor):
    copy = atoms.copy()
    copy.set_cell(copy.cell * factor, scale_atoms=True)
    return copy


def crystals(number, seed, gold=False):
    rng = np.random.default_rng(seed)
    images = []
    for _ in range(number):
        atoms = bulk("Cu", "fcc", a=3.6, cubic=True)
        if gold:
            atoms.numbers[rng.permutation(4)[: rng.integers(4)]] = 79
        atoms = scaled(atoms, 1.0 + rng.normal(0.0, 0.02))
        atoms.positions += rng.normal(0.0, rng.uniform(0.02, 0.12), atoms.positions.shape)
        images.append(labelled(atoms))
    return images


def fitted(images, uncertainty=None, species=("Au", "Cu"), **options):
    descriptor = SOAP(species, 4.5, 3, 2)
    return Potential(
        descriptor, RBF(length_scale(descriptor, images), 100.0), PivotedCholesky(max_points=200),
        uncertainty=uncertainty, **options,
    ).fit(images)  # fmt: skip


@pytest.fixture(scope="module")
def alloys():
    return crystals(24, 1, gold=True)


@pytest.fixture(scope="module")
def copper():
    images = crystals(30, 2)
    return balanced(["Cu"], images).fit(images, choose_noise=True)


@pytest.fixture(scope="module", params=UNCERTAINTIES)
def alloy(request, alloys):
    return fitted(alloys, UNCERTAINTIES[request.param])


def outside_structures():
    """Compressed, expanded and small structures of two elements, with cells below the cutoff."""
    rng = np.random.default_rng(5)
    primitive = Atoms("CuAu", cell=[[0, 2, 2], [2, 0, 2.1], [2.2, 2, 0]], pbc=True)
    primitive.positions = [[0, 0, 0], [1.9, 0.3, 0.2]]
    cell = crystals(1, 7, gold=True)[0]
    cell.calc = None
    structures = [scaled(cell, 0.8), scaled(cell, 0.93), scaled(cell, 1.25), primitive]
    structures.append(Atoms("CuAuCu", [[0, 0, 0], [0.3, 0.2, 1.3], [2.0, 1.0, 0.4]]))
    for atoms in structures:
        atoms.positions += rng.normal(0.0, 0.03, atoms.positions.shape)
    return structures


@pytest.mark.parametrize("coefficients", [(1.0, 0.0), (0.0, 1.0), (1.0, -2.0)])
@pytest.mark.parametrize("keep_rows", [False, True])
def test_gradients_are_those_of_the_evaluated_value(alloy, coefficients, keep_rows):
    state, row = alloy.fitted, np.array([coefficients])

    def value(atoms):
        values = value_and_grad(state, as_batch([atoms]), row, keep_rows=keep_rows)
        return float(row[0] @ [values.energy[0], values.std[0]]), values

    rng, step = np.random.default_rng(3), 1e-4
    for atoms in outside_structures():
        _, values = value(atoms)
        assert values.domain.outside[0] > 0.05
        direction = rng.normal(size=atoms.positions.shape)
        ends = []
        for sign in (1, -1):
            moved = atoms.copy()
            moved.positions += sign * step * direction
            ends.append(value(moved)[0])
        slope = (ends[0] - ends[1]) / (2 * step)
        assert np.sum(values.gradients[0] * direction) == pytest.approx(slope, rel=2e-5, abs=2e-5)
        if not atoms.pbc.any():
            continue
        strain = rng.normal(size=(3, 3))
        ends = []
        for sign in (1, -1):
            moved = atoms.copy()
            moved.set_cell(atoms.cell.array @ (np.eye(3) + sign * step * strain), scale_atoms=True)
            ends.append(value(moved)[0])
        slope = (ends[0] - ends[1]) / (2 * step)
        found = np.sum(values.strains[0] * strain.T)
        assert found == pytest.approx(slope, rel=2e-5, abs=1e-4)


def test_structures_are_independent_of_their_batch(alloy):
    structures = outside_structures()
    together = alloy.predict(structures, uncertainty_gradient=True)
    for s, atoms in enumerate(structures):
        alone = alloy.predict(atoms, uncertainty_gradient=True)
        assert alone.energy_uncertainty[0] == together.energy_uncertainty[s]
        assert np.array_equal(alone.uncertainty_gradient[0], together.uncertainty_gradient[s])
        assert alone.outside[0] == together.outside[s]


def test_inside_nothing_is_added(alloys):
    with_domain = fitted(alloys, Posterior(), prior=ZBL())
    plain = with_domain.without_domain()
    a, b = with_domain.predict(alloys), plain.predict(alloys)
    assert a.energy == pytest.approx(b.energy, rel=1e-12)
    inside = a.outside == 0.0
    assert inside.mean() > 0.5
    assert a.energy_uncertainty[inside] == pytest.approx(b.energy_uncertainty[inside], rel=0.1)
    assert a.energy_uncertainty == pytest.approx(b.energy_uncertainty, rel=0.5)
    assert b.outside is None


@pytest.mark.parametrize("factors", [np.arange(1.0, 0.6, -0.02), np.arange(1.0, 1.6, 0.02)])
def test_std_of_a_crystal_grows_outward(copper, factors):
    cell = bulk("Cu", "fcc", a=3.6, cubic=True)
    prediction = copper.predict([scaled(cell, factor) for factor in factors])
    std = prediction.energy_uncertainty
    out = prediction.outside[1:] > 0.0
    assert np.all(std[1:][out] > std[:-1][out])
    assert std[-1] > 20 * std[0]
    assert np.all(np.diff(prediction.outside) >= 0)
    assert prediction.outside[-1] > 0.9
    truth = [labelled(scaled(cell, factor)).get_potential_energy() for factor in factors]
    z = (prediction.energy - truth) / std
    assert np.mean(np.abs(z) < 3) > 0.9


def test_std_of_a_dimer_grows_inward(copper):
    distances = np.arange(1.8, 0.5, -0.05)
    prediction = copper.predict([Atoms("Cu2", [[0, 0, 0], [0, 0, d]]) for d in distances])
    std = prediction.energy_uncertainty
    assert np.all(np.diff(std) > 0)
    assert np.all(np.diff(prediction.energy[distances < 1.2]) > 0)  # nothing but repulsion


def test_std_per_atom_does_not_depend_on_the_cell(copper):
    cell = scaled(bulk("Cu", "fcc", a=3.6, cubic=True), 0.85)
    one, eight = copper.predict([cell, cell * (2, 2, 2)]).energy_uncertainty
    assert eight == pytest.approx(8 * one, rel=1e-9)


def test_the_outermost_atom_is_named(copper):
    slab = fcc111("Cu", (2, 2, 4), a=3.6, vacuum=6.0)
    slab.positions[5] += (0.0, 0.0, 0.9)
    prediction = copper.predict(slab, energies_uncertainty=True)
    assert prediction.outside[0] == prediction.outside_atoms[0].max() > 0.3
    assert np.all((prediction.outside_atoms[0] >= 0) & (prediction.outside_atoms[0] <= 1))


def test_stds_of_parts_grow_outside(copper):
    cell = bulk("Cu", "fcc", a=3.6, cubic=True)
    wanted = {"energies_uncertainty": True, "forces_uncertainty": True, "stress_uncertainty": True}
    uncalibrated = copper.copy()
    uncalibrated.calibration = None
    near, far = (uncalibrated.predict(scaled(cell, s), **wanted) for s in (1.0, 0.7))
    assert far.energies_uncertainty[0].min() > 10 * near.energies_uncertainty[0].max()
    assert far.forces_uncertainty[0].min() > 10 * near.forces_uncertainty[0].max()
    assert far.stress_uncertainty[0, :3].min() > 10 * near.stress_uncertainty[0, :3].max()
    alone = copper.predict(scaled(cell, 0.7), uncertainty=False, forces_uncertainty=True)
    assert np.array_equal(alone.forces_uncertainty[0], far.forces_uncertainty[0])
    assert alone.energy_uncertainty is None


def test_gradient_of_the_std_is_continuous(copper):
    """The soft minimum over references leaves no jumps along a path far outside."""
    cell = bulk("Cu", "fcc", a=3.6, cubic=True)
    cell.rattle(0.2, seed=4)
    slopes = []
    for factor in np.linspace(0.88, 0.86, 400):
        values = copper.fitted.domain.evaluate(as_batch([scaled(cell, factor)]))
        slopes.append(values.derivatives[1][0].trace())
    steps = np.abs(np.diff(slopes))
    assert steps.max() < 0.05 * np.abs(slopes).max()


def test_update_moves_the_domain(alloys):
    potential = fitted(alloys, Posterior())
    far = scaled(alloys[0], 0.85)
    before = potential.predict(far)
    potential.update([labelled(far)])
    after = potential.predict(far)
    assert before.outside[0] > 0.5
    assert after.outside[0] == 0.0
    assert after.energy_uncertainty[0] < 0.1 * before.energy_uncertainty[0]
    again = potential.fitted.mean_function.evaluate(potential.fitted.training.batch)
    assert again.std is None  # the repulsion stays zero on all training structures


def test_domain_of_identical_environments():
    batch = as_batch([bulk("Cu", "fcc", a=3.6)])
    domain = TrainingDomain.fit(batch, 5.0)
    assert domain.evaluate(batch).outside[0] == 0.0
    moved = as_batch([bulk("Cu", "fcc", a=3.4)])
    assert 0.0 < domain.evaluate(moved).outside[0] < 1.0
    other = as_batch([bulk("Au", "fcc", a=4.1)])
    assert domain.evaluate(other).outside[0] > 0.9  # an element without references


def test_far_terms_scale_with_the_error_of_the_mean_function():
    batch = as_batch([bulk("Cu", "fcc", a=3.6)])
    domains = [TrainingDomain.fit(batch, 5.0, scale=s).with_amplitudes(0.0, 0.0) for s in (1, 0.4)]
    for a, factor in ((3.9, 0.4), (3.3, 1.0)):
        moved = as_batch([bulk("Cu", "fcc", a=a)])
        one, other = (domain.evaluate(moved) for domain in domains)
        assert other.std[0] == pytest.approx(factor * one.std[0])
        strains = factor * one.derivatives[1]
        np.testing.assert_allclose(other.derivatives[1], strains, atol=1e-12)
    assert domains[1].prior == pytest.approx(0.4 * domains[0].prior)
    parts = (SpeciesEnergies(), SecondMoment())
    assert relative_error(SumMeanFunction(parts)) == SecondMoment.relative_error
    assert relative_error(SpeciesEnergies()) == 1.0


def test_prior_level_is_at_least_the_bond_energy(alloys):
    for name in ("posterior", "exact", "sampled"):
        potential = fitted(alloys, UNCERTAINTIES[name])
        numbers = potential.fitted.training.batch.numbers
        expected = BOND_ENERGY[numbers].mean()
        assert potential.fitted.widened.settings.prior == pytest.approx(expected)
        assert potential.fitted.uncertainty.settings.prior < expected
    plain = fitted(alloys, LabelNoise(), domain=False).fitted
    assert plain.widened.settings == LabelNoise()


def test_the_lower_confidence_bound_leaves_out_the_domain(copper):
    """Otherwise it would fall without limit for compressed structures."""
    atoms = scaled(bulk("Cu", "fcc", a=3.6, cubic=True), 0.6)
    value, _ = copper.lcb(2.0)([atoms])
    plain = copper.without_domain().predict(atoms)
    assert value[0] == pytest.approx(plain.energy[0] - 2 * plain.energy_uncertainty[0])
    atoms.calc = LCBCalculator(copper)
    atoms.get_potential_energy()
    assert atoms.calc.results["outside"] > 0.9


def test_the_domain_can_penalise_a_lower_confidence_bound(copper):
    """E − κσ + λσ_out, with its gradients, rises where the structure leaves the domain."""
    surface, plain = copper.lcb(2.0, domain_penalty=1.5), copper.lcb(2.0)
    cell = scaled(bulk("Cu", "fcc", a=3.6, cubic=True), 1.1)
    cell.rattle(0.1, seed=3)
    cluster = Atoms("Cu3", [[0, 0, 0], [2.2, 0.3, 0], [0.4, 2.3, 0.5]])
    rng, step = np.random.default_rng(0), 1e-4
    for atoms in (cell, cluster):
        batch = as_batch([atoms])
        values = surface.evaluate(batch)
        added = values.value[0] - plain.evaluate(batch).value[0]
        assert added == pytest.approx(1.5 * copper.fitted.domain.evaluate(batch).std[0])
        direction = rng.normal(size=atoms.positions.shape)
        ends = []
        for sign in (1, -1):
            moved = atoms.copy()
            moved.positions += sign * step * direction
            ends.append(surface([moved])[0][0])
        slope = (ends[0] - ends[1]) / (2 * step)
        assert np.sum(values.gradient * direction) == pytest.approx(slope, rel=2e-5, abs=2e-5)
    strain = rng.normal(size=(3, 3))
    ends = []
    for sign in (1, -1):
        moved = cell.copy()
        moved.set_cell(cell.cell.array @ (np.eye(3) + sign * step * strain), scale_atoms=True)
        ends.append(surface([moved])[0][0])
    found = np.sum(surface.evaluate(as_batch([cell])).strain[0] * strain.T)
    assert found == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=2e-5, abs=1e-4)
    outward = [scaled(bulk("Cu", "fcc", a=3.6, cubic=True), s) for s in (0.95, 0.85, 0.75, 0.65)]
    assert np.all(np.diff(surface(outward)[0]) > 0)
    with pytest.raises(NuggetError, match="domain=True"):
        copper.without_domain().lcb(2.0, domain_penalty=1.0)
    with pytest.raises(NuggetError, match="0 or more"):
        copper.lcb(2.0, domain_penalty=-1.0)


@pytest.fixture(scope="module")
def hot_domain():
    """The domain of hot copper at one volume."""
    rng, images = np.random.default_rng(6), []
    for _ in range(6):
        atoms = bulk("Cu", "fcc", a=3.6, cubic=True) * (2, 2, 2)
        atoms.positions += rng.normal(0.0, 0.1, atoms.positions.shape)
        images.append(atoms)
    return TrainingDomain.fit(as_batch(images), 5.0)


def test_missing_neighbours_raise_the_std(hot_domain):
    cell = bulk("Cu", "fcc", a=3.6, cubic=True) * (3, 3, 3)
    vacancy = cell.copy()
    del vacancy[40]
    values = hot_domain.evaluate(as_batch([cell, vacancy]))
    whole, part = np.split(values.missing, [len(cell)])
    assert not whole.any()
    distance = cell.get_distances(40, np.delete(np.arange(len(cell)), 40), mic=True)
    assert part[distance < 2.7].min() > 0.1
    assert not part[distance > 3.7].any()
    without = hot_domain.with_amplitudes(0.0, 0.0).evaluate(as_batch([vacancy])).std[0]
    expected = hot_domain.missing * 3.49 * part.sum() / hot_domain.usual[0]
    assert values.std[1] - without == pytest.approx(expected)
    assert values.outside[1] > values.outside[0]


def test_every_missing_neighbour_raises_the_std(hot_domain):
    """σ_out of an atom grows with the number of its missing neighbours, in ever smaller steps."""
    cell = bulk("Cu", "fcc", a=3.6, cubic=True) * (3, 3, 3)
    around = np.flatnonzero(cell.get_distances(0, np.arange(len(cell)), mic=True) < 2.7)[1:]
    missing = []
    for number in range(1, 9):
        atoms = cell.copy()
        del atoms[around[:number]]
        missing.append(hot_domain.evaluate(as_batch([atoms])).missing[0])
    assert np.all(np.diff(missing) > 0)
    assert np.all(np.diff(missing, 2)[1:] < 0)


def test_stress_without_labels_has_no_std(copper):
    cell = bulk("Cu", "fcc", a=3.6, cubic=True)
    assert copper.predict(cell, stress=True).stress is not None
    with pytest.raises(NuggetError, match="never measured"):
        copper.predict(cell, stress_uncertainty=True)


def test_an_update_with_a_new_kind_recalibrates():
    """Vacancies and surfaces get inducing points of their own, and the levels follow."""
    images = crystals(30, 2)
    descriptor = SOAP(("Cu",), 4.5, 3, 2)
    potential = Potential(
        descriptor, RBF(length_scale(descriptor, images), 100.0), PivotedCholesky(max_points=16)
    ).fit(images)
    slabs = []
    for seed in range(10):
        slab = fcc111("Cu", (1, 1, 4), a=3.6, vacuum=5.0)
        slab.pbc = True
        slab.rattle(0.05, seed=seed)
        slabs.append(labelled(slab))
    alike, unlike = potential.copy(), potential.copy()
    alike.update(crystals(6, 9))
    assert len(alike.fitted.inducing) == 16
    assert alike.calibration == potential.calibration
    unlike.update(slabs[:6])
    assert len(unlike.fitted.inducing) == 20
    assert unlike.calibration["n"] == 36
    found = unlike.predict(slabs[6:], forces_uncertainty=True)
    force = np.concatenate([a.get_forces() for a in slabs[6:]]) - np.concatenate(found.forces)
    z = force / np.concatenate(found.forces_uncertainty)
    assert 0.3 < np.sqrt(np.mean(z**2)) < 2.0


def test_shells_are_predicted_as_by_a_refit():
    """Dropping labels and inducing points in whitened coordinates gives the refitted model."""
    images = crystals(24, 4)
    descriptor = SOAP(("Cu",), 4.5, 3, 2)
    kernel = RBF(length_scale(descriptor, images), 100.0)
    whole = Potential(descriptor, kernel, PivotedCholesky(max_points=60)).fit(images)
    state = whole.fitted
    env = descriptor.compute(state.training.batch)
    source = leave_shells_out._sources(state, env)
    cores = [np.arange(24) < 8, np.arange(24) < 20, np.arange(24) % 2 == 0]
    for core, gram in leave_shells_out._with_grams(state, iter(cores)):
        residual, variance, _ = leave_shells_out._predicted(state, core, gram, source)
        kept = core[source]
        inducing = kernel.inducing(state.inducing.z[kept], state.inducing.group[kept])
        inner = [image for image, chosen in zip(images, core, strict=True) if chosen]
        training = TrainingData.read(inner, None, False)
        own = training.environments(descriptor)
        labels = label_rows(
            training.training, own, inducing, state.mean_function, whole.noise_levels
        )
        refit = SparseRegression.fit(inducing.gram, labels)
        outer = as_batch([image for image, chosen in zip(images, core, strict=True) if not chosen])
        k_sum = inducing.forward(environment_points(descriptor.compute(outer))).k_sum
        mean = state.mean_function.evaluate(outer).totals(outer)
        truth = state.training.energy[~core]
        assert residual == pytest.approx(truth - mean - k_sum @ refit.alpha, rel=1e-4, abs=1e-5)
        posterior = Posterior().fit(refit).variance(k_sum)
        assert variance == pytest.approx(posterior, rel=1e-3, abs=1e-9)


def test_bond_energies():
    assert BOND_ENERGY[29] == 3.49
    assert BOND_ENERGY[79] == 3.81
    assert BOND_ENERGY[18] == 1.0  # argon: closed shells repel as well
    assert BOND_ENERGY[85] == 3.0  # astatine is not in the table
    assert BOND_ENERGY.min() >= 1.0


def test_repulsion_is_zero_on_the_data_and_smooth_below():
    images = [Atoms("Cu2", [[0, 0, 0], [0, 0, d]]) for d in (2.2, 2.6)]
    zbl = ZBL().fit(as_batch(images), np.zeros(2))
    assert zbl.shortest == (("Cu", "Cu", 2.2),)
    distances = np.linspace(0.4, 2.4, 4001)
    batch = as_batch([Atoms("Cu2", [[0, 0, 0], [0, 0, d]]) for d in distances])
    values = zbl.evaluate(batch)
    energy = values.totals(batch)
    assert np.all(energy[distances >= 2.2] == 0.0)
    assert np.all(np.diff(energy[distances < 2.15]) < 0)
    slope = values.gradient[1::2, 2]
    assert np.gradient(energy, distances)[1:-1] == pytest.approx(slope[1:-1], rel=1e-4, abs=1e-3)
    curvature = np.gradient(slope, distances)
    assert abs(curvature[distances > 2.195]).max() < 2.0  # two continuous derivatives at the edge
    assert values.std.totals(batch) == pytest.approx(0.7 * energy)
    # ZBL itself at half the shortest distance: 1.1 Å
    a = 0.4685 / (2 * 29**0.23)
    x = 1.1 / a
    terms = ((0.18175, 3.1998), (0.50986, 0.94229), (0.28022, 0.4029), (0.02817, 0.20162))
    phi = sum(c * np.exp(-d * x) for c, d in terms)
    at = np.argmin(abs(distances - 1.1))
    assert energy[at] == pytest.approx(14.399645 * 29**2 / 1.1 * phi, rel=1e-3)


def test_relaxation_of_a_compressed_crystal_stays_in_range(copper):
    from ase.optimize import BFGS

    atoms = scaled(bulk("Cu", "fcc", a=3.6, cubic=True), 0.75)
    atoms.rattle(0.3, seed=2)
    atoms.calc = copper.calculator()
    BFGS(atoms, logfile=None).run(fmax=0.05, steps=100)
    shortest = (atoms * (2, 2, 2)).get_all_distances(mic=True)
    assert shortest[shortest > 0].min() > 0.6 * 2 * 1.32


def test_calculators_warn_once_per_event_and_stop(copper):
    near = bulk("Cu", "fcc", a=3.6, cubic=True)
    far = scaled(near, 0.8)
    calculator = copper.calculator(warn_above=0.5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UncertaintyWarning)
        for atoms in (far, scaled(near, 0.79), near, far):
            calculator.get_potential_energy(atoms)
    first, second = (str(w.message) for w in caught)  # the second structure is the same event
    assert first.startswith("Evaluation 1: the energy is uncertain by ")
    assert "(Cu) is farthest outside the training domain" in first
    assert second.startswith("Evaluation 4: ")
    stopping = copper.calculator(stop_above=0.5)
    stopping.get_potential_energy(near)
    with pytest.raises(OutsideError, match=r"Evaluation 2: .*, more than 0\.5; atom"):
        stopping.get_potential_energy(far)
