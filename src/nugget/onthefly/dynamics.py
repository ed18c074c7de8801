"""ASE's integrators, and all that has to be kept to continue one to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from ase import Atoms, units
from ase.md.langevin import Langevin
from ase.md.md import MolecularDynamics
from ase.md.verlet import VelocityVerlet

from nugget.errors import NuggetError
from nugget.onthefly.config import MDConfig

# What ASE's MTK integrator changes in a step, besides positions, momenta and cell.
_MTK = (
    "_eps", "_p_eps", "_thermostat._eta", "_thermostat._p_eta", "_barostat._xi", "_barostat._p_xi",
)  # fmt: skip


def integrator(atoms: Atoms, config: MDConfig, rng: np.random.Generator) -> MolecularDynamics:
    """The integrator for these settings; `atoms` have the cell of the run's start."""
    dt = config.dt * units.fs
    if config.ensemble == "nve":
        return VelocityVerlet(atoms, dt)
    if config.ensemble == "nvt":
        friction = config.friction / units.fs
        return Langevin(
            atoms, dt, temperature_K=config.temperature, friction=friction, fixcm=False, rng=rng
        )
    if not atoms.pbc.all() or abs(atoms.cell.volume) < 1e-9:
        raise NuggetError("npt needs a structure that is periodic in three directions.")
    if atoms.constraints:
        raise NuggetError("npt knows no fixed atoms; use nvt, or remove the constraints.")
    from ase.md.nose_hoover_chain import IsotropicMTKNPT

    return IsotropicMTKNPT(
        atoms, dt, temperature_K=config.temperature, pressure_au=config.pressure * units.GPa,
        tdamp=100 * dt, pdamp=1000 * dt,
    )  # fmt: skip


def thermal_momenta(atoms: Atoms, temperature: float, rng: np.random.Generator) -> None:
    """Momenta of Maxwell and Boltzmann without a drift of the whole, unless there are some."""
    if atoms.has("momenta") and np.any(atoms.get_momenta()):
        return
    masses = atoms.get_masses()[:, None]
    momenta = rng.standard_normal((len(atoms), 3)) * np.sqrt(masses * units.kB * temperature)
    if not atoms.constraints and len(atoms) > 1:
        momenta -= masses * momenta.sum(axis=0) / masses.sum()
    atoms.set_momenta(momenta)


def displaced(atoms: Atoms, temperature: float, rng: np.random.Generator) -> Atoms:
    """A copy whose free atoms are displaced by 0.05 Å at 300 K: at random, so less than they move.

    Atoms that vibrate move together; displacements of the same size at random cost more energy.
    """
    copy = atoms.copy()
    amplitude = min(0.05 * np.sqrt(temperature / 300.0), 0.15)
    shift = rng.normal(scale=amplitude, size=atoms.positions.shape)
    copy.set_positions(atoms.positions + shift)  # fixed atoms stay
    return copy


def state_of(dynamics: MolecularDynamics, atoms: Atoms, rng: np.random.Generator) -> dict[str, Any]:
    """Everything that the next step depends on, besides the model; plain data, exact."""
    return {
        "positions": atoms.positions.tolist(),
        "momenta": atoms.get_momenta().tolist(),
        "cell": atoms.cell.array.tolist(),
        "rng": rng.bit_generator.state,
        "integrator": {n: _plain(v) for n in _MTK if (v := _get(dynamics, n)) is not None},
    }


def restore(
    state: dict[str, Any], dynamics: MolecularDynamics, atoms: Atoms, rng: np.random.Generator
) -> None:
    """The inverse of `state_of`."""
    atoms.set_cell(np.array(state["cell"]))
    atoms.positions = np.array(state["positions"])
    atoms.set_momenta(np.array(state["momenta"]), apply_constraint=False)
    rng.bit_generator.state = state["rng"]
    for name, value in state["integrator"].items():
        *path, last = name.split(".")
        owner: Any = dynamics
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, np.array(value) if isinstance(value, list) else value)
    if state["integrator"]:
        mtk: Any = dynamics
        mtk._q, mtk._p = atoms.get_positions(), atoms.get_momenta()


def _get(owner: Any, name: str) -> Any:
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else float(value)
