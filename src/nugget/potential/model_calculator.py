"""Model files for other programs: a calculator in one line, the training set, a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.errors import NuggetError
from nugget.potential.calculator import NuggetCalculator
from nugget.potential.model_file import read_header
from nugget.potential.potential import Potential

__all__ = ["ModelCalculator", "load_calculator", "model_card", "training_images"]


class ModelCalculator(NuggetCalculator):
    """The calculator of a model file; see `NuggetCalculator` for its options."""

    def __init__(self, model: str | Path, trust_code: bool = False, **options: Any) -> None:
        super().__init__(Potential.load(model, trust_code), **options)
        self.model = str(model)


def load_calculator(path: str | Path, trust_code: bool = False, **options: Any) -> ModelCalculator:
    """The ASE calculator of a model file that `nugget fit` or `Potential.save` wrote.

    >>> atoms.calc = nugget.load_calculator("au.model")

    `options` are those of `NuggetCalculator`: `warn_above`, `uncertainties`, `skin`. A model whose
    mean function runs code of others needs `trust_code`.
    """
    return ModelCalculator(path, trust_code, **options)


def training_images(path: str | Path, trust_code: bool = False) -> list[Atoms]:
    """The structures that a model was fitted to, with their labels."""
    fit = Potential.load(path, trust_code).fitted
    if fit.lean:
        raise NuggetError(f"{path} is a lean model, which has no training set.")
    training, batch = fit.training, fit.training.batch
    images = []
    for s in range(len(batch)):
        rows = slice(batch.offsets[s], batch.offsets[s + 1])
        atoms = Atoms(
            batch.numbers[rows], batch.positions[rows], cell=batch.cells[s], pbc=batch.pbc[s]
        )
        results: dict[str, Any] = {"energy": float(training.energy[s])}
        if training.has_forces[s]:
            results["forces"] = training.forces[rows].copy()
        if training.has_stress[s]:
            results["stress"] = training.stress[s].copy()
        atoms.calc = SinglePointCalculator(atoms, **results)
        images.append(atoms)
    return images


# --------------------------------------------------------------------------- model card


def model_card(path: str | Path) -> str:
    """What a model file tells of itself, as Markdown."""
    path = Path(path)
    header = read_header(path)
    summary, origin = header["summary"], header["provenance"]
    species = species_of(header["descriptor"])
    forces = {None: "where structures have them", True: "yes", False: "no"}[header["use_forces"]]
    blocks = [
        f"# {path.stem}",
        f"Gaussian-process interatomic potential for {', '.join(species)}, fitted with "
        f"[nugget](https://arxiv.org/abs/2407.12525) {origin['nugget']} on {origin['date'][:10]}. "
        "It predicts energies (eV), forces (eV/Å) and stresses (eV/Å³), with standard deviations.",
        "## Use",
        "```python\nimport nugget\n\n"
        f'atoms.calc = nugget.load_calculator("{path.name}")\n'
        "atoms.get_potential_energy()\n"
        'atoms.calc.results["energy_uncertainty"]  # standard deviation, eV\n```',
        "## Training data",
        _table(
            ("structures", summary["structures"]),
            ("atoms", summary["atoms"]),
            ("labels", summary["labels"]),
            ("forces used", forces),
            ("stress used", "yes" if header["use_stress"] else "no"),
            ("fingerprint", origin["data"]),
            ("in this file", "no (lean model)" if header.get("lean") else "yes"),
        ),
        "## Model",
        _table(
            *((part, _code(header[part])) for part in ("descriptor", "kernel", "inducing")),
            ("inducing points", summary["inducing_points"]),
            ("features", summary["features"]),
            ("mean function", _code(header["fitted_prior"])),
            ("noise of energies", f"{header['noise']:.3g} eV/atom"),
            ("noise of forces", f"{header['force_noise']:.3g} eV/Å"),
            ("seed", header["seed"]),
        ),
        "## Errors and uncertainty",
        *_accuracy(header),
        "## Limits",
        f"The model knows the elements {', '.join(species)} only. Its energy is a sum of "
        "contributions of local environments, so it has no long-range electrostatics, charges or "
        "spins. Check the standard deviation where structures differ from the training data.",
        "## Versions",
        _table(
            ("model format", header["version"]),
            *((k, v) for k, v in origin.items() if k not in ("date", "data")),
        ),
    ]
    return "\n\n".join(blocks) + "\n"


def _accuracy(header: dict[str, Any]) -> list[str]:
    calibration = header["calibration"]
    uncertainty = ("uncertainty", _code(header["uncertainty"]))
    if not calibration:
        return [
            _table(uncertainty),
            "The standard deviations have not been calibrated, and the file holds no errors. "
            "`nugget calibrate` and `nugget evaluate` determine both.",
        ]
    units = {"energy": ("energies", "eV/atom"), "force": ("forces", "eV/Å")}
    units["stress"] = ("stress", "eV/Å³")
    rows: list[tuple[str, object]] = [uncertainty, ("calibration", calibration.get("method", ""))]
    if "n" in calibration:
        rows.append(("structures in the calibration", calibration["n"]))
    for kind, value in (calibration.get("mae") or {}).items():
        name, unit = units.get(kind, (kind, ""))
        rows.append((f"mean absolute error of {name}", f"{value:.3g} {unit}"))
    for kind, shares in (calibration.get("within") or {}).items():
        name = units.get(kind, (kind, ""))[0]
        rows.append((f"{name} within 1σ and 2σ", " and ".join(f"{100 * p:.0f} %" for p in shares)))
    return [_table(*rows), "Errors are those of cross-validation on the training data."]


def species_of(settings: dict[str, Any]) -> list[str]:
    """Elements in the settings of a descriptor, whatever its parts."""
    if "species" in settings:
        return [str(symbol) for symbol in settings["species"]]
    parts = [*settings.get("parts", []), *(v for v in settings.values() if isinstance(v, dict))]
    return sorted({symbol for part in parts for symbol in species_of(part)})


def _table(*rows: tuple[str, object]) -> str:
    lines = [f"| {name} | {str(value).replace('|', '/')} |" for name, value in rows]
    return "\n".join(["| | |", "|---|---|", *lines])


def _code(settings: dict[str, Any]) -> str:
    """Settings of a part as they would be written in Python."""
    inside = ", ".join(f"{k}={_value(v)}" for k, v in settings.items() if k != "name")
    return f"`{settings['name']}({inside})`".replace("``", "")


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return _code(value).strip("`")
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        return f"{value:.6g}" if np.isfinite(value) else str(value)
    return str(value)
