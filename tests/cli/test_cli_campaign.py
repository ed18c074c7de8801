from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ase.io import read
from test_cli_search import nugget, parsed, refused

from nugget.search.store import Store

SMALL = "[system]\nformula = 'Au5'\n[engine]\nname = 'emt'\n[model]\ncutoff = 4.0\n" + (
    "[search]\nbudget = 5\ncandidates = 2\nrelax_steps = 10\ninitial = 3\n"
)
HERE = ("--executor", "in-process")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


@pytest.mark.slow
def test_a_campaign_from_its_start_to_its_figure(here):
    """Two cells, a reference that one search is known to find, all files, and a second look."""
    nugget("search", "small.toml", "--seed", 1, "--kappa", 0, "--out", "known")
    first = nugget(
        "campaign", "small.toml", "--vary", "kappa=0,4", "--repeats", 1, "--seed", 1, *HERE,
        "--reference", "known/best.extxyz", "--set", "search.reference_tolerance=1e-5",
        "--out", "c",
    )  # fmt: skip
    lines = first.stdout.splitlines()
    assert lines[0] == "Au5 · emt · 2 searches · c"
    assert [line.split()[0] for line in lines[1:3]] == ["1/2", "2/2"]
    assert "kappa=0  seed 1  found at evaluation" in lines[1]
    assert "Success within the budget" in first.stdout
    with open("c/results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["kappa"], row["seed"]) for row in rows] == [("0", "1"), ("4", "1")]
    assert rows[0]["found"] == "true"
    best = read("known/best.extxyz").get_potential_energy()
    assert float(rows[0]["best_energy"]) == pytest.approx(best, abs=1e-5)
    assert Path("c/success.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads(Path("c/summary.json").read_text())
    assert [cell["name"] for cell in summary["cells"]] == ["kappa=0", "kappa=4"]
    assert summary["cells"][0]["found"] == 1
    assert len(summary["tests"]) == 1

    changed = Path("c/runs/kappa=0/seed-0001/search.db").stat().st_mtime_ns
    again = parsed("campaign", "--resume", "c", *HERE)
    assert again.pop("verdict")["sentences"]
    assert again == summary
    assert Path("c/runs/kappa=0/seed-0001/search.db").stat().st_mtime_ns == changed
    more = parsed("campaign", "--resume", "c", "--repeats", 2, *HERE)
    assert more["finished"] == 4
    assert len(list(Path("c/runs").glob("*/seed-0002"))) == 2


def test_without_a_reference_there_is_no_success_to_speak_of():
    text = nugget("campaign", "small.toml", "--repeats", 1, "--out", "c", *HERE).stdout
    assert "best energy" in text
    assert "Success" not in text
    assert not Path("c/success.png").exists()
    assert json.loads(Path("c/summary.json").read_text())["tests"] == []
    assert Path("c/runs/all/seed-0000/search.db").exists()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["small.toml"], "--out DIR"),
        (["--out", "c"], "--out DIR"),
        (["small.toml", "--out", "c", "--vary", "kapa=1"], "kapa is not a setting"),
        (["small.toml", "--out", "c", "--vary", "kappa=x"], "search.kappa"),
        (["small.toml", "--out", "c", "--reference", "none.xyz"], "there is no file"),
        (["small.toml", "--out", "c", "--engine", "emtt"], "did you mean 'emt'?"),
        (["small.toml", "--resume", "c"], "as it was started"),
        (["--resume", "c", "--budget", "3"], "as it was started"),
        (["--resume", "c"], "holds no campaign"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(here, arguments, hint):
    assert hint in refused("campaign", *arguments)
    assert [path.name for path in here.iterdir()] == ["small.toml"]


def test_an_executor_that_does_not_exist():
    assert "execution.kind" in refused("campaign", "small.toml", "-o", "c", "--executor", "magic")


def test_parquet_needs_pyarrow(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    text = refused("campaign", "small.toml", "--out", "c", "--parquet")
    assert "pip install pyarrow" in text
    assert not (here / "c").exists()


@pytest.mark.parametrize(
    "executor",
    ["processes", *(pytest.param(k, marks=pytest.mark.slow) for k in ("in-process", "dask"))],
)
def test_ctrl_c_saves_and_says_how_to_go_on(here, executor):
    """Sent to the whole group, as a terminal does; the searches end after their evaluations."""
    (here / "slow.py").write_text(
        "import time\nfrom ase.calculators.emt import EMT\n"
        "class Slow(EMT):\n"
        "    def calculate(self, *a, **k):\n        time.sleep(0.3)\n"
        "        super().calculate(*a, **k)\n"
        "def make():\n    return Slow()\n"
    )
    path = os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-c", "from nugget.cli.main import app; app()", "campaign", "small.toml",
         "--engine", "slow:make", "--budget", "500", "--repeats", "3", "-j", "1", "--out", "c",
         "--executor", executor],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    database = here / "c" / "runs" / "all" / "seed-0000" / "search.db"
    log = database.with_name("search.log")
    while process.poll() is None and not (log.exists() and log.read_text().count(" best ") > 1):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    text = process.communicate(timeout=120)[0]
    assert process.returncode == 130, text
    assert "Stopping after the evaluations in flight" in text
    assert "3 of 3 searches are unfinished. To continue: nugget campaign --resume c" in text
    assert "interrupted" in log.read_text()
    assert 2 <= len(Store.open(database.parent).records()) < 500
    assert not (here / "c" / "runs" / "all" / "seed-0001").exists()
    assert not (here / "c" / "stop").exists()


def test_help_teaches():
    text = nugget("campaign", "--help").stdout
    assert "nugget campaign --resume" in text
    assert "nugget campaign" in nugget("--help").stdout
