"""Changed numbers in the files of a run, a search and a model are noticed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase.build import molecule
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from nugget import RBF, SOAP, PivotedCholesky
from nugget.engines.engine_settings import EngineConfig
from nugget.engines.outcome import Outcome
from nugget.errors import NuggetError
from nugget.onthefly.run_directory import RecordedEngine, read_outcomes
from nugget.potential.mean_functions import ModelMean
from nugget.potential.model_file import read_header
from nugget.potential.potential import Potential
from nugget.search import Search, make_config
from nugget.storage.database import Database
from nugget.structures.io import read_images


def labelled(shift: float = 0.0):
    atoms = molecule("N2")
    atoms.positions[0, 2] += shift
    forces = EMT().get_property("forces", atoms)
    energy = float(EMT().get_property("energy", atoms))
    atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    return atoms


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    with RecordedEngine(EngineConfig(name="emt"), tmp_path) as engine:
        for k in range(3):
            engine._append(Outcome(labelled(0.1 * k)))
    return tmp_path / "calls.jsonl"


def test_every_line_is_sealed_and_still_json(calls: Path) -> None:
    lines = calls.read_text().splitlines()
    assert all(len(json.loads(line)["sha256"]) == 64 for line in lines)
    assert [o.energy for o in read_outcomes(calls)] == [labelled(0.1 * k).calc.results["energy"]
                                                        for k in range(3)]  # fmt: skip


@pytest.mark.parametrize("change", ["energy", "order", "missing", "no seal"])
def test_changed_lines_are_refused(calls: Path, change: str) -> None:
    lines = calls.read_text().splitlines()
    if change == "energy":
        energy = json.loads(lines[-1])["atoms"]["results"]["energy"]
        assert repr(energy) in lines[-1]
        lines[-1] = lines[-1].replace(repr(energy), repr(energy + 0.5))
    elif change == "order":
        lines[0], lines[1] = lines[1], lines[0]
    elif change == "missing":
        del lines[0]
    else:
        lines[-1] = "{" + lines[-1].partition(", ")[2]
    calls.write_text("\n".join(lines) + "\n")
    with pytest.raises(NuggetError, match="damaged"):
        read_outcomes(calls)


def test_files_without_seals_open_and_are_continued(calls: Path) -> None:
    bare = ["{" + line.partition(", ")[2] for line in calls.read_text().splitlines()]
    calls.write_text("\n".join(bare) + "\n")
    with RecordedEngine(EngineConfig(name="emt"), calls.parent) as engine:
        assert len(engine.outcomes) == 3
        engine._append(Outcome(labelled(0.4)))
    assert len(read_outcomes(calls)) == 4
    text = calls.read_text()
    calls.write_text(text.replace(text[200:204], "9999", 1))
    with pytest.raises(NuggetError, match="damaged"):
        read_outcomes(calls)


def test_rows_of_a_search_are_verified_when_they_are_fitted(tmp_path: Path) -> None:
    path = tmp_path / "search.db"
    database = Database.create(path, {})
    for k in range(2):
        database.write(labelled(0.1 * k), {"iteration": k}, {})
    assert len(read_images(path)) == 2
    connection = sqlite3.connect(path)
    connection.execute("UPDATE systems SET energy = energy - 5 WHERE id = 2")
    connection.commit()
    connection.close()
    with pytest.raises(NuggetError, match="row 2 was changed"):
        read_images(path)


def test_another_model_below_a_model_is_refused(tmp_path: Path) -> None:
    below = tmp_path / "below.model"

    def fitted(prior=None, seed=0):
        rng = np.random.default_rng(seed)
        images = [labelled(0.2 * rng.random()) for _ in range(4)]
        return Potential(
            SOAP(["N"], 4.0), RBF(1.0), PivotedCholesky(1e-8, 20), 0.01, 0.1, prior=prior
        ).fit(images)

    fitted().save(below)
    above = fitted([ModelMean(str(below))])
    above.save(tmp_path / "above.model")
    assert len(read_header(tmp_path / "above.model")["prior"]["parts"][0]["sha256"]) == 64
    Potential.load(tmp_path / "above.model").predict([labelled()])
    fitted(seed=1).save(below)
    with pytest.raises(NuggetError, match="another file than the one"):
        Potential.load(tmp_path / "above.model").predict([labelled()])


def test_another_file_in_the_directory_of_a_search_is_refused(tmp_path: Path) -> None:
    ase.io.write(tmp_path / "start.xyz", molecule("N2"))
    config = make_config(
        {"system": {"formula": "N2"}, "engine": {"name": "emt"}, "search": {"start": "start.xyz"}}
    )
    Search.create(config, tmp_path / "run", tmp_path)
    Search.resume(tmp_path / "run")
    ase.io.write(tmp_path / "run/start/start.xyz", molecule("O2"))
    with pytest.raises(NuggetError, match=r"start\.xyz is missing or was changed"):
        Search.resume(tmp_path / "run")
