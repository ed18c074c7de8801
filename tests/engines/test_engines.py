"""Engines: published and known energies, names, and helpful errors."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, molecule
from ase.calculators.emt import EMT
from ase.calculators.fd import calculate_numerical_forces, calculate_numerical_stress
from ase.cluster import Icosahedron
from ase.optimize import BFGS

from nugget.engines import engine as module
from nugget.engines.engine import Engine, describe_engines, get_engine, make_calculator
from nugget.engines.engine_settings import EngineConfig
from nugget.engines.runner import Evaluator
from nugget.engines.task import Task, run_task
from nugget.engines.wrappers import Boxed
from nugget.errors import NuggetError
from nugget.structures.identity import degree_sequence


def tetrahedron():
    step = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]]) * 2.85 / np.sqrt(2)
    spots = [(i, j, k) for i in range(4) for j in range(4 - i) for k in range(4 - i - j)]
    return Atoms("Au20", np.array(spots) @ step)


@pytest.mark.parametrize("options", [{}, {"sigma": 1.0}, {"epsilon": 0.1}])
def test_lennard_jones_13(options):
    sigma, epsilon = options.get("sigma", 2.5), options.get("epsilon", 1.0)
    atoms = Atoms(Icosahedron("Au", 2))
    atoms.positions *= sigma / 2.5
    atoms.calc = make_calculator("lj", **options)
    BFGS(atoms, logfile=None, maxstep=0.05 * sigma).run(fmax=1e-5 * epsilon / sigma, steps=300)
    assert atoms.get_potential_energy() / epsilon == pytest.approx(-44.326801, abs=2e-6)


def test_lennard_jones_needs_a_cutoff_for_crystals():
    crystal = bulk("Au")
    crystal.calc = make_calculator("lj")
    with pytest.raises(NuggetError, match="give the option rc"):
        crystal.get_potential_energy()
    crystal.calc = make_calculator("lj", rc=7.5, smooth=True)
    assert crystal.get_potential_energy() < 0


def test_gold_tetrahedron_with_gfn1(capfd):
    atoms = tetrahedron()
    atoms.calc = make_calculator("gfn1-xtb")
    BFGS(atoms, logfile=None).run(fmax=0.02, steps=40)
    assert atoms.get_potential_energy() == pytest.approx(-2171.776, abs=2e-3)
    assert degree_sequence(atoms) == [3] * 4 + [6] * 12 + [9] * 4
    assert atoms.calc.parameters["electronic_temperature"] == 1500.0
    assert capfd.readouterr() == ("", "")


def test_options_reach_the_engine():
    cold = make_calculator("gfn1-xtb", electronic_temperature=300.0)
    assert cold.parameters["electronic_temperature"] == 300.0
    with pytest.raises(NuggetError, match="does not take options"):
        Engine("x", "", lambda a=1: EMT()).calculator(b=2)


def test_table():
    rows = {row.name: row for row in describe_engines()}
    assert {"emt", "lj", "gfn1-xtb", "gpaw"} <= set(rows)
    assert rows["gfn1-xtb"].default
    assert rows["emt"].installed
    assert sum(row.default for row in rows.values()) == 1
    assert "pip install gpaw" in rows["gpaw"].how_to_install


def test_missing_engine_says_how_to_install():
    engine = Engine("dft", "", EMT, "no_such_module_anywhere", "pip install luck")
    assert not engine.installed()
    with pytest.raises(NuggetError, match="pip install luck"):
        engine.calculator()
    assert not Engine("dft", "", EMT, "no_such_module.at.all").installed()


def test_names():
    with pytest.raises(NuggetError, match="did you mean 'gfn1-xtb'"):
        get_engine("gfn1-xbt")
    with pytest.raises(NuggetError, match="choose one of aims, ani, chgnet, cp2k, emt"):
        get_engine("zzz")
    assert isinstance(make_calculator("ase.calculators.emt:EMT"), EMT)
    with pytest.raises(NuggetError, match="no function 'nothing'"):
        make_calculator("ase.calculators.emt:nothing")
    assert not get_engine("no_such_module_anywhere:factory").installed()


def test_other_packages_may_add_engines(monkeypatch):
    def entries(group):
        assert group == "nugget.engines"
        return [EntryPoint("theirs", "ase.calculators.emt:EMT", group)]

    monkeypatch.setattr(module, "entry_points", entries)
    module.engines.cache_clear()
    try:
        assert isinstance(make_calculator("theirs"), EMT)
        assert "theirs" in {row.name for row in describe_engines()}
    finally:
        module.engines.cache_clear()


def test_box_changes_nothing_but_the_cell():
    class NeedsCell(EMT):
        cells: list = []  # noqa: RUF012

        def calculate(self, atoms=None, *args, **kwargs):
            assert atoms.cell.rank == 3
            self.cells.append(atoms.cell.array.copy())
            super().calculate(atoms, *args, **kwargs)

    atoms, plain = tetrahedron(), tetrahedron()
    inner = NeedsCell()
    atoms.calc, plain.calc = Boxed(inner, vacuum=4.0), EMT()
    before = atoms.positions.copy()
    assert atoms.get_potential_energy() == pytest.approx(plain.get_potential_energy())
    np.testing.assert_allclose(atoms.get_forces(), plain.get_forces(), atol=1e-10)
    np.testing.assert_array_equal(atoms.positions, before)
    assert atoms.cell.rank == 0
    # The box stays for a small step, and is renewed when an atom comes near its wall.
    atoms.positions[0] += 0.3
    atoms.get_potential_energy()
    np.testing.assert_array_equal(inner.cells[0], inner.cells[-1])
    atoms.positions[0] -= 5.0
    atoms.get_potential_energy()
    assert not np.array_equal(inner.cells[0], inner.cells[-1])
    periodic = Atoms("Au", cell=[3, 0, 0], pbc=[True, False, False])
    periodic.calc = Boxed(inner, vacuum=4.0)
    with pytest.raises(NuggetError, match="complete cell"):
        periodic.get_potential_energy()


def test_listing_engines_imports_none_of_them():
    code = (
        "import sys; from nugget.engines import describe_engines; describe_engines();"
        "sys.exit('tblite' in sys.modules or 'gpaw' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_box_passes_stress_on():
    crystal = bulk("Cu", cubic=True)
    crystal.rattle(0.05, seed=1)
    plain = crystal.copy()
    crystal.calc, plain.calc = Boxed(EMT(), vacuum=4.0), EMT()
    np.testing.assert_allclose(crystal.get_stress(), plain.get_stress())
    found = run_task(Task(name="emt", vacuum=4.0), plain)
    np.testing.assert_allclose(found.atoms.calc.results["stress"], plain.get_stress())


# Published in Tersoff 1989: lattice constants in Å, energies per atom in eV.
@pytest.mark.parametrize(
    ("formula", "structure", "a", "energy"),
    [("Si", "diamond", 5.432, -4.63), ("C", "diamond", 3.566, -7.37),
     ("SiC", "zincblende", 4.32, -6.165)],
)  # fmt: skip
def test_tersoff_of_the_crystals(formula, structure, a, energy):
    crystal = bulk(formula, structure, a=a)
    found = run_task(Task(name="tersoff"), crystal).atoms.calc.results
    assert found["energy"] / 2 == pytest.approx(energy, abs=5e-3)
    # At the minimum: the stress is that of less than 0.1 % of strain (moduli: 1 to 6 eV/Å³).
    assert np.abs(found["stress"]).max() < 2e-3


def test_tersoff_of_a_bond_without_other_neighbours():
    """ASE's own calculator divides by zero here."""
    for symbols in ("Si2", "SiC"):
        apart = Atoms(symbols, [[0, 0, 0], [0, 0, 2.1]], cell=[12, 12, 12], pbc=True)
        apart.calc = make_calculator("tersoff")
        assert apart.get_potential_energy() < -1.0
        np.testing.assert_allclose(
            apart.get_forces(), calculate_numerical_forces(apart, eps=1e-5), atol=1e-6
        )


def test_tersoff_forces_and_stress_are_derivatives():
    crystal = bulk("SiC", "zincblende", a=4.4) * (2, 1, 1)
    crystal.rattle(0.1, seed=2)
    crystal.calc = make_calculator("tersoff")
    forces = calculate_numerical_forces(crystal, 1e-5)
    np.testing.assert_allclose(crystal.get_forces(), forces, atol=1e-6)
    stress = calculate_numerical_stress(crystal, 1e-6)
    np.testing.assert_allclose(crystal.get_stress(), stress, atol=1e-6)
    with pytest.raises(NuggetError, match="Si and C, not Au"):
        make_calculator("tersoff").get_potential_energy(Atoms("Au2", [[0, 0, 0], [2, 0, 0]]))


def test_repeated_cells_are_supercells():
    """tblite knows one k point: a small cell is evaluated as a large one."""
    cell = bulk("MgO", "rocksalt", a=4.2)
    cell.rattle(0.05, seed=1)
    large = cell.repeat(2)
    large.calc = make_calculator("gfn1-xtb")
    cell.calc = make_calculator("gfn1-xtb", supercell=4.0)
    assert cell.get_potential_energy() == pytest.approx(large.get_potential_energy() / 8, abs=1e-6)
    np.testing.assert_allclose(cell.get_forces(), large.get_forces()[:2], atol=1e-5)
    np.testing.assert_allclose(cell.get_stress(), large.get_stress(), atol=1e-6)
    alone = molecule("H2O")
    alone.calc = make_calculator("gfn1-xtb", supercell=4.0)
    energy = alone.get_potential_energy()
    alone.calc = make_calculator("gfn1-xtb")
    assert energy == pytest.approx(alone.get_potential_energy(), abs=1e-9)


def gold13() -> Atoms:
    atoms = Atoms(Icosahedron("Au", 2))
    atoms.rattle(0.05, seed=3)
    return atoms


def test_charge_and_spin_change_the_energy():
    def energy(**electrons):
        outcome = run_task(
            Task(name="gfn1-xtb", options={"electronic_temperature": 300.0}, **electrons), gold13()
        )
        assert outcome.ok, outcome.reason
        return outcome.energy

    neutral, cation, anion = energy(), energy(charge=1), energy(charge=-1)
    # GFN1's self-consistent charges: ionisation costs, and costs more than attachment gains.
    assert 4 < cation - neutral < 14
    assert anion < cation
    assert energy(spin=2) == pytest.approx(neutral, abs=1e-6)  # 143 electrons: a doublet anyway
    assert energy(spin=6) > neutral + 0.1
    # The same through initial moments, which do not stay with the structure.
    outcome = run_task(
        Task(name="gfn1-xtb", options={"electronic_temperature": 300.0}, magmoms={"Au": 5 / 13}),
        gold13(),
    )
    assert outcome.energy == pytest.approx(energy(spin=6), abs=1e-6)
    assert not outcome.atoms.has("initial_magmoms")


def test_engines_without_charges_say_so():
    for settings, text in (
        ({"charge": 1}, "takes no charge"),
        ({"spin": 2}, "takes no spin"),
        ({"magmoms": {"Au": 1.0}}, "no magnetic moments"),
    ):
        with pytest.raises(NuggetError, match=text):
            Evaluator(Task(name="emt", **settings))
        assert run_task(Task(name="emt", **settings), gold13()).failure == "exception"
        with pytest.raises(NuggetError, match=text):
            Task.of(EngineConfig(name="emt", **settings)).check()
    Task.of(EngineConfig(name="gfn1-xtb", charge=1, spin=2, magmoms={"Au": 0.1})).check()
    with pytest.raises(NuggetError, match="no parameter 'charge'"):
        Evaluator(Task(name="ase.calculators.emt:EMT", charge=1))


def test_gfn2_is_a_name_of_its_own():
    calculator = make_calculator("gfn2-xtb")
    assert calculator.parameters["method"] == "GFN2-xTB"
    with pytest.raises(NuggetError, match="the name of the engine"):
        make_calculator("gfn1-xtb", method="GFN2-xTB")
    water = molecule("H2O")
    assert run_task(Task(name="gfn2-xtb"), water).energy == pytest.approx(-137.968, abs=1e-2)


MODULE = "from ase.calculators.emt import EMT\ndef make(charge=0):\n    return EMT()\n"


def test_modules_of_the_current_directory(tmp_path, monkeypatch):
    (tmp_path / "my_own_engine.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert not get_engine("my_own_engine:make").installed()
    with pytest.raises(NuggetError, match=f"no module 'my_own_engine' .* or in {Path.cwd()}"):
        make_calculator("my_own_engine:make")
    monkeypatch.chdir(tmp_path)
    assert get_engine("my_own_engine:make").installed()
    assert isinstance(make_calculator("my_own_engine:make"), EMT)
    assert sys.path[-1] == str(tmp_path)  # nothing there stands in for an installed module
    assert not (tmp_path / "__pycache__").exists()


def test_a_factory_must_return_a_calculator():
    outcome = run_task(Task(name="os:getcwd"), gold13())
    assert outcome.failure == "exception"
    assert "gave str, which is not an ASE calculator" in outcome.reason
