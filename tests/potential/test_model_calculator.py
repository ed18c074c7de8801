"""Model files in other programs: loader, ASE's plugins and formats, sockets, model card."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.calculators.socketio import SocketClient, SocketIOCalculator
from example_structures import gold_cluster

import nugget
from nugget import RBF, SOAP, NuggetError, Potential, load_calculator
from nugget.potential.model_calculator import model_card, training_images

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "data" / "v0.2"


def labelled(atoms: Atoms) -> Atoms:
    work = atoms.copy()
    work.calc = EMT()
    results = {"energy": work.get_potential_energy(), "forces": work.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "au.model"
    images = [labelled(gold_cluster(6, seed)) for seed in range(4)]
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
    assert images[2].get_potential_energy() == labelled(gold_cluster(6, 2)).get_potential_energy()
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


def test_socket_client(model: Path):
    """The protocol of i-PI, with ASE as the server."""
    name = f"nugget-test-{os.getpid()}"
    atoms, work = gold_cluster(6, 9), gold_cluster(6, 9)
    work.calc = load_calculator(model)
    expected = work.get_potential_energy()

    def client() -> None:
        mine = gold_cluster(6, 0)
        mine.calc = load_calculator(model)
        SocketClient(unixsocket=name).run(mine, use_stress=False)

    with SocketIOCalculator(unixsocket=name, timeout=60) as server:
        thread = threading.Thread(target=client, daemon=True)
        thread.start()
        atoms.calc = server
        assert atoms.get_potential_energy() == pytest.approx(expected, abs=1e-10)
        assert np.allclose(atoms.get_forces(), work.get_forces(), atol=1e-10)
        atoms.positions[0, 0] += 0.1
        work.positions[0, 0] += 0.1
        assert atoms.get_potential_energy() == pytest.approx(work.get_potential_energy(), abs=1e-10)
    thread.join(20)
    assert not thread.is_alive()


IPI = """<simulation verbosity='low'>
  <output prefix='run'><properties filename='out' stride='1'>
    [ step, potential{electronvolt}, temperature{kelvin} ] </properties></output>
  <total_steps>5</total_steps>
  <prng><seed>1</seed></prng>
  <ffsocket name='nugget' mode='unix' pbc='False'><address>NAME</address></ffsocket>
  <system>
    <initialize nbeads='4'><file mode='ase'> start.xyz </file>
      <velocities mode='thermal' units='kelvin'> 300 </velocities></initialize>
    <forces><force forcefield='nugget'/></forces>
    <ensemble><temperature units='kelvin'> 300 </temperature></ensemble>
    <motion mode='dynamics'><dynamics mode='nvt'>
      <timestep units='femtosecond'> 1.0 </timestep>
      <thermostat mode='pile_g'><tau units='femtosecond'> 100 </tau></thermostat>
    </dynamics></motion>
  </system>
</simulation>
"""


@pytest.mark.slow
def test_path_integrals_with_i_pi(model: Path, tmp_path: Path):
    """Four beads of a gold cluster; the potential of the first step is that of the model."""
    if shutil.which("i-pi") is None:
        pytest.skip("i-pi is not installed")
    name = f"nugget-ipi-{os.getpid()}"
    (tmp_path / "input.xml").write_text(IPI.replace("NAME", name))
    start = gold_cluster(6, 2)
    start.set_cell(np.eye(3) * 30)
    ase.io.write(tmp_path / "start.xyz", start, format="extxyz")
    server = subprocess.Popen(["i-pi", "input.xml"], cwd=tmp_path)
    try:
        client = (
            "import time, nugget, ase.io\n"
            "from ase.calculators.socketio import SocketClient\n"
            "atoms = ase.io.read('start.xyz')\n"
            f"atoms.calc = nugget.load_calculator({str(model)!r})\n"
            "for _ in range(100):\n"
            "    try:\n"
            f"        client = SocketClient(unixsocket={name!r})\n"
            "        break\n"
            "    except OSError:\n"
            "        time.sleep(0.3)\n"
            "client.run(atoms, use_stress=False)\n"
        )
        subprocess.run([sys.executable, "-c", client], cwd=tmp_path, timeout=300, check=False)
        assert server.wait(60) == 0
    finally:
        server.kill()
    rows = np.loadtxt(tmp_path / "run.out")
    assert len(rows) == 6
    start.calc = load_calculator(model)
    assert rows[0, 1] == pytest.approx(start.get_potential_energy(), abs=1e-3)


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
