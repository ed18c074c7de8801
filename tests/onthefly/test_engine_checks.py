"""Dynamics and paths check their engine at the beginning and after a resume."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT

from nugget.engines.engine_settings import EngineConfig
from nugget.engines.runner import Scratch
from nugget.engines.task import SCRATCH
from nugget.errors import NuggetError
from nugget.onthefly.run_directory import RecordedEngine, read_engine_check

pytestmark = pytest.mark.usefixtures("engines")


def cluster(shift: float = 0.0) -> Atoms:
    positions = 2.7 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0.0]])
    positions[0, 0] += shift
    return Atoms("Au5", positions)


def test_wrong_forces_are_refused(tmp_path: Path) -> None:
    config = EngineConfig(name="faulty_engines:wrong_forces", options={"how": "sign"})
    with (
        RecordedEngine(config, tmp_path) as engine,
        pytest.raises(NuggetError, match="wrong sign"),
    ):
        engine(cluster())


def test_a_false_first_energy_is_corrected(tmp_path: Path) -> None:
    options = {"counter": str(tmp_path / "count"), "at": [1], "shift": -20.0}
    config = EngineConfig(name="faulty_engines:lying", options=options)
    with RecordedEngine(config, tmp_path) as engine:
        result = engine(cluster())
    true = cluster()
    true.calc = EMT()
    assert result is not None
    assert result.calc.results["energy"] == true.get_potential_energy()
    assert str(read_engine_check(tmp_path)).startswith("forces agree with energies to")


def test_another_engine_after_a_resume_is_refused(tmp_path: Path) -> None:
    shift = tmp_path / "shift"
    shift.write_text("0")
    config = EngineConfig(name="faulty_engines:shifted", options={"file": str(shift)})
    with RecordedEngine(config, tmp_path) as engine:
        engine(cluster())
    shift.write_text("3")
    with RecordedEngine(config, tmp_path) as engine:
        engine(cluster())  # recorded
        with pytest.raises(NuggetError, match="was recorded with"):
            engine(cluster(0.1))
    shift.write_text("0")
    with RecordedEngine(config, tmp_path) as engine:
        engine(cluster())
        assert engine(cluster(0.1)) is not None


def test_scratch_directories_of_a_kill_go_when_the_engine_is_not_needed(tmp_path: Path) -> None:
    """All calls were recorded before the kill, so that no evaluation removes them."""
    config = EngineConfig(name="emt", verify=False)
    with RecordedEngine(config, tmp_path) as engine:
        engine(cluster())
    scratch = Scratch(str(tmp_path / SCRATCH))
    left, failed = scratch.make(), scratch.make()
    (left / "orbitals").write_text("x")
    (failed / "output.txt").write_text("x")
    left.with_name(f"{left.name}.in-use").write_text(f"{_dead_process()} {platform.node()}\n")
    failed.with_name(f"{failed.name}.in-use").unlink()
    with RecordedEngine(config, tmp_path) as engine:
        engine(cluster())
    assert list((tmp_path / SCRATCH).iterdir()) == [failed]


def _dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid
