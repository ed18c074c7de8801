"""Damaged data files: refused, or read as structures that can be learnt from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import alloy_slab, gold_cluster
from mutations import damaged_bytes, damaged_text
from outcomes import READ, REFUSED, SAME, attempt, in_children, judge

from nugget import SOAP
from nugget.potential.training import Training
from nugget.structures.io import read_images, write_images

NAMES = ("a.extxyz", "a.xyz", "a.db", "a.traj", "a.json", "a.extxyz.gz")
SMALL = SOAP(["Cu", "Au"], 4.0, 2, 1)


def written(folder: Path) -> dict[str, bytes]:
    images = [gold_cluster(5, 1), alloy_slab(), gold_cluster(3, 2)]
    rng = np.random.default_rng(0)
    for atoms in images:
        results = {"energy": rng.normal(), "forces": rng.normal(size=(len(atoms), 3))}
        atoms.calc = SinglePointCalculator(atoms, **results)
    for name in NAMES:
        write_images(folder / name, images)
        learnt(folder / name)  # compiled before children start
    return {name: (folder / name).read_bytes() for name in NAMES}


def learnt(path: Path) -> list | str:
    """What a fit would take from a file."""
    training = Training.read(read_images(path), None, False)
    found = [training.energy, training.batch.positions]
    finite = [SMALL.compute(training.batch).values] if len(training.batch.positions) < 100 else []
    if not all(np.isfinite(values).all() for values in [*found, *finite]):
        return "numbers that are not finite"
    return [values.tolist() for values in found]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_data(tmp_path, n):
    files = written(tmp_path)

    def run(case: int) -> tuple[str, str]:
        rng = np.random.default_rng([3, case])
        name = NAMES[case % len(NAMES)]
        content = files[name]
        text = name.endswith(("xyz", "json"))
        path = tmp_path / f"damaged-{name}"
        damage = damaged_text(content.decode(), rng) if text else damaged_bytes(content, rng)
        path.write_bytes(damage)
        with np.errstate(all="ignore"):
            return attempt(lambda: learnt(path))

    counts = judge(in_children(run, range(n), tmp_path / "out"), {REFUSED, SAME, READ})
    assert counts[REFUSED] > 0.3 * n
