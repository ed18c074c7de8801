"""Every kind of system keeps the contract that searches, generators and reports rely on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, fcc111, molecule
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from nugget import registry
from nugget.errors import NuggetError
from nugget.generators import Mixer, make_generator, suits
from nugget.potential.mean_functions.pair_terms import PairWell
from nugget.search.search_settings import make_config
from nugget.systems import PlacedAtoms, System
from nugget.systems.base import in_frame
from nugget.systems.system_settings import SystemConfig, kind_of, make_goal, make_system

#: Settings of a small system of each kind; a new kind needs a line here.
EXAMPLES = {
    "cluster": {"formula": "Cu3Au4"},
    "surface": {"formula": "Cu2", "kind": "surface", "template": "slab.traj"},
    "bulk": {"formula": "Cu2Au2", "kind": "bulk", "cell": [4.2, 4.2, 4.2]},
    "crystal": {"formula": "Cu3Au", "kind": "crystal", "units": 1},
    "compositions": {"compositions": "Cu-Au", "kind": "crystal", "max_atoms": 3},
    "grand-canonical": {"vary": "Cu:2-4,Au:0-2"},
}


@pytest.fixture(params=registry.names("system"))
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    fcc111("Cu", (2, 2, 2), vacuum=7.0).write("slab.traj")
    return make_config({"system": EXAMPLES[request.param]})


def structures(config, count: int = 3) -> tuple[System, list[Atoms]]:
    """Random structures of a system, from the generators that its settings name."""
    system = make_system(config.system, Path())
    generators = [make_generator(name) for name in config.search.generators]
    mixer = Mixer([one for one in generators if suits(one, system)])
    rng = np.random.default_rng(3)
    drawn = (mixer(rng, system) for _ in range(50))
    return system, [atoms for atoms in drawn if isinstance(atoms, Atoms)][:count]


def test_every_kind_is_tested() -> None:
    assert set(EXAMPLES) == set(registry.names("system"))


def test_structures_are_valid_and_in_frame(config) -> None:
    system, images = structures(config)
    goal = make_goal(config.system)
    for atoms in images:
        assert system.fault(atoms) is None
        assert goal.same_atoms(atoms, system.numbers.tolist())
        atoms.calc = SinglePointCalculator(atoms, energy=-1.0, forces=atoms.positions)
        framed = in_frame(atoms, system)
        assert framed is not None
        assert np.array_equal(framed.numbers, atoms.numbers)
        assert framed.calc.results["energy"] == -1.0
        assert next(system.equivalents(atoms)) is atoms
    other = Atoms("Ni5", np.random.default_rng(0).random((5, 3)) * 5, cell=[9] * 3)
    assert in_frame(other, system) is None


def test_start_generator_suits(config) -> None:
    system, images = structures(config)
    target, _ = system.draw_target(np.random.default_rng(1), images)
    generator = make_generator(target.start_generator)
    assert suits(generator, target)
    assert isinstance(generator(np.random.default_rng(5), target), Atoms)


def test_candidates_relax_to_valid_structures(config) -> None:
    system, images = structures(config)
    relaxed = system.relax(images, PairWell(), 0.1, 30, None, 100.0)
    assert relaxed
    for atoms in relaxed:
        assert system.fault(atoms) is None
        assert atoms.info["generator"] in config.search.generators
    assert system.relax([], PairWell(), 0.1, 30, None, 100.0) == []


def test_first_evaluations_inform_the_system(config) -> None:
    system, images = structures(config)
    assert system.updated([], []) is system
    informed = system.updated(images, [-float(len(atoms)) for atoms in images])
    assert informed.variable_cell == system.variable_cell
    assert np.array_equal(informed.numbers, system.numbers)


def test_goal_orders_structures(config) -> None:
    _, images = structures(config, 2)
    goal = make_goal(config.system)
    low, high = (goal.order(images[0], energy) for energy in (-9.0, -8.0))
    assert low < high
    assert goal.enthalpy(images[0], -9.0) == pytest.approx(-9.0 / len(images[0]))
    memory = goal.memory()
    memory.add(images[0], -9.0)
    assert images[0] in memory


def test_final_relaxation_with_the_engine(config) -> None:
    _, images = structures(config, 1)
    [atoms] = images
    run = kind_of(config.system).engine_relaxation(config.system, atoms, 0.5, 4, 0)
    while not run.done:
        trial = run.propose()
        trial.calc = EMT()
        results = {"energy": trial.get_potential_energy(), "forces": trial.get_forces()}
        if kind_of(config.system).variable_cell:
            results["stress"] = trial.get_stress()
        trial.calc = SinglePointCalculator(trial, **results)
        run.observe(trial)
    assert run.evaluations <= 4
    moved = not np.allclose(run.result().atoms.cell.array, atoms.cell.array)
    assert moved <= kind_of(config.system).variable_cell


def test_defaults_are_settings(config) -> None:
    """Defaults of a kind apply, and what the user gives takes precedence."""
    for section, defaults in kind_of(config.system).defaults().items():
        for name, value in defaults.items():
            assert getattr(getattr(config, section), name) == value
    given = {"system": config.system.model_dump(exclude_unset=True), "search": {"candidates": 7}}
    given["system"].pop("formula")
    if config.system.compositions is None and config.system.vary is None:
        given["system"]["formula"] = config.system.formula
    assert make_config(given).search.candidates == 7


def test_titles_name_the_system(config) -> None:
    title = kind_of(config.system).title(config.system)
    assert title.startswith(config.system.title)


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ({"formula": "Au3", "kind": "clutser"}, "did you mean 'cluster'"),
        ({"formula": "Au3", "kind": "surface"}, "system.template"),
        ({"formula": "Au3", "kind": "bulk"}, "system.cell"),
        ({"kind": "compositions"}, "system.compositions"),
        ({"compositions": "Cu-Au", "kind": "bulk", "cell": [4, 4, 4]}, "those of crystals"),
        ({"formula": "Au3", "options": {"depth": 3}}, "no option 'depth'"),
    ],
)
def test_wrong_settings_are_refused(system: dict[str, object], message: str) -> None:
    with pytest.raises(NuggetError, match=message):
        make_config({"system": system})


def test_a_conventional_cell_has_a_primitive_equivalent() -> None:
    system = make_system(SystemConfig(formula="Cu", kind="crystal", units=1), Path())
    cubic = bulk("Cu", cubic=True)
    framed = [in_frame(one, system) for one in system.equivalents(cubic)]
    assert framed[0] is None
    assert framed[1] is not None
    assert len(framed[1]) == 1


def test_generators_of_another_sort_do_not_suit() -> None:
    cluster, water = PlacedAtoms.cluster("Au5"), PlacedAtoms.cluster("H2O*2")
    assert not suits(make_generator("strain"), cluster)
    assert not suits(make_generator("rattle"), water)
    assert suits(make_generator("molecule_move"), water)


def test_arrangements_of_molecules_are_told_apart() -> None:
    """All bond graphs of two intact water molecules are equal."""
    goal = make_goal(make_config({"system": {"formula": "H2O*2"}}).system)
    water, other = molecule("H2O"), molecule("H2O")
    other.positions += [0, 0, 3.0]
    close = water + other
    other.rotate(90, "x", center="COM")
    turned, moved = water + other, close.copy()
    moved.rotate(40, (1, 2, 3))
    moved.positions += 0.01
    assert goal.count([close], [close, moved, turned]) == 2
    assert goal.same(moved, close, loose=False)
    assert not goal.same(turned, close, loose=True)
