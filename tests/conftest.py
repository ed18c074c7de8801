"""Fixtures that many tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ase import Atoms
from example_structures import SYSTEMS

HERE = Path(__file__).parent
DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(params=sorted(SYSTEMS))
def system(request: pytest.FixtureRequest) -> list[Atoms]:
    return [atoms.copy() for atoms in SYSTEMS[request.param]]


@pytest.fixture(scope="session")
def dft_data() -> Path:
    """The real DFT data set, kept beside the repository."""
    path = DATA / "au_clusters_dft.extxyz.gz"
    if not path.exists():
        pytest.skip(f"the DFT data set is not here ({path.name})")
    return path


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines of this folder, here and in every child process."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
