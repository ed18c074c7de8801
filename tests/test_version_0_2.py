"""Files that version 0.2 wrote still open, and runs continue with the results of version 0.2.

`tests/data/v0.2/README.txt` says how each file was made.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import ase.db
import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.io import read
from typer.testing import CliRunner

from nugget import Potential
from nugget.cli.main import app

DATA = Path(__file__).parent / "data" / "v0.2"
MODELS = sorted(path.name for path in DATA.glob("*.model"))
CLOSE: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-8}  # other processors differ in the last bits

same_arithmetic = pytest.mark.skipif(
    os.environ.get("OPENBLAS_CORETYPE") != "SkylakeX",  # set by conftest.py
    reason="the runs were made on a processor with AVX-512",
)


def expected(name: str) -> dict[str, Any]:
    return dict(json.loads((DATA / f"{name}.expected.json").read_text(encoding="utf-8")))


def unpacked(name: str, where: Path) -> Path:
    with tarfile.open(DATA / f"{name}.tar.gz") as archive:
        archive.extractall(where, filter="data")
    return where / name


def rows(directory: Path) -> list[float | None]:
    with ase.db.connect(directory / "search.db") as database:
        return [row.get("energy") for row in database.select()]


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", MODELS)
def test_models_predict_the_same(name: str) -> None:
    wanted = expected(name)
    atoms = Atoms(wanted["symbols"], wanted["positions"])
    potential = Potential.load(DATA / name)
    predicted = potential.predict([atoms], uncertainty_gradient=True, forces=True)
    np.testing.assert_allclose(predicted.energy[0], wanted["energy"], **CLOSE)
    np.testing.assert_allclose(predicted.forces[0], wanted["forces"], **CLOSE)
    assert predicted.energy_uncertainty is not None
    np.testing.assert_allclose(
        predicted.energy_uncertainty[0], wanted["energy_uncertainty"], **CLOSE
    )
    if "after_update" in wanted:
        atoms.calc = EMT()
        atoms.get_forces()
        after = potential.update([atoms]).predict([atoms])
        np.testing.assert_allclose(after.energy[0], wanted["after_update"]["energy"], **CLOSE)


@same_arithmetic
@pytest.mark.parametrize("name", ["au5_finished", "au5_killed", "si_crystal", "cuau_hull"])
def test_searches_open_replay_and_resume(name: str, tmp_path: Path) -> None:
    wanted, directory = expected(name), unpacked(name, tmp_path)
    assert rows(directory) == [row["energy"] for row in wanted["rows"]]
    run("search", "--replay", directory)
    run("search", "--resume", directory, "--budget", wanted["resumed_budget"], "--no-live")
    resumed = [row["energy"] for row in wanted["resumed_rows"]]
    np.testing.assert_allclose(rows(directory), resumed, rtol=1e-5)


@same_arithmetic
def test_a_search_killed_in_flight_replays(tmp_path: Path) -> None:
    wanted, directory = expected("au5_killed_in_flight"), unpacked("au5_killed_in_flight", tmp_path)
    assert rows(directory) == [row["energy"] for row in wanted["rows"]]
    run("search", "--replay", directory)


@same_arithmetic
def test_molecular_dynamics_resumes(tmp_path: Path) -> None:
    wanted, directory = expected("cu_md"), unpacked("cu_md", tmp_path)
    run("md", "--resume", directory, "--steps", wanted["resumed_steps"])
    frames = read(directory / "md.extxyz", ":")
    assert len(frames) == len(wanted["resumed_frames"])
    for frame, other in zip(frames, wanted["resumed_frames"], strict=True):
        np.testing.assert_allclose(frame.positions, other["positions"], atol=1e-5)


@same_arithmetic
def test_a_reaction_path_opens(tmp_path: Path) -> None:
    wanted, directory = expected("al_neb"), unpacked("al_neb", tmp_path)
    output = json.loads(run("neb", "--resume", directory, "--json"))
    assert output["barrier"] == pytest.approx(wanted["result"]["barrier"], abs=1e-6)
