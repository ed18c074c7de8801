"""Model files in other programs: loader, ASE's plugins and formats, model card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import ase.io
import numpy as np
import pytest
from example_structures import emt_labelled, gold_cluster

import nugget
from nugget import RBF, SOAP, NuggetError, Potential, load_calculator
from nugget.potential.model_calculator import model_card, training_images

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "data" / "v0.2"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "au.model"
    images = [emt_labelled(gold_cluster(6, seed)) for seed in range(4)]
    Potential(SOAP(("Au",), 5.0), RBF(15.0)).fit(images).save(path)
    return path


def test_loader_is_the_calculator_of_the_model(model: Path):
    atoms = gold_cluster(6, 9)
    atoms.calc = load_calculator(model, uncertainties=("energy_uncertainty", "forces_uncertainty"))
    expected = Potential.load(model).predict([atoms])
    assert atoms.get_potential_energy() == expected.energy[0]
    assert np.array_equal(atoms.get_forces(), expected.forces[0])
    assert atoms.calc.results["forces_uncertainty"].shape == (6, 3)
    assert atoms.calc.name == "modelcalculator"
    with pytest.raises(NuggetError, match="does not exist"):
        load_calculator("nothing.model")


def test_training_set_of_a_model(model: Path):
    images = training_images(model)
    assert len(images) == 4
    assert (
        images[2].get_potential_energy() == emt_labelled(gold_cluster(6, 2)).get_potential_energy()
    )
    with pytest.raises(NuggetError, match="lean"):
        training_images(OLD / "lean.model")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the entry points of pyproject.toml are installed."""
    folder = tmp_path_factory.mktemp("site")
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    info = folder / f"nugget_gp-{nugget.__version__}.dist-info"
    info.mkdir()
    text = "".join(
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items())
        for group, names in points.items()
    )
    (info / "entry_points.txt").write_text(text)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: nugget-gp\nVersion: {nugget.__version__}\n"
    )
    return {**os.environ, "PYTHONPATH": f"{folder}:{ROOT / 'src'}"}


def python(code: str, installed: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        env=installed, cwd=cwd, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("first", ["import ase.io", "import ase.calculators.calculator, ase.io"])
def test_ase_finds_the_calculator(first, model: Path, installed, tmp_path: Path):
    code = (
        f"{first}\nimport sys\n"
        "from ase.calculators.calculator import get_calculator_class\n"
        "assert 'numba' not in sys.modules and 'nugget.potential' not in sys.modules\n"
        f"print(type(get_calculator_class('nugget')(model={str(model)!r})).__name__)"
    )
    assert python(code, installed, tmp_path).split()[-1] == "ModelCalculator"


def test_ase_run_and_formats(model: Path, installed, tmp_path: Path):
    ase.io.write(tmp_path / "start.xyz", gold_cluster(6, 9))
    command = [sys.executable, "-m", "ase", "run", "nugget", "start.xyz"]
    command += ["-p", f"model={model}", "-o", "out.extxyz"]
    done = subprocess.run(command, env=installed, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    atoms = gold_cluster(6, 9)
    atoms.calc = load_calculator(model)
    expected = atoms.get_potential_energy()
    assert ase.io.read(tmp_path / "out.extxyz").get_potential_energy() == pytest.approx(
        expected, abs=1e-5
    )  # xyz files have eight digits
    code = (
        "import ase.io\n"
        f"images = ase.io.read({str(model)!r}, ':')\n"
        "ase.io.write('a.chemiscope.json', images)\n"
        "print(len(images), images[0].get_potential_energy())"
    )
    assert python(code, installed, tmp_path).split()[0] == "4"
    assert len(json.loads((tmp_path / "a.chemiscope.json").read_text())["structures"]) == 4


def test_new_plugin_system(model: Path, installed, tmp_path: Path):
    pytest.importorskip("ase._4.plugins")
    code = (
        "from ase._4.plugins import plugins\n"
        "[one] = [p for p in plugins.calculators if p.name == 'nugget']\n"
        f"print(one.display(), one.implementation({str(model)!r}).name)"
    )
    assert nugget.__version__ in python(code, installed, tmp_path)


@pytest.mark.parametrize("name", ["posterior", "lean", "accurate", "calculator_prior"])
def test_model_card(name: str):
    card = model_card(OLD / f"{name}.model")
    assert card.startswith(f"# {name}\n")
    assert "potential for Au, fitted with" in card
    assert f'nugget.load_calculator("{name}.model")' in card
    if name == "posterior":
        assert "| mean absolute error of energies | 0.0422 eV/atom |" in card
    if name == "calculator_prior":
        assert "have not been calibrated" in card
