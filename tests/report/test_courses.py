"""Searches set against each other: energies, how soon, the same structure or not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from page_spec import contents, spec_of, titled, values_of
from report_runs import HOSTILE, labelled, make_run, relaxed
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.errors import NuggetError
from nugget.report.searches_page import compare_page, compared, read_course, short_names
from nugget.search.record import Record
from nugget.search.search_settings import make_config
from nugget.search.store import Store

ODD = "b <img src=x>"


def a_search(directory, energies, seed, **settings):
    """A search whose evaluations have these energies; None: failed. The last is the octahedron."""
    config = make_config(
        {
            "system": {"formula": "Au6"},
            "engine": {"name": "emt", **settings.pop("engine", {})},
            "search": {"budget": 20, "seed": seed, **settings},
        }
    )
    store = Store.create(directory, config)
    rng = np.random.default_rng(seed)
    for k, energy in enumerate(energies):
        atoms = relaxed() if k == len(energies) - 1 else labelled(rng)
        if energy is None:
            atoms.calc = None
            store.append(Record(k, atoms, "rattle", "exception", HOSTILE))
            continue
        atoms.calc.results["energy"] = energy
        store.append(Record(k, atoms, "rattle", engine_seconds=1.0, surrogate_seconds=0.5))
    return directory


@pytest.fixture
def runs(tmp_path):
    return [
        a_search(tmp_path / "a", [5.0, 4.0, None, 1.0], 1),
        a_search(tmp_path / ODD, [3.0, 1.02, 1.01], 2, kappa=4.0),
    ]


def test_a_course(runs):
    course = read_course(runs[0])
    assert course.best_so_far.tolist() == [5.0, 4.0, 4.0, 1.0]
    assert (course.evaluations, course.failures, course.to_best) == (4, 1, 4)
    assert course.to_reach(4.5) == 2
    assert course.to_reach(0.5) is None
    assert course.engine_seconds == 3.0


def test_comparison(runs):
    before = {path: contents(path) for path in runs}
    found = compared(runs)
    a, b = found.rows()
    assert (a["best"], a["above_lowest"], a["evaluations_to_best"]) == (1.0, 0.0, 4)
    assert b["above_lowest"] == pytest.approx(0.01)
    assert (a["evaluations_to_lowest"], b["evaluations_to_lowest"]) == (4, 2)
    assert a["structure"] == b["structure"] == "A"  # both end in the octahedron
    assert found.differing == {"search.kappa": ["2.0", "4.0"], "search.seed": ["1", "2"]}
    assert found.comparable
    spec = spec_of(compare_page(found))
    assert {path: contents(path) for path in runs} == before
    curves = titled(spec, "Best so far")["layers"]
    assert curves[0]["y"] == [4.0, 3.0, 3.0, 0.0]
    assert curves[1]["name"] == ODD
    assert values_of(spec, "searches", "to_best") == [4, 3]
    assert len(titled(spec, "Structures")["items"]) == 1


def test_structures_that_differ(runs, tmp_path):
    other = a_search(tmp_path / "other", [2.0, None], 3)  # a distorted one is the lowest
    far = a_search(tmp_path / "far", [1.5], 4)  # the octahedron, but too high to be the same
    found = compared([*runs, other, far])
    assert found.rows()[2]["structure"] != "A"
    assert found.rows()[3]["structure"] != "A"
    assert found.rows()[2]["evaluations_to_lowest"] is None


def test_other_engines_and_searches_without_results(runs, tmp_path):
    empty = a_search(tmp_path / "empty", [], 5)
    loud = a_search(tmp_path / "loud", [1.0], 6, engine={"options": {"asap_cutoff": True}})
    found = compared([runs[0], empty, loud])
    assert not found.comparable
    assert found.rows()[1]["best"] is None
    assert found.rows()[0]["evaluations_to_lowest"] is None
    spec = spec_of(compare_page(found))
    assert "cannot be compared" in spec["sections"][0]["paragraphs"][0]


def test_names_are_as_short_as_they_can_be(tmp_path):
    assert short_names([tmp_path / "x" / "a", tmp_path / "y" / "a"]) == ["x/a", "y/a"]
    assert short_names([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]


def test_command(runs, tmp_path):
    words = ["compare", *map(str, runs)]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0
    assert "search.kappa" in shown.output
    page = tmp_path / "page.html"
    told = CliRunner().invoke(app, [*words, "--html", str(page), "--json"])
    assert json.loads(told.output)["searches"][1]["evaluations_to_lowest"] == 2
    assert titled(spec_of(page.read_text()), "Settings that differ")["rows"][0][1:] == [
        "2.0",
        "4.0",
    ]
    assert CliRunner().invoke(app, [*words, "--html", str(page)]).exit_code != 0
    for bad in ([runs[0]], [runs[0], runs[0]], [runs[0], tmp_path]):
        with pytest.raises(NuggetError, match=r"two searches|twice|holds no search"):
            compared(bad)


def test_polished_structures_count(tmp_path):
    make_run(tmp_path / "run")
    course = read_course(tmp_path / "run")
    assert course.best.polished
    assert course.best.value < np.nanmin(course.values)
    assert course.to_reach(course.best.value) == course.evaluations
