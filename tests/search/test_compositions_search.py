"""Searches over compositions: from the settings to the hull, stopped, resumed and replayed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ase.io import read
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.errors import NuggetError
from nugget.search import Search, make_config
from nugget.search.search_settings import write_config


def settings(**search: object) -> dict[str, object]:
    return {
        "system": {"kind": "crystal", "compositions": "Cu-Au", "max_atoms": 3},
        "engine": {"name": "emt"},
        "model": {"n_max": 3, "l_max": 2},
        "search": {
            "budget": 10, "candidates": 5, "relax_steps": 15, "initial": 4, "polish": 0, **search
        },
    }  # fmt: skip


class TestSettings:
    def test_written_and_read_again(self) -> None:
        import tomllib

        config = make_config(settings())
        assert config.system.formula == "CuAu"
        assert config.system.title == "Cu-Au"
        assert make_config(tomllib.loads(write_config(config))) == config

    @pytest.mark.parametrize(
        ("system", "words"),
        [
            ({"compositions": "Cu-Au", "kind": "crystal", "formula": "Cu3Au"}, "not both"),
            ({"compositions": "Cu-Au"}, "--crystal"),
            ({"compositions": "Cu-Au", "kind": "crystal", "units": 2}, "max_atoms"),
            ({"compositions": "Cu", "kind": "crystal"}, "two elements"),
        ],
    )
    def test_mistakes(self, system: dict[str, object], words: str) -> None:
        with pytest.raises(NuggetError, match=words):
            make_config({"system": system})


def test_resumed_and_replayed(tmp_path: Path) -> None:
    whole = Search.create(make_config(settings()), tmp_path / "whole")
    whole.run()
    records = whole.store.records()
    formulas = [record.atoms.symbols.formula.reduce()[0].format("hill") for record in records]
    assert formulas[:2] == ["Cu", "Au"]
    assert len(set(formulas)) > 3
    assert max(len(record.atoms) for record in records) <= 3
    assert Search.replay(tmp_path / "whole").same
    Search.create(make_config(settings()), tmp_path / "parts").run(budget=6)
    again = Search.resume(tmp_path / "parts")
    again.run(budget=10)
    for one, two in zip(records, again.store.records(), strict=True):
        np.testing.assert_array_equal(one.atoms.positions, two.atoms.positions)
        assert one.acquisition == two.acquisition


def test_several_in_flight(tmp_path: Path) -> None:
    search = Search.create(make_config(settings(in_flight=3)), tmp_path / "flight")
    search.run()
    proposed = sorted(search.store.records(), key=lambda record: record.proposal)
    first = [set(record.atoms.symbols) for record in proposed[:3]]
    assert {"Cu"} in first
    assert {"Au"} in first  # the second element is not waited for
    assert Search.replay(tmp_path / "flight").same


def test_from_the_command_line_to_the_hull(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["--max-atoms", "2", "--engine", "emt", "--budget", "9", "--set", "search.polish=1"]
    result = CliRunner().invoke(
        app,
        ["search", "--crystal", "--compositions", "Cu-Au", *options, "--set", "search.initial=4",
         "--set", "search.candidates=6", "--out", str(out), "--json"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["formula"] == "Cu-Au"
    assert [phase["formula"] for phase in report["phases"]][:1] == ["Cu"]
    table = json.loads((out / "hull.json").read_text())
    assert table["phases"] == report["phases"]
    assert (out / "hull.png").stat().st_size > 5000
    phases = {phase["formula"]: phase for phase in report["phases"]}
    for element in ("Cu", "Au"):
        assert phases[element]["formation"] == 0
        assert phases[element]["stable"]
        assert phases[element]["relaxed"]
    mixed = phases["CuAu"]
    assert mixed["above_hull"] == pytest.approx(max(mixed["formation"], 0.0), abs=1e-9)
    minima = read(out / "minima.extxyz", ":")
    assert {atoms.symbols.formula.reduce()[0].format("hill") for atoms in minima} >= {"Cu", "Au"}
    table_view = CliRunner().invoke(app, ["search", "--resume", str(out), "--no-live"])
    assert "Convex hull" in table_view.output
    assert "CuAu" in table_view.output


@pytest.mark.slow
def test_elements_with_other_total_energies(tmp_path: Path) -> None:
    """Oxygen lies 100 eV per atom below magnesium in GFN1-xTB: none of them is implausible."""
    made = settings(budget=6, polish=1)
    made["system"] = {"kind": "crystal", "compositions": "Mg-O", "max_atoms": 2}
    made["engine"] = {"name": "gfn1-xtb"}
    with pytest.raises(NuggetError, match="single k point"):
        Search.create(make_config(made), tmp_path / "run")
    made["engine"] = {"name": "gfn1-xtb", "options": {"supercell": 3.5}}
    search = Search.create(make_config(made), tmp_path / "run")
    search.run(budget=3)
    records = search.store.records()
    assert [record.failure for record in records if record.failure == "implausible"] == []
    elements = [record.energy / len(record.atoms) for record in records[:2]]
    assert elements[0] - elements[1] > 50
