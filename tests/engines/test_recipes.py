"""Codes behind ASE's calculators: found or not, how they are set up, what they are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ase import Atoms
from ase.build import bulk

from nugget.engines.engine import Electrons, describe_engines, get_engine
from nugget.engines.task import Task, run_task
from nugget.engines.wrappers import Boxed
from nugget.errors import NuggetError

PROGRAMS = {
    "vasp": "vasp_std",
    "espresso": "pw.x",
    "cp2k": "cp2k.psmp",
    "aims": "aims.x",
}
RECIPES = (*PROGRAMS, "orca", "mace")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with programs that do nothing, and no configuration of its own."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name in (*PROGRAMS.values(), "orca"):
        (bin_ / name).write_text("#!/bin/sh\ncat > /dev/null\n")
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "data").mkdir()
    for name in ("VASP_PP_PATH", "ESPRESSO_PSEUDO", "AIMS_SPECIES_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "data"))
    monkeypatch.setenv("ASE_ORCA_COMMAND", str(bin_ / "orca"))
    for name in ("ASE_VASP_COMMAND", "VASP_COMMAND", "ASE_ESPRESSO_COMMAND", "ASE_AIMS_COMMAND"):
        monkeypatch.delenv(name, raising=False)
    return bin_


@pytest.mark.parametrize("name", RECIPES)
def test_a_missing_code_is_one_sentence(name, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("ASE_ORCA_COMMAND", raising=False)
    engine = get_engine(name)
    if engine.installed():
        pytest.skip("it is configured here")
    with pytest.raises(NuggetError, match=f"engine '{name}' is not installed: .* To install it: "):
        engine.calculator()
    assert engine.settings
    row = next(row for row in describe_engines() if row.name == name)
    assert not row.installed
    assert row.missing
    assert row.how_to_install


def test_data_that_is_missing_is_named(machine, monkeypatch):
    for name, variable in (
        ("vasp", "VASP_PP_PATH"),
        ("espresso", "ESPRESSO_PSEUDO"),
        ("aims", "AIMS_SPECIES_DIR"),
    ):
        assert get_engine(name).installed()
        monkeypatch.delenv(variable)
        assert variable in str(get_engine(name).missing())


def test_a_command_that_is_not_there(machine):
    missing = get_engine("cp2k").missing({"command": "no_such_program -s"})
    assert missing is not None
    assert "no_such_program" in missing
    assert get_engine("cp2k").missing({"command": "OMP_NUM_THREADS=1 cp2k.psmp -s"}) is None


def inner(name: str, electrons: Electrons | None = None, **options: object):
    made = get_engine(name).calculator(electrons or Electrons(), None, **options)
    return made.inner if isinstance(made, Boxed) else made


def test_vasp(machine, tmp_path):
    calculator = inner("vasp", Electrons(charge=1, spin=2), encut=300)
    assert calculator.command == "vasp_std"
    told = calculator.asdict()["inputs"]
    assert told["encut"] == 300
    assert told["charge"] == 1
    assert (told["ispin"], told["nupdown"]) == (2, 1)
    assert told["lwave"] is False
    assert inner("vasp", command="nice vasp_std").command == "nice vasp_std"
    assert get_engine("vasp").calculator(None, 9.0).vacuum == 9.0


def test_espresso_writes_charge_and_pseudopotentials(machine, tmp_path):
    electrons = Electrons(charge=-1, spin=3, magmoms={"Si": 1.0})
    data = {"system": {"ecutwfc": 33}}
    calculator = inner(
        "espresso", electrons, pseudopotentials={"Si": "Si.upf"}, input_data=data, kpts=(2, 2, 2)
    )
    calculator.directory = tmp_path
    calculator.write_inputfiles(bulk("Si"), ["energy", "forces"])
    text = " ".join((tmp_path / "espresso.pwi").read_text().split())
    for line in ("tot_charge = -1", "tot_magnetization = 2", "ecutwfc = 33", "ecutrho = 400",
                 "tprnfor = .true.", "tstress = .true.", "Si.upf"):  # fmt: skip
        assert line in text
    with pytest.raises(NuggetError, match="pseudopotentials"):
        inner("espresso")


def test_orca_writes_charge_and_multiplicity(machine, tmp_path):
    calculator = inner("orca", Electrons(charge=1, spin=2), orcasimpleinput="B3LYP def2-TZVP")
    calculator.directory = tmp_path
    calculator.write_inputfiles(Atoms("H"), ["energy", "forces"])
    text = (tmp_path / "orca.inp").read_text()
    assert "*xyz 1 2" in text
    assert "! B3LYP def2-TZVP EnGrad" in text
    assert calculator.profile.command == str(machine / "orca")


def test_aims_writes_charge_and_spin(machine, tmp_path):
    calculator = inner("aims", Electrons(charge=1, spin=2))
    told = calculator.parameters
    assert (told["charge"], told["spin"], told["fixed_spin_moment"]) == (1, "collinear", 1)
    assert told["species_dir"] == os.environ["AIMS_SPECIES_DIR"]
    assert calculator.profile.command == "aims.x"


def test_cp2k_is_asked_for_a_shell(machine, monkeypatch):
    """ASE starts the program at once, and a program that does nothing is found out."""
    import ase.calculators.cp2k as module

    monkeypatch.setenv("PATH", str(machine))  # this machine may have shells of its own
    started: list[str] = []
    monkeypatch.setattr(module, "Cp2kShell", lambda command, debug: started.append(command))
    calculator = inner("cp2k", Electrons(charge=2, spin=2))
    assert started == ["cp2k.psmp -s"]
    assert calculator.parameters["uks"]
    assert calculator.parameters["charge"] == 2
    assert calculator.parameters["xc"] == "PBE"


def test_mace_is_made_as_its_documentation_says(tmp_path, monkeypatch):
    (tmp_path / "mace").mkdir()
    (tmp_path / "mace" / "__init__.py").touch()
    (tmp_path / "mace" / "calculators.py").write_text(
        "from ase.calculators.emt import EMT\ntold = {}\n"
        "def mace_mp(**options):\n    told.update(options)\n    return EMT()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    inner("mace", model="small")
    from mace.calculators import told

    assert told == {"model": "small", "device": "cpu", "default_dtype": "float64"}


CRASH = """
 %%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%
     Error in routine readpp (1):
     file nope.UPF not found
 %%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%

     stopping ...
"""
NOT_ACHIEVED = "     convergence NOT achieved after   2 iterations: stopping\n\n     JOB DONE.\n"


@pytest.mark.parametrize(
    ("output", "failure", "reason"),
    [
        (NOT_ACHIEVED, "unconverged", "pw.x: convergence NOT achieved after   2 iterations"),
        (CRASH, "exception", "pw.x: Error in routine readpp (1): file nope.UPF not found"),
        ("     Program PWSCF starts\n", "exception", "CalledProcessError: "),
    ],
)
def test_espresso_tells_why_it_failed(machine, tmp_path, output, failure, reason):
    """The exit status alone says nothing; its output does."""
    (machine / "pw.x").write_text(f"#!/bin/sh\ncat <<'END'\n{output}END\nexit 2\n")
    task = Task(name="espresso", options={"pseudopotentials": {"Si": "Si.UPF"}})
    (tmp_path / "data" / "Si.UPF").touch()
    (tmp_path / "work").mkdir()
    outcome = run_task(task, bulk("Si"), tmp_path / "work")
    assert outcome.failure == failure
    assert outcome.reason.startswith(reason)
