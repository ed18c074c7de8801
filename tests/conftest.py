"""Fixtures that many tests share."""

from __future__ import annotations

import os
from pathlib import Path

# Recorded runs (tests/data) continue with the same bits on processors with the same arithmetic.
# They were made with the AVX-512 kernels of OpenBLAS, whatever the environment selects here.
CPU = Path("/proc/cpuinfo")
if CPU.exists() and " avx512dq " in CPU.read_text(encoding="utf-8"):
    os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"

import pytest  # noqa: E402  after the choice of kernels, which NumPy reads
from ase import Atoms  # noqa: E402
from example_structures import SYSTEMS  # noqa: E402

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
