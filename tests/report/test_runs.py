"""A list of all runs below a directory, and a table of their evaluations."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from ase.io import read
from example_structures import gold_cluster
from page_spec import spec_of
from typer.testing import CliRunner

from nugget import NuggetError
from nugget.cli.main import app
from nugget.dataset.labelling import label
from nugget.engines.engine_settings import EngineConfig
from nugget.report.runs import Evaluation, find_runs, write_evaluations
from nugget.search import Search, make_config


def nugget(*arguments: object, code: int = 0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search, a labelled file, a data set, a broken run, and something else."""
    folder = tmp_path_factory.mktemp("runs")
    config = make_config(
        {
            "system": {"formula": "Au5"},
            "engine": {"name": "emt"},
            "search": {"budget": 4, "candidates": 2},
        }
    )
    Search.create(config, folder / "deep" / "Au5").run()
    images = [gold_cluster(4, seed) for seed in range(2)]
    images[1].symbols[0] = "U"
    label(images, EngineConfig(name="emt"), folder / "out.extxyz")
    nugget("dataset", "Au4", "-n", 2, "-e", "emt", "--relax-steps", 0, "-o", folder / "set")
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text("{")
    (folder / "notes").mkdir()
    return folder


def test_every_run_is_listed(runs: Path):
    found = {run.path: run for run in find_runs(runs)}
    assert sorted(found) == ["broken", "deep/Au5", "out.extxyz.labels", "set"]
    search = found["deep/Au5"]
    assert (search.kind, search.state, search.engine) == ("search", "finished", "emt")
    assert (search.evaluations >= 4, search.budget, search.formula) == (True, 4, "Au5")
    best = read(runs / "deep" / "Au5" / "best.extxyz").get_potential_energy()
    assert search.best_energy == pytest.approx(best, abs=1e-9)
    assert found["broken"].state == "unreadable"
    assert "damaged" in found["broken"].reason
    labelled = found["out.extxyz.labels"]
    assert (labelled.evaluations, labelled.failures, labelled.state) == (2, 1, "finished")
    assert labelled.best_energy is None  # of different formulas
    assert labelled.best_per_atom is not None
    assert found["set"].kind == "dataset"
    assert [run.kind for run in find_runs(runs / "deep" / "Au5")] == ["search"]
    with pytest.raises(NuggetError, match="no directory"):
        find_runs(runs / "nowhere")


def test_evaluations_as_csv_and_parquet(runs: Path, tmp_path: Path):
    found = find_runs(runs)
    count = write_evaluations(tmp_path / "all.csv", found)
    rows = list(csv.DictReader((tmp_path / "all.csv").open()))
    assert len(rows) == count == sum(run.evaluations for run in found)
    assert list(rows[0]) == list(Evaluation.__dataclass_fields__)
    failed = [row for row in rows if row["failure"]]
    assert failed[0]["energy"] == ""
    with pytest.raises(NuggetError, match=r"\.csv or \.parquet"):
        write_evaluations(tmp_path / "all.txt", found)
    try:
        from pyarrow import parquet
    except ImportError:
        with pytest.raises(NuggetError, match="pip install pyarrow"):
            write_evaluations(tmp_path / "all.parquet", found)
        return
    write_evaluations(tmp_path / "all.parquet", found)
    assert parquet.read_table(tmp_path / "all.parquet").num_rows == count


def test_command(runs: Path, tmp_path: Path):
    shown = nugget("list", runs)
    assert "4 runs in" in shown.output
    assert "broken" in shown.stderr
    told = json.loads(nugget("list", runs, "--json").stdout)
    assert {run["kind"] for run in told["runs"]} == {"run", "search", "label", "dataset"}
    assert all("rows" not in run for run in told["runs"])
    assert "There is no run" in nugget("list", tmp_path).output
    done = nugget("list", runs, "--evaluations", tmp_path / "all.csv")
    assert "evaluations)" in done.output


def test_the_page_of_all_runs(runs: Path):
    """One row and one picture per run, and links to pages that exist."""
    nugget("report", runs / "deep" / "Au5")
    target = runs / "index.html"
    nugget("list", runs, "--html", target)
    assert "exists already" in nugget("list", runs, "--html", target, code=2).stderr
    spec = spec_of(target.read_text(encoding="utf-8"))
    table = next(part for part in spec["sections"] if part["kind"] == "table")
    found = find_runs(runs)
    assert [row[0] for row in table["rows"]] == [run.path for run in found]
    assert table["links"] == [
        "deep/Au5/report.html" if r.path == "deep/Au5" else None for r in found
    ]
    pictures = [
        run.path for run, k in zip(found, table["thumbnails"], strict=True) if k is not None
    ]
    assert pictures == [run.path for run in found if run.best is not None]
    assert "deep/Au5" in pictures
    assert "broken" not in pictures
    best = next(run for run in found if run.path == "deep/Au5").best_energy
    assert table["rows"][table["links"].index("deep/Au5/report.html")][6] == best
    reasons = next(part for part in spec["sections"] if part.get("title") == "Failed runs")
    assert reasons["rows"][0][0] == "broken"
    target.unlink()
