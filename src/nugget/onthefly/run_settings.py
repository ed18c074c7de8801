"""Settings of `nugget md`, `neb` and `saddle`; each option and its default is defined here only."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat

from nugget.engines.engine_settings import EngineConfig, code_in, engine_code
from nugget.settings import Section

Ensemble = Literal["nve", "nvt", "npt"]
Preset = Literal["quick", "balanced", "accurate"]


class MDConfig(Section):
    """Molecular dynamics with on-the-fly learning."""

    engine: EngineConfig = Field(default_factory=EngineConfig)
    steps: int = Field(1000, ge=1, description="total number of time steps")
    dt: float = Field(2.0, gt=0, description="time step, fs")
    ensemble: Ensemble = Field("nvt", description="nve, nvt (Langevin) or npt (isotropic MTK)")
    temperature: float = Field(300.0, gt=0, description="K; for nve that of the initial momenta")
    replicas: tuple[PositiveFloat, ...] = Field(
        (), description="temperatures of further replicas that share the model, K"
    )
    pressure: float = Field(0.0, description="GPa, for npt")
    friction: float = Field(0.01, gt=0, description="of the Langevin thermostat, 1/fs")
    max_force_error: float = Field(
        0.1, gt=0, description="σ of a force component above which the engine is called, eV/Å"
    )
    pause: int = Field(
        5, ge=0, description="steps after a call during which the limit of σ is doubled"
    )
    audit: int = Field(
        500,
        ge=0,
        description="average steps between random calls that test σ, fewer at first; 0: none",
    )
    displaced: int = Field(
        5, ge=0, description="displaced copies of the start in the first training set"
    )
    warn_above: float | None = Field(
        None, gt=0, description="σ of the energy above which the log names step and atom, eV/atom"
    )
    stop_above: float | None = Field(
        None, gt=0, description="σ of the energy above which the run stops, eV/atom"
    )
    preset: Preset = Field("balanced", description="of the model, unless one is given")
    mean: str | None = Field(
        None, description="engine as mean function, such as sevennet, unless a model is given"
    )
    domain: bool = Field(
        True, description="whether σ grows with the distance from the training domain"
    )
    seed: int = Field(0, ge=0, description="of all random numbers")
    every: int = Field(20, ge=1, description="steps between frames of the trajectory")
    checkpoint: int = Field(100, ge=1, description="steps between checkpoints")

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Temperatures of all replicas, K."""
        return self.temperature, *self.replicas


class NEBConfig(Section):
    """A climbing-image nudged elastic band with on-the-fly learning."""

    engine: EngineConfig = Field(default_factory=EngineConfig)
    images: int = Field(9, ge=3, description="images of the path, including both ends")
    fmax: float = Field(0.05, gt=0, description="largest force at the saddle point, eV/Å")
    max_force_error: float = Field(
        0.1, gt=0, description="largest σ of a force component on the path, eV/Å"
    )
    max_calls: int = Field(100, ge=3, description="largest number of engine calls")
    relax_ends: bool = Field(True, description="relax both ends with the engine first")
    vibrations: bool = Field(False, description="count imaginary modes at the saddle point")
    preset: Preset = Field("balanced", description="of the model")
    mean: str | None = Field(None, description="engine as mean function, such as sevennet")
    domain: bool = Field(
        True, description="whether σ grows with the distance from the training domain"
    )
    seed: int = Field(0, ge=0, description="of all random numbers")


class SaddleConfig(Section):
    """A saddle search from one structure with on-the-fly learning."""

    engine: EngineConfig = Field(default_factory=EngineConfig)
    fmax: float = Field(0.01, gt=0, description="largest force at the saddle point, eV/Å")
    max_calls: int = Field(
        100, ge=2, description="largest number of engine calls of the search, or of --explore"
    )
    explore: int = Field(
        0, ge=0, description="number of the lowest ways out of a minimum to find; 0: one saddle"
    )
    temperature: float = Field(300.0, gt=0, description="of the rates of --explore, K")
    seed: int = Field(0, ge=0, description="of all random numbers")
    baseline: str = Field(
        "auto",
        description="engine of the mean function, `none`, or `auto`: gfn2-xtb for molecules "
        "without transition metals if the engine is expensive, otherwise none",
    )
    connect: bool = Field(False, description="relax from the saddle to the minima on both sides")
    connect_fmax: float = Field(0.05, gt=0, description="largest force at these minima, eV/Å")
    check_modes: bool = Field(
        False, description="Hessian of the engine at the saddle, from two calls per coordinate"
    )


def code_of_run(config: MDConfig | NEBConfig | SaddleConfig) -> list[str]:
    """Code outside of nugget that a run executes: engine and mean function."""
    mean = config.baseline if isinstance(config, SaddleConfig) else config.mean
    return code_in(config.engine) + ([] if mean is None else engine_code(mean, {}))
