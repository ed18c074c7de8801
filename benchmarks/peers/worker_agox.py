"""AGOX's side of the comparison, in its own environment, through its public interface alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from agox.acquisitors import LowerConfidenceBoundAcquisitor
from agox.models.descriptors import SOAP as AgoxSOAP
from agox.models.GPR import SparseGPR, SparseGPREnsemble
from agox.models.GPR.kernels import RBF, Constant
from agox.utils.sparsifiers import CUR, SparsifierBaseClass
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read
from ase.optimize import BFGS
from protocol import (
    KAPPA,
    LABEL,
    LENGTH_SCALE,
    MEMBERS,
    NOISE,
    PRIOR,
    SOAP,
    peak_memory,
    serve,
    timed,
)

images: list[Any] = []
trained: dict[str, Any] = {}


class Given(SparsifierBaseClass):
    """Inducing points by their numbers, for comparing both codes on the same ones."""

    name = "Given"

    def __init__(self, rows: list[int]) -> None:
        super().__init__(m_points=len(rows))
        self.rows = np.array(rows)

    def sparsify(self, X: Any) -> Any:
        return X[self.rows], self.rows


def make(model: str, m: int, sparsifier: Any = None, **options: Any) -> Any:
    descriptor = AgoxSOAP.from_species(
        ["Au"],
        r_cut=SOAP["r_cut"],
        nmax=SOAP["n_max"],
        lmax=SOAP["l_max"],
        sigma=SOAP["sigma"],
        weight=True,
        periodic=False,
    )
    common = {
        "descriptor": descriptor,
        "kernel": Constant(1.0) * RBF(LENGTH_SCALE),
        "sigma": NOISE,
        "n_optimize": 0,
        "use_ray": False,
        "sparsifier": sparsifier or CUR(m_points=m),
        **options,
    }
    if model == "ensemble":
        return SparseGPREnsemble(
            N_ensemble=MEMBERS, target_noise=LABEL, prior_noise=PRIOR, **common
        )
    return SparseGPR(train_uncertainty=True, **common)


def setup(path: str) -> dict[str, Any]:
    images.extend(read(path, ":"))
    np.random.seed(0)  # noqa: NPY002 (the peer draws from the global generator)
    from importlib.metadata import version

    return {name: version(name) for name in ("agox", "ase", "dscribe", "numpy", "scipy", "ray")}


def train(model: str, n: int, m: int, key: str = "") -> dict[str, Any]:
    """Fit the first n structures; with a key the model is kept under it."""
    peer = make(model, m)
    answer = timed(lambda: peer.train(images[:n]))
    if key:
        trained[key] = peer
    parts = {name: float(value) for name, value in peer.training_timings.items()}
    return {**answer, "m": len(peer.Xm), "parts_wall": parts}


def predict(key: str, what: str, count: int) -> dict[str, Any]:
    """Predict the last `count` structures, sharing what the peer can share between questions."""
    model, query = trained[key], images[-count:]

    def shared() -> None:
        for atoms in query:
            data = model.converter(atoms, derivatives=what != "E")
            model.predict_energy(atoms, **data)
            if what != "E":
                model.predict_forces(atoms, **data)
            if "σ" in what or what == "LCB":
                model.predict_uncertainty(atoms, **data)
            if "∇σ" in what or what == "LCB":
                model.predict_uncertainty_forces(atoms, **data)

    def energies() -> None:
        for atoms in query:
            model.predict_energy(atoms)

    def apart() -> None:
        for atoms in query:
            model.predict_energy(atoms)
            model.predict_forces(atoms)
            model.predict_uncertainty(atoms)
            model.predict_uncertainty_forces(atoms)

    if what == "four calls":
        return timed(apart)
    return timed(energies if what == "E" else shared)


def lcb(model: Any) -> Any:
    return LowerConfidenceBoundAcquisitor(model, kappa=KAPPA).get_acquisition_calculator()


def walk(model: Any, start: Any, steps: int, fmax: float) -> tuple[Any, int, bool]:
    """One structure relaxed on the LCB with the optimiser that the peer uses by default."""
    atoms = start.copy()
    atoms.calc = lcb(model)
    optimiser = BFGS(atoms, logfile=None)
    converged = bool(optimiser.run(fmax=fmax, steps=steps))
    return atoms, optimiser.get_number_of_steps() + 1, converged


def relaxation(key: str, count: int, steps: int, fmax: float) -> dict[str, Any]:
    """Relax `count` structures one after the other on the LCB; evaluations of all of them."""
    done: list[Any] = []

    def work() -> None:
        done[:] = [walk(trained[key], atoms, steps, fmax) for atoms in images[-count:]]

    answer = timed(work)
    return {
        **answer,
        "evaluations": sum(d[1] for d in done),
        "converged": sum(d[2] for d in done),
        "energy": float(np.mean([d[0].get_potential_energy() for d in done])),
    }


def iteration(model: str, n: int, m: int, candidates: int, steps: int) -> dict[str, Any]:
    """Relax the candidates, choose the lowest LCB, evaluate it with EMT and train again."""
    peer = make(model, m)
    peer.train(images[:n])
    count = []

    def once() -> None:
        done = [walk(peer, atoms, steps, 0.05) for atoms in images[-candidates:]]
        scores = []
        for atoms, _, _ in done:
            energy, sigma = peer.predict_energy_and_uncertainty(atoms)
            scores.append(energy - KAPPA * sigma)
        chosen = done[int(np.argmin(scores))][0].copy()
        chosen.calc = EMT()
        energy = chosen.get_potential_energy()
        chosen.calc = SinglePointCalculator(chosen, energy=energy)
        peer.train([*images[:n], chosen])
        count.append(sum(d[1] for d in done))

    return {**timed(once, at_least=0.0), "evaluations": count[-1]}


def agreement(n: int, rows: list[int], unc_jitter: float, file: str) -> dict[str, Any]:
    """Energies, forces and σ on given inducing points."""
    model = make("projected", len(rows), Given(rows), unc_jitter=unc_jitter)
    model.train(images[:n])
    query = images[-10:]
    np.savez(
        file,
        energy=np.array([model.predict_energy(atoms) for atoms in query]),
        forces=np.concatenate([model.predict_forces(atoms) for atoms in query]),
        sigma=np.array([model.predict_uncertainty(atoms) for atoms in query]),
    )
    return {}


if __name__ == "__main__":
    serve(
        {
            "setup": setup,
            "train": train,
            "predict": predict,
            "relax": relaxation,
            "iteration": iteration,
            "agreement": agreement,
            "memory": peak_memory,
        }
    )
