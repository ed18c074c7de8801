"""Fit GAP with `gap_fit` and judge it: runs in an environment that holds quippy-ase.

    python worker_gap.py TRAIN.xyz OUT.json TEST.xyz ...

Pairs and SOAP (8, 6) with a cutoff of 6 Å, ζ = 4, 1000 points; one thread.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from ase.io import read
from quippy.potential import Potential

PAIRS = (
    "distance_2b cutoff=6.0 covariance_type=ard_se delta=1.0 theta_uniform=1.0 n_sparse=30 "
    "sparse_method=uniform add_species=T"
)
SOAP = (
    "soap l_max=6 n_max=8 atom_sigma=0.5 zeta=4 cutoff=6.0 cutoff_transition_width=1.0 delta=1.0 "
    "covariance_type=dot_product n_sparse=1000 sparse_method=cur_points add_species=T"
)


def fit(train: str, model: str) -> float:
    """Processor seconds of `gap_fit`."""
    program = Path(sys.executable).with_name("gap_fit")
    subprocess.run(
        [
            str(program), f"at_file={train}", f"gap={{{PAIRS} : {SOAP}}}",
            "default_sigma={0.01 0.1 0.0 0.0}", "e0_method=average",
            "energy_parameter_name=energy", "force_parameter_name=forces",
            "virial_parameter_name=none", "sparse_jitter=1e-8", f"gp_file={model}",
        ],
        check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    train, out, *tests = sys.argv[1:]
    model = f"{train}.gap.xml"
    result: dict[str, object] = {"fit_s": fit(train, model)}
    result["fit_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    potential = Potential(param_filename=model)
    for test in tests:
        energy, forces = [], []
        start = time.process_time()
        for atoms in read(test, ":"):
            work = atoms.copy()
            work.calc = potential
            error = work.get_potential_energy() - atoms.get_potential_energy()
            energy.append(error / len(atoms))
            forces.append(work.get_forces() - atoms.get_forces())
        seconds = time.process_time() - start
        result[Path(test).stem] = {
            "mae": float(np.abs(energy).mean()),
            "force_mae": float(np.abs(np.concatenate(forces)).mean()),
            "predict_ms": 1e3 * seconds / len(energy),
        }
    Path(out).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
