"""`nugget search --vary`: tables, JSON, files and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ase.build import fcc111
from ase.io import write
from typer.testing import CliRunner

from nugget.cli.main import app

RUNNER = CliRunner()
QUICK = ["--engine", "emt", "--budget", "5", "--no-live", "--set", "search.initial=4",
         "--set", "search.candidates=4", "--set", "search.explore=1",
         "--set", "search.polish=1"]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    slab = fcc111("Cu", (2, 2, 2), vacuum=6.0)
    slab.pbc = (True, True, False)
    write("slab.traj", slab)
    return tmp_path


def test_surface(here: Path) -> None:
    arguments = ["search", "--template", "slab.traj", "--vary", "Au:0-2", "--chemical-potential",
                 "Au=-1:1", "--reservoirs", "Au=Au(bulk)", "--set", "system.height=3.0",
                 *QUICK]  # fmt: skip
    shown = RUNNER.invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    for title in ("Phases", "Boundaries", "Calculations that would change this most"):
        assert title in shown.output
    directory = here / "runs" / "Au0-2-seed0"
    for name in ("phase_diagram.json", "phase_diagram.png", "phases.extxyz", "config.toml"):
        assert (directory / name).is_file()
    again = RUNNER.invoke(app, ["search", "--resume", str(directory), "--json"])
    assert again.exit_code == 0, again.output
    summary = json.loads(again.stdout)
    assert summary["phase_diagram"]["elements"] == ["Au"]
    assert summary["phase_diagram"] == json.loads((directory / "phase_diagram.json").read_text())
    replay = RUNNER.invoke(app, ["search", "--replay", str(directory)])
    assert "bit-identical" in replay.output


def test_init(here: Path) -> None:
    made = RUNNER.invoke(app, ["init", "--template", "slab.traj", "--vary", "O:0-3", "-o", "-"])
    assert made.exit_code == 0, made.output
    assert 'vary = "O:0-3"' in made.output
    assert "insert = 2.0" in made.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--vary", "Xx:0-2"], "not an element"),
        (["--vary", "Au:2-3", "--chemical-potential", "O=0:1"], "does not vary"),
        (["Au4", "--vary", "Au:2-3"], "not both"),
        (["--vary", "O:1-2", "--temperature", "300:600"], "need both"),
        (["--vary", "Fe:1-2", "--chemical-potential", "Fe=-3:0"], "could not be computed"),
    ],
)
def test_mistakes(here: Path, arguments: list[str], words: str) -> None:
    result = RUNNER.invoke(app, ["search", *arguments, "--engine", "emt", "--budget", "3"])
    assert result.exit_code != 0
    said = " ".join((result.output + str(result.exception)).split())
    assert words in said
    assert not (here / "runs").exists()
