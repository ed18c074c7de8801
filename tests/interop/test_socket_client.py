"""A model as a client of i-PI's protocol, with ASE and with i-PI itself as the server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.socketio import SocketClosed, SocketIOCalculator
from example_structures import emt_labelled
from typer.testing import CliRunner

from nugget import RBF, SOAP, NuggetError, Potential, load_calculator
from nugget.cli.main import app
from nugget.interop.socket_client import Server, serve

NUGGET = [sys.executable, "-c", "from nugget.cli.main import app; app()"]


def crystal(seed: int, by: float = 0.1) -> Atoms:
    atoms = bulk("Au", cubic=True)
    atoms.positions += np.random.default_rng(seed).normal(0, by, atoms.positions.shape)
    return atoms


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "au.model"
    images = [emt_labelled(crystal(seed)) for seed in range(6)]
    Potential(SOAP(("Au",), 5.0), RBF(15.0), noise=0.01).fit(images).save(path)
    return path


@pytest.mark.parametrize("pbc", [True, False])
def test_values_and_uncertainty_reach_the_server(pbc: bool, model: Path):
    name = f"nugget-test-{os.getpid()}-{pbc}"
    atoms, work = crystal(9), crystal(9)
    atoms.pbc = work.pbc = pbc
    work.calc = load_calculator(model)
    counts = []

    def client() -> None:
        mine = crystal(0)
        mine.pbc = pbc
        counts.append(serve(mine, load_calculator(model), Server(socket=name)))

    thread = threading.Thread(target=client, daemon=True)
    thread.start()  # before the server listens
    with SocketIOCalculator(unixsocket=name, timeout=60) as server:
        atoms.calc = server
        for move in (0.0, 0.1):
            atoms.positions[0, 0] += move
            work.positions[0, 0] += move
            energy = work.get_potential_energy()
            assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-10)
            assert np.allclose(atoms.get_forces(), work.get_forces(), atol=1e-10)
        if pbc:
            assert np.allclose(atoms.get_stress(), work.get_stress(), atol=1e-12)
        extras = server.server.protocol.calculate(work.positions, work.cell)["morebytes"]
        sent = json.loads(bytes(extras.astype(np.uint8)))
        assert sent["energy_uncertainty"] == work.calc.results["energy_uncertainty"]
        assert sent["outside"] == work.calc.results["outside"]
    thread.join(20)
    assert counts == [2]  # the same structure again costs nothing


def test_no_server(model: Path):
    with pytest.raises(NuggetError, match="No server listens at socket nobody"):
        serve(crystal(0), load_calculator(model), Server(socket="nobody"), wait=0)
    with pytest.raises(NuggetError, match="a Unix socket, or a port"):
        Server()


def test_stop_writes_the_structure(model: Path, tmp_path: Path):
    name = f"nugget-stop-{os.getpid()}"
    ase.io.write(tmp_path / "start.xyz", crystal(0))
    options = ["--data", str(tmp_path / "start.xyz"), "--socket", name, "--stop-above", "0.5"]
    halted = tmp_path / "halted.extxyz"
    results = []

    def client() -> None:
        command = ["ipi", str(model), *options, "--halted", str(halted)]
        results.append(CliRunner().invoke(app, command))

    thread = threading.Thread(target=client, daemon=True)
    thread.start()
    compressed = crystal(9)
    compressed.positions[0] += (0.0, 1.0, 1.0)
    with SocketIOCalculator(unixsocket=name, timeout=60) as server:
        compressed.calc = server
        with pytest.raises((SocketClosed, ConnectionResetError)):
            compressed.get_potential_energy()
    thread.join(20)
    assert results[0].exit_code == 3, results[0].output
    assert np.allclose(ase.io.read(halted).positions, compressed.positions, atol=1e-6)


INPUT = """<simulation verbosity='low'>
  <output prefix='run'>
    <properties filename='out' stride='1'>
      [ step, potential{electronvolt}, conserved{electronvolt} ] </properties>
    <trajectory filename='sigma' stride='1' extra_type='energy_uncertainty'>extras</trajectory>
  </output>
  <total_steps>5</total_steps>
  <prng><seed>1</seed></prng>
  <ffsocket name='nugget' mode='unix' pbc='False'><address>NAME</address></ffsocket>
  <system>
    <initialize nbeads='8'><file mode='ase'> start.xyz </file>
      <velocities mode='thermal' units='kelvin'> 100 </velocities></initialize>
    <forces><force forcefield='nugget'/></forces>
    <ensemble><temperature units='kelvin'> 100 </temperature></ensemble>
    <motion mode='dynamics'><dynamics mode='nvt'>
      <timestep units='femtosecond'> 1.0 </timestep>
      <thermostat mode='pile_g'><tau units='femtosecond'> 100 </tau></thermostat>
    </dynamics></motion>
  </system>
</simulation>
"""


@pytest.mark.slow
def test_path_integrals_with_i_pi(model: Path, tmp_path: Path):
    """Eight beads of a gold crystal: energies and σ of the first step are those of the model."""
    if shutil.which("i-pi") is None:
        pytest.skip("i-pi is not installed")
    name = f"nugget-ipi-{os.getpid()}"
    (tmp_path / "input.xml").write_text(INPUT.replace("NAME", name))
    start = crystal(2)
    ase.io.write(tmp_path / "start.xyz", start, format="extxyz")
    server = subprocess.Popen(["i-pi", "input.xml"], cwd=tmp_path)
    try:
        command = [*NUGGET, "ipi", str(model), "--data", "start.xyz", "--socket", name, "--json"]
        client = subprocess.run(
            command, cwd=tmp_path, timeout=300, capture_output=True, text=True, check=True
        )
        assert server.wait(60) == 0
    finally:
        server.kill()
    assert json.loads(client.stdout)["evaluations"] > 5 * 8
    rows = np.loadtxt(tmp_path / "run.out")
    assert len(rows) == 6
    start.calc = load_calculator(model)
    assert rows[0, 1] == pytest.approx(start.get_potential_energy(), abs=1e-4)
    assert np.ptp(rows[:, 2]) < 0.01
    sigma = float((tmp_path / "run.sigma_7").read_text().splitlines()[1])
    assert sigma == pytest.approx(start.calc.results["energy_uncertainty"], abs=1e-5)
