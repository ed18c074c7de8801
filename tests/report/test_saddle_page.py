"""The page of a saddle search shows what is in its directory, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from ase.build import add_adsorbate, fcc100
from ase.constraints import FixAtoms
from page_spec import contents, spec_of, titled, values_of

from nugget.engines.engine_settings import EngineConfig
from nugget.onthefly.run_settings import SaddleConfig
from nugget.onthefly.saddle_run import SaddleRun
from nugget.report.directories import make_pages
from nugget.report.saddle_page import read_saddle, saddle_page, saddle_verdict
from nugget.report.verdict import Level


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "saddle"
    slab = fcc100("Al", size=(2, 2, 2))
    add_adsorbate(slab, "Au", 1.9, "hollow")
    slab.center(axis=2, vacuum=4.0)
    slab.set_constraint(FixAtoms(mask=[atom.tag > 0 for atom in slab]))
    slab.info = {}
    slab[-1].x += 0.19 * slab.cell[0, 0]
    config = SaddleConfig(engine=EngineConfig(name="emt"), connect=True)
    return directory, SaddleRun.create(slab, config, directory).run()


def test_the_page_shows_calls_mode_and_minima(run):
    directory, result = run
    before = contents(directory)
    spec = spec_of(saddle_page(directory))
    assert contents(directory) == before
    assert spec["badge"] == ["converged", "good"]
    assert len(values_of(spec, "calls", "number")) == result.calls
    assert values_of(spec, "calls", "phase").count("search") == result.search.calls
    saved = read_saddle(directory)
    assert np.allclose(saved.saddle.arrays["mode"], result.search.mode, atol=1e-6)
    gallery = titled(spec, "Saddle and minima")
    assert [item["title"] for item in gallery["items"]] == ["Minimum 1", "Saddle", "Minimum 2"]
    assert len(titled(spec, "The mode")["structures"]) == 16
    assert make_pages(directory, "page").numbers == {"kind": "saddle"}


def test_the_verdict_states_barriers_and_modes(run):
    directory, result = run
    verdict = saddle_verdict(read_saddle(directory))
    assert "exactly one negative mode" in verdict.text
    assert f"{result.barriers[0]:.3f}" in verdict.text
    assert verdict.badge("negative modes").value == "1"
    assert verdict.level is Level.GOOD


def test_an_unfinished_run_has_a_page(run, tmp_path):
    directory, _ = run
    for name in ("run.json", "calls.jsonl"):
        (tmp_path / name).write_bytes((directory / name).read_bytes())
    assert spec_of(saddle_page(tmp_path))["badge"] == ["no result yet", "plain"]
    assert saddle_verdict(read_saddle(tmp_path)).sentences == ("The search has no result yet.",)
