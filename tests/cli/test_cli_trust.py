"""A stranger's settings run no code, whatever command reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from typer.testing import CliRunner

from nugget import Potential, presets
from nugget.cli.main import app
from nugget.engines.engine_settings import require_trust
from nugget.onthefly.molecular_dynamics import MDRun
from nugget.onthefly.reaction_path import NEBRun
from nugget.onthefly.saddle_run import SaddleRun
from nugget.potential import model_archive
from nugget.potential.mean_functions import CalculatorMean
from nugget.potential.mean_functions.base import SpeciesEnergies, as_mean_function

SETTINGS = """
[system]
formula = "Au3"
[engine]
name = "os:system"
[engine.options]
command = "touch pwned"
[search]
budget = 2
"""


def run(*words: str, expect: int = 2) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == expect, result.output
    return result.output


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUGGET_TRUSTED", str(tmp_path / "none.toml"))
    Path("stranger.toml").write_text(SETTINGS)


def refused(text: str) -> None:
    assert "os:system" in text
    assert "--trust" in text
    assert not Path("pwned").exists()


def test_settings_files() -> None:
    refused(run("search", "stranger.toml", "--no-live"))
    refused(run("campaign", "stranger.toml", "--out", "many", "--no-live"))
    assert not Path("runs").exists()
    assert not Path("many").exists()


def test_run_directories() -> None:
    run("search", "Au3", "-e", "emt", "--budget", "1", "--out", "mine", "--no-live", expect=0)
    settings = Path("mine/config.toml")
    text = settings.read_text().replace('name = "emt"', 'name = "os:system"')
    settings.write_text(text)
    output = run("search", "--resume", "mine", "--budget", "3", "--no-live")
    assert not Path("pwned").exists()
    assert "os:system" in output or "settings" in output


def test_data_set_directories() -> None:
    Path("data").mkdir()
    recipe = {"formulas": ["Au3"], "engine": "os:system", "options": {"command": "touch pwned"}}
    Path("data/recipe.json").write_text(json.dumps(recipe))
    run("dataset", "--resume", "data")
    assert not Path("pwned").exists()


def test_baselines() -> None:
    harmless = SETTINGS.replace('"os:system"', '"emt"').replace('command = "touch pwned"', "")
    Path("stranger.toml").write_text(
        harmless + '[model]\nbaseline = "calculator"\n[model.baseline_options]\n'
        'engine = "os:system"\noptions = [["command", "touch pwned"]]\n'
    )
    refused(run("search", "stranger.toml", "--no-live"))


@pytest.mark.parametrize("place", ["engine", "mean"])
@pytest.mark.parametrize("kind", ["md", "neb", "saddle"])
def test_runs_with_on_the_fly_learning(kind: str, place: str) -> None:
    """Their settings are code of a stranger, too: the engine and the mean function."""
    name = "evil:make" if place == "engine" else "emt"
    settings: dict[str, Any] = {"engine": {"name": name}}
    if place == "mean":
        settings["baseline" if kind == "saddle" else "mean"] = "evil:make"
    run_class = {"md": MDRun, "neb": NEBRun, "saddle": SaddleRun}[kind]
    images = [bulk("Cu", cubic=True).repeat((1, 1, 2))] * (2 if kind == "neb" else 1)
    run_class.begin(Path("run"), run_class.settings.model_validate(settings), *images)
    Path("evil.py").write_text("open('pwned', 'w')\n")
    output = run(kind, "--resume", "run")
    assert "'evil:make'" in output
    assert "--trust" in output
    assert not Path("pwned").exists()


def test_the_command_line_is_the_users_own_word(tmp_path: Path) -> None:
    Path("mine.py").write_text(
        "from ase.calculators.emt import EMT\n\ndef make():\n    return EMT()\n"
    )
    words = ("search", "Au3", "--engine", "mine:make", "--budget", "1", "--no-live", "--out", "run")
    run(*words, expect=0)
    again = ("search", "--resume", "run", "--budget", "2", "--no-live")
    assert "mine:make" in run(*again)
    run(*again, "--trust", expect=0)
    Path("none.toml").write_text('code = ["mine:make"]\n')
    run("search", "--resume", "run", "--budget", "3", "--no-live", expect=0)


def test_the_list_of_trusted_names() -> None:
    Path("none.toml").write_text('code = ["a:b"]\n')
    require_trust(["a:b"], "here")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("command", "touch pwned"),
        ("orcablocks", '%method ProgExt "x" end'),
        ("orcasimpleinput", 'PBE %method ProgExt "x" end'),
        ("orcasimpleinput", 'PBE\n%method ProgExt "x" end'),
    ],
)
def test_the_engine_below_a_model(option: str, value: str) -> None:
    """The options of a mean function in a model file count as those of a settings file."""
    atoms = bulk("Cu", cubic=True)
    atoms.calc = EMT()
    atoms.get_forces()
    potential = presets.quick(["Cu"])
    potential.prior = as_mean_function([CalculatorMean("emt"), SpeciesEnergies()])
    potential.fit([atoms]).save("a.model")
    before = Potential.load("a.model").predict([atoms]).energy
    assert before == pytest.approx([atoms.get_potential_energy()], abs=1e-6)
    archive, _ = model_archive.read(Path("a.model"))
    header = json.loads(archive["header"].tobytes())
    text = json.dumps(header).replace('"emt"', '"orca"')
    text = text.replace('"options": []', json.dumps({"options": [[option, value]]})[1:-1])
    model_archive.write(
        Path("a.model"), {**archive, "header": np.frombuffer(text.encode(), np.uint8)}
    )
    atoms.write("in.extxyz")
    output = run("predict", "a.model", "in.extxyz")
    assert f"orca:{option}=" in output
    assert "--trust" in output
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    ("baseline", "options", "message"),
    [
        ("engine:evil:make", "", "'evil:make'"),
        ("calculator", 'engine = "evil:make"', "'evil:make'"),
        ("sum", 'parts = [{name = "calculator", engine = "evil:make"}]', "one mean function"),
    ],
)
def test_mean_functions_of_settings(baseline: str, options: str, message: str) -> None:
    Path("evil.py").write_text("open('pwned', 'w')\n")
    Path("stranger.toml").write_text(
        '[system]\nformula = "Au3"\n[engine]\nname = "emt"\n[search]\nbudget = 1\n'
        f'[model]\nbaseline = "{baseline}"\n[model.baseline_options]\n{options}\n'
    )
    assert message in run("search", "stranger.toml", "--no-live")
    assert not Path("pwned").exists()
