"""The settings of a system, and the kinds of systems that they can name.

A kind is a class marked `@registered("system")` in a file of this package, or an entry point of the
group `nugget.systems`. It checks the settings, makes the `System` and its `Goal`, and supplies the
defaults of the other sections. A new kind is one new file.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ase import Atoms
from pydantic import Field, field_validator, model_validator

from nugget import registry
from nugget.errors import NuggetError
from nugget.relax.engine_relaxation import EngineRelaxation, LearningRelaxation
from nugget.settings import Section
from nugget.systems.base import System
from nugget.systems.goal import Goal, LowestEnergy
from nugget.systems.reservoirs import largest_formula
from nugget.systems.validity import elements_of

#: Weights of the generators where the kind of system has no defaults of its own.
DEFAULT_GENERATORS: dict[str, float] = {
    "random_cluster": 1.0,
    "random_placement": 1.0,
    "symmetric": 2.0,
    "motif": 1.0,
    "alternating": 2.0,
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


class SystemConfig(Section):
    """The system to search."""

    formula: str = Field(
        "Au20",
        description="atoms to place, as Au20 or Cu5Au8, or molecules that stay whole, as H2O*4 or "
        "CO*2,Au4",
    )
    kind: str = Field(
        "cluster",
        description="cluster: free; surface: atoms on a template; bulk: atoms in a fixed periodic "
        "cell; crystal: the cell is optimised too",
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
    vary: str | None = Field(
        None,
        description="cluster, surface: ranges of numbers of atoms as O:0-6,H:0-2 (and "
        "total:0-7) instead of a formula; the phase diagram over chemical potentials is searched",
    )
    chemical_potential: str | None = Field(
        None,
        description="vary: ranges relative to the reservoirs, eV, as O=-3.0:-0.5; none: all values",
    )
    reservoirs: str | None = Field(
        None,
        description="vary: species that supply atoms, as O=1/2 O2 or O=H2O - H2,Pt=Pt(bulk); none: "
        "H2, N2, O2, F2, Cl2 and isolated atoms",
    )
    reference_energies: dict[str, float] = Field(
        default_factory=dict,
        description="vary: energies of these species, eV; missing ones are computed with the "
        "engine when the search is created",
    )
    temperature: str | None = Field(
        None,
        description="vary: temperature in K as 300:1200; gases give the potentials",
    )
    partial_pressures: str | None = Field(
        None, description="vary: pressures of the gases in bar, as O2=1e-10:1"
    )
    volume: float | None = Field(
        None, gt=0, description="crystal: first guess of the volume per atom, Å³; else from radii"
    )
    min_distance: float = Field(0.0, ge=0, description="crystal: no atoms closer than this, Å")
    options: dict[str, Any] = Field(
        default_factory=dict, description="further options of a kind from another package"
    )

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

    @model_validator(mode="before")
    @classmethod
    def _largest(cls, settings: Any) -> Any:
        """With varying numbers of atoms, the formula is the largest composition."""
        if not isinstance(settings, dict) or not isinstance(settings.get("vary"), str):
            return settings
        try:
            formula = largest_formula(settings["vary"])
        except NuggetError as error:
            raise ValueError(str(error)) from None
        if settings.get("formula", formula) != formula:
            raise ValueError("give a formula or vary, not both")
        return {**settings, "formula": formula}

    @property
    def title(self) -> str:
        """The elements of a search over compositions, the ranges of atoms, or else the formula."""
        return self.compositions or self.vary or self.formula

    @field_validator("kind")
    @classmethod
    def _exists(cls, kind: str) -> str:
        try:
            registry.find("system", kind)
        except NuggetError as error:
            raise ValueError(str(error)) from None
        if kind == "compositions":
            raise ValueError('write kind = "crystal" and system.compositions, as "Cu-Au"')
        if kind == "grand-canonical":
            raise ValueError('write kind = "cluster" or "surface" and system.vary, as "O:0-6"')
        return kind

    @model_validator(mode="after")
    def _complete(self) -> SystemConfig:
        kind = kind_of(self)
        if stray := [name for name in self.options if name not in kind.options]:
            raise ValueError(f"options: a {kind.name} takes no option {stray[0]!r}")
        kind.check(self)
        if self.vary is None and (stray := [name for name in _VARY if getattr(self, name)]):
            raise ValueError(f"{stray[0]} belongs to searches with varying numbers of atoms (vary)")
        if not 1 <= self.units[0] <= self.units[1]:
            raise ValueError("units are 1 or more, the smaller number first, as 1-4")
        if self.cell is not None and not _has_volume(self.cell):
            raise ValueError(
                f"cell {list(self.cell)} spans no volume: give three positive lengths in Å, and "
                "angles in degrees that fit together"
            )
        return self


#: Settings that belong to `vary`.
_VARY = (
    "chemical_potential", "reservoirs", "reference_energies", "temperature", "partial_pressures",
)  # fmt: skip


def _has_volume(cell: tuple[float, ...]) -> bool:
    """Whether the lengths are positive and the angles can occur together."""
    if len(cell) not in (3, 6) or min(cell) <= 0 or max(cell[3:], default=90.0) >= 180:
        return False
    a, b, c = np.cos(np.radians(cell[3:] or (90.0, 90.0, 90.0)))
    return bool(1 - a * a - b * b - c * c + 2 * a * b * c > 1e-6)


class SystemKind(ABC):
    """A kind of system as settings name it."""

    name: ClassVar[str]
    variable_cell: ClassVar[bool] = False  # see `System`
    several_sizes: ClassVar[bool] = False  # the same
    options: ClassVar[tuple[str, ...]] = ()  # names that `system.options` may contain
    flag: ClassVar[str] = ""  # the option of `nugget search` that selects it, if there is one

    def check(self, settings: SystemConfig) -> None:
        """Raise ValueError unless the settings describe a system of this kind."""
        if settings.compositions is not None:
            raise ValueError('compositions are those of crystals: kind = "crystal" (--crystal)')
        if settings.vary is not None:
            raise ValueError("numbers of atoms vary in clusters and on surfaces only")

    @abstractmethod
    def make(self, settings: SystemConfig, directory: Path) -> System:
        """The system; file names are relative to the run directory."""

    def goal(self, settings: SystemConfig) -> Goal:
        """What is minimised, and when two structures are the same."""
        return LowestEnergy(molecules="*" in settings.formula)

    def title(self, settings: SystemConfig) -> str:
        """The heading of a report."""
        return settings.formula

    def defaults(self) -> dict[str, dict[str, Any]]:
        """Defaults of the other sections that differ for this kind, by section."""
        return {}

    def engine_relaxation(
        self, settings: SystemConfig, atoms: Atoms, fmax: float, max_evaluations: int, probes: int
    ) -> EngineRelaxation:
        """The final relaxation of a structure with the engine, not yet begun."""
        return LearningRelaxation(atoms, fmax, max_evaluations, probes)


def kind_of(settings: SystemConfig) -> SystemKind:
    """The kind of system that the settings describe."""
    return _find(settings.kind, settings.compositions, settings.vary)


def _find(kind: str, compositions: Any, vary: Any) -> SystemKind:
    """Settings write several compositions as a crystal, cluster or surface with an option."""
    if kind == "crystal" and compositions is not None:
        kind = "compositions"
    elif kind in ("cluster", "surface") and vary is not None:
        kind = "grand-canonical"
    instance: SystemKind = registry.make("system", kind)
    return instance


def make_system(settings: SystemConfig, directory: Path) -> System:
    """What is searched for; file names are relative to the run directory."""
    return kind_of(settings).make(settings, directory)


def make_goal(settings: SystemConfig) -> Goal:
    """What a search of this system minimises."""
    return kind_of(settings).goal(settings)


#: Files that `nugget init` of earlier versions wrote hold these weights.
_EARLIER_GENERATORS = {
    name: weight
    for name, weight in DEFAULT_GENERATORS.items()
    if name not in ("motif", "alternating")
}

#: Options of the model that belong to a part, and the part to which the defaults refer.
_OPTIONS = {"baseline_options": ("baseline", "pair-well"), "kernel_options": ("kernel", "RBF")}


def with_kind_defaults(settings: Any) -> Any:
    """The settings of a search, not yet validated, with the defaults of their kind of system."""
    system = settings.get("system") if isinstance(settings, dict) else None
    if not isinstance(system, dict):
        return settings
    try:
        options = (system.get("compositions"), system.get("vary"))
        kind = _find(str(system.get("kind", "cluster")), *options)
    except NuggetError:  # validation explains the mistake
        return settings
    completed = dict(settings)
    for name, defaults in kind.defaults().items():
        given = completed.get(name, {})
        if isinstance(given, dict):
            completed[name] = _completed(defaults, given)
    return completed


def _completed(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """One section: what is given, and the defaults that fit it.

    Another mean function or kernel need not take the options of the default one. Generators that
    are written out as those of a cluster count as not given.
    """
    fitting = {}
    for key, value in defaults.items():
        part, name = _OPTIONS.get(key, ("", ""))
        if given.get(part, name) == name:
            fitting[key] = value
    return fitting | {
        key: value
        for key, value in given.items()
        if not (
            key == "generators"
            and key in defaults
            and value in (DEFAULT_GENERATORS, _EARLIER_GENERATORS)
        )
    }
