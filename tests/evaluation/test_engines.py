"""Engines: published and known energies, names, and helpful errors."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.cluster import Icosahedron
from ase.optimize import BFGS

from nugget.errors import NuggetError
from nugget.evaluation import engines as module
from nugget.evaluation.engines import (
    Boxed,
    Engine,
    describe_engines,
    get_engine,
    make_calculator,
)
from nugget.identity import degree_sequence


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
        get_engine("gfn-xtb")
    with pytest.raises(NuggetError, match="choose one of emt"):
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
    with pytest.raises(NuggetError, match="whole cell"):
        periodic.get_potential_energy()


def test_listing_engines_imports_none_of_them():
    code = (
        "import sys; from nugget.engines import describe_engines; describe_engines();"
        "sys.exit('tblite' in sys.modules or 'gpaw' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
