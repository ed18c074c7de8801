"""Settings of runs that learn on the fly; each option is documented once, here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat

from nugget.evaluation.config import EngineConfig, Section

Ensemble = Literal["nve", "nvt", "npt"]
Preset = Literal["quick", "balanced", "accurate"]


class MDConfig(Section):
    """Molecular dynamics that learns."""

    engine: EngineConfig = Field(default_factory=EngineConfig)
    steps: int = Field(1000, ge=1, description="time steps in all")
    dt: float = Field(2.0, gt=0, description="time step, fs")
    ensemble: Ensemble = Field("nvt", description="nve, nvt (Langevin) or npt (isotropic MTK)")
    temperature: float = Field(300.0, gt=0, description="K; with nve that of the first momenta")
    replicas: tuple[PositiveFloat, ...] = Field(
        (), description="temperatures of further replicas, K, which share the model"
    )
    pressure: float = Field(0.0, description="GPa, for npt")
    friction: float = Field(0.01, gt=0, description="of the Langevin thermostat, 1/fs")
    max_force_error: float = Field(
        0.1, gt=0, description="σ of a force component above which the engine is called, eV/Å"
    )
    pause: int = Field(
        5, ge=0, description="steps after a call in which only twice that σ leads to another"
    )
    audit: int = Field(
        500,
        ge=0,
        description="steps between random calls that test σ, on average, more at first; 0: none",
    )
    displaced: int = Field(
        5, ge=0, description="displaced copies of the start that the engine labels first"
    )
    preset: Preset = Field("balanced", description="the model that is made without a given one")
    seed: int = Field(0, ge=0, description="of all random choices")
    every: int = Field(20, ge=1, description="steps between frames of the trajectory")
    checkpoint: int = Field(100, ge=1, description="steps between states from which a run resumes")

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Of all replicas, K."""
        return self.temperature, *self.replicas


class NEBConfig(Section):
    """A minimum-energy path that is learned."""

    engine: EngineConfig = Field(default_factory=EngineConfig)
    images: int = Field(9, ge=3, description="structures of the path, both ends included")
    fmax: float = Field(0.05, gt=0, description="largest force of the engine at the saddle, eV/Å")
    max_force_error: float = Field(
        0.1, gt=0, description="σ of a force component on the path that is small enough, eV/Å"
    )
    max_calls: int = Field(100, ge=3, description="engine calls at the most")
    relax_ends: bool = Field(True, description="relax both ends with the engine first")
    vibrations: bool = Field(False, description="whether the saddle has one imaginary mode")
    preset: Preset = Field("balanced", description="the model that is made")
    seed: int = Field(0, ge=0, description="of all random choices")
