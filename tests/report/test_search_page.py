"""What the page of a search holds, taken from its directory."""

from __future__ import annotations

import json
import os
import shlex
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from page_spec import titled, values_of
from report_runs import HOSTILE, a_record, make_run, relaxed
from typer.testing import CliRunner

from nugget import SOAP
from nugget.cli.main import app
from nugget.cli.search import read_settings
from nugget.errors import NuggetError
from nugget.potential.potential import Potential
from nugget.report.minima import AtomModel, Lowest, symmetry
from nugget.report.search_page import SearchPage, command
from nugget.report.search_sections import StructureMap
from nugget.search.record import End, PolishStep, Record
from nugget.search.search_settings import make_config
from nugget.search.store import DATABASE, Reader, Store
from nugget.structures.identity import graph_key
from nugget.systems.system_settings import make_goal


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "gold & <co>"
    store = make_run(directory)
    store.keep_end(End("finished", "the budget is used up", 12, 12))
    return directory


@pytest.fixture(scope="module")
def made(run: Path) -> SearchPage:
    page = SearchPage(run)
    assert page.read()
    return page


def test_columns_are_the_records(run, made):
    records = Store(run).records()
    found = made.data().columns
    assert list(found["number"].values) == list(range(1, 13))
    for k, record in enumerate(records):
        assert found["value"].values[k] == (record.energy if record.ok else None)
        assert found["generator"].values[k] == record.generator.replace("_", " ")
        if record.ok and record.predicted is not None:
            z = (record.energy - record.predicted) / (record.scale * record.std)
            assert found["z"].values[k] == pytest.approx(z)
            largest = np.linalg.norm(record.atoms.get_forces(), axis=1).max()
            assert found["fmax"].values[k] == pytest.approx(largest)
        else:
            assert found["z"].values[k] is None
    frame = made.structures.frames[made.data().structures[5]]
    r = np.frombuffer(b64decode(frame["r"]), "<i4").reshape(-1, 3) * 1e-4
    assert np.abs(r - records[5].atoms.positions).max() < 1e-4


def test_lowest_structures_differ_and_the_relaxed_one_is_first(made):
    gallery = next(part for part in made.sections() if part["kind"] == "gallery")
    first = gallery["items"][0]
    assert first["title"] == "1. evaluation 1"
    assert dict(first["facts"])["point group"] == "Oh"
    gaps = [float(dict(item["facts"])["gap"].split()[0]) for item in gallery["items"][1:]]
    assert gaps == sorted(gaps)
    assert gaps[0] > 0
    values = made.structures.frames[first["structure"]]["values"]
    assert set(values) == {"force", "energy", "std"}


def test_energies_of_atoms_add_up(made):
    """Against the mean of the element, atoms of all evaluations have the mean zero."""
    rows = [made.evaluations.rows[k] for k, record in enumerate(made.records) if record.ok]
    frames = [made.structures.frames[row]["values"] for row in rows]
    energies = [np.frombuffer(b64decode(values["energy"]), "<f4") for values in frames]
    assert abs(np.concatenate(energies).mean()) < 1e-4
    assert all((np.frombuffer(b64decode(v["std"]), "<f4") > 0).all() for v in frames)
    total = np.array([e.sum() for e in energies])
    true = np.array([record.energy for record in made.records if record.ok])
    assert np.corrcoef(total, true)[0, 1] > 0.9


def test_failures_keep_their_reasons_as_text(made):
    table = next(p for p in made.sections() if p["kind"] == "table" and p["title"] == "Failures")
    assert [row[0] for row in table["rows"]] == [4, 11, "relaxing 2"]
    assert table["rows"][0][3] == f"it died: {HOSTILE}"
    html = made.html()
    assert html.count("<script") == 2
    assert "<img" not in html


def test_nothing_is_written(run):
    before = {file.name: file.stat().st_mtime_ns for file in run.iterdir()}
    page = SearchPage(run)
    page.read()
    page.html()
    assert {file.name: file.stat().st_mtime_ns for file in run.iterdir()} == before


def test_only_what_is_new_is_read(tmp_path):
    store = make_run(tmp_path / "run", 4, polish=False)
    reader = Reader(tmp_path / "run")
    assert [len(part) for part in reader.news()] == [4, 0]
    assert [len(part) for part in reader.news()] == [0, 0]
    store.append(a_record(4, np.random.default_rng(1)))
    records, steps = reader.news()
    assert ([record.iteration for record in records], steps) == ([4], [])
    assert not reader.replaced()
    os.rename(tmp_path / "run" / DATABASE, tmp_path / "away")
    assert reader.replaced()


def test_what_a_search_is_doing(tmp_path):
    store = make_run(tmp_path / "run", 2)
    reader = Reader(tmp_path / "run")
    assert reader.state().doing == "stopped"  # killed before it noted its end
    with store.locked():
        assert reader.state().doing == "running"
        store.keep_pending([Record(-1, a_record(0, np.random.default_rng(0)).atoms, "melt")] * 3)
        assert reader.state().in_flight == 3
    store.keep_end(End("found", "the reference was found", 2, 9))
    assert (reader.state().doing, reader.state().budget) == ("found", 9)
    with pytest.raises(NuggetError, match="holds no search"):
        Reader(tmp_path)


def test_a_search_before_its_first_evaluation(tmp_path):
    make_run(tmp_path / "run", 0, polish=False)
    page = SearchPage(tmp_path / "run")
    page.read()
    assert "No evaluation has succeeded yet." in page.html()
    (tmp_path / "run" / DATABASE).unlink()
    page = SearchPage(tmp_path / "run")
    page.read()
    page.html()


SETTINGS = [
    {"system": {"formula": "Au20"}},
    {"system": {"formula": "Cu5Au8"}, "engine": {"name": "emt", "options": {"asap_cutoff": True}}},
    {"system": {"formula": "SiC", "kind": "crystal", "units": "2-3", "pressure": 5.0}},
    {
        "system": {"formula": "Au2", "kind": "bulk", "cell": [4.0, 4.1, 4.2]},
        "search": {"generators": {"rattle": 2.0, "random_placement": 1.0}, "stop_when": 0.9},
        "model": {"use_forces": False, "kernel_options": {"amplitude": 3.0}},
    },
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: s["system"]["formula"])
def test_the_command_makes_the_same_settings(settings, tmp_path, monkeypatch):
    config = make_config(settings)
    words = shlex.split(shlex.join(command(config, tmp_path)))
    seen = {}
    monkeypatch.setattr(
        "nugget.search.search.Search.create", lambda *args, **_: seen.update(args=args) or 1 / 0
    )
    CliRunner().invoke(app, words[1:])
    assert seen["args"][0] == config
    assert read_settings("Au20", {})[0].system.formula == "Au20"


def test_map_is_principal_components():
    rng = np.random.default_rng(0)
    images = [a_record(k, rng).atoms for k in range(8)]
    soap = SOAP(["Au"])
    chart = StructureMap(soap)
    chart.add(images[:2])
    assert chart.coordinates() == ([None, None], [None, None])
    chart.add(images[2:7])
    broken = images[7].copy()
    broken.positions[0] = np.nan
    chart.add([broken])
    places = chart.coordinates()
    assert places[0][7] is None
    x = np.array([soap.compute([atoms]).values.mean(axis=0) for atoms in images[:7]])
    x -= x.mean(axis=0)
    s = np.linalg.svd(x)[1]
    found = np.array([column[:7] for column in places])
    assert np.allclose(np.linalg.norm(found, axis=1), s[:2], rtol=1e-6)
    again = StructureMap(soap)  # all at once: the same map
    again.add([*images[:7], broken])
    assert np.allclose([c[:7] for c in again.coordinates()], found)


def test_symmetry_of_crystals_and_slabs():
    assert symmetry(bulk("Cu")) == ("space group", "Fm-3m (225)")
    slab = bulk("Cu", cubic=True)
    slab.pbc = (True, True, False)
    assert symmetry(slab) == ("", "")
    assert symmetry(bulk("Cu", cubic=True) * (4, 4, 4)) == ("", "")  # too many atoms


def test_forces_on_fixed_atoms_do_not_count(tmp_path):
    """On a slab only free atoms decide about fmax and convergence."""
    config = make_config({"system": {"formula": "Au6"}, "engine": {"name": "emt"}})
    store = Store.create(tmp_path / "run", config)
    atoms = relaxed()
    atoms.calc.results["forces"][0] = [0.0, 0.0, 0.5]
    atoms.set_constraint(FixAtoms([0]))
    free = np.linalg.norm(atoms.calc.results["forces"][1:], axis=1).max()
    store.append(Record(0, atoms, "rattle"))
    store.append_polish(PolishStep(0, 1, atoms))
    page = SearchPage(tmp_path / "run")
    page.read()
    assert page.data().columns["fmax"].values == [pytest.approx(free)]
    gallery = next(part for part in page.sections() if part["kind"] == "gallery")
    facts = dict(gallery["items"][0]["facts"])
    assert facts["fmax"] == f"{free:.3f} eV/Å"
    assert "converged" not in facts
    frame = page.structures.frames[gallery["items"][0]["structure"]]
    assert np.frombuffer(b64decode(frame["values"]["force"]), "<f4")[0] == 0.0


def test_the_model_of_a_page_is_that_of_the_search(tmp_path, monkeypatch):
    """It is fitted by the function that the search uses, to the stress of crystals as well."""
    settings = {"system": {"formula": "Cu", "kind": "crystal", "units": "1"}}
    config = make_config({**settings, "engine": {"name": "emt"}, "search": {"initial": 3}})
    store = Store.create(tmp_path / "run", config)
    for k, a in enumerate((3.5, 3.6, 3.7)):
        atoms = bulk("Cu", a=a)
        atoms.calc = EMT()
        results = {name: atoms.calc.get_property(name, atoms) for name in STRESSED}
        atoms.calc = SinglePointCalculator(atoms, **results)
        store.append(Record(k, atoms, "random_crystal"))
    seen = []
    fit = Potential.fit

    def spy(self, images, forces=None, stress=None, **more):
        seen.append((forces, stress))
        return fit(self, images, forces, stress, **more)

    monkeypatch.setattr(Potential, "fit", spy)
    assert AtomModel.of(config, tmp_path / "run", Store(tmp_path / "run").records()) is not None
    assert seen == [(None, True)]


STRESSED = ("energy", "forces", "stress")


def lowest_of(records, steps, count=8):
    goal = make_goal(make_config({"system": {"formula": "Au6"}}).system)
    low = Lowest(goal, count)
    for record in records:  # one by one, as a search gives them
        low.add([record])
    return low.chosen(records, steps)


def test_a_relaxation_that_ends_where_it_began():
    records = [Record(0, relaxed(), "rattle")]
    worse = PolishStep(0, 1, a_record(0, np.random.default_rng(0)).atoms)
    assert lowest_of(records, [worse])[0].value == records[0].energy


@pytest.mark.parametrize("count", [2, 5])
def test_lowest_structures_are_those_of_all(count):
    """However they came: the lowest of each kind of bonds, the lowest kinds first."""
    rng = np.random.default_rng(1)
    records = [a_record(k, rng) for k in range(60)]
    kinds: dict[str, float] = {}
    for record in records:
        if record.ok:
            key = graph_key(record.atoms)
            kinds[key] = min(kinds.get(key, np.inf), record.energy)
    found = lowest_of(records, [], count)
    assert [one.value for one in found] == sorted(kinds.values())[:count]
    # What was relaxed takes the place of its start.
    first = found[0].start
    step = PolishStep(first, 1, relaxed())
    after = lowest_of(records, [step], count)
    assert (after[0].start, after[0].polished) == (first, True)
    assert all(one.start != first for one in after[1:])


def test_command_line(run, tmp_path):
    target = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["report", str(run), "-o", str(target), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["bytes"] == target.stat().st_size
    again = CliRunner().invoke(app, ["report", str(run), "-o", str(target)])
    assert again.exit_code == 2
    assert "--force" in again.output
    wrong = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert wrong.exit_code == 2
    assert "holds neither a search" in " ".join(wrong.output.split())


def test_tests_for_saddle_points_are_no_part_of_a_relaxation(tmp_path):
    """After the lowest step atoms are displaced; neither film nor line show that."""
    store, rng = make_run(tmp_path / "run"), np.random.default_rng(1)
    for step in (2, 3):
        moved = relaxed()
        moved.positions += rng.normal(0, 0.1, moved.positions.shape)
        moved.calc = EMT()
        energy, forces = moved.get_potential_energy(), moved.get_forces()
        moved.calc = SinglePointCalculator(moved, energy=energy, forces=forces)
        store.append_polish(PolishStep(0, step, moved))
    page = SearchPage(tmp_path / "run")
    page.read()
    spec = page.spec()
    assert values_of(spec, "relaxation", "step") == [0, 1, 2, 3]
    assert values_of(spec, "relaxation", "part") == 2 * ["relaxation"] + 2 * ["test for a saddle"]
    shown = spec["data"]["relaxation"]["structures"]
    assert titled(spec, "Final relaxations")["structures"] == shown[:2]
    curve, points = titled(spec, "Convergence of the relaxations")["layers"]
    assert points["kind"] == "points"
    fmax = values_of(spec, "relaxation", "fmax")
    assert curve["y"] == pytest.approx(fmax[:2], abs=1e-4)
    assert min(fmax[2:]) > fmax[1]
