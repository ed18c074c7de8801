"""Labels of `nugget fit`: names, noise levels, isolated atoms, contradictions and residuals."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ase.data import atomic_numbers
from ase.geometry import minkowski_reduce

from nugget.cli._console import refuse_existing
from nugget.errors import NuggetError
from nugget.potential.label_checks import LabelFinding, check_labels
from nugget.potential.residuals import (
    SUSPICIOUS,
    StructureResidual,
    check_agreement,
    largest,
    write_residuals,
)
from nugget.structures.io import read_images, with_noise
from nugget.structures.labels import ENERGY_NOISE, stored_energy

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.fitted import FittedState
    from nugget.potential.training import Training

# Names under which files keep the group of a structure.
_GROUP_KEYS = ("group", "config_type")

# A periodic structure of one atom is isolated if its images are farther away than this, Å.
_ISOLATED = 8.0

# Noise of the energies of isolated atoms, eV.
_EXACT = 1e-4


def check_force_names(
    images: Sequence[Atoms], energy_key: str | None, forces_key: str | None
) -> None:
    """Say which forces are in DATA if only the name of the energy is given."""
    if energy_key is None or forces_key is not None:
        return
    atoms = images[0]
    shape = (len(atoms), 3)
    names = [k for k, a in atoms.arrays.items() if "force" in k.lower() and a.shape == shape]
    results = {} if atoms.calc is None else atoms.calc.results
    names = [k for k in names if not np.array_equal(atoms.arrays[k], results.get("forces", ()))]
    if "forces" in results and names:
        raise NuggetError(
            f"DATA has forces under several names ('forces', {', '.join(map(repr, names))}): say "
            "which belong to the energies by --forces-key, or add --no-forces."
        )
    if names:
        warnings.warn(
            f"DATA holds forces too ({', '.join(map(repr, names))}), which are not used: add "
            f"--forces-key {names[0]} to fit to them.",
            stacklevel=2,
        )


def isolated_energies(text: str | None, images: Sequence[Atoms]) -> dict[str, float]:
    """Energies of isolated atoms by element: given as text or file, or found among the images."""
    if text is None:
        return _isolated_among(images)
    path = Path(text)
    if path.is_file():
        if path.suffix == ".json":
            energies = _from_json(path)
        else:
            energies = _isolated_among(read_images(path))
            if not energies:
                raise NuggetError(f"{path} holds no isolated atoms with energies.")
    else:
        energies = dict(_pair(part, text) for part in text.split(","))
    for symbol in energies:
        if symbol not in atomic_numbers:
            raise NuggetError(f"--e0: {symbol!r} is no element.")
    return energies


def _from_json(path: Path) -> dict[str, float]:
    try:
        content = json.loads(path.read_text())
        return {str(symbol): float(energy) for symbol, energy in content.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise NuggetError(f"{path} is no JSON object of elements and energies.") from error


def _pair(part: str, text: str) -> tuple[str, float]:
    symbol, _, energy = part.strip().replace("=", ":").partition(":")
    try:
        return symbol.strip(), float(energy)
    except ValueError:
        raise NuggetError(
            f"--e0 {text!r} is neither a file nor energies: write it as Cu:-0.3,Au:-0.5."
        ) from None


def _isolated_among(images: Sequence[Atoms]) -> dict[str, float]:
    """Energies of structures that are one isolated atom."""
    energies: dict[str, float] = {}
    for atoms in images:
        if len(atoms) == 1 and is_isolated(atoms):
            energies.setdefault(str(atoms.symbols[0]), stored_energy(atoms))
    return energies


def is_isolated(atoms: Atoms) -> bool:
    """Whether the atom of a structure of one atom has no neighbour."""
    cell = minkowski_reduce(atoms.cell.array, atoms.pbc)[0]
    lengths = np.linalg.norm(cell[atoms.pbc], axis=1)
    return not len(lengths) or float(lengths.min()) > _ISOLATED


def with_noise_levels(
    images: list[Atoms],
    noise_by: Sequence[str] | None,
    weight_key: str | None,
    isolated: dict[str, float],
) -> list[Atoms]:
    """Images with the noise of their groups and their weights; isolated atoms are exact."""
    key, levels = _levels(noise_by)
    alone = [len(atoms) == 1 and is_isolated(atoms) for atoms in images]
    if levels or weight_key or (isolated and any(alone)):
        images = with_noise(images, key, levels, weight_key)
    for atoms, is_alone in zip(images, alone, strict=True):
        if isolated and is_alone:
            atoms.info.setdefault(ENERGY_NOISE, _EXACT)
    return images


def _levels(texts: Sequence[str] | None) -> tuple[str, dict[str, tuple[float, float | None]]]:
    """The key in `info` and the levels of `--noise-by KEY=GROUP:E[:F],…`."""
    key, levels = "", {}
    for text in texts or ():
        name, equals, groups = text.partition("=")
        if not equals or key not in ("", name):
            raise NuggetError(f"--noise-by {text!r}: write one key, as group=surface:0.02:0.1.")
        key = name
        for part in groups.split(","):
            group, *numbers = part.rsplit(":", 2) if part.count(":") > 1 else part.split(":")
            try:
                energy, *force = (float(number) for number in numbers)
            except ValueError:
                raise NuggetError(
                    f"--noise-by: {part!r} is no group with its noise; write surface:0.02 for "
                    "energies, or surface:0.02:0.1 for energies and forces."
                ) from None
            levels[group.strip()] = (energy, force[0] if force else None)
    return key, levels


# --------------------------------------------------------------------------- contradictions


def check_before(training: Training, anyway: bool) -> None:
    """Report labels that contradict each other; refuse those that would spoil the fit."""
    _report(check_labels(training), anyway)


def check_after(state: FittedState, residuals: Sequence[StructureResidual], anyway: bool) -> None:
    """Report forces or stress that contradict the energies, and suspicious structures."""
    _report(check_agreement(state), anyway)
    wrong = [one for one in largest(residuals) if one.z > SUSPICIOUS]
    if wrong:
        names = ", ".join(f"{one.index} (z = {one.z:.2g})" for one in wrong)
        warnings.warn(
            f"the labels of some structures are far from what the others suggest: {names}. "
            "Check them, or remove them.",
            stacklevel=2,
        )


def _report(findings: Iterable[LabelFinding], anyway: bool) -> None:
    for finding in findings:
        if finding.refuses and not anyway:
            raise NuggetError(f"{finding.sentence} (--anyway fits all the same.)")
        warnings.warn(finding.sentence, stacklevel=2)


# --------------------------------------------------------------------------- residuals


def group_names(images: Sequence[Atoms]) -> list[str]:
    """The group of each structure as its file names it, or no text."""
    return [
        next((str(atoms.info[key]) for key in _GROUP_KEYS if key in atoms.info), "")
        for atoms in images
    ]


def check_residuals_file(path: Path, force: bool) -> None:
    """Refuse an existing file or an unknown format before the fit."""
    if path.suffix not in (".csv", ".json"):
        raise NuggetError(f"Residuals are written as .csv or .json, not as {path.name!r}.")
    refuse_existing(path, force)


def save_residuals(path: Path, residuals: Sequence[StructureResidual]) -> None:
    if not residuals:
        raise NuggetError(
            "There are no leave-one-out residuals of few structures or with --stream."
        )
    write_residuals(path, residuals)


def largest_residuals(residuals: Sequence[StructureResidual]) -> list[dict[str, Any]]:
    """The structures with the largest residuals, as plain data."""
    keys = ("index", "formula", "group", "energy", "energy_z", "force", "force_z")
    return [{key: getattr(one, key) for key in keys} for one in largest(residuals)]


def residual_rows(residuals: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Table rows of `largest_residuals`."""
    return [
        (
            str(one["index"]), one["formula"], one["group"], f"{1e3 * one['energy']:.3g}",
            f"{one['energy_z']:.1f}", "–" if one["force"] is None else f"{one['force']:.3g}",
            "–" if one["force"] is None else f"{one['force_z']:.1f}",
        )
        for one in residuals
    ]  # fmt: skip
