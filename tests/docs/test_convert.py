"""The converter of the public gold clusters, on a small directory of their form."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.constraints import FixAtoms
from ase.io import read, write

SCRIPT = Path(__file__).parents[2] / "paper" / "convert_ml_au.py"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_labels_stay_with_their_structures(tmp_path, monkeypatch):
    folder = tmp_path / "training_dataset" / "simplified_dataset_N10"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    lines, energies = [], {}
    for k in range(5):
        atoms = Atoms("Au10", rng.uniform(5, 15, (10, 3)), cell=[20, 20, 20], pbc=True)
        # The public files hold one atom fixed; its force must not be lost.
        atoms.set_constraint(FixAtoms([9]))
        write(folder / f"POSCAR_{k:06d}", atoms, format="vasp", direct=True)
        forces = rng.normal(size=30).round(4)
        lines.append(",".join(map(str, [f"{k:06d}", -20.5 - k, *forces])))
        energies[-20.5 - k] = (atoms.positions, forces.reshape(10, 3))
    (folder / "id_prop.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out.extxyz.gz"
    run(monkeypatch, tmp_path, "--sizes", 10, "--count", 4, "--out", out)
    images = read(out, ":")
    assert len(images) == 4
    for atoms in images:
        positions, forces = energies[atoms.get_potential_energy()]
        assert not atoms.pbc.any()
        assert not atoms.constraints
        np.testing.assert_allclose(atoms.get_forces(), forces, atol=1e-8)
        np.testing.assert_allclose(atoms.positions, positions - positions.mean(axis=0), atol=1e-6)


def test_another_directory_is_refused(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path)
    assert "give the directory of a clone of ML-Au" in capsys.readouterr().err
