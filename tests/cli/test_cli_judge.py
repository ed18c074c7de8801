"""`nugget judge`, and `nugget fit --mean`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read, write
from example_structures import gold_cluster
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.potential.model_file import read_header


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code != 0
    return " ".join(result.output.split())


def labelled(atoms: Atoms) -> Atoms:
    atoms.calc = EMT()
    energy, forces = atoms.get_potential_energy() - 5.0 * len(atoms), atoms.get_forces()
    atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    return atoms


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "au.extxyz"
    write(file, [labelled(gold_cluster(6 + k % 3, k, 0.15)) for k in range(9)])
    return file


def test_the_engine_that_made_the_labels_is_right(data: Path) -> None:
    report = json.loads(run("judge", data, "--engine", "emt", "--preset", "quick", "--json"))
    assert report["alone"]["energy"] < 1e-7
    assert report["weight"] == 1.0
    assert [one["weight"] for one in report["trials"]] == [0.0, 1.0]
    text = report["verdict"]["sentences"][0]
    assert text.startswith("emt is wrong by ")
    assert "--mean emt" in report["verdict"]["uses"][0]["command"]


def test_a_batched_engine_is_judged_with_weights(data: Path) -> None:
    text = run("judge", data, "-e", "pair-model", "--preset", "quick", "--option", "depth=0.4")
    assert "pair-model alone" in text
    assert "weight 0.5" in text
    assert "To fit the model: nugget fit" in text


def test_the_most_telling_structures_are_labelled(tmp_path: Path) -> None:
    write(tmp_path / "pool.extxyz", [gold_cluster(6, k, 0.2) for k in range(12)])
    out = tmp_path / "labelled.extxyz"
    report = json.loads(
        run(
            "judge", tmp_path / "pool.extxyz", "--engine", "pair-model", "--preset", "quick",
            "--ask", "emt", "-n", 6, "-o", out, "--json",
        )
    )  # fmt: skip
    assert report["structures"] == 6
    images = read(out, ":")
    assert len(images) == 6
    assert all("forces" in atoms.calc.results for atoms in images)


def test_a_model_with_a_mean_function(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "au.model"
    arguments = ("fit", data, "-o", file, "--preset", "quick", "--mean", "pair-model")
    report = json.loads(run(*arguments, "--mean-weight", 0.5, "--json"))
    assert report["choices"]["mean"]["weight"] == 0.5
    parts = read_header(file)["fitted_prior"]["parts"]
    named = next(part for part in parts if part["name"] == "foundation")
    assert (named["weight"], named["package"]) == (0.5, "nugget_example")
    assert "weight 0.5" in run("info", file)
    assert "MAE" in run("predict", file, data)


def test_bad_input(data: Path, tmp_path: Path) -> None:
    assert "no engine 'sevenet'; did you mean" in refused("judge", data, "-e", "sevenet")
    few = ("judge", data, "-i", "0:3", "-e", "emt", "--preset", "quick")
    assert "3 structures are too few for leave-one-out" in refused(*few)
    assert "add --out FILE" in refused("judge", data, "-e", "emt", "--ask", "emt")
    assert "add --ask ENGINE" in refused("judge", data, "-e", "emt", "-o", tmp_path / "x.xyz")
    stream = ("fit", data, "-o", tmp_path / "m", "--mean", "emt", "--stream")
    assert "use --prior ENGINE instead" in refused(*stream)
