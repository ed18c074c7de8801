"""One code on one system: python materials_worker.py WHO PEER DATA; see materials.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ase.io import read
from ase.optimize import BFGS
from protocol import KAPPA, LABEL, LENGTH_SCALE, MEMBERS, NOISE, PRIOR, timed

TRAIN = {"agox": 100, "gap": 40}
STEPS = 20


def relaxation(atoms: Any, calc: Any) -> float:
    """Processor seconds per evaluation of a BFGS relaxation."""
    work = atoms.copy()
    work.calc = calc
    work.get_forces()
    moved = BFGS(work, logfile=None, maxstep=0.05)
    start = time.process_time()
    moved.run(fmax=1e-6, steps=STEPS)
    return (time.process_time() - start) / moved.get_number_of_steps()


def once(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def agox(images: list[Any], species: list[str]) -> dict[str, float]:
    import numpy as np
    from agox.acquisitors import LowerConfidenceBoundAcquisitor
    from agox.models.descriptors import SOAP
    from agox.models.GPR import SparseGPREnsemble
    from agox.models.GPR.kernels import RBF, Constant
    from agox.utils.sparsifiers import CUR

    np.random.seed(0)  # noqa: NPY002 (the peer draws from the global generator)
    periodic = bool(images[0].pbc.any())
    soap = SOAP.from_species(
        species, r_cut=6.0, nmax=3, lmax=2, sigma=1.0, weight=True, periodic=periodic
    )
    model = SparseGPREnsemble(
        N_ensemble=MEMBERS, target_noise=LABEL, prior_noise=PRIOR, descriptor=soap,
        kernel=Constant(1.0) * RBF(LENGTH_SCALE), sigma=NOISE, n_optimize=0, use_ray=False,
        sparsifier=CUR(m_points=1000),
    )  # fmt: skip
    train = once(lambda: model.train(images[: TRAIN["agox"]]))
    one = images[-1]

    def predict() -> None:
        data = model.converter(one, derivatives=True)
        model.predict_energy(one, **data)
        model.predict_forces(one, **data)
        model.predict_uncertainty(one, **data)
        model.predict_uncertainty_forces(one, **data)

    predict()
    calc = LowerConfidenceBoundAcquisitor(model, kappa=KAPPA).get_acquisition_calculator()
    return {
        "train_s": train,
        "predict_ms": 1e3 * timed(predict, 0.3)["cpu"],
        "relax_ms": 1e3 * relaxation(one, calc),
    }


def gap(images: list[Any], species: list[str]) -> dict[str, float]:
    import resource

    from ase.io import write
    from quippy.potential import Potential
    from worker_gap import PAIRS, SOAP

    for atoms in images:
        if not atoms.pbc.all():  # GAP wants a cell, so large that images do not meet
            lengths = [
                a if p else 40.0 for a, p in zip(atoms.cell.lengths(), atoms.pbc, strict=True)
            ]
            atoms.set_cell(lengths)
    write("train.xyz", images[: TRAIN["gap"]], format="extxyz")
    points = SOAP.replace("n_sparse=1000", f"n_sparse={500 // len(species)}")
    subprocess.run(
        [
            str(Path(sys.executable).with_name("gap_fit")), "at_file=train.xyz",
            f"gap={{{PAIRS} : {points}}}", "default_sigma={0.01 0.1 0.0 0.0}", "e0_method=average",
            "energy_parameter_name=energy", "force_parameter_name=forces",
            "virial_parameter_name=none", "sparse_jitter=1e-8", "gp_file=model.xml",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    potential, one = Potential(param_filename="model.xml"), images[-1].copy()
    one.calc = potential

    def predict() -> None:
        one.positions[0, 0] += 1e-9  # else the answer is the last one
        one.get_potential_energy()
        one.get_forces()

    predict()
    return {
        "train_s": used.ru_utime + used.ru_stime,
        "predict_ms": 1e3 * timed(predict, 0.3)["cpu"],
        "relax_ms": 1e3 * relaxation(images[-1], potential),
    }


def ours(images: list[Any], species: list[str], peer: str) -> dict[str, float]:
    import nugget
    from nugget.potential.calculator import LCBCalculator

    def potential() -> nugget.Potential:
        if peer == "gap":
            return nugget.Potential(
                nugget.SOAP(species, 6.0, 8, 6), inducing=nugget.CUR(500),
                uncertainty=nugget.LabelNoise(), noise=NOISE,
            )  # fmt: skip
        return nugget.Potential(
            nugget.SOAP(species, 6.0, 3, 2), inducing=nugget.CUR(1000), noise=NOISE,
            kernel=nugget.RBF(LENGTH_SCALE),
            uncertainty=nugget.LabelNoise(LABEL, PRIOR, members=MEMBERS),
        )  # fmt: skip

    forces = peer == "gap"
    small = potential().fit(images[:2], use_forces=forces)  # compiles, or loads what is compiled
    small.predict(images[:2], uncertainty_gradient=True)
    pot = potential()
    train = once(lambda: pot.fit(images[: TRAIN[peer]], use_forces=forces))
    one = images[-1]
    if peer == "gap":
        calc: Any = pot.calculator(uncertainties=())
        predict = lambda: pot.predict(one, uncertainty=False)  # noqa: E731
    else:
        calc = LCBCalculator(pot, KAPPA)
        predict = lambda: pot.predict(one, uncertainty_gradient=True)  # noqa: E731
    predict()
    return {
        "train_s": train,
        "predict_ms": 1e3 * timed(predict, 0.3)["cpu"],
        "relax_ms": 1e3 * relaxation(one, calc),
    }


if __name__ == "__main__":
    who, peer, path = sys.argv[1:]
    data = read(path, ":")
    symbols = sorted(set(data[0].symbols))
    found = {"agox": agox, "gap": gap, "nugget": lambda a, b: ours(a, b, peer)}[who](data, symbols)
    print(json.dumps(found))
