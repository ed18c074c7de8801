"""Faulty and hostile files end in one sentence and a non-zero exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase.build import bulk, molecule
from ase.calculators.singlepoint import SinglePointCalculator
from typer.testing import CliRunner

from nugget.cli._console import printable
from nugget.cli.main import app
from nugget.engines.runner import Scratch
from nugget.errors import NuggetError
from nugget.potential.mean_functions import CalculatorMean
from nugget.potential.mean_functions.base import require_energies
from nugget.search.search import Search
from nugget.search.search_settings import make_config
from nugget.storage.files import locked
from nugget.structures.batch import as_batch
from nugget.structures.io import read_images
from nugget.structures.labels import check_stored


def run(*words: str, expect: int = 2) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == expect, result.output
    return result.output


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUGGET_TRUSTED", str(tmp_path / "none.toml"))


CAMPAIGN = """
repeats = 1

[vary]
"{key}" = ["{value}"]

[base.system]
formula = "Au3"

[base.engine]
name = "{engine}"
"""


@pytest.mark.parametrize(
    ("engine", "key", "value", "code"),
    [
        ("orca", "engine.options", "{command = 'touch pwned'}", "orca:command=touch pwned"),
        ("emt", "engine.name", "evil:make", "evil:make"),
        ("emt", "model.baseline", "engine:evil:make", "evil:make"),
    ],
)
def test_varied_settings_of_a_campaign_need_trust(engine, key, value, code) -> None:
    Path("evil.py").write_text("open('pwned', 'w')\n")
    Path("many").mkdir()
    text = CAMPAIGN.format(engine=engine, key=key, value=value)
    Path("many/campaign.toml").write_text(text)
    output = run("campaign", "--resume", "many", "--no-live")
    assert code in " ".join(output.split())
    assert "--trust" in output
    assert not Path("pwned").exists()


def test_a_replay_writes_nothing(tmp_path: Path) -> None:
    config = make_config(
        {"system": {"formula": "Au3"}, "engine": {"name": "emt"}, "search": {"budget": 1}}
    )
    Search.create(config, "run")
    Path("mine").write_text("precious")
    Path("run/lock").unlink(missing_ok=True)
    Path("run/lock").symlink_to(tmp_path / "mine")
    Path("run/search.log").unlink(missing_ok=True)
    Path("run/search.log").symlink_to(tmp_path / "mine")
    before = {file: file.lstat().st_mtime_ns for file in Path("run").iterdir()}
    run("search", "--replay", "run", expect=0)
    assert {file: file.lstat().st_mtime_ns for file in Path("run").iterdir()} == before
    assert "run/lock is a symbolic link" in run("search", "--resume", "run", "--no-live")
    assert Path("mine").read_text() == "precious"


def test_a_search_is_created_under_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process that creates the same search has to wait, or is refused."""
    config = make_config(
        {"system": {"formula": "Au3"}, "engine": {"name": "emt"}, "search": {"budget": 1}}
    )
    refused = []

    def second(files, directory: Path, config) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        with pytest.raises(NuggetError, match="in use"), locked(directory):
            pass
        refused.append(directory)

    monkeypatch.setattr("nugget.search.search.copy_files", second)
    Search.create(config, "run")
    assert refused == [Path("run")]
    with pytest.raises(NuggetError, match="already holds a search"):
        Search.create(config, "run")


@pytest.mark.parametrize("energy", ["text", [1.0, 2.0], np.inf, np.nan])
def test_energies_that_are_no_numbers(energy) -> None:
    atoms = molecule("N2")
    atoms.calc = SinglePointCalculator(atoms)
    atoms.calc.results["energy"] = energy
    with pytest.raises(NuggetError, match="Structure 0"):
        check_stored([atoms])


def test_a_file_that_claims_too_many_atoms() -> None:
    Path("x.extxyz").write_text("1000000000000\nProperties=species:S:1:pos:R:3\nAu 0 0 0\n")
    output = run("fit", "x.extxyz", "-o", "x.model")
    assert "structure 0 claims 1000000000000 atoms" in " ".join(output.split())
    ase.io.write("y.extxyz", [molecule("N2"), molecule("CO")])
    assert len(read_images("y.extxyz")) == 2


def test_a_mean_function_that_fails_is_named() -> None:
    atoms = molecule("CO")
    mean = CalculatorMean("tersoff")
    batch = as_batch([atoms])
    energies = mean.evaluate(batch).totals(batch)
    with pytest.raises(NuggetError, match=r"Structure 0 has no energy.*tersoff.*Si and C"):
        require_energies(mean, batch, energies)


def test_control_characters_are_not_printed() -> None:
    assert printable("a\x1b[31mb\x07") == "a\\x1b[31mb\\x07"
    assert printable("σ ± Å") == "σ ± Å"


def test_options_that_are_not_finite() -> None:
    output = run("search", "Au3", "-e", "lj", "--set", "engine.options.rc=nan", "--out", "run")
    assert "options.rc is not a finite number" in " ".join(output.split())
    assert not Path("run").exists()


def test_a_kill_leaves_no_directory_without_a_mark(tmp_path: Path) -> None:
    program = (
        "import os, shutil, nugget.engines.runner as r\n"
        "scratch = r.Scratch('base')\n"
        "d = scratch.make()\n"
        "(d / 'x').write_text('x')\n"
        "r.shutil.rmtree = lambda *a, **k: os._exit(9)\n"
        "scratch.finish(d, failed=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=dict(os.environ), check=False)
    assert done.returncode == 9
    assert len(list(Path("base").iterdir())) == 2
    Scratch("base").sweep()
    assert not list(Path("base").iterdir())


def test_a_trial_that_fails_leaves_nothing(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    Path("noisy.py").write_text(
        "def make():\n    print('the licence has expired', flush=True)\n    open('x', 'w')\n"
        "    raise RuntimeError('no')\n"
    )
    output = run("engines", "--try", "noisy:make", expect=1)
    assert "RuntimeError: no" in output
    assert "the licence has expired" in output
    assert not list((tmp_path / "temporary").iterdir())


def test_relaxed_structures_carry_no_stale_results() -> None:
    atoms = bulk("Al", cubic=True)
    atoms.info = {"fmax": 99.0, "point_group": "Oh", "name": "mine"}
    atoms.arrays["forces_uncertainty"] = np.ones((4, 3))
    ase.io.write("in.extxyz", atoms)
    words = ("relax", "in.extxyz", "--engine", "emt", "--cell", "--pressure", "10", "--json")
    report = json.loads(run(*words, "-o", "out.extxyz", expect=0))
    [row] = report["structures"]
    relaxed = ase.io.read("out.extxyz")
    pressure = 10 / 160.21766208
    assert row["start_enthalpy"] == pytest.approx(
        row["start_energy"] + pressure * atoms.get_volume()
    )
    assert row["enthalpy"] == pytest.approx(row["energy"] + pressure * relaxed.get_volume())
    assert row["enthalpy"] < row["start_enthalpy"]
    assert relaxed.info["name"] == "mine"
    assert "point_group" not in relaxed.info
    assert relaxed.info["fmax"] == pytest.approx(row["fmax"])
    assert "forces_uncertainty" not in relaxed.arrays


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("hartree", "times too small: they seem to be in Hartree/Bohr"),
        pytest.param("sign", "wrong sign", marks=pytest.mark.slow),
        pytest.param("permuted", "do not belong to its energies", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("engines")
def test_a_relaxation_checks_the_forces_of_its_engine(how: str, message: str) -> None:
    """With forces in Hartree/Bohr every start would be converged."""
    atoms = bulk("Cu", cubic=True)
    atoms.rattle(0.1, seed=1)
    ase.io.write("in.extxyz", [atoms, atoms])
    engine = ("--engine", "faulty_engines:wrong_forces", "--set", f"engine.options.how={how}")
    output = run("relax", "in.extxyz", *engine, "-o", "out.extxyz")
    assert message in " ".join(output.split())
    assert not Path("out.extxyz").exists()
    words = ("relax", "in.extxyz", "--engine", "emt", "-o", "out.extxyz", "--json", "--jobs", "2")
    report = json.loads(run(*words, expect=0))
    assert report["engine_check"].startswith("forces agree with energies to ")
    [first, second] = report["structures"]
    assert first["energy"] == second["energy"]
    unchecked = json.loads(run(*words, "--force", "--set", "engine.verify=false", expect=0))
    assert unchecked["engine_check"] is None
    assert unchecked["structures"] == report["structures"]
