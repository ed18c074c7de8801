"""Crystals are the same whatever their cells; pymatgen agrees."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.spacegroup import crystal

from nugget.structures.geometry import random_multiple, repeated
from nugget.structures.identity import (
    TOLERANCE,
    CrystalFingerprint,
    conventional,
    primitive,
    same_crystal,
)
from nugget.structures.memory import KnownCrystals
from nugget.structures.symmetry import space_group_of

D = 2.6
PROTOTYPES: dict[str, Atoms] = {
    "fcc": bulk("Cu", "fcc", a=D * 2**0.5),
    "hcp": bulk("Cu", "hcp", a=D, c=D * (8 / 3) ** 0.5),
    "bcc": bulk("Cu", "bcc", a=2.9),
    "sc": bulk("Cu", "sc", a=2.4),
    "diamond": bulk("Cu", "diamond", a=5.2),
    "zincblende": bulk("SiC", "zincblende", a=4.36),
    "wurtzite": bulk("SiC", "wurtzite", a=3.08, c=5.04),
    "rocksalt": bulk("SiC", "rocksalt", a=4.1),
    "cesium chloride": bulk("SiC", "cesiumchloride", a=2.7),
    "L1_2": crystal(
        ["Cu", "Au"], [(0, 0.5, 0.5), (0, 0, 0)], spacegroup=221, cellpar=[3.8] * 3 + [90] * 3
    ),
    "D0_22": crystal(
        ["Cu", "Cu", "Au"], [(0, 0, 0.5), (0, 0.5, 0.25), (0, 0, 0)], spacegroup=139,
        cellpar=[3.8, 3.8, 7.6, 90, 90, 90], primitive_cell=True,
    ),
}  # fmt: skip


def another_cell(atoms: Atoms, rng: np.random.Generator, shake: float = 0.01) -> Atoms:
    """The same crystal in a random supercell, turned, moved, renumbered and shaken."""
    out = repeated(atoms, random_multiple(rng, int(rng.integers(1, 5))))
    out.rotate(float(rng.uniform(0, 360)), rng.normal(size=3), rotate_cell=True)
    out.translate(rng.normal(size=3))
    out.positions += rng.normal(0, shake, out.positions.shape)
    return out[rng.permutation(len(out))]


@pytest.mark.parametrize("name", PROTOTYPES)
def test_the_same_in_other_cells(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        assert same_crystal(PROTOTYPES[name], another_cell(PROTOTYPES[name], rng))


def test_prototypes_differ() -> None:
    prints = {name: CrystalFingerprint.of(atoms) for name, atoms in PROTOTYPES.items()}
    for a, one in prints.items():
        for b, two in prints.items():
            assert (one.difference(two) <= TOLERANCE) == (a == b), (a, b)


def test_a_few_percent_of_strain_are_another_crystal_at_some_point() -> None:
    fcc = PROTOTYPES["fcc"]
    larger = fcc.copy()
    larger.set_cell(1.01 * fcc.cell.array, scale_atoms=True)
    assert same_crystal(fcc, larger)
    larger.set_cell(1.06 * fcc.cell.array, scale_atoms=True)
    assert not same_crystal(fcc, larger)


def test_space_groups_and_cells() -> None:
    zincblende = PROTOTYPES["zincblende"]
    assert space_group_of(zincblende) == "F-43m (216)"
    assert len(conventional(zincblende)) == 8
    assert len(primitive(zincblende.repeat(2))) == 2


def test_memory() -> None:
    rng, known = np.random.default_rng(3), KnownCrystals()
    for name in ("fcc", "hcp", "bcc"):
        known.add(PROTOTYPES[name], energy=-3.0 * len(PROTOTYPES[name]))
    twin = another_cell(PROTOTYPES["hcp"], rng)
    assert known.find(twin) == 1
    assert known.find(twin, energy=-3.01 * len(twin)) == 1
    assert known.find(twin, energy=-2.0 * len(twin)) is None
    assert known.find(twin, energy=-2.0 * len(twin), predicted=True) == 1
    assert PROTOTYPES["sc"] not in known
    copy = known.copy()
    copy.add(PROTOTYPES["sc"])
    assert len(known) == 3
    assert PROTOTYPES["sc"] in copy


@pytest.mark.slow
def test_pymatgen_agrees_on_200_pairs() -> None:
    matcher = pytest.importorskip(
        "pymatgen.analysis.structure_matcher", reason="pymatgen is not installed"
    )
    adaptor = pytest.importorskip("pymatgen.io.ase").AseAtomsAdaptor
    judge = matcher.StructureMatcher(scale=False)
    rng = np.random.default_rng(11)
    names = list(PROTOTYPES)
    odd = []
    for k in range(200):
        a = str(rng.choice(names))
        b = a if k % 2 else str(rng.choice(names))
        first = another_cell(PROTOTYPES[a], rng)
        second = another_cell(PROTOTYPES[b], rng)
        theirs = bool(judge.fit(*(adaptor.get_structure(x) for x in (first, second))))
        if same_crystal(first, second) != theirs:
            odd.append((a, b, theirs))
    assert not odd
