"""Prediction with uncertainty: its extra cost, and the whole against DScribe's derivatives.

DScribe's numerical derivatives alone took 8.6 ms where AGOX needed 30.6 ms for one evaluation of
E, F, σ and ∇σ: that call, timed here in the same run, stands for AGOX on this machine.
"""

from __future__ import annotations

import common  # first: it sets one thread
import numpy as np
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from descriptor import clusters
from dscribe.descriptors import SOAP as Rival

from nugget import CUR, SOAP, LabelNoise, Potential, ProjectedProcess


def trained(n_points: int, uncertainty: LabelNoise | ProjectedProcess) -> Potential:
    images = clusters(200)
    for atoms in images:
        atoms.calc = EMT()
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    pot = Potential(SOAP(["Au"], 6.0, 3, 2), inducing=CUR(n_points), uncertainty=uncertainty)
    return pot.fit(images, use_forces=False)


def measure(pot: Potential) -> dict[str, float]:
    images = clusters(50)
    one = images[0]
    rival = Rival(
        species=["Au"],
        r_cut=6.0,
        n_max=3,
        l_max=2,
        sigma=1.0,
        weighting={"function": "poly", "r0": 6.0, "c": 1, "m": 2},
    )
    lcb = pot.lcb(2.0)
    seconds = common.interleaved(
        {
            "dscribe": lambda: rival.derivatives(
                one, method="numerical", attach=True, return_descriptor=True
            ),
            "E, F": lambda: pot.predict(one, uncertainty=False),
            "E, F, σ": lambda: pot.predict(one),
            "E, F, σ, ∇σ": lambda: pot.predict(one, uncertainty_gradient=True),
            "LCB": lambda: lcb([one]),
            "E, F of 50": lambda: pot.predict(images, uncertainty=False),
            "E, F, σ, ∇σ of 50": lambda: pot.predict(images, uncertainty_gradient=True),
            "LCB of 50": lambda: lcb(images),
        }
    )
    return {
        "EF_ms": 1e3 * seconds["E, F"],
        "EF_sigma_ms": 1e3 * seconds["E, F, σ, ∇σ"],
        "LCB_ms": 1e3 * seconds["LCB"],
        "LCB_of_50_ms": 1e3 * seconds["LCB of 50"] / 50,
        "sigma_alone_cost": seconds.ratio("E, F, σ", "E, F"),
        "sigma_cost": seconds.ratio("E, F, σ, ∇σ", "E, F"),
        "sigma_cost_50": seconds.ratio("E, F, σ, ∇σ of 50", "E, F of 50"),
        "lcb_cost": seconds.ratio("LCB", "E, F"),
        "dscribe_over_lcb": seconds.ratio("dscribe", "LCB"),
        "dscribe_over_lcb_50": 50 * seconds.ratio("dscribe", "LCB of 50"),
        "rank": float(_rank(pot)),
    }


def _rank(pot: Potential) -> int:
    fitted = pot.fitted.uncertainty
    return int(np.shape(fitted.weights[0])[1] if hasattr(fitted, "weights") else fitted.v.shape[1])


def main() -> None:
    results = {}
    models = {
        "exact": LabelNoise(),
        "K = 10": LabelNoise(members=10),
        "projected": ProjectedProcess(),
    }
    for name, uncertainty in models.items():
        results[name] = measure(trained(1000, uncertainty))
    header = ["m = 1000, Au20", *results["exact"]]
    common.table("One thread", header, [[name, *row.values()] for name, row in results.items()])
    common.save("potential", results)


if __name__ == "__main__":
    main()
