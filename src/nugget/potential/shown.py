"""How a potential and its predictions show themselves in terminals and notebooks."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from nugget.structures.shown import Contents, counted, spread

if TYPE_CHECKING:
    from nugget.potential.potential import Potential
    from nugget.potential.prediction import Prediction


def potential_contents(potential: Potential) -> Contents:
    """Elements, what it was fitted to, its parts, and whether its error bars are calibrated."""
    parts = {
        name: repr(getattr(potential, name))
        for name in ("descriptor", "kernel", "inducing", "uncertainty", "prior")
    }
    facts = {
        **parts,
        "noise": f"{potential.noise:g} eV/atom, forces {potential.force_noise:g} eV/Å",
        "seed": str(potential.seed),
    }
    words = [" ".join(potential.descriptor.species), type(potential.descriptor).__name__]
    words.append(type(potential.uncertainty).__name__)
    if not potential.is_fitted:
        return Contents("Potential", [*words, "not fitted"], facts)
    fit = potential.fitted
    known = potential.origin["summary"] if fit.lean else {"structures": len(fit.training.batch)}
    learnt = "energies"
    if fit.training.use_forces or fit.training.has_forces.any():
        learnt += ", forces"
    if fit.training.use_stress:
        learnt += ", stress"
    structures = counted(known["structures"], "structure")
    points = counted(len(fit.inducing), "inducing point")
    calibration = potential.calibration or {}
    facts = {"fitted to": f"{structures} ({learnt})", "inducing points": points, **facts}
    facts["calibration"] = str(calibration.get("method", "yes")) if calibration else "none"
    words = [*words, f"fitted to {structures} ({learnt})", points]
    words.append("calibrated" if calibration else "not calibrated")
    return Contents("Potential", [*words, *(["lean"] if fit.lean else [])], facts)


def prediction_contents(prediction: Prediction) -> Contents:
    """How many structures, the range of their energies, what else is there; and all energies."""
    number = len(prediction.energy)
    words = [counted(number, "structure")]
    std = prediction.energy_uncertainty
    if number:
        words.append(f"energy {spread(prediction.energy)} eV")
        if std is not None:
            words.append(f"σ {spread(std)} eV")
    others = [
        item.name.replace("_", " ")
        for item in fields(prediction)
        if item.name not in ("energy", "energy_uncertainty")
        and getattr(prediction, item.name) is not None
    ]
    columns = ["structure", "energy, eV"] + ([] if std is None else ["σ, eV"])
    if prediction.forces is not None:
        columns.append("largest force, eV/Å")
    rows = []
    for s in range(number):
        row = [str(s), f"{prediction.energy[s]:.4f}"]
        if std is not None:
            row.append(f"{std[s]:.4f}")
        if prediction.forces is not None:
            largest = (prediction.forces[s] ** 2).sum(axis=1).max(initial=0.0) ** 0.5
            row.append(f"{largest:.3f}")
        rows.append(row)
    return Contents("Prediction", [*words, *others], {}, columns, rows)
