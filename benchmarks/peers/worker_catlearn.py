"""ML-NEB of CatLearn on one path: runs in an environment that holds catlearn and ase 3.22.

    python worker_catlearn.py START.traj END.traj IMAGES OUT.json

Both ends are relaxed already; the engine is EMT. Calls of the engine for the ends are counted.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from ase.calculators.emt import EMT
from ase.io import read
from catlearn.optimize.mlneb import MLNEB


def main() -> None:
    start, end, images, out = sys.argv[1:]
    ends = [read(name) for name in (start, end)]
    out_path = Path(out).resolve()
    os.chdir(tempfile.mkdtemp())  # it leaves files
    for atoms in ends:
        atoms.calc = EMT()
        atoms.get_forces()
        atoms.info = {}
    ends[0].write("a.traj")
    ends[1].write("b.traj")
    search = MLNEB(
        start="a.traj", end="b.traj", ase_calc=EMT(), n_images=int(images), restart=False
    )
    search.run(fmax=0.05, trajectory="path.traj", full_output=False)
    energies = [atoms.get_potential_energy() for atoms in read("path.traj", ":")]
    called = read("./evaluated_structures.traj", ":")
    result = {"barrier": float(np.max(energies) - energies[0]), "calls": len(called)}
    out_path.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
