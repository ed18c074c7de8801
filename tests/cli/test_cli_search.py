from __future__ import annotations

import inspect
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import ase.db
import pytest
from ase.build import fcc111
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read
from example_structures import gold_cluster
from typer.testing import CliRunner

from nugget.cli._console import graceful_stop
from nugget.cli.main import app
from nugget.cli.search import read_settings
from nugget.cli.search import search as search_command
from nugget.engines import DEFAULT, describe_engines
from nugget.search.search_settings import Config, make_config, read_config
from nugget.search.store import Store

ROOT = Path(__file__).parents[2]
SMALL = ("--engine", "emt", "--candidates", 3, "--set", "search.relax_steps=20")


def nugget(*arguments: object, code: int = 0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def parsed(*arguments: object, code: int = 0) -> dict:
    return json.loads(nugget(*arguments, "--json", code=code).stdout)


def refused(*arguments: object) -> str:
    """The one line on stderr of a command that cannot do its work."""
    result = nugget(*arguments, code=2)
    lines = result.stderr.strip().splitlines()
    lines = [line for line in lines if not line.startswith("nugget: compiling")]  # on a first run
    assert len(lines) == 1, lines
    assert lines[0].startswith("Error: ")
    return lines[0]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def energies(directory: str) -> list[float]:
    return [record.energy for record in Store.open(Path(directory)).records()]


def test_a_formula_is_enough_and_a_search_can_be_continued():
    """Six evaluations and two more are the same as eight at once."""
    first = nugget("search", "Au6", *SMALL, "--budget", 6)
    lines = first.stdout.splitlines()
    assert lines[0].startswith("100 calls of the engine are planned: 6 for the search")
    assert lines[1] == "Au6 · emt · runs/Au6-seed0"
    assert lines.pop(3).startswith("the engine took")
    assert [line.split()[0] for line in lines[2:8]] == [f"{k}/6" for k in range(1, 7)]
    assert "expected" in lines[7]  # by then there is a model
    assert "(search 6, checks 4, final relaxations" in first.stdout
    assert "nugget search --resume runs/Au6-seed0 --budget 12" in first.stdout
    lowest = min(energies("runs/Au6-seed0"))
    assert f"{lowest:.4f} eV" in first.stdout.split("lowest evaluated")[1].splitlines()[0]
    best = read("runs/Au6-seed0/best.extxyz").get_potential_energy()
    assert f"{best:.4f} eV" in first.stdout.split("best energy")[1].splitlines()[0]
    assert best < lowest  # it was relaxed

    line = refused("search", "Au6", *SMALL)
    assert "nugget search --resume runs/Au6-seed0" in line
    assert len(energies("runs/Au6-seed0")) == 6

    report = parsed("search", "--resume", "runs/Au6-seed0", "--budget", 8)
    whole = parsed("search", "Au6", *SMALL, "--budget", 8, "--out", "whole")
    assert energies("runs/Au6-seed0") == energies("whole")
    for one in (report, whole):
        assert one["evaluations"] == 8
        assert one["status"] == "finished"
        assert one["best_evaluated"] == min(energies("whole"))
        best = read(one["best_file"]).get_potential_energy()
        assert one["best_energy"] == pytest.approx(best, abs=1e-7)
        assert one["found"] is None
        assert one["failures"] == {}
    assert whole["best_file"] == "whole/best.extxyz"
    # Nothing is left to do; that is no mistake.
    assert parsed("search", "--resume", "whole")["evaluations"] == 8


@pytest.mark.slow
def test_evaluations_on_a_dask_cluster():
    """The engine runs in the cluster's workers; the log is as good as any other."""
    pytest.importorskip("distributed")
    cluster = ("--set", "execution.kind=dask", "--set", "execution.workers=2")
    report = parsed("search", "Au6", *SMALL, "--budget", 7, "--in-flight", 2, *cluster)
    assert (report["evaluations"], report["failures"]) == (7, {})
    assert "all bit-identical" in nugget("search", "--replay", report["directory"]).stdout


def test_several_in_flight_and_a_replay():
    """What was run can be proposed again from the database; what was changed there is found."""
    report = parsed("search", "Au6", *SMALL, "--budget", 9, "--in-flight", 3)
    assert (report["evaluations"], report["in_flight"]) == (9, 3)
    found = parsed("search", "--replay", "runs/Au6-seed0")
    assert found == {"proposals": 9, "differences": []}
    shown = nugget("search", "--replay", "runs/Au6-seed0").stdout
    assert shown == "9 proposals repeated: all bit-identical.\n"
    with ase.db.connect("runs/Au6-seed0/search.db") as database:
        row = next(database.select(proposal=4))
        atoms = row.toatoms()
        results = atoms.calc.results
        atoms.positions[0, 0] += 1e-12
        atoms.calc = SinglePointCalculator(atoms, **results)
        database.update(row.id, atoms)
    assert "was changed" in refused("search", "--replay", "runs/Au6-seed0")
    with ase.db.connect("runs/Au6-seed0/search.db") as database:
        database.update(row.id, data={"digest": None})  # as an earlier version wrote it
    shown = nugget("search", "--replay", "runs/Au6-seed0", code=1).stdout
    assert "proposal 4: structures differ" in shown
    assert "not identical" in shown


def test_options_reach_the_settings():
    tree, base, name = read_settings(
        "Cu3",
        {"search.kappa": 1.5, "model.use_forces": False, "search.generators.melt": 0.0},
    )
    assert (tree.system.formula, base, name) == ("Cu3", Path(), "Cu3")
    assert (tree.search.kappa, tree.model.use_forces) == (1.5, False)
    assert tree.search.generators == {**Config().search.generators, "melt": 0.0}
    nugget(
        "search", "Au4", *SMALL, "--budget", 1, "--kappa", 3, "--seed", 7, "--no-forces",
        "--set", "model.baseline=repulsion", "--set", 'search.walk="always"',
    )  # fmt: skip
    assert read_config(Path("runs/Au4-seed7/config.toml")) == make_config(
        {
            "system": {"formula": "Au4"},
            "engine": {"name": "emt"},
            "model": {"use_forces": False, "baseline": "repulsion", "sigma": 0.91},
            "search": {
                "budget": 1,
                "kappa": 3,
                "seed": 7,
                "candidates": 3,
                "relax_steps": 20,
                "walk": "always",
            },
        }
    )


def test_threads_do_not_change_a_bit_of_a_search():
    more = ("--candidates", 12, "--budget", 4, "--set", "search.initial=2")
    nugget("search", "Au6", *SMALL, *more, "--threads", 2)
    nugget("search", "--replay", "runs/Au6-seed0")
    nugget("search", "--replay", "runs/Au6-seed0", "--threads", 3)


def test_a_reference_ends_the_search():
    """Three atoms in a triangle are soon found; the copy in the directory keeps it whole."""
    triangle = gold_cluster(3, 0, rattle=0.0)
    triangle.set_distance(0, 1, 2.7)
    triangle.write("start.xyz")
    assert "carries no energy" in refused("search", "Au3", *SMALL, "--reference", "start.xyz")
    nugget("relax", "start.xyz", "--engine", "emt", "-o", "three.xyz")
    report = parsed("search", "Au3", *SMALL, "--budget", 12, "--reference", "three.xyz")
    if not report["found"]:
        pytest.fail(f"no triangle among {report['evaluations']} structures")
    assert report["evaluations"] < 12
    Path("three.xyz").unlink()
    Path("runs").rename("elsewhere")
    again = nugget("search", "--resume", "elsewhere/Au3-seed0")
    assert "found" in again.stdout.split("reference")[1].splitlines()[0]
    assert "To continue" not in again.stdout


def test_files_count_from_the_settings(here):
    """A slab next to the TOML file is found from anywhere, copied, and stays as it was."""
    (here / "project").mkdir()
    slab = fcc111("Cu", (2, 2, 2), vacuum=5.0)
    slab.write("project/slab.traj")
    nugget("init", "Cu", "--engine", "emt", "--template", "slab.traj", "-o", "project/ads.toml")
    report = parsed(
        "search", "project/ads.toml", "--budget", 2, "--set", "model.cutoff=4.0", "--out", "ads"
    )
    assert report["evaluations"] == 2
    record = Store.open(here / "ads").records()[-1]
    assert str(record.atoms.symbols) == "Cu9"
    assert (record.atoms.positions[:8] == slab.positions).all()
    (here / "project" / "slab.traj").unlink()
    assert parsed("search", "--resume", "ads", "--budget", 3)["evaluations"] == 3


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["Qx7"], "Qx"),
        (["Au6", "--engine", "emtt"], "did you mean 'emt'?"),
        (["Au6", "--engine", "no_such_module:make"], "is not installed"),
        (["Au6", "--kappa", "-1"], "search.kappa"),
        (["Au6", "--set", "search.buget=3"], "did you mean 'budget'?"),
        (["Au6", "--set", "search.budget.x=3"], "budget is a value"),
        (["Au6", "--set", "search.hops=3"], "search.hops is 3, but this setting can no longer"),
        (["Au6", "--set", "walk"], "section.option=value"),
        (["Au6", "--set", "search.generators.ratle=1"], "There is no generator 'ratle'"),
        (["none.toml"], "none.toml cannot be read"),
        (["Au6", "--reference", "none.xyz"], "there is no file"),
        (["Au6", "--reference", "seven.xyz"], "is Au7"),
        (["Au6", "--out", "seven.xyz"], "is a file"),
        (["Au6", "--resume", "somewhere"], "only --budget"),
        (["--resume", "somewhere", "--kappa", "1"], "only --budget"),
        (["--resume", "nowhere"], "holds no search"),
        (["--budget", "3"], "Give a formula"),
        (["Au6", "--in-flight", "0"], "search.in_flight"),
        (["--replay", "nowhere"], "holds no complete search"),
        (["--replay", "nowhere", "--budget", "3"], "no other options"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(here, arguments, hint):
    gold_cluster(7, 0).write("seven.xyz")
    assert hint in refused("search", *arguments)
    assert [path.name for path in here.iterdir()] == ["seven.xyz"]


def test_settings_of_somebody_else_are_not_overwritten(here):
    (here / "config.toml").write_text("# mine\n[system]\nformula = 'Au4'\n")
    assert "already holds a search" in refused("search", "config.toml", "--out", ".")
    assert (here / "config.toml").read_text().startswith("# mine")


def test_an_engine_that_always_fails_ends_in_one_line(here):
    line = refused("search", "Fe4", "--engine", "emt", "--set", "engine.max_failures=2")
    assert "failed 2 times in a row" in line
    assert "nugget search --resume runs/Fe4-seed0" in line


def test_init_writes_what_search_reads(here):
    nugget("init", "Cu5Au8", "-o", "a.toml", "--engine", "lj")
    expected = make_config({"system": {"formula": "Cu5Au8"}, "engine": {"name": "lj"}})
    assert read_config(here / "a.toml") == expected
    assert "a.toml exists already" in refused("init", "-o", "a.toml")
    nugget("init", "Ti4O8", "--cell", "4.6 4.6, 5.9", "-o", "b.toml")
    assert read_config(here / "b.toml").system.cell == (4.6, 4.6, 5.9)
    assert "[search.generators]" in nugget("init", "-o", "-").stdout
    assert parsed("init", "-o", "c.toml")["settings"]["system"]["formula"] == "Au20"
    assert "Give one of" in refused(
        "init", "--cell", "3 3 3", "--template", "x.traj", "-o", "d.toml"
    )
    assert "system.cell" in refused("init", "--cell", "3 x 3", "-o", "d.toml")
    assert "Qq" in refused("init", "Qq3", "-o", "d.toml")
    assert "did you mean" in refused("init", "--engine", "gpwa", "-o", "d.toml")
    assert not (here / "d.toml").exists()


def test_engines_are_listed():
    shown = " ".join(nugget("engines").stdout.replace("│", " ").split())
    listed = parsed("engines")["engines"]
    assert [one["name"] for one in listed] == [engine.name for engine in describe_engines()]
    assert [one["name"] for one in listed if one["default"]] == [DEFAULT]
    for engine in describe_engines():
        assert engine.name in shown
    assert "module:factory" in shown


def test_help_tells_the_true_defaults():
    """They are written out in the command so that it starts quickly; they must not drift apart."""
    config = Config()
    true = {
        "engine": config.engine.name,
        "budget": config.search.budget,
        "kappa": f"{config.search.kappa:g}",
        "seed": config.search.seed,
        "candidates": config.search.candidates,
        "in_flight": config.search.in_flight,
        "polish": config.search.polish,
        "final_fmax": config.search.final_fmax,
        "forces": "yes" if config.model.use_forces else "no",
    }
    parameters = inspect.signature(search_command, eval_str=True).parameters
    for name, value in true.items():
        option = parameters[name].annotation.__metadata__[0]
        assert f"Default: {value}." in option.help, name


def test_help_teaches():
    text = nugget("--help").stdout
    for name in ("search", "init", "engines"):
        assert f"nugget {name}" in text
        assert f"nugget {name}" in nugget(name, "--help").stdout
    assert "Usage" in nugget("search", code=2).output


def test_a_signal_stops_gracefully_a_second_one_breaks_off():
    stopped = []
    search = SimpleNamespace(stop=lambda: stopped.append(True))
    notes: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with graceful_stop(search.stop, notes.append):
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped == [True]
        assert "Stopping" in notes[0]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before
    assert stopped == [True]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_ctrl_c_saves_and_says_how_to_go_on(here, number):
    (here / "slow.py").write_text(
        "import time\nfrom ase.calculators.emt import EMT\n"
        "class Slow(EMT):\n"
        "    def calculate(self, *a, **k):\n        time.sleep(0.5)\n"
        "        super().calculate(*a, **k)\n"
        "def make():\n    return Slow()\n"
    )
    path = os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-c", "from nugget.cli.main import app; app()", "search", "Au5",
         "--engine", "slow:make", "--out", "run"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]  # plan, title, first evaluation
    assert lines[2].split()[0] == "1/150", lines
    time.sleep(0.2)
    process.send_signal(number)
    rest = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "Stopping after this evaluation" in rest
    assert "nugget search --resume run" in rest
    done = len(re.findall(r"^ +\d+/150 ", rest, re.MULTILINE)) + 1
    assert len(Store.open(here / "run").records()) == done >= 2


@pytest.mark.parametrize("name", ["cluster", "alloy", "adsorbate", "bulk"])
def test_examples_run(here, name):
    for file in (f"{name}.toml", "make_slab.py"):
        shutil.copy(ROOT / "examples" / file, here)
    if name == "adsorbate":
        assert "there is no file slab.traj" in refused("search", "adsorbate.toml")
        runpy.run_path(str(here / "make_slab.py"), run_name="__main__")
    report = parsed("search", f"{name}.toml", "--budget", 6, "--candidates", 3)
    assert report["evaluations"] == 6
    assert report["failures"] == {}


def test_a_search_without_a_single_success_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("def make():\n    raise RuntimeError('no [licence]')\n")
    words = ("search", "Au3", "--engine", "broken:make", "--budget", "2", "--out", "run")
    result = nugget(*words, code=1)
    assert "no evaluation succeeded" in " ".join(result.output.split())
    assert "no [licence]" in result.output
