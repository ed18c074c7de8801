"""Damaged run directories of searches, data sets and campaigns: refused, or the same result."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from mutations import damaged_bytes, damaged_text
from outcomes import REFUSED, SAME, attempt, in_children, judge

from nugget.campaign import Campaign
from nugget.dataset import Recipe, build, read_recipe
from nugget.engines.execution import InProcess
from nugget.search import Search, make_config
from nugget.search.loop import make_pending
from nugget.search.record import Proposal
from nugget.storage.files import LOCK

ENGINE = {"name": "emt"}
FAST = {"budget": 6, "initial": 4, "candidates": 2, "relax_steps": 5}
RECIPE = Recipe(("Au4", "Au5"), 6, engine="emt", relax_steps=0, well_steps=5)


def settings() -> dict:
    return {"system": {"formula": "Au5"}, "engine": ENGINE, "search": dict(FAST)}


def made(folder: Path) -> None:
    search = Search.create(make_config(settings()), folder / "search")
    search.run()
    record = search.store.records()[-1]
    proposal = Proposal(record.proposed, "melt")
    search.store.keep_pending([make_pending(6, 6, proposal, 2.0)])
    build(folder / "dataset", RECIPE)
    campaign = Campaign.create(make_config(settings()), {"kappa": ["0", "2"]}, 2, folder / "many")
    campaign.run(InProcess())


def search_numbers(folder: Path) -> list:
    search = Search.resume(folder / "search")
    result = search.run()
    held = [record.atoms.positions.tolist() for record in search.store.pending()]
    energies = [record.energy for record in search.store.records()]
    return [result.best.energy, energies, result.end.status, held]


def dataset_numbers(folder: Path) -> list:
    report = build(folder / "dataset", read_recipe(folder / "dataset"))
    names = sorted(path.name for path in (folder / "dataset").glob("*.extxyz"))
    return [report.parts, report.labelled_now, report.streams, names]


def campaign_numbers(folder: Path) -> list:
    rows = Campaign.resume(folder / "many").run(InProcess())
    return [
        [row.setting, row.seed, row.outcome.best_energy, row.outcome.evaluations] for row in rows
    ]


# What is read, which files of it are damaged, and whether they hold text.
PLACES = [
    (search_numbers, "search/search.db", False),
    (search_numbers, "search/pending.json", True),
    (search_numbers, "search/config.toml", True),
    (search_numbers, "search/status.json", True),
    (search_numbers, "search/lock", True),
    (dataset_numbers, "dataset/recipe.json", True),
    (dataset_numbers, "dataset/dataset.db", False),
    (campaign_numbers, "many/runs/kappa=0/seed-0000/result.json", True),
    (campaign_numbers, "many/runs/kappa=0/seed-0000/search.db", False),
    (campaign_numbers, "many/runs/kappa=0/seed-0000/config.toml", True),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_run_directories(tmp_path, n):
    made(tmp_path / "whole")
    expected = {read: read(tmp_path / "whole") for read, _, _ in PLACES}
    for _, name, _ in PLACES:
        assert (tmp_path / "whole" / name).exists(), name

    def run(case: int) -> tuple[str, str]:
        rng = np.random.default_rng([5, case])
        read, name, text = PLACES[case % len(PLACES)]
        work = tmp_path / "damaged"
        shutil.rmtree(work, ignore_errors=True)
        room = name.split("/")[0]
        shutil.copytree(tmp_path / "whole" / room, work / room)
        path = work / name
        content = path.read_bytes()
        damage = damaged_text(content.decode(), rng) if text else damaged_bytes(content, rng)
        written = path.stat()
        path.write_bytes(damage)
        os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))
        return attempt(lambda: read(work), expected[read])

    judge(in_children(run, range(n), tmp_path / "out"), {REFUSED, SAME})


@pytest.mark.slow
def test_partial_files_of_the_dead_are_removed(tmp_path):
    made(tmp_path)
    stale = tmp_path / "search" / ".999999999.1.partial.search.db-journal"
    stale.write_text("")
    Search.resume(tmp_path / "search").run()
    assert not stale.exists()
    assert json.loads((tmp_path / "search" / LOCK).read_text())["pid"] == os.getpid()
