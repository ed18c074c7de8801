"""Convert the public ML-Au data set into the extxyz of Figure 3.

    git clone https://github.com/TongheYing/ML-Au
    python paper/convert_ml_au.py ML-Au --out au_clusters_dft.extxyz.gz

Needs: a clone of ML-Au (T. Ying, MIT licence). Takes: a minute or two. Every structure is a POSCAR
in training_dataset/simplified_dataset_N<size>; id_prop.csv there has a row per structure: its
number, the energy (eV) and all force components (eV/Å). Structures are centred, without a cell and
without constraints, and shuffled.
"""

import argparse
import csv
import re
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read

from nugget.errors import NuggetError, run_script
from nugget.structures.io import write_images


def structure(file: Path, row: list[str]) -> Atoms:
    """One cluster with its labels."""
    found = read(file, format="vasp")
    numbers = [float(value) for value in row[1:]]
    if len(numbers) != 1 + 3 * len(found):
        raise NuggetError(f"{file} has {len(found)} atoms, but its row {len(numbers) - 1} forces.")
    atoms = Atoms(found.symbols, found.positions - found.positions.mean(axis=0))
    forces = np.array(numbers[1:]).reshape(-1, 3)
    atoms.calc = SinglePointCalculator(atoms, energy=numbers[0], forces=forces)
    return atoms


def rows_of(folder: Path) -> list[tuple[Path, list[str]]]:
    """Files and labels of one size."""
    if not (folder / "id_prop.csv").exists():
        raise NuggetError(f"{folder} holds no id_prop.csv: give the directory of a clone of ML-Au.")
    with (folder / "id_prop.csv").open() as file:
        rows = [row for row in csv.reader(file) if row]
    files = {re.sub(r"\D", "", path.name): path for path in folder.glob("POSCAR_*")}
    return [(files[row[0]], row) for row in rows if row[0] in files]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clone", type=Path, help="directory of the clone")
    parser.add_argument(
        "--out", type=Path, default=Path("au_clusters_dft.extxyz.gz"), help="file to write"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 12, 14, 16, 18], help="atoms")
    parser.add_argument("--count", type=int, default=5838, help="structures in all; 0: every one")
    parser.add_argument("--seed", type=int, default=0, help="of the shuffling")
    args = parser.parse_args()
    root = args.clone / "training_dataset"
    rows = [row for n in args.sizes for row in rows_of(root / f"simplified_dataset_N{n}")]
    order = np.random.default_rng(args.seed).permutation(len(rows))
    chosen = order[: args.count or None]
    write_images(args.out, [structure(*rows[k]) for k in chosen])
    print(f"Written: {args.out}, {len(chosen)} of {len(rows)} structures")


if __name__ == "__main__":
    run_script(main)
