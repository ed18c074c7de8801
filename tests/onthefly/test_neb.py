"""Paths that are learned, against ASE's own NEB with the engine."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ase import Atoms
from ase.build import add_adsorbate, fcc100
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms
from ase.io import read
from ase.optimize import BFGS
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.errors import NuggetError
from nugget.onthefly.learning_calculator import labeller
from nugget.onthefly.online_model import OnlineModel
from nugget.onthefly.reaction_path import (
    NEBRun,
    SurrogateNEB,
    _PathSearch,
    bent,
    find_path,
    hessian,
    imaginary_modes,
    interpolated,
)
from nugget.onthefly.run_settings import NEBConfig

BARRIER = 0.3749  # eV, ASE's climbing NEB with EMT: 237 calls


def ends() -> tuple[Atoms, Atoms]:
    """A gold atom hops on Al(100), as in ASE's tutorial."""
    slab = fcc100("Al", size=(2, 2, 3))
    add_adsorbate(slab, "Au", 1.7, "hollow")
    slab.center(axis=2, vacuum=4.0)
    slab.set_constraint(FixAtoms(mask=[atom.tag > 1 for atom in slab]))
    slab.info = {}
    end = slab.copy()
    end[-1].x += end.cell[0, 0] / 2
    return slab, end


@pytest.fixture(scope="module")
def found():
    return find_path(*ends(), labeller(EMT()), NEBConfig(images=7, vibrations=True))


def test_the_barrier_is_that_of_ase_in_a_tenth_of_the_calls(found):
    result, _ = found
    assert result.converged
    assert result.barrier == pytest.approx(BARRIER, abs=0.01)
    assert result.reaction_energy == pytest.approx(0.0, abs=0.005)
    assert result.calls <= 23


def test_a_path_that_only_falls_is_called_so():
    top, bottom = ends()
    top[-1].x += top.cell[0, 0] / 4  # between two hollows: no minimum
    config = NEBConfig(images=5, relax_ends=False, max_calls=40)
    result, _ = find_path(top, bottom, labeller(EMT()), config)
    assert not result.converged
    assert "no barrier" in result.reason
    assert result.calls < 30


def test_the_saddle_is_one(found):
    result, model = found
    assert result.imaginary == 1
    assert imaginary_modes(result.start, model.potential) == 0


def test_the_hessian_is_that_of_the_engine(found):
    result, model = found
    mine = np.linalg.eigvalsh(hessian(result.start, model.potential))
    atoms, label, step = result.start, labeller(EMT()), 0.01
    force = []
    for sign in (1, -1):
        moved = atoms.copy()
        moved.calc = None
        moved.positions[-1, 2] += sign * step
        force.append(label(moved).calc.results["forces"][-1, 2])
    stiffness = -(force[0] - force[1]) / (2 * step)
    assert hessian(result.start, model.potential)[-1, -1] == pytest.approx(stiffness, rel=0.25)
    assert mine.min() > 0


def test_images_in_one_batch_have_the_forces_of_single_ones():
    path, model, label = interpolated(*ends(), 7), OnlineModel(None), labeller(EMT())
    for atoms in path:
        model.learn(label(atoms.copy()))
    SurrogateNEB(path, model.potential, climb=True).get_forces()
    for atoms in path:
        single = model.potential.predict([atoms.copy()])
        assert atoms.get_potential_energy() == pytest.approx(float(single.energy[0]), abs=1e-8)
        assert np.allclose(atoms.calc.results["forces"], single.forces[0], atol=1e-8)


def test_a_path_through_the_boundary_is_short():
    start, end = ends()
    end.positions[-1] += end.cell[0]
    path = interpolated(start, end, 5)
    assert np.linalg.norm(path[-1].positions - path[0].positions) < 4.0


def on_site(share: float) -> Atoms:
    """A gold atom on a fixed slab, between a hollow (0), a bridge (0.25) or a top atom beyond."""
    slab, _ = ends()
    slab.set_constraint(FixAtoms(range(12)))
    slab[-1].x += share * slab.cell[0, 0]
    return slab


def stationary(atoms: Atoms) -> Atoms:
    """The height of the gold atom relaxed; symmetry keeps it at its site."""
    atoms.calc = EMT()
    BFGS(atoms, logfile=None).run(fmax=1e-3)
    return atoms


def test_a_second_negative_mode_is_noticed_and_the_path_bent_along_it():
    bridge, top = on_site(0.25), on_site(0.25)
    top[-1].y += 0.25 * top.cell[1, 1]
    top[-1].z += 0.8
    search = _PathSearch(labeller(EMT()), NEBConfig(), lambda text: None)
    for saddle in (stationary(bridge), stationary(top)):
        for seed in range(6):
            moved = saddle.copy()
            moved.rattle(0.05, seed=seed)
            search.call(moved)
    assert search._way_aside(bridge) is None
    aside = search._way_aside(top)
    assert aside is not None
    assert np.abs(aside[-1, 2]) < 0.05  # along the surface
    assert np.linalg.norm(aside[-1]) == pytest.approx(0.3)
    path = bent([top.copy() for _ in range(5)], aside)
    assert np.array_equal(path[0].positions, top.positions)
    assert np.allclose(path[2].positions, top.positions + aside)


@pytest.mark.slow
def test_relaxed_ends_are_evaluated_once():
    start, end = on_site(0.0), on_site(0.5)
    for atoms in (start, end):
        stationary(atoms)
    result, _ = find_path(start, end, labeller(EMT()), NEBConfig(images=5))
    assert result.end_calls == 2
    assert np.array_equal(result.start.positions, start.positions)


def test_different_atoms_are_refused(tmp_path):
    start, end = ends()
    end.numbers[-1] = 29
    with pytest.raises(NuggetError, match="same atoms"):
        NEBRun.create(start, end, NEBConfig(), tmp_path / "run")


def test_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for atoms, name in zip(ends(), ("a.traj", "b.traj"), strict=True):
        atoms.write(name)
    command = ["neb", "a.traj", "b.traj", "--engine", "emt", "--images", "5", "--out", "path"]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["barrier"] == pytest.approx(BARRIER, abs=0.01)
    calls = (tmp_path / "path" / "calls.jsonl").read_bytes()
    done = CliRunner().invoke(app, ["neb", "--resume", "path", "--json"])
    assert json.loads(done.stdout) == report
    assert (tmp_path / "path" / "calls.jsonl").read_bytes() == calls  # no call was repeated
    assert (tmp_path / "path" / "path.png").stat().st_size > 1000
    images = read("path/path.extxyz", ":")
    assert len(images) == 5
    assert images[2].arrays["forces_uncertainty"].shape == (13, 3)
