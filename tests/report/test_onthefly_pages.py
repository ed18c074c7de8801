"""Pages of dynamics and of reaction paths show what is in their directories, and change nothing."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from ase.build import add_adsorbate, bulk, fcc100
from ase.constraints import FixAtoms
from page_spec import contents, per_atom, spec_of, titled, values_of

from nugget.engines.engine_settings import EngineConfig
from nugget.onthefly.molecular_dynamics import MDRun
from nugget.onthefly.reaction_path import NEBRun
from nugget.onthefly.run_settings import MDConfig, NEBConfig
from nugget.report.md_page import md_page
from nugget.report.onthefly_runs import read_dynamics, read_path
from nugget.report.path_page import path_page
from nugget.structures.io import read_images


@pytest.fixture(scope="module")
def dynamics(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "md"
    config = MDConfig(
        engine=EngineConfig(name="emt"), steps=40, temperature=400.0, every=4, checkpoint=20,
        audit=8, preset="quick", seed=3, displaced=4,
    )  # fmt: skip
    MDRun.create(bulk("Cu", cubic=True), config, directory).run()
    return directory


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "neb"
    start = fcc100("Al", size=(2, 2, 3))
    add_adsorbate(start, "Au", 1.7, "hollow")
    start.center(axis=2, vacuum=4.0)
    start.set_constraint(FixAtoms(mask=[atom.tag > 1 for atom in start]))
    end = start.copy()
    end[-1].x += end.cell[0, 0] / 2
    config = NEBConfig(engine=EngineConfig(name="emt"), images=5, max_calls=15)
    result = NEBRun.create(start, end, config, directory).run()
    return directory, result


def test_dynamics(dynamics):
    before = contents(dynamics)
    spec = spec_of(md_page(dynamics))
    assert contents(dynamics) == before
    run = read_dynamics(dynamics)
    assert spec["badge"] == ["finished", "good"]
    assert values_of(spec, "frames", "step") == list(range(4, 44, 4))
    frames = read_images(dynamics / "md.extxyz")
    energies = [atoms.get_potential_energy() for atoms in frames]
    assert np.allclose(values_of(spec, "frames", "potential"), energies, atol=1e-4)
    film = titled(spec, "Trajectory")["structures"]
    assert spec["data"]["frames"]["structures"] == film
    std = np.linalg.norm(frames[3].arrays["forces_uncertainty"], axis=1)
    assert np.allclose(per_atom(spec, film[3], "force σ"), std, atol=1e-6)
    saved = json.loads((dynamics / "checkpoint.json").read_text())["calls"]
    assert values_of(spec, "calls", "number") == list(range(1, len(saved) + 1))
    assert values_of(spec, "calls", "reason") == [call["reason"] for call in saved]
    assert "audit" in values_of(spec, "calls", "reason")
    assert len(run.outcomes) == len(saved)
    verdict = spec["sections"][0]
    assert f"took {len(saved)} engine calls" in verdict["sentences"][0]
    audits = [call["within"] for call in saved if call["reason"] == "audit"]
    badges = {badge["label"]: badge["value"] for badge in verdict["badges"]}
    assert badges["audits within 2σ"] == f"{np.mean(audits):.0%}"
    levels = [one for one in titled(spec, "Largest σ of a force")["layers"] if "y" in one]
    assert {"kind": "level", "y": 0.1, "name": "threshold"} in levels


def test_dynamics_that_were_cut_off(dynamics, tmp_path):
    directory = tmp_path / "md"
    shutil.copytree(dynamics, directory)
    for name in ("md.log", "md.extxyz", "calls.jsonl"):
        content = (directory / name).read_bytes()
        (directory / name).write_bytes(content[: len(content) - 9])
    before = contents(directory)
    spec = spec_of(md_page(directory))
    assert contents(directory) == before  # nothing is repaired by looking
    assert len(values_of(spec, "frames", "step")) == 9
    assert spec["data"]["calls"]["structures"][-1] is None
    for name in ("md.log", "md.extxyz", "calls.jsonl", "checkpoint.json"):
        (directory / name).unlink()
    assert spec_of(md_page(directory))["badge"] == ["not finished", "busy"]


def test_path(path):
    directory, result = path
    before = contents(directory)
    spec = spec_of(path_page(directory))
    assert contents(directory) == before
    word = "converged" if result.converged else "not converged"
    assert spec["badge"][0] == word
    said = " ".join(spec["sections"][0]["sentences"])
    assert f"The barrier is {result.barrier:.3f} ± {result.error:.3f} eV" in said
    assert abs(result.reaction_energy) < 5e-4
    assert "The end lies as high as the start." in said
    who = np.array(values_of(spec, "images", "who"))
    energy = np.array(values_of(spec, "images", "energy"))
    zero = result.start.get_potential_energy()
    assert np.allclose(energy[who == "model"], result.band.energy - zero, atol=1e-4)
    # The engine has seen both ends, wherever in the cell they are, and the saddle.
    engine = dict(zip(np.array(values_of(spec, "images", "image"))[who == "engine"],
                      energy[who == "engine"], strict=True))  # fmt: skip
    assert engine[0] == pytest.approx(0.0, abs=1e-4)
    assert engine[4] == pytest.approx(result.reaction_energy, abs=1e-4)
    assert engine[result.saddle.image] == pytest.approx(result.barrier, abs=1e-4)
    band = titled(spec, "Energy along the path")["layers"][0]
    half = (np.array(band["high"]) - np.array(band["low"])) / 2
    assert np.allclose(half, result.band.energy_std, atol=1e-6)
    assert len(values_of(spec, "calls", "number")) == result.calls
    assert values_of(spec, "calls", "phase").count("ends") == result.end_calls
    std = np.linalg.norm(result.band.forces_std[2], axis=1)
    film = titled(spec, "All images in sequence")["structures"]
    assert np.allclose(per_atom(spec, film[2], "force σ"), std, atol=1e-6)


def test_paths_without_an_end(path, tmp_path):
    directory = tmp_path / "neb"
    shutil.copytree(path[0], directory)
    (directory / "result.json").unlink()  # as older versions left it
    assert spec_of(path_page(directory))["badge"] == ["ended", "plain"]
    (directory / "path.extxyz").unlink()
    spec = spec_of(path_page(directory))
    assert "images" not in spec["data"]
    assert read_path(directory).images == []
