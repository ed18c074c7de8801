"""`nugget engines`: the table, one engine, and a trial evaluation."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.cluster import Octahedron
from typer.testing import CliRunner

from nugget.cli.main import app


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["engines", *arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout, result.stderr


def test_table_and_one_engine():
    code, out, _ = run()
    assert code == 0
    for name in ("gfn1-xtb (default)", "gfn2-xtb", "tersoff", "vasp", "mace"):
        assert name in out
    rows = {row["name"]: row for row in json.loads(run("--json")[1])["engines"]}
    assert rows["tersoff"]["installed"]
    assert "pseudopotentials" in rows["espresso"]["settings"]
    code, out, _ = run("vasp")
    assert code == 0
    assert "VASP_PP_PATH" in out
    assert "6 Å around structures without a cell" in out
    assert json.loads(run("lj", "--json")[1])["installed"]


def test_a_trial_of_a_small_structure():
    gold = Octahedron("Au", 2)
    gold.calc = EMT()
    told = json.loads(run("--try", "emt", "--json")[1])
    assert told["energy"] == pytest.approx(gold.get_potential_energy(), abs=1e-10)
    assert told["fmax"] == pytest.approx(np.linalg.norm(gold.get_forces(), axis=1).max())
    assert told["stress"] is None
    assert told["seconds"] > 0
    code, out, _ = run("--try", "emt")
    assert code == 0
    assert f"{told['energy']:.6f} eV" in out


def test_a_trial_of_a_file_with_options(tmp_path, monkeypatch):
    """An engine of the current directory; a crystal has a stress."""
    monkeypatch.chdir(tmp_path)
    crystal = bulk("Cu", cubic=True) * (3, 3, 3)
    crystal.rattle(0.05, seed=1)
    crystal.write(tmp_path / "cu.extxyz")
    (tmp_path / "here_engine.py").write_text(
        "from ase.calculators.lj import LennardJones\n"
        "def make(rc): return LennardJones(sigma=2.3, epsilon=0.4, rc=rc)\n"
    )
    told = json.loads(
        run("--try", "here_engine:make", "cu.extxyz", "--option", "rc=5.0", "--json")[1]
    )
    assert told["formula"] == "Cu108"
    assert np.shape(told["stress"]) == (6,)
    assert {path.name for path in tmp_path.iterdir()} == {"cu.extxyz", "here_engine.py"}


def test_trials_that_fail(tmp_path):
    code, _, err = run("--try", "os:getcwd")
    assert code == 1
    assert "is not an ASE calculator" in err
    code, out, _ = run("--try", "os:getcwd", "--json")
    assert code == 1
    assert json.loads(out)["failure"] == "exception"
    for arguments, text in (
        (("--try",), "Name the engine"),
        (("--try", "emt", "--charge", "1"), "takes no charge"),
        (("--try", "no_such_thing:make"), "no module 'no_such_thing'"),
        (("nonsense",), "there is no engine 'nonsense'"),
    ):
        code, _, err = run(*arguments)
        assert code == 2
        assert text in err
        assert err.count("\n") == 1


def test_a_trial_of_settings_takes_their_own_atoms(tmp_path):
    """Six gold atoms would be of no use to an engine that is set up for copper."""
    for system, formula in (('formula = "Cu5"', "Cu5"), ('formula = "Cu"\nkind = "crystal"', "Cu")):
        file = tmp_path / "settings.toml"
        file.write_text(f'[system]\n{system}\n[engine]\nname = "emt"\n[search]\nseed = 3\n')
        told = json.loads(run("--try", str(file), "--json")[1])
        assert told["ok"], told
        assert told["formula"].startswith(formula)
        assert (told["stress"] is not None) == ("crystal" in system)


def test_a_trial_that_fails_names_the_settings(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('[system]\nformula = "Fe3"\n[engine]\nname = "emt"\n')
    code, _, err = run("--try", str(file))
    assert code == 1
    assert f"Another structure: --try {file} FILE." in err
