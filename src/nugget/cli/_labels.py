"""Predictions against the labels that structures carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nugget.errors import NuggetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ase import Atoms
    from numpy.typing import NDArray

    from nugget.potential.potential import Potential
    from nugget.potential.prediction import Prediction


def known(atoms: Atoms, name: str) -> Any:
    """A stored label, or None; nothing is computed."""
    return None if atoms.calc is None else atoms.calc.results.get(name)


def errors_of(images: Sequence[Atoms], found: Prediction) -> dict[str, float | None]:
    """MAE and RMSE per atom and per force component, where labels exist; mean σ per atom."""
    sizes = np.array([len(atoms) for atoms in images])
    labels = np.array([_number(known(atoms, "energy")) for atoms in images])
    errors = (found.energy - labels) / sizes
    out: dict[str, float | None] = {
        "structures_with_energy": int(np.isfinite(labels).sum()),
        **_summary("energy", errors[np.isfinite(errors)]),
    }
    if found.forces is not None:
        differences = [
            (mine - known(atoms, "forces")).ravel()
            for atoms, mine in zip(images, found.forces, strict=True)
            if known(atoms, "forces") is not None
        ]
        out |= _summary("forces", np.concatenate(differences or [np.zeros(0)]))
    sigma = found.energy_uncertainty
    if sigma is not None:
        out["sigma_per_atom"] = float(np.mean(sigma / sizes))
        inside = np.abs(found.energy - labels)[np.isfinite(labels)]
        bars = sigma[np.isfinite(labels)]
        out["within_one_sigma"] = float(np.mean(inside <= bars)) if inside.size else None
        out["within_two_sigma"] = float(np.mean(inside <= 2 * bars)) if inside.size else None
    return out


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _summary(name: str, errors: NDArray[np.float64]) -> dict[str, float | None]:
    if errors.size == 0:
        return {f"{name}_mae": None, f"{name}_rmse": None}
    return {
        f"{name}_mae": float(np.mean(np.abs(errors))),
        f"{name}_rmse": float(np.sqrt(np.mean(errors**2))),
    }


def error_rows(errors: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Lines of a table: energies in meV/atom, forces in eV/Å."""
    rows = []
    for name, unit, factor in (("energy", "meV/atom", 1e3), ("forces", "eV/Å", 1.0)):
        if errors.get(f"{name}_mae") is not None:
            mae, rmse = (factor * errors[f"{name}_{kind}"] for kind in ("mae", "rmse"))
            rows.append((name, f"{mae:.4g}", f"{rmse:.4g}", unit))
    return rows


def refuse_training(potential: Potential, images: list[Atoms], allowed: bool) -> None:
    """Errors on training structures say nothing about others: refuse them, with their number."""
    known = int(potential.fitted.training.contains(images).sum())
    if known and not allowed:
        raise NuggetError(
            f"{known} of {len(images)} structures are in the training set of the model, where "
            "errors are smaller than elsewhere: leave them out (see --index), or add "
            "--allow-training."
        )
