"""A model inside LAMMPS: the values of ASE, dynamics, halts, continuation and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk, fcc111, molecule
from ase.io import read, write
from ase.io.lammpsdata import write_lammps_data
from example_structures import emt_labelled
from typer.testing import CliRunner

from nugget import RBF, SOAP, NuggetError, Potential, load_calculator
from nugget.cli.main import app
from nugget.interop.lammps_potential import LammpsPotential, Limit, Limits, attach, start_lammps
from nugget.interop.lammps_run import LammpsConfig, LammpsRun, ScriptRun

QUIET = ["-log", "none", "-screen", "none"]
UNCERTAINTIES = ("energy_uncertainty", "energies_uncertainty")

try:
    start_lammps(QUIET).close()
    MISSING = ""
except NuggetError as error:
    MISSING = str(error)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def shaken(atoms: Atoms, seed: int, by: float = 0.12) -> Atoms:
    rng = np.random.default_rng(seed)
    atoms = atoms.copy()
    if atoms.pbc.all():
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + rng.normal(0, 0.02, (3, 3))), True)
    atoms.positions += rng.normal(0, by, atoms.positions.shape)
    return atoms


def alloy(repeat: tuple[int, int, int] = (2, 1, 1), seed: int = 0) -> Atoms:
    atoms = bulk("Cu", a=3.85, cubic=True).repeat(repeat)
    atoms.symbols[np.random.default_rng(seed).permutation(len(atoms))[::2]] = "Au"
    return atoms


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "cuau.model"
    images = [emt_labelled(shaken(alloy((2, 2, 1), seed), seed)) for seed in range(12)]
    # Wide noise keeps the weights small: rounding errors of energies are 1e-11 eV, not 1e-7.
    Potential(SOAP(("Cu", "Au"), 5.0), RBF(15.0), noise=0.01, force_noise=0.1).fit(images).save(
        path
    )
    return path


def structures() -> dict[str, Atoms]:
    slab = fcc111("Au", (2, 2, 3), a=4.0)
    slab.symbols[::3] = "Cu"
    slab.center(vacuum=7.0, axis=2)
    slab.pbc = (True, True, False)
    cluster = alloy((2, 2, 2))[:17]
    cluster.pbc = False
    cluster.center(vacuum=3.0)
    primitive = bulk("Au", a=4.0).repeat((2, 1, 1))
    primitive.symbols[0] = "Cu"
    return {
        "small cell": shaken(alloy((1, 1, 1)), 1),  # shorter than the cutoff
        "triclinic": shaken(primitive, 2),
        "large": shaken(alloy((3, 3, 3)), 3),
        "slab": shaken(slab, 4),
        "cluster": shaken(cluster, 5),
    }


def in_lammps(atoms: Atoms, path: Path, *commands: str) -> object:
    """A LAMMPS instance with these atoms, in `units metal`."""
    write_lammps_data(path / "s.data", atoms, specorder=["Cu", "Au"], masses=True, units="metal")
    boundary = " ".join("p" if periodic else "s" for periodic in atoms.pbc)
    lmp = start_lammps(QUIET)
    start = commands or ("units metal",)
    for command in (*start, "atom_style atomic", f"boundary {boundary}", "neighbor 0.4 bin"):
        lmp.command(command)
    lmp.command(f"read_data {path / 's.data'}")
    return lmp


def by_id(lmp, name: str, **shape: int) -> np.ndarray:
    count = lmp.extract_setting("nlocal")
    order = np.argsort(lmp.numpy.extract_atom("id", nelem=count))
    return np.array(lmp.numpy.extract_atom(name, nelem=count, **shape))[order]


def assert_like_ase(lmp, attached: LammpsPotential, model: Path, limit: float = 1e-8) -> None:
    atoms = attached.structure()
    atoms.calc = load_calculator(model, uncertainties=UNCERTAINTIES)
    assert lmp.get_thermo("pe") == pytest.approx(atoms.get_potential_energy(), abs=limit)
    assert np.abs(by_id(lmp, "f", dim=3) - atoms.get_forces()).max() < limit
    results = atoms.calc.results
    assert lmp.extract_fix("nugget", 0, 1, 0) * len(atoms) == pytest.approx(
        results["energy_uncertainty"], abs=limit
    )
    assert np.abs(by_id(lmp, "d_sigma") - results["energies_uncertainty"]).max() < limit
    assert np.abs(by_id(lmp, "d_outside") - results["outside_atoms"]).max() < limit


def assert_same_pressure(lmp, atoms: Atoms) -> None:
    names = ("pxx", "pyy", "pzz", "pyz", "pxz", "pxy")
    pressure = np.array([lmp.get_thermo(name) for name in names]) * units.bar
    # LAMMPS' own constant for bar differs from ASE's in the eighth digit.
    assert np.allclose(pressure, -atoms.get_stress(), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("name", structures())
def test_values_are_those_of_ase(name: str, model: Path, tmp_path: Path):
    atoms = structures()[name]
    lmp = in_lammps(atoms, tmp_path)
    attached = attach(lmp, Potential.load(model))
    lmp.command("compute energies all pe/atom fix")
    lmp.command("compute total all reduce sum c_energies")
    lmp.command("thermo_style custom step pe press c_total")
    lmp.command("run 0")
    attached.raise_error()
    assert_like_ase(lmp, attached, model)
    inside = attached.structure()
    inside.calc = load_calculator(model)
    if atoms.pbc.all():
        assert_same_pressure(lmp, inside)
    atoms.calc = load_calculator(model)  # before ASE turned it into LAMMPS' frame
    assert lmp.get_thermo("pe") == pytest.approx(atoms.get_potential_energy(), abs=1e-8)
    assert lmp.extract_compute("total", 0, 0) == pytest.approx(lmp.get_thermo("pe"), abs=1e-8)
    assert np.allclose(inside.get_all_distances(mic=True), atoms.get_all_distances(mic=True))
    lmp.close()


def test_a_box_that_changes(model: Path, tmp_path: Path):
    """Ghosts move with a barostat between rebuilds of the list, and atoms cross the boundary."""
    lmp = in_lammps(shaken(alloy((2, 2, 2)), 6), tmp_path)
    attached = attach(lmp, Potential.load(model))
    lmp.command("velocity all create 900 1")
    lmp.command("fix move all npt temp 900 900 0.1 tri 5e4 5e4 0.2")
    volume = lmp.get_thermo("vol")
    lmp.command("run 60")
    attached.raise_error()
    assert abs(lmp.get_thermo("vol") / volume - 1) > 0.01
    assert 1 < attached.list_reads < attached.evaluations
    assert_like_ase(lmp, attached, model)
    lmp.close()


def test_energy_is_conserved(model: Path, tmp_path: Path):
    lmp = in_lammps(alloy((2, 2, 2)), tmp_path)
    attach(lmp, Potential.load(model))
    for command in ("velocity all create 300 1", "timestep 0.001", "fix move all nve", "run 0"):
        lmp.command(command)
    start, kinetic = lmp.get_thermo("etotal"), lmp.get_thermo("ke")
    lmp.command("run 200")
    assert abs(lmp.get_thermo("etotal") - start) < 2e-3 * kinetic
    lmp.close()


def test_values_of_atoms_at_frames_only(model: Path, tmp_path: Path):
    lmp = in_lammps(alloy(), tmp_path)
    attached = attach(lmp, Potential.load(model), every=5)
    lmp.command("fix move all nve")
    lmp.command("run 4")
    attached.raise_error()
    assert np.isnan(by_id(lmp, "d_sigma")).all()
    lmp.command("run 1")
    assert np.isfinite(by_id(lmp, "d_sigma")).all()
    lmp.close()


def test_halt_names_step_and_atom(model: Path, tmp_path: Path):
    atoms = alloy((2, 2, 2))
    atoms.positions[7] += (0.0, 0.0, 0.9)  # far from all training structures
    lmp = in_lammps(atoms, tmp_path)
    attached = attach(lmp, Potential.load(model), limits=Limits(outside=0.3))
    lmp.command("fix move all nve")
    lmp.command("run 10")
    halt = attached.halt
    assert halt is not None
    assert (halt.step, halt.limit, halt.element) == (0, Limit.OUTSIDE, atoms.symbols[halt.atom - 1])
    distances = atoms.get_distances(7, np.arange(len(atoms)), mic=True)
    assert halt.atom - 1 in np.argsort(distances)[:4]  # the atom, or one that it came close to
    assert f"Step 0: atom {halt.atom} ({halt.element}) is outside" in str(halt)
    lmp.command("run 10")  # no later run moves the atoms
    assert lmp.extract_global("ntimestep") == 0
    lmp.close()


@pytest.mark.parametrize("limits", [Limits(sigma=1e-6), Limits(atom=1e-6)])
def test_limits_of_uncertainties(limits: Limits, model: Path, tmp_path: Path):
    lmp = in_lammps(alloy(), tmp_path)
    attached = attach(lmp, Potential.load(model), every=1000, limits=limits)
    lmp.command("run 0")
    assert attached.halt is not None
    assert attached.halt.value > 1e-6
    assert "energies_uncertainty" in attached.structure().arrays
    assert attached.halt.atom - 1 == np.argmax(attached.structure().arrays["energies_uncertainty"])
    lmp.close()


def test_halt_learn_and_continue(model: Path, tmp_path: Path):
    """A run halts, the model learns the structure, and the run continues to its end."""
    config = LammpsConfig(
        steps=60, temperature=1500, every=10, halt_above=0.02, dt=1.0, ensemble="nve"
    )
    few = [emt_labelled(shaken(alloy((2, 2, 1), seed), seed, by=0.01)) for seed in range(5)]
    potential = Potential(SOAP(("Cu", "Au"), 5.0), RBF(15.0)).fit(few)
    run = LammpsRun.create(alloy((2, 2, 1)), config, tmp_path / "run")
    summary = run.run(potential)
    steps = []
    while summary.halt is not None and len(steps) < 30:
        steps.append(summary.step)
        images = read(tmp_path / "run" / "halted.extxyz", ":")
        assert images[-1].info["step"] == summary.halt.step == summary.step
        potential.update([emt_labelled(images[-1])])
        summary = LammpsRun.resume(tmp_path / "run").run(potential)
    assert steps
    assert summary.halt is None
    assert summary.step == 60
    frames = read(tmp_path / "run" / "frames.lammpstrj", ":", format="lammps-dump-text")
    assert len(frames) >= 7
    with pytest.raises(NuggetError, match="contains a run already"):
        LammpsRun.create(alloy(), config, tmp_path / "run")


def test_command(model: Path, tmp_path: Path):
    write(tmp_path / "start.extxyz", alloy((2, 2, 2)))
    run = CliRunner().invoke
    options = ["--data", str(tmp_path / "start.extxyz"), "--steps", "20", "--every", "10"]
    done = run(app, ["lammps", str(model), *options, "--out", str(tmp_path / "a"), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.output[done.output.index("{") :])
    assert result["step"] == 20
    assert result["halt"] is None
    assert result["evaluations"] == 21
    halted = run(
        app,
        ["lammps", str(model), *options, "--out", str(tmp_path / "b"), "--halt-above", "1e-6"],
    )
    assert halted.exit_code == 3, halted.output
    assert "Step 0: the energy is uncertain by" in halted.output
    assert len(read(tmp_path / "b" / "halted.extxyz", ":")) == 1
    more = ["lammps", str(model), "--resume", str(tmp_path / "a"), "--steps", "30", "--json"]
    done = run(app, more)
    assert json.loads(done.output[done.output.index("{") :])["step"] == 30


SCRIPT = "units {units}\nnewton {newton}\nread_data s.data\n{line}\n{after}\nrun 0\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"units": "real"}, "units metal"),
        ({"newton": "off"}, "newton on"),
        ({"line": ""}, "has 0 lines"),
        ({"after": "pair_style lj/cut 5.0\npair_coeff * * 0.1 2.0"}, "pair style of its own"),
        ({"after": "nonsense"}, "LAMMPS stopped"),
        ({"line": "mass 1 54.938\n# nugget attach"}, None),  # manganese, unknown to the model
        ({"line": "mass 1 300.0\n# nugget attach"}, "of no element"),
    ],
)
def test_scripts_that_do_not_fit(changes, message, model: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_lammps_data("s.data", alloy(), specorder=["Cu", "Au"], masses=True, units="metal")
    parts = {"units": "metal", "newton": "on", "line": "# nugget attach", "after": "", **changes}
    with pytest.raises(NuggetError, match=message or "The model has no Mn"):
        ScriptRun(SCRIPT.format(**parts)).run(Potential.load(model))


def test_elements_that_do_not_fit(model: Path, tmp_path: Path):
    lmp = in_lammps(alloy(), tmp_path)
    potential = Potential.load(model)
    with pytest.raises(NuggetError, match="2 atom types, but 1"):
        attach(lmp, potential, ["Cu"])
    with pytest.raises(NuggetError, match="no element 'Xx'"):
        attach(lmp, potential, ["Cu", "Xx"])
    lmp.close()
    with pytest.raises(NuggetError, match="periodic in all directions"):
        LammpsRun.create(molecule("H2O"), LammpsConfig(ensemble="npt"), tmp_path / "npt")


def test_an_error_in_the_callback_ends_the_run(model: Path, tmp_path: Path):
    atoms = alloy()
    atoms.positions[1] = atoms.positions[0] + 1e-3
    lmp = in_lammps(atoms, tmp_path)
    attached = attach(lmp, Potential.load(model))
    lmp.command("run 5")
    with pytest.raises(NuggetError, match=r"Step 0: .* apart"):
        attached.raise_error()
    lmp.close()
