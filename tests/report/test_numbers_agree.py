"""Numbers on pages, in the terminal, in files, in `--json` and in `nugget list` are the same."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import finished_runs as runs
import numpy as np
import pytest
from ase.io import read
from ase.units import GPa
from finished_runs import Finished
from page_spec import titled, values_of

from nugget.report.digest import fixed, rounded
from nugget.report.runs import Run, find_runs
from nugget.structures.geometry import largest_force


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("finished")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Finished:
    return runs.cluster(folder / "cluster")


@pytest.fixture(scope="module")
def slab(folder: Path) -> Finished:
    return runs.slab(folder / "slab")


@pytest.fixture(scope="module")
def crystal(folder: Path) -> Finished:
    return runs.crystal(folder / "crystal")


@pytest.fixture(scope="module")
def hull(folder: Path) -> Finished:
    return runs.hull(folder / "hull")


@pytest.fixture(scope="module")
def campaign(folder: Path) -> Finished:
    return runs.campaign(folder / "campaign")


@pytest.fixture(scope="module")
def dynamics(folder: Path) -> Finished:
    return runs.dynamics(folder / "md", "--steps", 60, "--audit", 12)


@pytest.fixture(scope="module")
def reaction(folder: Path) -> Finished:
    return runs.reaction_path(folder / "neb", "--max-calls", 40)


def listed(run: Finished) -> Run:
    return next(one for one in find_runs(run.directory.parent) if one.path == run.directory.name)


def plain(text: str) -> str:
    """Printed text without line breaks and with hyphens for minus signs."""
    return " ".join(text.replace("−", "-").split())


def check_verdict(run: Finished) -> None:
    """The same sentences and badges on the page, in JSON and in the terminal."""
    shown = run.page["sections"][0]
    assert shown["kind"] == "verdict"
    assert shown["sentences"] == run.verdict["sentences"]
    assert shown["badges"] == run.verdict["badges"]
    assert plain(run.said) in plain(run.text)


def facts_of(run: Finished) -> dict[str, str]:
    """The facts below the first of the lowest structures."""
    return dict(titled(run.page, "The lowest structures")["items"][0]["facts"])


def check_search(run: Finished, letter: str, value: float, unit: str) -> None:
    """One lowest structure, wherever it is shown."""
    best = read(run.directory / "best.extxyz")
    text = f"{fixed(value)} {unit}"
    assert run.json["best_energy"] == pytest.approx(value, abs=1e-6)
    assert text in run.said
    assert facts_of(run)[letter] == text
    assert plain(text) in plain(run.text)
    entry = listed(run)
    per_atom = value if unit == "eV/atom" else value / len(best)
    assert entry.best_per_atom == pytest.approx(per_atom, abs=1e-6)
    assert entry.best_energy == pytest.approx(per_atom * len(best), abs=1e-6)
    # Evaluations, without those of final relaxations.
    count = run.json["evaluations"]
    assert len(values_of(run.page, "evaluations", "number")) == count
    assert entry.evaluations == count + run.json["polish_evaluations"]
    assert f"of {count}" in run.said
    assert f"│ evaluations │ {count} " in re.sub(r" +", " ", run.text)
    check_verdict(run)


def check_fmax(run: Finished, fmax: float) -> None:
    badge = next(one for one in run.verdict["badges"] if one["label"] == "fmax")
    assert badge["value"] == facts_of(run)["fmax"] == f"{fmax:.3f} eV/Å"
    assert run.json["minima"][0]["fmax"] == pytest.approx(fmax, abs=1e-6)
    assert f"fmax {fmax:.3f} eV/Å" in run.text


def test_cluster(cluster):
    best = read(cluster.directory / "best.extxyz")
    check_search(cluster, "E", best.get_potential_energy(), "eV")
    check_fmax(cluster, largest_force(best))
    assert cluster.json["verdict"]["level"] in ("good", "warning", "bad")


def test_slab_with_fixed_atoms(slab):
    """Forces on fixed atoms do not count."""
    best = read(slab.directory / "best.extxyz")
    check_search(slab, "E", best.get_potential_energy(), "eV")
    check_fmax(slab, largest_force(best))
    every = np.linalg.norm(best.get_forces(apply_constraint=False), axis=1).max()
    assert every > 2 * largest_force(best)  # else the test would show nothing
    assert slab.levels["fmax"] == "good"


def test_crystal_under_pressure(crystal):
    best = read(crystal.directory / "best.extxyz")
    enthalpy = (best.get_potential_energy() + 20.0 * GPa * best.get_volume()) / len(best)
    assert enthalpy - best.get_potential_energy() / len(best) > 0.5
    check_search(crystal, "H", enthalpy, "eV/atom")
    check_fmax(crystal, best.info["fmax"])
    assert "an enthalpy of" in crystal.said
    assert "at 20 GPa" in crystal.said
    assert "best enthalpy" in crystal.text
    assert listed(crystal).quantity == "enthalpy"


@pytest.mark.slow
def test_hull(hull):
    phases = json.loads((hull.directory / "hull.json").read_text())["phases"]
    assert [p["formula"] for p in hull.json["phases"]] == [p["formula"] for p in phases]
    formation = [1e3 * phase["formation"] for phase in phases]
    assert np.allclose([1e3 * p["formation"] for p in hull.json["phases"]], formation)
    assert np.allclose(values_of(hull.page, "phases", "formation"), formation, atol=1e-3)
    for phase in phases:
        stable = phase["formula"] in re.split(r"[ ,.]+", hull.verdict["sentences"][0])
        assert stable == phase["stable"]
        row = next(line for line in hull.text.splitlines() if f"│ {phase['formula']} " in line)
        assert f"{1e3 * phase['formation']:.1f}" in row
    assert listed(hull).best_per_atom is None  # compositions cannot be compared
    assert len(values_of(hull.page, "evaluations", "number")) == hull.json["evaluations"]
    check_verdict(hull)


@pytest.mark.slow
def test_campaign(campaign):
    with (campaign.directory / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    lowest = min(float(row["best_energy"]) for row in rows)
    assert len(rows) == 2
    assert f"{fixed(lowest)} eV" in campaign.said
    above = values_of(campaign.page, "searches", "above")
    table = titled(campaign.page, "Searches")["rows"]
    assert sorted(row[1] for row in table) == pytest.approx(
        sorted(float(row["best_energy"]) for row in rows), abs=1e-6
    )
    assert min(above) == 0.0
    names = [one.path for one in find_runs(campaign.directory.parent)]
    assert sum(name.startswith("campaign/") for name in names) == 2
    check_verdict(campaign)


def test_dynamics(dynamics):
    count = len(read(dynamics.directory / "labelled.extxyz", ":"))
    assert dynamics.json["calls"] == count
    assert values_of(dynamics.page, "calls", "number") == list(range(1, count + 1))
    assert f"{count} engine call" in dynamics.said
    assert re.search(rf"engine calls +│ {count} ", dynamics.text)
    assert listed(dynamics).evaluations == count
    frames = read(dynamics.directory / "md.extxyz", ":")
    assert values_of(dynamics.page, "frames", "temperature")[-1] == pytest.approx(
        float((dynamics.directory / "md.log").read_text().splitlines()[-1].split()[2]), abs=0.01
    )
    energies = [atoms.get_potential_energy() for atoms in frames]
    assert np.allclose(values_of(dynamics.page, "frames", "potential"), energies, atol=1e-4)
    badge = next(one for one in dynamics.verdict["badges"] if one["label"] == "audits within 2σ")
    assert badge["value"] == f"{dynamics.json['audits_within_two_std']:.0%}"
    check_verdict(dynamics)


@pytest.mark.slow
def test_reaction_path(reaction):
    barrier, saved = reaction.json["barrier"], json.loads(
        (reaction.directory / "result.json").read_text()
    )  # fmt: skip
    assert "barrier" in json.dumps(saved)
    assert f"The barrier is {fixed(barrier, 3)} ± " in reaction.said
    assert f"{barrier:.4f}" in reaction.text
    # The engine's energies of the highest image and of the start are in the file of the path.
    labelled = read(reaction.directory / "labelled.extxyz", ":")
    assert reaction.json["calls"] == len(labelled)
    assert len(values_of(reaction.page, "calls", "number")) == len(labelled)
    assert f"{len(labelled)} engine calls" in reaction.said
    energies = values_of(reaction.page, "images", "energy")
    assert max(energies) == pytest.approx(barrier, abs=5e-3)
    fmax = reaction.json["saddle_fmax"]
    badge = next(one for one in reaction.verdict["badges"] if one["label"] == "force at the saddle")
    assert badge["value"] == f"{fmax:.3f} eV/Å"
    check_verdict(reaction)


def test_saddle(folder):
    run = runs.saddle(folder / "saddle", "--connect")
    images = read(run.directory / "saddle.extxyz", ":")
    first, top, second = (atoms.get_potential_energy() for atoms in images)
    saved = json.loads((run.directory / "result.json").read_text())
    assert "energy" in json.dumps(saved)
    assert run.json["energy"] == pytest.approx(top, abs=1e-6)
    assert run.json["barriers"] == pytest.approx([top - first, top - second], abs=1e-6)
    text = f"{fixed(top - first, 3)} and {fixed(top - second, 3)} eV"
    assert f"The barriers are {text}" in run.said
    facts = [dict(item["facts"]) for item in titled(run.page, "Saddle and minima")["items"]]
    assert [one["energy"] for one in facts] == [f"{fixed(e)} eV" for e in (first, top, second)]
    assert facts[0]["from the saddle"] == f"{fixed(first - top, plus=True)} eV"
    assert f"{top:.4f} ± " in run.text
    assert f"{top - first:.4f} ± " in run.text
    # Forces on free atoms only.
    fmax = largest_force(images[1])
    every = np.linalg.norm(images[1].get_forces(apply_constraint=False), axis=1).max()
    assert every > 2 * fmax  # else the test would show nothing
    assert run.json["fmax"] == pytest.approx(fmax, abs=1e-6)
    badge = next(one for one in run.verdict["badges"] if one["label"] == "largest force")
    assert badge["value"] == f"{fmax:.3f} eV/Å"
    assert f"{fmax:.4f} eV/Å" in run.text
    # Counts.
    count = len(read(run.directory / "labelled.extxyz", ":"))
    assert run.json["calls"] == count == listed(run).evaluations
    assert values_of(run.page, "calls", "number") == list(range(1, count + 1))
    of_search = values_of(run.page, "calls", "phase").count("search")
    assert of_search == run.json["search_calls"]
    assert f"found in {of_search} evaluations" in run.said
    assert re.search(rf"engine calls +│ {count}, {of_search} of them for the search", run.text)
    forces = values_of(run.page, "calls", "force")
    assert forces[of_search - 1] == pytest.approx(fmax, abs=1e-4) or min(forces) <= fmax + 1e-4
    check_verdict(run)


def test_judge(cluster, folder):
    images = [a for a in read(cluster.directory / "search.db", ":") if a.calc is not None]
    images = [atoms for atoms in images if largest_force(atoms) < 10]
    run = runs.judge(folder / "judge", images, "pair-model", "--option", "depth=0.4")
    count = len(images)
    assert run.json["structures"] == count
    assert f"on these {count} structures" in run.said
    of_page = {key: np.abs(values_of(run.page, "structures", key)) for key in
               ("alone", "corrected", "without")}  # fmt: skip
    trials = run.json["trials"]
    errors = {"alone": run.json["alone"], "without": trials[0]["leave_one_out"],
              "corrected": trials[-1]["leave_one_out"]}  # fmt: skip
    for key, one in errors.items():
        assert 1e3 * one["energy"] == pytest.approx(of_page[key].mean(), rel=1e-3)
        assert f"{rounded(1e3 * one['energy'], 3)} ± " in run.said
        assert f"{rounded(1e3 * one['energy'], 3)} ± " in run.text
    curves = titled(run.page, "Errors by weight")["layers"]
    assert curves[0]["y"] == pytest.approx([1e3 * t["leave_one_out"]["energy"] for t in trials])
    assert curves[1]["y"] == pytest.approx([1e3 * t["leave_group_out"]["energy"] for t in trials])
    labels = [atoms.get_potential_energy() / len(atoms) for atoms in images]
    assert np.allclose(values_of(run.page, "structures", "label"), labels, atol=1e-5)
    badge = next(one for one in run.verdict["badges"] if one["label"] == "error/σ")
    assert badge["value"] == f"{run.json['rms_z']:.2f}"
    check_verdict(run)


def test_model(cluster, folder):
    images = [a for a in read(cluster.directory / "search.db", ":") if a.calc is not None]
    from ase.io import write

    place = folder / "model"
    place.mkdir()
    write(place / "train.extxyz", images[::2])
    write(place / "test.extxyz", images[1::2])
    run = runs.model(place, place / "train.extxyz", place / "test.extxyz")
    count = len(images[1::2])
    assert f"On {count} structures" in run.said or f"On {count} structure " in run.said
    check_verdict(run)
