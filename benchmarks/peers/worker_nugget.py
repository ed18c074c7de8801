"""Our side of the comparison; see protocol.py for how it is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read
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

import nugget
from nugget.potential.fitted import environment_points
from nugget.potential.mean_functions.base import SpeciesEnergies
from nugget.relax import relax
from nugget.structures.batch import as_batch

UNCERTAINTY = {
    "ensemble": nugget.LabelNoise(LABEL, PRIOR, members=MEMBERS),
    "exact": nugget.LabelNoise(LABEL, PRIOR),
    "projected": nugget.ProjectedProcess("environments"),
    "projected-structures": nugget.ProjectedProcess(),
}
PEER_JITTER = 1e-8  # its default for the mean
images: list[Any] = []
trained: dict[str, nugget.Potential] = {}


class Given:
    """Inducing points by their numbers, for comparing both codes on the same ones."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = np.array(rows, dtype=np.int64)

    def select(self, points: Any, kernel: Any, rng: Any, existing: Any = None) -> Any:
        return self.rows if existing is None else self.rows[:0]


def potential(model: str, m: int, inducing: Any = None) -> nugget.Potential:
    return nugget.Potential(
        nugget.SOAP(["Au"], SOAP["r_cut"], SOAP["n_max"], SOAP["l_max"], SOAP["sigma"]),
        kernel=nugget.RBF(LENGTH_SCALE),
        inducing=inducing or nugget.CUR(m),
        noise=NOISE,
        uncertainty=UNCERTAINTY[model],
        prior=SpeciesEnergies((("Au", 0.0),)),  # the driver has shifted the labels for both
    )


def setup(path: str) -> dict[str, Any]:
    images.extend(read(path, ":"))
    for model in UNCERTAINTY:  # compiles what is needed, or loads it
        small = potential(model, 20).fit(images[:2], use_forces=False)
        small.predict(images[:2], uncertainty_gradient=True)
        relax(images[:2], small.lcb(KAPPA), steps=2)
        small.update(images[2:3])
    return {"version": nugget.__version__}


def train(model: str, n: int, m: int, key: str = "") -> dict[str, Any]:
    """Fit the first n structures; with a key the model is kept under it."""
    pot = potential(model, m)
    answer = timed(lambda: pot.fit(images[:n], use_forces=False))
    if key:
        trained[key] = pot
    return {**answer, "m": len(pot.fitted.inducing)}


def predict(key: str, what: str, count: int) -> dict[str, Any]:
    """Predict the last `count` structures in one call."""
    pot, query = trained[key], images[-count:]
    options = {
        "E": {"forces": False, "uncertainty": False},
        "E, F": {"uncertainty": False},
        "E, F, σ": {},
        "E, F, σ, ∇σ": {"uncertainty_gradient": True},
    }
    if what == "LCB":
        surface = pot.lcb(KAPPA)
        return timed(lambda: surface(query))
    return timed(lambda: pot.predict(query, **options[what]))


def relaxation(key: str, count: int, steps: int, fmax: float) -> dict[str, Any]:
    """Relax `count` structures together on the LCB; evaluations of all of them."""
    done: list[Any] = []
    surface, query = trained[key].lcb(KAPPA), images[-count:]
    answer = timed(lambda: done.append(relax(query, surface, fmax, steps)))
    last = done[-1]
    return {
        **answer,
        "evaluations": sum(r.evaluations for r in last),
        "converged": sum(r.converged for r in last),
        "energy": float(np.mean([r.energy for r in last])),
    }


def iteration(model: str, n: int, m: int, candidates: int, steps: int) -> dict[str, Any]:
    """Relax the candidates, choose the lowest LCB, evaluate it with EMT and learn from it."""
    pot = potential(model, m).fit(images[:n], use_forces=False)
    count = []

    def once() -> None:
        done = relax(images[-candidates:], pot.lcb(KAPPA), 0.05, steps)
        found = pot.predict([r.atoms for r in done], forces=False)
        best = int(np.argmin(found.energy - KAPPA * found.energy_uncertainty))
        chosen = done[best].atoms.copy()
        chosen.calc = EMT()
        energy = chosen.get_potential_energy()
        chosen.calc = SinglePointCalculator(chosen, energy=energy)
        pot.update([chosen])
        count.append(sum(r.evaluations for r in done))

    return {**timed(once, at_least=0.0), "evaluations": count[-1]}


def agreement(n: int, rows: list[int], unc_jitter: float, file: str) -> dict[str, Any]:
    """Energies, forces and σ on given inducing points.

    `…_qr` is the peer's own formula (its jitter on the diagonals) solved by QR; `…_exact` the same
    with 50 digits, and `own_exact` that with our jitter. They tell round-off from other mistakes.
    """
    pot = potential("projected", len(rows), Given(rows)).fit(images[:n], use_forces=False)
    query = as_batch(images[-10:])
    found = pot.predict(query)
    fit, training = pot.fitted, pot.fitted.training
    env = pot.descriptor.compute(training.batch)
    k_nm = fit.inducing.matrix(env.values, env.species)
    root = NOISE * np.sqrt(training.batch.sizes)
    a = np.add.reduceat(k_nm, training.batch.offsets[:-1], axis=0) / root[:, None]
    y = training.energy / root
    at = pot.descriptor.compute(query)
    forward = fit.inducing.forward(environment_points(at))

    def both(alpha: Any) -> tuple[Any, Any]:
        return forward.k_sum @ alpha, -at.pullback(forward.vjp(alpha))

    m, gram = len(rows), fit.inducing.gram
    stack = np.concatenate([a, np.linalg.cholesky(gram + PEER_JITTER * np.eye(m)).T])
    alpha = np.linalg.lstsq(stack, np.concatenate([y, np.zeros(m)]), rcond=None)[0]
    out = dict(zip(("energy_qr", "forces_qr"), both(alpha), strict=True))
    if m <= 100:
        exact = both(_fifty_digits(gram, a, y, PEER_JITTER))
        own = both(_fifty_digits(gram, a, y, fit.regression.jitter))
        out |= {"energy_exact": exact[0], "forces_exact": exact[1]}
        out |= {"energy_own_exact": own[0], "forces_own_exact": own[1]}
    upper = np.linalg.cholesky(gram + unc_jitter * np.eye(m)).T
    r = np.linalg.qr(np.concatenate([k_nm / NOISE, upper]), mode="r")
    projected = np.linalg.solve(upper.T, forward.k_sum.T)
    explained = np.linalg.solve(r.T, forward.k_sum.T)
    prior = pot.kernel.self_sum(forward.points).value
    variance = prior - (projected**2).sum(0) + (explained**2).sum(0)
    out["sigma_qr"] = np.sqrt(np.maximum(variance, 0.0))
    assert found.forces is not None
    np.savez(
        file,
        energy=found.energy,
        forces=np.concatenate(found.forces),
        sigma=found.energy_uncertainty,
        **out,
    )
    return {"condition": float(np.linalg.cond(gram)), "jitter": fit.regression.jitter}


def _fifty_digits(gram: Any, a: Any, y: Any, jitter: float) -> Any:
    """α = (K + jitter + AᵀA)⁻¹Aᵀy with 50 digits."""
    from mpmath import mp

    with mp.workdps(50):
        rows = mp.matrix(a.tolist())
        normal = mp.matrix(gram.tolist()) + rows.T * rows + jitter * mp.eye(len(gram))
        return np.array([float(v) for v in mp.lu_solve(normal, rows.T * mp.matrix(y.tolist()))])


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
