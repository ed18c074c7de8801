"""Ways out of a minimum: barriers, products, rates and their errors."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ase import Atoms
from ase.build import add_adsorbate, fcc100
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms
from ase.io import read
from ase.units import kB
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.engines.engine_settings import EngineConfig
from nugget.onthefly.learning_calculator import labeller
from nugget.onthefly.run_settings import SaddleConfig
from nugget.onthefly.saddle_explore import explore, vineyard
from nugget.onthefly.saddle_run import find_saddle
from nugget.report.saddle_page import saddle_page


def adatom() -> Atoms:
    """A gold atom in a hollow of fixed Al(100)."""
    slab = fcc100("Al", size=(2, 2, 2))
    add_adsorbate(slab, "Au", 1.9, "hollow")
    slab.center(axis=2, vacuum=4.0)
    slab.set_constraint(FixAtoms(range(8)))
    slab.info = {}
    return slab


def test_vineyards_prefactor_of_one_mode_is_its_frequency():
    stiffness, mass = 5.0, 2.0  # eV/Å², amu
    hertz = np.sqrt(stiffness * 1.602176634e-19 * 1e20 / (mass * 1.66053907e-27)) / (2 * np.pi)
    both = np.array([stiffness / mass, 3.0])
    assert vineyard(both, np.array([-1.0, 3.0])) == pytest.approx(hertz, rel=1e-6)
    assert np.isnan(vineyard(both, np.array([-1.0, -0.1])))


def test_the_lowest_way_out_is_the_hop_over_the_bridge():
    config = SaddleConfig(engine=EngineConfig(name="emt"), explore=1, max_calls=80, seed=3)
    found = explore(adatom(), labeller(EMT()), config)
    assert found.complete
    lowest = found.ways[0]
    guess = adatom()
    guess[-1].x += 0.2 * guess.cell[0, 0]
    direct = find_saddle(guess, labeller(EMT()), SaddleConfig(engine=EngineConfig(name="emt")))
    energy = found.minimum.get_potential_energy()
    assert lowest.barrier == pytest.approx(direct.energy - energy, abs=2e-3)
    assert lowest.barrier - lowest.back == pytest.approx(0.0, abs=5e-3)  # another hollow
    assert np.linalg.norm(lowest.product.positions[-1] - found.minimum.positions[-1]) > 1.0
    assert lowest.rate == pytest.approx(lowest.prefactor * np.exp(-lowest.barrier / (300 * kB)))
    low, high = lowest.rate_limits(300.0)
    assert low < lowest.rate < high
    assert 1e11 < lowest.prefactor < 1e14


def test_command_page_and_resume(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adatom().write("minimum.traj")
    command = ["saddle", "minimum.traj", "--engine", "emt", "--explore", "1", "--out", "run"]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["ways"][0]["rate"] > 0
    assert (tmp_path / "run" / "ways.png").stat().st_size > 1000
    images = read("run/ways.extxyz", ":")
    assert images[1].info["role"] == "saddle"
    assert "harmonic rates" in saddle_page(tmp_path / "run")
    calls = tmp_path / "run" / "calls.jsonl"
    lines = calls.read_bytes().splitlines(keepends=True)
    calls.write_bytes(b"".join(lines[: len(lines) // 2]))
    again = CliRunner().invoke(app, ["saddle", "--resume", "run", "--json"])
    assert json.loads(again.stdout) == report
