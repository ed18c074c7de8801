"""Searches for crystals: settings, resuming, replaying, polishing, and a find."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.filters import FrechetCellFilter
from ase.io import read, write
from ase.optimize import BFGS
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.errors import NuggetError
from nugget.report.terminal import PlainView, line_of_search
from nugget.search import Search, make_config
from nugget.search.record import energy_of
from nugget.search.search_settings import write_config
from nugget.structures.symmetry import space_group_of
from nugget.systems.crystal import CRYSTAL_GENERATORS
from nugget.systems.system_settings import DEFAULT_GENERATORS, make_goal


def settings(**search: object) -> dict[str, object]:
    """A search that takes seconds: one or two units of Cu3Au with EMT."""
    return {
        "system": {"formula": "Cu3Au", "kind": "crystal", "units": "1-2", "pressure": 2.0},
        "engine": {"name": "emt"},
        "model": {"n_max": 3, "l_max": 2},
        "search": {
            "budget": 9, "candidates": 4, "relax_steps": 20, "initial": 3, "polish": 0, **search
        },
    }  # fmt: skip


class TestSettings:
    def test_defaults_of_crystals(self) -> None:
        config = make_config({"system": {"formula": "Si", "kind": "crystal"}})
        assert config.search.generators == CRYSTAL_GENERATORS
        assert config.model.use_forces
        assert config.engine.stress
        assert config.system.units == (1, 4)
        other = make_config({"system": {"formula": "Si2"}})
        assert other.search.generators == DEFAULT_GENERATORS
        assert other.search.explore
        assert not other.engine.stress

    def test_what_is_given_stays(self) -> None:
        config = make_config(
            {
                "system": {"formula": "Si", "kind": "crystal", "units": 2},
                "model": {"use_forces": False, "cutoff": 6.0},
                "search": {"generators": {"random_crystal": 1.0}},
            }
        )
        assert config.system.units == (2, 2)
        assert not config.model.use_forces
        assert config.model.cutoff == 6.0
        assert config.search.generators == {"random_crystal": 1.0}

    def test_written_and_read_again(self) -> None:
        import tomllib

        config = make_config(settings())
        assert make_config(tomllib.loads(write_config(config))) == config

    @pytest.mark.parametrize("units", ["4-1", "0", "many", [0, 2]])
    def test_bad_units(self, units: object) -> None:
        with pytest.raises(NuggetError, match="units"):
            make_config({"system": {"formula": "Si", "kind": "crystal", "units": units}})


def run(directory: Path, **search: object) -> Search:
    made = Search.create(make_config(settings(**search)), directory)
    made.run()
    return made


def assert_same(a: Search, b: Search) -> None:
    for one, two in zip(a.store.records(), b.store.records(), strict=True):
        np.testing.assert_array_equal(one.atoms.positions, two.atoms.positions)
        np.testing.assert_array_equal(one.atoms.cell.array, two.atoms.cell.array)
        assert one.predicted == two.predicted


def test_resumed_replayed_and_polished(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", polish=1)
    records = whole.store.records()
    assert len(records) == 9
    assert all("stress" in record.atoms.calc.results for record in records if record.ok)
    assert {len(record.atoms) for record in records} == {4, 8}
    assert Search.replay(tmp_path / "whole").same

    first = Search.create(make_config(settings(polish=1)), tmp_path / "parts")
    first.run(budget=5)
    again = Search.resume(tmp_path / "parts")
    again.run(budget=9)
    assert_same(whole, again)

    [minimum] = read(tmp_path / "whole" / "minima.extxyz", ":")
    assert minimum.info["space_group"] == space_group_of(minimum)
    assert minimum.info["converged"]
    cif = read(tmp_path / "whole" / "minima.cif")
    assert len(cif) % 4 == 0
    stress = minimum.get_stress()  # balances the pressure of 2 GPa
    np.testing.assert_allclose(stress[:3] / 0.00624, -2.0, atol=0.6)


def test_several_in_flight(tmp_path: Path) -> None:
    search = run(tmp_path / "flight", in_flight=2)
    assert len(search.store.records()) == 9
    assert Search.replay(tmp_path / "flight").same


def test_found_in_any_cell(tmp_path: Path) -> None:
    """The reference is a supercell; the search has one cell with up to four atoms."""
    reference = bulk("Cu", "fcc", a=3.6).repeat((2, 1, 1))
    relaxed, start = tmp_path / "relaxed.extxyz", tmp_path / "start.extxyz"
    write(start, reference)
    runner = CliRunner()
    options = ["--engine", "emt", "-o", str(relaxed), "--cell", "--fmax", "0.01"]
    assert runner.invoke(app, ["relax", str(start), *options]).exit_code == 0
    given = read(relaxed)
    assert isinstance(given, Atoms)
    assert abs(given.get_stress()).max() < 1e-3
    out = tmp_path / "search"
    result = runner.invoke(
        app,
        ["search", "Cu", "--crystal", "--units", "1-4", "--engine", "emt", "--budget", "25",
         "--reference", str(relaxed), "--out", str(out), "--json", "--set", "search.candidates=6"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["found"]
    assert report["unit"] == "eV/atom"
    assert "Fm-3m (225)" in [one["space_group"] for one in report["minima"]]


def test_start_and_learn(tmp_path: Path) -> None:
    """The first search's evaluations are known to the second, which begins with a given crystal."""
    first = run(tmp_path / "first", budget=6)
    energies = [r.energy / len(r.atoms) for r in first.store.records()]
    # In another cell and order of atoms: eight atoms that are two of the same units.
    given = bulk("Au", "fcc", a=3.8, cubic=True)
    given.numbers = [79, 29, 29, 29]
    write(tmp_path / "start.extxyz", [given.repeat((1, 1, 2)), given])
    more = {"learn": str(tmp_path / "first"), "start": str(tmp_path / "start.extxyz")}
    second = run(tmp_path / "second", budget=4, seed=5, **more)
    records = second.store.records()
    assert records[0].generator == "start"
    assert records[0].atoms.get_chemical_symbols() == ["Cu"] * 6 + ["Au"] * 2
    assert records[1].generator != "start"  # the second is the same crystal
    assert records[1].predicted is not None  # the model is there from the beginning
    known = second.knowledge().learned
    assert sorted(r.energy / len(r.atoms) for r in known) == pytest.approx(sorted(energies))
    assert all("stress" in record.atoms.calc.results for record in known)
    assert Search.replay(tmp_path / "second").same


def test_start_of_another_crystal_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "start.extxyz", bulk("Cu"))
    with pytest.raises(NuggetError, match="composition and the number of atoms"):
        run(tmp_path / "run", start=str(tmp_path / "start.extxyz"))
    # A conventional cell with too many atoms is made smaller.
    config = settings(start=str(tmp_path / "large.extxyz"), budget=1)
    config["system"] = {"formula": "Cu", "kind": "crystal", "units": "1-2"}
    write(tmp_path / "large.extxyz", bulk("Cu", cubic=True))
    search = Search.create(make_config(config), tmp_path / "small")
    search.run()
    assert len(search.store.records()[0].atoms) == 1


@pytest.mark.slow
def test_a_campaign_of_crystals(tmp_path: Path) -> None:
    reference = bulk("Cu", "fcc", a=3.6)
    reference.calc = EMT()
    BFGS(FrechetCellFilter(reference), logfile=None).run(fmax=0.01)
    write(tmp_path / "fcc.extxyz", reference)
    out = tmp_path / "campaign"
    result = CliRunner().invoke(
        app,
        ["campaign", "Cu", "--set", "system.kind=crystal", "--set", "system.units=1-2",
         "--engine", "emt", "--budget", "12", "--set", "search.candidates=5", "--repeats", "2",
         "--reference", str(tmp_path / "fcc.extxyz"), "--out", str(out), "--json", "-j", "1"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["unit"] == "eV/atom"
    [cell] = report["cells"]
    assert cell["found"] == 2
    assert cell["best_energy"] == pytest.approx(reference.get_potential_energy(), abs=0.02)


def test_lines_show_values_per_atom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = Search.create(make_config(settings(budget=5, polish=1)), tmp_path / "run")
    with PlainView("title", line_of_search) as view:
        search.run(view.watch)
    shown = capsys.readouterr().out.splitlines()
    steps = [line.split("  ")[2:] for line in shown if line.startswith("polish")]
    goal = make_goal(search.config.system)
    polished = search.store.polish_steps()
    relaxed = [f"{goal.value(s.atoms, energy_of(s.atoms)):.4f} eV/atom" for s in polished]
    assert [step[-2].strip() for step in steps] == relaxed
    assert relaxed
    lines = [line for line in shown if "/5" in line]
    values = [float(line.split("*")[-1].split()[0 if "*" in line else 1]) for line in lines]
    expected = [goal.value(r.atoms, r.energy) for r in search.store.records()]
    np.testing.assert_allclose(values, expected, atol=1e-4)
    assert "eV/atom  best" in lines[0]
    best = [float(line.split("best")[1].split()[0]) for line in lines]
    np.testing.assert_allclose(best, np.minimum.accumulate(expected), atol=1e-4)


def test_pressure_needs_cells(tmp_path: Path) -> None:
    write(tmp_path / "a.extxyz", bulk("Cu"))
    options = ["--engine", "emt", "-o", str(tmp_path / "b.extxyz"), "--pressure", "3"]
    result = CliRunner().invoke(app, ["relax", str(tmp_path / "a.extxyz"), *options])
    assert result.exit_code != 0
