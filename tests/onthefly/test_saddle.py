"""Saddle searches from one structure: steps, convergence, both sides, kill and resume."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ase import Atoms
from ase.build import add_adsorbate, fcc100, molecule
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms
from ase.io import read
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.engines.engine import get_engine
from nugget.engines.engine_settings import EngineConfig
from nugget.errors import NuggetError
from nugget.onthefly.learning_calculator import labeller
from nugget.onthefly.run_directory import read_outcomes
from nugget.onthefly.run_settings import SaddleConfig
from nugget.onthefly.saddle_run import CalculatorBaseline, baseline_name, find_saddle
from nugget.onthefly.saddle_surface import (
    BaselineMean,
    Modes,
    SpringMean,
    Surface,
    bofill,
    partitioned_step,
)
from nugget.relax.local_surrogate import PairFeatures, Point

BARRIER = 0.3749  # eV: a gold atom hops on Al(100), ASE's climbing NEB with EMT


def hop() -> Atoms:
    """Between two hollows, beside the bridge."""
    slab = fcc100("Al", size=(2, 2, 3))
    add_adsorbate(slab, "Au", 1.9, "hollow")
    slab.center(axis=2, vacuum=4.0)
    slab.set_constraint(FixAtoms(mask=[atom.tag > 1 for atom in slab]))
    slab.info = {}
    slab[-1].x += 0.19 * slab.cell[0, 0]
    return slab


def ammonia() -> Atoms:
    """Nearly flat: close to the saddle of the inversion."""
    atoms = molecule("NH3")
    atoms.positions[0, 2] -= 0.25
    return atoms


def test_a_step_climbs_one_mode_and_descends_the_others():
    modes = Modes(np.array([-1.0, 2.0, 3.0]), np.eye(3))
    gradient = np.array([0.1, 0.1, -0.1])
    step = partitioned_step(gradient, modes, 0)
    assert step[0] > 0 > step[1]
    assert step[2] > 0
    newton = -gradient / modes.values
    assert np.allclose(step, newton, rtol=0.05)


def test_bofill_reproduces_the_change_of_the_gradient():
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(5, 5))
    matrix = matrix + matrix.T
    step, change = rng.normal(size=(2, 5))
    new = bofill(matrix, step, change)
    assert np.allclose(new @ step, change)
    assert np.allclose(new, new.T)


def test_the_gradient_of_the_surface_is_that_of_its_energy():
    atoms = ammonia()
    baseline = CalculatorBaseline("gfn2-xtb", EngineConfig(name="gfn1-xtb"), atoms)
    free = np.ones((4, 3), dtype=bool)
    label, points = labeller(get_engine("gfn1-xtb").calculator()), []
    for seed in range(2):
        moved = atoms.copy()
        moved.rattle(0.05, seed=seed)
        results = label(moved).calc.results
        points.append(Point(moved.positions.ravel(), results["energy"], -results["forces"].ravel()))
    features = PairFeatures(atoms, free)
    surface = Surface(features, points, BaselineMean(baseline, features))
    assert surface(points[0].x)[0] == pytest.approx(points[0].energy, abs=2e-3)
    x, direction = atoms.positions.ravel(), np.random.default_rng(0).normal(size=12)
    step = 1e-3 * direction
    slope = (surface(x + step)[0] - surface(x - step)[0]) / 2e-3
    assert surface(x)[1] @ direction == pytest.approx(slope, rel=1e-3)


def test_an_adatom_hop_on_a_slab_with_fixed_atoms():
    label, config = labeller(EMT()), SaddleConfig(connect=True, engine=EngineConfig(name="emt"))
    result = find_saddle(hop(), label, config)
    assert result.converged
    assert result.search.modes.negative == 1
    assert result.barriers == pytest.approx([BARRIER, BARRIER], abs=0.01)
    assert result.search.calls <= 40
    slab = hop()
    assert np.array_equal(result.atoms.positions[:8], slab.positions[:8])


def test_ammonia_inverts_through_a_plane():
    config = SaddleConfig(engine=EngineConfig(name="gfn2-xtb"), check_modes=True, connect=True)
    result = find_saddle(ammonia(), labeller(get_engine("gfn2-xtb").calculator()), config)
    assert result.converged
    assert int(np.sum(result.engine_modes < -0.05)) == 1
    assert result.engine_modes[0] == pytest.approx(result.search.modes.values[0], rel=0.5)
    singular = np.linalg.svd(result.atoms.positions - result.atoms.positions.mean(axis=0))[1]
    assert singular[2] < 0.02  # planar
    assert result.barriers[0] == pytest.approx(result.barriers[1], abs=0.01)


def test_the_baseline_is_for_molecules_with_expensive_engines():
    def name(engine: str, atoms: Atoms, baseline: str = "auto") -> str | None:
        return baseline_name(
            SaddleConfig(engine=EngineConfig(name=engine), baseline=baseline), atoms
        )

    assert name("pyscf", ammonia()) == "gfn2-xtb"
    assert name("gfn1-xtb", ammonia()) is None
    assert name("pyscf", Atoms("Au2", positions=[[0, 0, 0], [0, 0, 2.6]])) is None
    assert name("pyscf", hop()) is None
    assert name("pyscf", ammonia(), "none") is None
    assert name("gfn2-xtb", ammonia(), "gfn1-xtb") == "gfn1-xtb"


def test_one_free_coordinate_is_refused():
    atoms = hop()
    atoms.set_constraint(FixAtoms(range(len(atoms))))
    with pytest.raises(NuggetError, match="free coordinates"):
        find_saddle(atoms, labeller(EMT()), SaddleConfig(engine=EngineConfig(name="emt")))


def test_command_and_resume(tmp_path, monkeypatch):
    """A run that lost its last calls repeats them with the same bits."""
    monkeypatch.chdir(tmp_path)
    hop().write("start.traj")
    done = CliRunner().invoke(
        app, ["saddle", "start.traj", "--engine", "emt", "--out", "run", "--json"]
    )
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["converged"]
    assert len(report["model_modes"]) == 3
    saddle = read("run/saddle.extxyz")
    assert saddle.arrays["mode"].shape == (13, 3)
    calls = tmp_path / "run" / "calls.jsonl"
    before, lines = read_outcomes(calls), calls.read_bytes().splitlines(keepends=True)
    assert len(lines) == report["calls"]
    for kept in (0, 1, len(lines) // 2, len(lines) - 1):
        calls.write_bytes(b"".join(lines[:kept]) + lines[kept][:20])  # a kill while writing
        again = CliRunner().invoke(app, ["saddle", "--resume", "run", "--json"])
        assert json.loads(again.stdout) == report
        for old, new in zip(before, read_outcomes(calls), strict=True):
            assert np.array_equal(old.atoms.positions, new.atoms.positions)
            assert old.energy == new.energy
