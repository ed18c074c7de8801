"""The convex hull on the page of a search over compositions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from page_spec import contents, parts_of, spec_of, titled, values_of

from nugget.errors import NuggetError
from nugget.report.digest import fixed
from nugget.report.directories import make_pages
from nugget.report.figures import hull_figure
from nugget.report.hull_sections import hull_parts, read_phases
from nugget.report.page import Structures
from nugget.report.watch import Feed
from nugget.search.polish import HULL, make_phases, write_phases
from nugget.search.record import End, Record
from nugget.search.search_settings import make_config
from nugget.search.store import Store
from nugget.systems.system_settings import make_goal


def crystals():
    """Copper, gold, ordered alloys, and one of them once more, but strained."""
    made = []
    for name, gold in (("Cu", 0), ("Au", 4), ("Cu3Au", 1), ("CuAu", 2), ("strained", 1)):
        atoms = bulk("Cu", cubic=True)
        atoms.numbers[:gold] = 79
        scale = {0: 3.61, 1: 3.74, 2: 3.87, 4: 4.08}[gold] / atoms.cell[0, 0]
        atoms.set_cell(atoms.cell * scale * (1.03 if name == "strained" else 1), scale_atoms=True)
        atoms.calc = EMT()
        results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **results, stress=atoms.get_stress())
        made.append(atoms)
    return made


@pytest.fixture
def run(tmp_path):
    system = {"kind": "crystal", "compositions": "Cu-Au"}
    config = make_config({"system": system, "engine": {"name": "emt"}, "search": {"budget": 5}})
    store = Store.create(tmp_path / "run", config)
    records = [Record(k, atoms, "space_group") for k, atoms in enumerate(crystals())]
    goal = make_goal(config.system)
    for record in records:
        store.append(record)
        goal = goal.informed(record.atoms, record.energy)
    write_phases(store.directory, make_phases(goal, records, []), 0.0)
    store.keep_end(End("finished", "", 5, 5))
    return store.directory


def test_the_hull_on_a_page(run):
    before = contents(run)
    spec = spec_of(make_pages(run, "report").html)
    assert contents(run) == before
    phases = json.loads((run / HULL).read_text())["phases"]
    assert values_of(spec, "phases", "formula") == [phase["formula"] for phase in phases]
    formation = [1e3 * phase["formation"] for phase in phases]
    assert np.allclose(values_of(spec, "phases", "formation"), formation, atol=0.01)
    hull = titled(spec, "Convex hull")["layers"][0]
    stable = sorted(p["composition"]["Au"] for p in phases if p["stable"])
    assert hull["x"] == stable
    assert {0.0, 1.0} <= set(hull["x"])
    order = [row[2] for row in titled(spec, "Phases")["rows"]]
    assert order == sorted(order)
    starts = [phase["start"] for phase in phases]
    assert set(starts) == {0, 1, 2, 3}  # the strained one is the lowest of nothing
    for phase, number in zip(phases, spec["data"]["phases"]["structures"], strict=True):
        assert spec["structures"]["frames"][number]["label"] == phase["formula"]


def test_values_are_above_the_final_hull(run):
    spec = spec_of(make_pages(run, "report").html)
    values = values_of(spec, "evaluations", "value")
    phases = {p["start"]: p["above_hull"] for p in json.loads((run / HULL).read_text())["phases"]}
    for start, above in phases.items():
        assert values[start] == pytest.approx(above, abs=1e-4)
    assert values[4] > values[2]


def test_the_first_numbers_speak_of_the_hull(run):
    """The lowest energy above the hull is 0 in every search: it tells nothing."""
    html = make_pages(run, "report").html
    phases = json.loads((run / HULL).read_text())["phases"]
    stable = [phase for phase in phases if phase["stable"]]
    said = " ".join(parts_of(spec_of(html))[0]["sentences"])
    assert all(phase["formula"] in said for phase in stable)
    lowest = min(stable, key=lambda phase: phase["formation"])
    if lowest["formation"] < 0:
        value = fixed(1e3 * lowest["formation"], 1)
        assert f"{lowest['formula']} has the lowest formation enthalpy, {value} meV/atom" in said
    else:
        assert "No compound is stable against the elements." in said
    assert "lowest energy" not in html
    assert titled(spec_of(html), "The search")["y"]["label"].startswith("above the hull")
    watched = spec_of(Feed(run).html())
    assert [row[0] for row in titled(watched, "On the convex hull so far")["rows"]] == [
        phase["formula"] for phase in stable
    ]


def test_no_hull_before_all_elements_are_known(tmp_path):
    config = make_config({"system": {"kind": "crystal", "compositions": "Cu-Au"}})
    store = Store.create(tmp_path / "run", config)
    store.append(Record(0, crystals()[0], "space_group"))
    spec = spec_of(Feed(store.directory).html())
    assert "There is no hull yet; Au has no energy." in parts_of(spec)[0]["sentences"]
    assert titled(spec, "On the convex hull so far")["rows"] == []


def three_elements():
    shares = ([1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0])
    return [
        {
            "formula": f"phase {k}", "composition": dict(zip(("Cu", "Au", "Ag"), s, strict=True)),
            "atoms": 4, "enthalpy": 0.0, "formation": -0.1 * (k == 3), "above_hull": 0.0,
            "stable": True, "space_group": "<b>P1</b>", "start": -1, "relaxed": False,
        }
        for k, s in enumerate(shares)
    ]  # fmt: skip


def test_three_elements_and_crystals_known_before(tmp_path):
    (tmp_path / HULL).write_text(json.dumps({"phases": three_elements()}))
    goal = make_goal(make_config({"system": {"kind": "crystal", "compositions": "Cu-Au"}}).system)
    [data], [triangle, table, gallery] = hull_parts(tmp_path, [], [], Structures(), goal)
    assert triangle["square"]
    assert data.structures == [None] * 4
    columns = data.columns
    places = np.array([columns["x"].values, columns["y"].values]).T
    assert np.allclose(places[3], (places[0] + places[1]) / 2)
    assert table["rows"][0][3] == "<b>P1</b>"
    assert gallery["items"] == []
    assert hull_parts(tmp_path, [], [], Structures(), goal, live=True) == ([], [])


@pytest.mark.parametrize("dark", [False, True])
def test_the_figure_has_the_style(run, dark):
    for phases in (json.loads((run / HULL).read_text())["phases"], three_elements()):
        figure = hull_figure(phases, "title", dark)
        assert figure.get_figwidth() < 7


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"phases": []}', '{"phases": [{"formula": 1}]}'])
def test_damaged_hulls(tmp_path, text):
    (tmp_path / HULL).write_text(text)
    with pytest.raises(NuggetError, match="is damaged"):
        read_phases(tmp_path / HULL)


def test_other_searches_have_none(tmp_path):
    config = make_config({"system": {"formula": "Au3"}, "engine": {"name": "emt"}})
    Store.create(tmp_path / "run", config)
    spec = spec_of(make_pages(tmp_path / "run", "report").html)
    assert all(part.get("title") != "Convex hull" for part in parts_of(spec))
