"""Saddle searches from one structure: steps, convergence, both sides, kill and resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import add_adsorbate, bulk, fcc100, molecule
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
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
from nugget.onthefly.saddle_run import (
    CalculatorBaseline,
    SaddleRun,
    baseline_name,
    find_saddle,
)
from nugget.onthefly.saddle_search import SaddleEnd, SaddleSearch, run_search
from nugget.onthefly.saddle_surface import (
    BaselineMean,
    Modes,
    SpringMean,
    Surface,
    bofill,
    partitioned_step,
)
from nugget.relax.local_surrogate import PairFeatures, Point
from nugget.relax.lockstep import movable

BARRIER = 0.3749  # eV: a gold atom hops on Al(100), ASE's climbing NEB with EMT


def hop(width: int = 2) -> Atoms:
    """Between two hollows, beside the bridge."""
    slab = fcc100("Al", size=(width, width, 3))
    add_adsorbate(slab, "Au", 1.9, "hollow")
    slab.center(axis=2, vacuum=4.0)
    slab.set_constraint(FixAtoms(mask=[atom.tag > 1 for atom in slab]))
    slab.info = {}
    slab[-1].x += 0.38 / width * slab.cell[0, 0]
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


def test_springs_are_relaxed_at_their_centre_and_have_the_gradient_of_their_energy():
    atoms = bulk("Cu", cubic=True)  # the cell is smaller than the cutoff
    atoms.numbers[0] = 79
    atoms.rattle(0.1, seed=0)
    features = PairFeatures(atoms, np.ones((4, 3), dtype=bool))
    rng = np.random.default_rng(0)
    x = atoms.positions.ravel()
    points = [Point(x, 0.0, np.zeros(12)), Point(x + 0.05, 0.0, 0.4 * rng.normal(size=12))]
    springs = SpringMean(features, points, x)
    assert springs(x)[0] == 0.0
    assert np.allclose(springs(x)[1], 0.0)
    moved, direction = x + 0.1 * rng.normal(size=12), rng.normal(size=12)
    step = 1e-4 * direction
    slope = (springs(moved + step)[0] - springs(moved - step)[0]) / 2e-4
    assert springs(moved)[1] @ direction == pytest.approx(slope, rel=1e-6)


def test_springs_are_as_stiff_as_the_engine_shows():
    atoms = hop()
    features = PairFeatures(atoms, movable(atoms))
    x = atoms.positions[features.free]
    start = SpringMean(features, [], x)
    step = 0.05 * np.random.default_rng(1).normal(size=len(x))
    response = 3.0 * (start(x + step)[1] - start(x)[1])  # of an engine three times as stiff
    points = [Point(x, 0.0, np.zeros_like(x)), Point(x + step, 0.0, response)]
    scaled = SpringMean(features, points, x)
    assert scaled(x + step)[0] == pytest.approx(3.0 * start(x + step)[0])


def test_the_search_continues_with_springs_where_the_baseline_fails():
    atoms, calls = ammonia(), [0]
    working = CalculatorBaseline("gfn2-xtb", EngineConfig(name="gfn1-xtb"), atoms)

    def failing(positions):
        calls[0] += 1
        return working(positions) if calls[0] < 60 else (np.nan, np.zeros((4, 3)))

    search = SaddleSearch(atoms, 0.01, 60, failing)
    run_search(search, labeller(get_engine("gfn1-xtb").calculator()))
    assert search.converged
    assert search.baseline is None


def test_an_adatom_hop_on_a_slab_with_fixed_atoms():
    label, config = labeller(EMT()), SaddleConfig(connect=True, engine=EngineConfig(name="emt"))
    result = find_saddle(hop(), label, config)
    assert result.converged
    assert result.search.modes.negative == 1
    assert result.barriers == pytest.approx([BARRIER, BARRIER], abs=0.01)
    assert result.search.calls <= 15
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


def test_the_surrogate_reproduces_its_labels_far_from_equilibrium():
    """A very large amplitude would explain all labels as noise."""
    atoms = molecule("NH3")
    atoms.positions[:, 2] = 0.0
    atoms.positions += np.random.default_rng(103).normal(0.0, 0.1, (4, 3))
    search = SaddleSearch(atoms, 0.01, 30)
    run_search(search, labeller(get_engine("gfn1-xtb").calculator()))
    surface = search.surface()
    errors = [surface(point.x)[0] - point.energy for point in surface.points]
    assert np.abs(errors).max() < 0.01


def relabelled(atoms: Atoms, energy: float, forces: np.ndarray) -> Atoms:
    atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    return atoms


def test_a_flat_energy_ends_the_search():
    """Without any negative mode; the search begins again twice."""
    search = SaddleSearch(ammonia(), 0.01, 100)
    run_search(search, lambda atoms: relabelled(atoms, 0.0, np.zeros((4, 3))))
    assert search.end is SaddleEnd.WRONG_MODES
    assert search.calls < 60


def test_a_displaced_copy_in_another_electronic_state_is_replaced():
    """Its energy lies 1 eV above; the next copy is displaced to the other side."""
    label, atoms, checks = labeller(get_engine("gfn1-xtb").calculator()), ammonia(), []
    baseline = CalculatorBaseline("gfn2-xtb", EngineConfig(name="gfn1-xtb"), atoms)
    search = SaddleSearch(atoms, 0.01, 40, baseline)
    while not search.done:
        checking, proposed = search._stationary is not None, search.propose()
        labelled = label(proposed)
        if checking:
            checks.append(proposed.positions - search.best.positions)
            if len(checks) == 1:
                labelled = relabelled(
                    labelled, labelled.get_potential_energy() + 1.0, labelled.get_forces()
                )
        search.observe(labelled)
    assert search.converged
    first, second = (search.largest(shift.ravel()) for shift in checks)
    assert len(checks) == 2
    assert first == pytest.approx(0.05)
    assert second == pytest.approx(0.10)  # `best` is the first copy by then


def test_a_search_that_strays_begins_again_with_shorter_steps(monkeypatch):
    monkeypatch.setattr("nugget.onthefly.saddle_search.PATIENCE", 3)
    monkeypatch.setattr("nugget.onthefly.saddle_search.MAX_ATTEMPTS", 2)
    slab = hop()
    slab[-1].z += 0.4  # far enough that three calls do not find the saddle
    label, search = labeller(EMT()), SaddleSearch(slab, 0.01, 40)
    while search.calls < 3:
        search.observe(label(search.propose()))
    assert search.centre is search.points[0]
    run_search(search, label)
    assert search.converged
    assert search.modes.negative == 1


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


@pytest.mark.slow
def test_a_run_that_is_killed_twenty_times_has_the_same_bits(tmp_path):
    config = SaddleConfig(engine=EngineConfig(name="emt"), connect=True, check_modes=True)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    SaddleRun.create(hop(4), config, whole).run()
    SaddleRun.create(hop(4), config, killed)
    calls, rng = killed / "calls.jsonl", np.random.default_rng(0)
    kills = 0
    for delay in rng.uniform(0.0, 0.03, 20):
        process = _resumed(killed)
        before = _lines(calls)
        while process.poll() is None and _lines(calls) == before:
            time.sleep(0.005)
        time.sleep(delay)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert kills >= 15  # the others had ended before
    assert _resumed(killed).wait() == 0
    for name in ("result.json", "saddle.extxyz", "labelled.extxyz"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    for one, other in zip(read_outcomes(calls), read_outcomes(whole / calls.name), strict=True):
        assert np.array_equal(one.atoms.positions, other.atoms.positions)
        assert one.energy == other.energy


def _resumed(directory: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", "from nugget.cli.main import app; app()", "saddle", "--resume"]
    return subprocess.Popen(
        [*command, str(directory), "--json"], stdout=subprocess.DEVNULL, start_new_session=True
    )


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
