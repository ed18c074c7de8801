"""`nugget select`, `nugget label` and `nugget fit`, one after the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from example_structures import gold_cluster
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.structures.io import read_images, write_images


def nugget(*arguments: object, code: int = 0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("select") / "pool.extxyz"
    write_images(file, [gold_cluster(5 + k % 3, k) for k in range(12)])
    return file


def test_select_label_fit(pool: Path, tmp_path: Path):
    chosen, labelled, model = (tmp_path / n for n in ("chosen.extxyz", "lab.extxyz", "au.model"))
    told = json.loads(
        nugget("select", pool, "-n", 6, "-o", chosen, "--exclude", "0:2", "--json").stdout
    )
    images = read_images(chosen)
    assert [c["index"] for c in told["choices"]] == [a.info["pool_index"] for a in images]
    assert not {0, 1} & {a.info["pool_index"] for a in images}
    falls = [a.info["expected_uncertainty"] for a in images]
    assert falls == sorted(falls, reverse=True)
    nugget("label", chosen, "--engine", "emt", "-o", labelled)
    nugget("fit", labelled, "--preset", "quick", "-o", model)
    figure = tmp_path / "curve.png"
    again = nugget("select", pool, "-n", 20, "--model", model, "--plot", figure)
    assert "6 of 6 structures" in " ".join(again.output.split())
    assert "worthwhile" in again.output
    assert figure.stat().st_size > 1000
    refused = nugget("select", pool, "-o", chosen, code=2)
    assert "exists already" in refused.stderr


def test_failed_labels_are_named(tmp_path: Path):
    images = [gold_cluster(4, k) for k in range(2)]
    images[0].symbols[0] = "U"
    file, out = tmp_path / "in.extxyz", tmp_path / "out.extxyz"
    write_images(file, images)
    result = nugget("label", file, "-e", "emt", "-o", out, code=1)
    assert "1 of 2 have labels" in result.output
    told = json.loads(nugget("label", file, "-e", "emt", "-o", out, "--json", code=1).stdout)
    assert told["calculated_now"] == 0
    assert told["failures"][0]["kind"] == "exception"


def test_settings_files_need_trust(tmp_path: Path):
    write_images(tmp_path / "in.extxyz", [gold_cluster(4, 0)])
    settings = tmp_path / "settings.toml"
    settings.write_text('[system]\nformula = "Au4"\n[engine]\nname = "stranger:make"\n')
    out = tmp_path / "out.extxyz"
    refused = nugget("label", tmp_path / "in.extxyz", "-e", settings, "-o", out, code=2)
    assert "--trust" in refused.stderr
    settings.write_text('[system]\nformula = "Au4"\n[engine]\nname = "emt"\n')
    nugget("label", tmp_path / "in.extxyz", "-e", settings, "-o", out)
    assert len(read_images(out)) == 1


SLOW = """
import time
from ase.calculators.emt import EMT

class Slow(EMT):
    def calculate(self, *args, **kwargs):
        time.sleep(0.4)
        super().calculate(*args, **kwargs)

def make():
    return Slow()
"""


@pytest.mark.slow
def test_a_killed_run_continues(tmp_path: Path):
    (tmp_path / "slow_engine.py").write_text(SLOW)
    write_images(tmp_path / "in.extxyz", [gold_cluster(4, k) for k in range(8)])
    start = "from nugget.cli.main import app; app()"
    command = [sys.executable, "-c", start, "label", "in.extxyz", "-o", "out.extxyz"]
    command += ["-e", "slow_engine:make", "--json"]
    run = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    database = tmp_path / "out.extxyz.labels" / "labels.db"
    end = time.monotonic() + 60
    while time.monotonic() < end and _rows(database) < 2 and run.poll() is None:
        time.sleep(0.1)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    before = _rows(database)
    assert 2 <= before < 8
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told["labelled"] == 8
    assert told["calculated_now"] == 8 - before


def _rows(database: Path) -> int:
    import sqlite3

    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            return int(connection.execute("SELECT count(*) FROM systems").fetchone()[0])
    except sqlite3.Error:
        return 0
