"""`nugget fit` without options on the crystals of Zuo et al., J. Phys. Chem. A 124, 731 (2020).

    python benchmarks/zuo.py --data DIR [--elements Cu,Ni,Li] [--sizes 0,25,50,100]

DIR holds zuo_ELEMENT_training.extxyz.gz and zuo_ELEMENT_test.extxyz.gz. A size is the number of
random training structures (seed 0); 0 means all of them. With all of them, properties of the
crystal are computed too: lattice constant, elastic constants, vacancy energy of a cell of about 100
atoms, and phonon frequencies by finite displacements. Processor times are those of one thread.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.filters import FrechetCellFilter
from ase.optimize import BFGS
from ase.phonons import Phonons
from ase.units import GPa
from typer.testing import CliRunner

from nugget import Potential
from nugget.cli.main import app
from nugget.structures.io import read_images, write_images

RESULTS = Path(__file__).parent / "results" / "zuo.json"
CRYSTAL = {"Li": ("bcc", 3.43), "Cu": ("fcc", 3.63), "Ni": ("fcc", 3.52)}

REPEATS = 4  # of the primitive cell, for phonons

# Published test errors, meV/atom and eV/Å.
PUBLISHED = {
    "Li": {"GAP": (0.49, 0.01), "MTP": (0.49, None)},
    "Cu": {"GAP": (0.46, 0.01), "MTP": (0.41, None)},
    "Ni": {"GAP": (0.42, 0.02), "MTP": (0.48, None)},
}


def fit(element: str, size: int, data: Path, folder: Path) -> tuple[Potential, dict[str, Any]]:
    """A model of `nugget fit` without options, and what was chosen."""
    images = read_images(data / f"zuo_{element}_training.extxyz.gz")
    if size:
        order = np.random.default_rng(0).permutation(len(images))[:size]
        images = [images[i] for i in np.sort(order)]
    train, model = folder / "train.extxyz", folder / "fit.model"
    write_images(train, images)
    start = time.process_time()
    arguments = ["fit", str(train), "-o", str(model), "--threads", "1", "--json", "--force"]
    result = CliRunner().invoke(app, arguments)
    seconds = time.process_time() - start
    if result.exit_code:
        raise SystemExit(result.output)
    report = json.loads(result.stdout)
    choices = {key: report["choices"].get(key) for key in ("range", "points")}
    return Potential.load(model), {"structures": len(images), "processor_s": seconds, **choices}


def test_errors(potential: Potential, images: list[Atoms]) -> dict[str, float]:
    """Mean absolute errors in meV/atom and eV/Å, and shares of energies within 1σ and 2σ."""
    found = potential.predict(images)
    sizes = np.array([len(atoms) for atoms in images])
    error = np.abs(found.energy - [atoms.get_potential_energy() for atoms in images])
    forces = [f - atoms.get_forces() for f, atoms in zip(found.forces, images, strict=True)]
    within = [float(np.mean(error <= k * found.energy_uncertainty)) for k in (1, 2)]
    return {
        "energy": 1e3 * float(np.mean(error / sizes)),
        "force": float(np.mean(np.abs(np.concatenate(forces)))),
        "within_1": within[0],
        "within_2": within[1],
    }


def crystal_properties(element: str, potential: Potential) -> dict[str, float]:
    """Lattice constant (Å), elastic constants (GPa), vacancy energy (eV), lowest phonon (THz)."""
    kind, guess = CRYSTAL[element]
    cell = bulk(element, kind, guess, cubic=True)
    cell.calc = potential.calculator()
    BFGS(FrechetCellFilter(cell), logfile=None).run(fmax=1e-4, steps=100)
    elastic = _elastic(cell, potential)
    repeats = 3 if kind == "fcc" else 4
    supercell = cell * (repeats, repeats, repeats)
    supercell.calc = potential.calculator()
    perfect, number = supercell.get_potential_energy(), len(supercell)
    del supercell[0]
    BFGS(supercell, logfile=None).run(fmax=0.005, steps=300)
    vacancy = supercell.get_potential_energy() - perfect * (number - 1) / number
    lattice = float(cell.cell.lengths()[0])
    lowest, highest = _phonons(bulk(element, kind, lattice), potential)
    return {
        "lattice": lattice, **elastic, "vacancy": float(vacancy),
        "lowest_phonon": lowest, "highest_phonon": highest,
    }  # fmt: skip


def _elastic(cell: Atoms, potential: Potential) -> dict[str, float]:
    """c11, c12 and c44 from stresses at strains of ±0.5 %."""
    step = 0.005

    def stress(strain: np.ndarray) -> np.ndarray:
        strained = cell.copy()
        strained.set_cell(cell.cell.array @ (np.eye(3) + strain), scale_atoms=True)
        strained.calc = potential.calculator()
        return np.asarray(strained.get_stress()) / GPa

    axial, shear = np.zeros((3, 3)), np.zeros((3, 3))
    axial[0, 0] = step
    shear[1, 2] = shear[2, 1] = step / 2
    along = (stress(axial) - stress(-axial)) / (2 * step)
    across = (stress(shear) - stress(-shear)) / (2 * step)
    return {"c11": along[0], "c12": along[1], "c44": across[3]}


def _phonons(primitive: Atoms, potential: Potential) -> tuple[float, float]:
    """Lowest and highest frequency (THz; negative: imaginary) at commensurate wave vectors.

    Force constants reach two cutoffs, farther than half of the supercell. At wave vectors of the
    supercell their periodic images add up correctly, at others they would be interpolated.
    """
    with tempfile.TemporaryDirectory() as folder:
        phonons = Phonons(
            primitive, potential.calculator(), supercell=(REPEATS,) * 3, delta=0.02,
            name=str(Path(folder) / "phonon"),
        )  # fmt: skip
        phonons.run()
        phonons.read(acoustic=True)
        line = np.arange(REPEATS) / REPEATS
        grid = np.stack(np.meshgrid(line, line, line), axis=-1).reshape(-1, 3)
        bands = np.real(phonons.band_structure(grid, verbose=False))
        imaginary = np.imag(phonons.band_structure(grid, verbose=False))
    to_thz = 241.799
    lowest = -np.abs(imaginary).max() if np.abs(imaginary).max() > 1e-4 else bands.min()
    return float(to_thz * min(lowest, bands.min())), float(to_thz * bands.max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--elements", default="Cu,Ni,Li")
    parser.add_argument("--sizes", default="25,50,100,0")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for size in map(int, options.sizes.split(",")):
        for element in options.elements.split(","):
            test = read_images(options.data / f"zuo_{element}_test.extxyz.gz")
            with tempfile.TemporaryDirectory() as folder:
                potential, row = fit(element, size, options.data, Path(folder))
            row |= test_errors(potential, test)
            if not size:
                row |= {"published": PUBLISHED[element]}
                row |= {"properties": crystal_properties(element, potential)}
            results.setdefault(element, {})[str(size or "all")] = row
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(element, json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
