"""Conformance checks of descriptors, mean functions, acquisitions, generators and engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.descriptors.base import Descriptor
from nugget.descriptors.soap import SOAP
from nugget.errors import NuggetError
from nugget.generators import Failure, Generator, make_generator, suits
from nugget.numerics.arrays import Floats
from nugget.potential.mean_functions.base import (
    Prior,
    mean_function_from_settings,
    mean_function_settings,
)
from nugget.potential.potential import Potential
from nugget.search.acquisition import Acquisition, AcquisitionContext
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs
from nugget.systems import Crystal, PlacedAtoms, System
from nugget.testing.compare import (
    check_gradients,
    close,
    derivative,
    moved,
    random_structures,
    require,
    require_plain_settings,
    same,
    strain_derivatives,
)


def check_descriptor(descriptor: Descriptor, seed: int = 0) -> None:
    """Raise ConformanceError unless the descriptor keeps its contract (`nugget.descriptors.base`).

    Invariances, locality, batches, and all derivatives by positions and strain, on a mixed cluster,
    a periodic cell smaller than the cutoff and a slab.
    """
    require_plain_settings(descriptor, "descriptor")
    rng = np.random.default_rng(seed)
    structures = random_structures(descriptor.species, seed)
    for name, atoms in structures.items():
        _check_values(descriptor, atoms, name, rng)
        _check_derivatives(descriptor, atoms, name, rng)
    _check_batch(descriptor, list(structures.values()))
    _check_locality(descriptor, structures["cluster"])
    _check_refusals(descriptor, structures["cluster"])


def _check_values(
    descriptor: Descriptor, atoms: Atoms, name: str, rng: np.random.Generator
) -> None:
    env = descriptor.compute([atoms])
    shape = (len(atoms), descriptor.n_features)
    require(env.values.shape == shape, f"Features of the {name} have shape (atoms, n_features).")
    require(bool(np.isfinite(env.values).all()), f"Features of the {name} are finite.")
    expected = [descriptor.species.index(symbol) for symbol in atoms.symbols]
    require(env.species.tolist() == expected, "`species` is each atom's index among the species.")
    turned = atoms.copy()
    turned.rotate(rng.uniform(20, 160), rng.normal(size=3), rotate_cell=True)
    turned.positions += rng.normal(size=3)
    close(descriptor.compute([turned]).values, env.values, f"Turning the {name}, no change", 1e-8)
    order = rng.permutation(len(atoms))
    close(
        descriptor.compute([atoms[order]]).values, env.values[order],
        f"Renumbering the atoms of the {name} renumbers the features", 1e-9,
    )  # fmt: skip
    if atoms.pbc.any():
        repeat = tuple(np.where(atoms.pbc, 2, 1))
        larger = descriptor.compute([atoms.repeat(repeat)]).values[: len(atoms)]
        close(larger, env.values, f"A larger cell of the {name} has the same environments", 1e-8)


def _check_derivatives(
    descriptor: Descriptor, atoms: Atoms, name: str, rng: np.random.Generator
) -> None:
    env = descriptor.compute([atoms])
    grad = rng.normal(size=(2, *env.values.shape))
    positions, strain = env.pullback_strain(grad)
    one, bent = env.pullback_strain(grad[0])
    close(one, positions[0], "One cotangent and several give the same gradients", 1e-9)
    close(bent, strain[0], "One cotangent and several give the same strain derivatives", 1e-9)
    close(env.pullback(grad), positions, "`pullback` is the first part of `pullback_strain`", 1e-9)
    for r in range(2):

        def value(other: Atoms, r: int = r) -> float:
            return float(np.sum(grad[r] * descriptor.compute([other]).values))

        check_gradients(value, atoms, positions[r], strain[r, 0], f"pullback of the {name}", rng)
    jacobian = env.jacobian()
    pull = np.einsum("pf,pcf->pc", grad[0][jacobian.centre], jacobian.values)
    by_pairs = np.zeros_like(positions[0])
    np.add.at(by_pairs, jacobian.neighbour, pull)
    np.subtract.at(by_pairs, jacobian.centre, pull)
    close(by_pairs, positions[0], f"The Jacobian of the {name} agrees with its pullback", 1e-8)
    by_strain = np.einsum("pa,pb->ab", pull, jacobian.vector)
    close(by_strain, strain[0, 0], f"The Jacobian's vectors of the {name} give its strain", 1e-8)


def _check_batch(descriptor: Descriptor, images: list[Atoms]) -> None:
    env = descriptor.compute(images)
    alone = [descriptor.compute([atoms]).values for atoms in images]
    close(env.values, np.concatenate(alone), "A batch has the features of its structures", 1e-10)
    some = env.select(np.array([2, 0]))
    expected = np.concatenate([alone[2], alone[0]])
    close(some.values, expected, "`select` keeps the features of the named structures", 1e-10)
    batch = as_batch(images)
    longer = descriptor.compute(batch, find_pairs(batch, descriptor.cutoff + 0.7))
    close(longer.values, env.values, "Pairs beyond the cutoff change nothing", 1e-10)


def _check_locality(descriptor: Descriptor, cluster: Atoms) -> None:
    """An atom that leaves through the cutoff changes the features continuously, to nothing."""
    pair = cluster[[0, 1]]

    def at(distance: float) -> Floats:
        other = pair.copy()
        other.positions[:] = [[0, 0, 0], [distance, 0, 0]]
        return descriptor.compute([other]).values[0]

    beyond = at(descriptor.cutoff + 0.5)
    scale = float(np.max(np.abs(at(0.5 * descriptor.cutoff) - beyond))) or 1.0
    jump = float(np.max(np.abs(at(descriptor.cutoff - 1e-4) - beyond))) / scale
    require(jump < 1e-3, f"Features are continuous at the cutoff (they jump by {jump:.1e}).")


def _check_refusals(descriptor: Descriptor, cluster: Atoms) -> None:
    foreign = cluster.copy()
    foreign.symbols[0] = next(s for s in ("Xe", "Rn", "Ne") if s not in descriptor.species)
    try:
        descriptor.compute([foreign])
    except NuggetError:
        pass
    else:
        require(False, "An element that is not described raises NuggetError.")
    crashed = cluster.copy()
    crashed.positions[1] = crashed.positions[0]
    env = descriptor.compute([crashed], strict=False)
    require(
        bool(env.has_coincident) or bool(np.isfinite(env.values).all()),
        "With strict=False, atoms on top of each other are named, or the features stay finite.",
    )


# --- Mean functions ---


def check_prior(prior: Prior, species: Sequence[str] = ("Cu", "Au"), seed: int = 0) -> None:
    """Raise ConformanceError unless the prior keeps its contract (`potential.mean_functions`).

    Fitting, extensivity, derivatives by positions and strain, reproducibility, and settings that a
    model file can keep (for a registered prior).
    """
    require_plain_settings(prior, "prior")
    rng = np.random.default_rng(seed)
    structures = random_structures(species, seed)
    images = list(structures.values())
    energies = rng.normal(size=len(images)) - 3.0 * np.array([len(a) for a in images])
    fitted = prior.fit(as_batch(images), energies)
    again = prior.fit(as_batch(images), energies)
    before = fitted.evaluate(as_batch(images)).energies
    same(again.evaluate(as_batch(images)).energies, before, "The same data give the same prior.")
    same(fitted.evaluate(as_batch(images)).energies, before, "Evaluating twice gives the same.")
    for name, atoms in structures.items():
        _check_mean_derivatives(fitted, atoms, name, rng)
    _check_extensive(fitted, structures["cluster"])
    batch = as_batch(images)
    longer = fitted.evaluate(batch, find_pairs(batch, 9.0))
    close(longer.energies, before, "A longer list of pairs changes nothing", 1e-9)
    rest = mean_function_from_settings(mean_function_settings(fitted))
    same(rest.evaluate(batch).energies, before, "The settings describe the fitted prior wholly.")


def _total(prior: Prior, atoms: Atoms) -> float:
    return float(prior.evaluate(as_batch([atoms])).energies.sum())


def _check_mean_derivatives(
    prior: Prior, atoms: Atoms, name: str, rng: np.random.Generator
) -> None:
    found = prior.evaluate(as_batch([atoms]))
    require(found.energies.shape == (len(atoms),), "A mean function gives one energy per atom.")
    gradient = np.zeros_like(atoms.positions) if found.gradient is None else found.gradient
    strain = np.zeros((3, 3)) if found.strain is None else found.strain[0]
    name = f"The derivative of the mean function of the {name}"
    check_gradients(lambda other: _total(prior, other), atoms, gradient, strain, name, rng)


def _check_extensive(prior: Prior, cluster: Atoms) -> None:
    far = cluster.copy()
    far.positions += 100.0
    close(
        _total(prior, cluster + far), 2.0 * _total(prior, cluster),
        "The prior of two structures far apart is the sum of both", 1e-8,
    )  # fmt: skip


# --- Acquisitions ---


def check_acquisition(acquisition: Acquisition, seed: int = 0) -> None:
    """Raise ConformanceError unless the acquisition keeps its contract.

    Its surface has correct gradients and is a function of the given random numbers; its scores
    prefer low energies, other things being equal; κ is never negative; and the decision whether a
    candidate is worth an evaluation depends on the energy as it should. All of this is checked at
    the beginning, in the middle and at the end of a budget.
    """
    require_plain_settings(acquisition, "acquisition")
    potential = _small_potential()
    query = random_structures(["Cu", "Au"], seed + 100)["cluster"]
    best = float(potential.predict([query]).energy[0])
    for evaluations in (6, 50, 100):
        context = AcquisitionContext(evaluations, 100, best, std_scale=1.3, exploration_scale=1.5)
        rng = np.random.default_rng(seed)
        _check_acquisition_surface(acquisition, context, potential, query, rng)
        energy, std = best + rng.normal(size=20), rng.uniform(0.1, 1.0, size=20)
        _check_scores(lambda e, s: acquisition.score(e, s, context), energy, std)  # noqa: B023
        _check_scores(lambda e, s: acquisition.explore_score(e, s, context), energy, std)  # noqa: B023
        require(acquisition.kappa_at(context) >= 0, "κ is not negative.")
        require(
            acquisition.is_worthwhile(best - 10.0, 0.1, 0.02, context),
            "A candidate that is certainly lower is worth an evaluation.",
        )
        require(
            not acquisition.is_worthwhile(best + 1.0, 0.0, 0.02, context),
            "A candidate that is certainly higher is not worth an evaluation.",
        )


def _check_acquisition_surface(
    acquisition: Acquisition, context: AcquisitionContext, potential: Potential, query: Atoms,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    first, again = (
        acquisition.surface(potential, np.random.default_rng(0), context) for _ in range(2)
    )
    value, gradients = first([query])
    same(again([query])[0], value, "The same random numbers give the same surface.")
    check_gradients(lambda a: float(first([a])[0][0]), query, gradients[0], None, "A surface", rng)


def _check_scores(
    score_of: Callable[[Floats, Floats], Floats], energy: Floats, std: Floats
) -> None:
    score = score_of(energy, std)
    require(np.shape(score) == (20,), "One score per structure.")
    require(bool(np.isfinite(score).all()), "Scores are finite.")
    lower = score_of(energy - 0.5, std)
    require(bool((lower < score).all()), "A lower energy has a lower (better) score.")
    certain = score_of(energy, np.zeros(20))
    require(bool(np.isfinite(certain).all()), "Scores are finite where nothing is uncertain.")


def _small_potential() -> Potential:
    images: list[Atoms] = []
    for k in range(6):
        atoms = random_structures(["Cu", "Au"], k)["cluster"]
        atoms.calc = EMT()
        energy = atoms.get_potential_energy()
        atoms.calc = SinglePointCalculator(atoms, energy=energy)
        images.append(atoms)
    return Potential(SOAP(("Cu", "Au"), 4.5)).fit(images)


# --- Generators ---


def check_generator(
    generator: Generator, problems: Sequence[System] | None = None, seed: int = 0
) -> None:
    """Raise ConformanceError unless the generator keeps its contract (`nugget.generators.base`).

    Structures are valid, of the right atoms in the right order and named after the generator;
    parents stay as they are; the same random numbers give the same structure. At least one of the
    problems must suit it (default: Au8, Cu3Au4, Cu6Au7, Mg3O3, and Cu2Au2 in a periodic cell; for
    generators of crystals, 1 to 8 units of Si and 1 or 2 of Cu3Au; for those of whole molecules,
    H2O*3 and CO*2,Au3).
    """
    if problems is None and getattr(generator, "variable_cell", False):
        problems = (Crystal("Si", (1, 8)), Crystal("Cu3Au", (1, 2)))
    elif problems is None and getattr(generator, "whole_molecules", False):
        problems = (PlacedAtoms.cluster("H2O*3"), PlacedAtoms.cluster("CO*2,Au3"))
    elif problems is None:
        cell = 4.2 * np.eye(3)
        clusters = [PlacedAtoms.cluster(one) for one in ("Au8", "Cu3Au4", "Cu6Au7", "Mg3O3")]
        problems = (*clusters, PlacedAtoms.bulk("Cu2Au2", cell))
    suited = [problem for problem in problems if suits(generator, problem)]
    require(bool(suited), f"The generator {generator.name!r} suits at least one of the problems.")
    made = sum(_check_on(generator, problem, seed) for problem in suited)
    require(made > 0, f"The generator {generator.name!r} makes a valid structure now and then.")


def _check_on(generator: Generator, problem: System, seed: int) -> int:
    parents = _parents(problem, max(generator.needs, 2), seed)
    if getattr(generator, "other_compositions", False):
        parents = [atoms for one in _neighbours(problem) for atoms in _parents(one, 1, seed)]
    before = [atoms.positions.copy() for atoms in parents]
    made = 0
    for k in range(5):
        first, again = (
            generator(np.random.default_rng([seed, k]), problem, parents) for _ in range(2)
        )
        if isinstance(first, Failure):
            require(isinstance(again, Failure), "The same random numbers give the same result.")
            require(bool(first.reason), "A failure gives its reason.")
            continue
        made += 1
        require(isinstance(again, Atoms), "The same random numbers give the same result.")
        assert isinstance(again, Atoms)
        same(again.positions, first.positions, "The same random numbers give the same structure.")
        fault = problem.fault(first)
        require(
            np.array_equal(first.numbers, problem.numbers_for(len(first))),
            "A structure has the atoms of its problem, in the same order.",
        )
        require(fault is None, f"Structures are valid ({fault}).")
        require(
            first.info.get("generator") == generator.name,
            "`info['generator']` of a structure is the generator's name.",
        )
    for atoms, positions in zip(parents, before, strict=True):
        same(atoms.positions, positions, "Parents are not changed.")
    if generator.needs:
        none = generator(np.random.default_rng(seed), problem, [])
        require(isinstance(none, Failure), "Without parents that it needs, it gives a Failure.")
    return made


def _neighbours(problem: System) -> list[System]:
    """The same system with one atom more, one fewer, and one of another element."""
    assert isinstance(problem, PlacedAtoms)
    first, *rest = problem.symbols
    other = next((symbol for symbol in rest if symbol != first), "Ag")
    compositions = ((first, *problem.symbols), tuple(rest), (other, *rest))
    return [replace(problem, symbols=symbols) for symbols in compositions]


def _parents(problem: System, n: int, seed: int) -> list[Atoms]:
    start = make_generator(problem.start_generator)
    found: list[Atoms] = []
    for k in range(100):
        made = start(np.random.default_rng([seed, 1000 + k]), problem)
        if isinstance(made, Atoms):
            found.append(made)
        if len(found) == n:
            break
    return found


# --- Engines, which are factories of ASE calculators ---


def check_engine(
    factory: Callable[[], Calculator], atoms: Atoms, step: float = 0.01, tolerance: float = 0.01
) -> None:
    """Raise ConformanceError unless the engine's forces and stress are derivatives of its energy.

    Every energy comes from a fresh calculator, as in a search. `tolerance` is relative to the
    largest force; engines that iterate to self-consistency need some.
    """
    rng = np.random.default_rng(0)

    def energy(other: Atoms) -> float:
        fresh = other.copy()
        fresh.calc = factory()
        return float(fresh.get_potential_energy())

    work = atoms.copy()
    work.calc = factory()
    require(hasattr(work.calc, "get_potential_energy"), "The factory returns an ASE calculator.")
    value, forces = float(work.get_potential_energy()), work.get_forces(apply_constraint=False)
    require(np.isfinite(value), "The energy is a finite number.")
    require(np.shape(forces) == (len(atoms), 3), "There is a force on every atom.")
    require(abs(energy(atoms) - value) <= 1e-5 * len(atoms), "Fresh calculators agree.")
    direction = rng.normal(size=(len(atoms), 3))
    direction /= np.linalg.norm(direction)
    slope = derivative(lambda t: energy(moved(atoms, direction, t)), step)
    scale = float(np.abs(forces).max())
    along = float(np.sum(-forces * direction))
    require(
        abs(along - float(slope)) <= tolerance * max(scale, 0.1),
        f"Forces are minus the gradient of the energy ({along:.4f} against {float(slope):.4f} "
        "eV/Å along a random direction).",
    )
    if atoms.pbc.all() and "stress" in work.calc.implemented_properties:
        slopes = strain_derivatives(energy, atoms, 0.2 * step)
        virial = work.get_stress() * atoms.get_volume()
        close(virial, slopes, "Stress is the strain derivative per volume", 10 * tolerance)
