"""Searches for crystals: settings, resuming, replaying, polishing, and a find."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.io import read, write
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.errors import NuggetError
from nugget.search import Search, make_config
from nugget.search.config import write_config
from nugget.search.system import CRYSTAL_GENERATORS, DEFAULT_GENERATORS
from nugget.structures.symmetry import space_group_of


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


def test_pressure_needs_cells(tmp_path: Path) -> None:
    write(tmp_path / "a.extxyz", bulk("Cu"))
    options = ["--engine", "emt", "-o", str(tmp_path / "b.extxyz"), "--pressure", "3"]
    result = CliRunner().invoke(app, ["relax", str(tmp_path / "a.extxyz"), *options])
    assert result.exit_code != 0
