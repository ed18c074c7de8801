"""The settings that say what is searched for, and what they change of the others."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from nugget.errors import NuggetError
from nugget.evaluation.config import Section
from nugget.generators.compositions import elements_of

DEFAULT_GENERATORS: dict[str, float] = {
    "random_cluster": 1.0,
    "random_placement": 1.0,
    "symmetric": 2.0,
    "rattle": 1.0,
    "surface_move": 1.0,
    "permutation": 1.0,
    "cut_and_splice": 1.0,
    "twist": 0.5,
    "copies": 1.0,
    "melt": 0.5,
    "random_molecules": 1.0,
    "molecule_move": 2.0,
    "molecule_splice": 1.0,
}

CRYSTAL_GENERATORS: dict[str, float] = {
    "random_crystal": 1.0,
    "space_group": 2.0,
    "strain": 1.0,
    "crystal_permutation": 1.0,
    "crystal_splice": 1.0,
    "supercell": 0.5,
}

# What a crystal search is set to where the settings do not say otherwise.
_CRYSTAL: dict[str, dict[str, Any]] = {
    "engine": {"stress": True},
    "model": {
        "use_forces": True,
        "cutoff": 4.5,
        "n_max": 4,
        "l_max": 3,
        "sigma": 0.6,
        "force_noise": 0.5,
        "length_factor": 2.0,
        "kernel_options": {"amplitude": 100.0},
        "baseline_options": {"complete": True},
    },
    "search": {
        "generators": CRYSTAL_GENERATORS,
        "reference_tolerance": 0.01,
        "explore": 0,
        "walkers": 0,
        "usual_force": 0.0,
    },
}

# And one of several compositions.
_SEVERAL: dict[str, dict[str, Any]] = {
    "search": {"initial": 10, "n_parents": 16, "candidates": 40, "polish": 10},
}


class SystemConfig(Section):
    """The system to search."""

    formula: str = Field(
        "Au20",
        description="atoms to place, as Au20 or Cu5Au8, or molecules that stay whole, as H2O*4 or "
        "CO*2,Au4",
    )
    kind: Literal["cluster", "surface", "bulk", "crystal"] = Field(
        "cluster",
        description="free cluster, atoms on a template, atoms in a fixed periodic cell (bulk), or "
        "a crystal whose cell is found too",
    )
    template: str | None = Field(None, description="surface: file with the slab (any ASE format)")
    height: float = Field(5.0, gt=0, description="surface: atoms stay this far above it, in Å")
    cell: tuple[float, ...] | None = Field(
        None, description="bulk: cell as a, b, c or a, b, c, alpha, beta, gamma (Å, degrees)"
    )
    radius: float | None = Field(None, gt=0, description="cluster: largest radius in Å; else auto")
    units: tuple[int, int] = Field(
        (1, 4), description='crystal: formula units in the cell, as 2, "1-4" or [1, 4]'
    )
    pressure: float = Field(0.0, description="crystal: pressure in GPa; E + pV is minimised")
    compositions: str | None = Field(
        None, description="crystal: elements as Cu-Au; all their mixtures, and the convex hull"
    )
    max_atoms: int = Field(8, ge=1, description="compositions: atoms in the cell at the most")
    volume: float | None = Field(
        None, gt=0, description="crystal: first guess of the volume per atom, Å³; else from radii"
    )
    min_distance: float = Field(0.0, ge=0, description="crystal: no atoms closer than this, Å")

    @field_validator("units", mode="before")
    @classmethod
    def _range(cls, value: Any) -> Any:
        if isinstance(value, int):
            return (value, value)
        if isinstance(value, str):
            ends = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", value)
            if ends is None:
                raise ValueError("write units as 2, 1-4 or [1, 4]")
            return (int(ends[1]), int(ends[2] or ends[1]))
        return value

    @model_validator(mode="before")
    @classmethod
    def _all_elements(cls, settings: Any) -> Any:
        """With compositions, the formula names their elements."""
        if not isinstance(settings, dict) or not isinstance(settings.get("compositions"), str):
            return settings
        try:
            formula = "".join(elements_of(settings["compositions"]))
        except NuggetError as error:
            raise ValueError(str(error)) from None
        if settings.get("formula", formula) != formula:
            raise ValueError("give a formula or compositions, not both")
        return {**settings, "formula": formula}

    @property
    def title(self) -> str:
        """What is searched for, in a word."""
        return self.compositions or self.formula

    @model_validator(mode="after")
    def _complete(self) -> SystemConfig:
        if self.kind == "surface" and self.template is None:
            raise ValueError("a surface search needs system.template, a file with the slab")
        if self.compositions is not None and self.kind != "crystal":
            raise ValueError('compositions are those of crystals: kind = "crystal" (--crystal)')
        if self.compositions is not None and self.units != (1, 4):
            raise ValueError("with compositions, max_atoms limits the cells, not units")
        if not 1 <= self.units[0] <= self.units[1]:
            raise ValueError("units are 1 or more, the smaller number first, as 1-4")
        if self.kind == "bulk" and (self.cell is None or len(self.cell) not in (3, 6)):
            raise ValueError("a bulk search needs system.cell with 3 or 6 numbers")
        if self.cell is not None and not _has_volume(self.cell):
            raise ValueError(
                f"cell {list(self.cell)} spans no volume: give three positive lengths in Å, and "
                "angles in degrees that fit together"
            )
        return self


def _has_volume(cell: tuple[float, ...]) -> bool:
    """Positive lengths, and angles that three edges can have with each other."""
    if len(cell) not in (3, 6) or min(cell) <= 0 or max(cell[3:], default=90.0) >= 180:
        return False
    a, b, c = np.cos(np.radians(cell[3:] or (90.0, 90.0, 90.0)))
    return bool(1 - a * a - b * b - c * c + 2 * a * b * c > 1e-6)


def with_crystal_defaults(settings: Any) -> Any:
    """The settings with a crystal's defaults, if one is searched for; not yet validated."""
    if not isinstance(settings, dict) or not isinstance(settings.get("system"), dict):
        return settings
    if settings["system"].get("kind") != "crystal":
        return settings
    made = dict(settings)
    several = settings["system"].get("compositions") is not None
    for name, defaults in _CRYSTAL.items():
        given = made.get(name, {})
        if isinstance(given, dict):
            made[name] = {**defaults, **(_SEVERAL.get(name, {}) if several else {}), **given}
    model = made["model"]
    if isinstance(model, dict) and {"baseline", "kernel"} & set(model):
        # Another baseline or kernel need not take the options of these.
        own = {"baseline_options": "baseline", "kernel_options": "kernel"}
        given = settings.get("model", {})
        made["model"] = {
            key: value
            for key, value in model.items()
            if key in given or own.get(key) not in model or model[own[key]] in ("pair-well", "RBF")
        }
    search = made["search"]
    if isinstance(search, dict) and search.get("generators") == DEFAULT_GENERATORS:
        made["search"] = {**search, "generators": CRYSTAL_GENERATORS}
    return made
