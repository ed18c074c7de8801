"""Dynamics in LAMMPS with a model: the input script, its run, halts and continuation.

A run is a directory with the script (`in.lammps`), which LAMMPS users can read and change, the
structure (`structure.data`), LAMMPS' log, frames and restart files, and `lammps.json` with the
settings. A halt writes the structure to `halted.extxyz`, to be labelled. The run then continues
from the restart file with the model that has learned it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers
from ase.io.lammpsdata import write_lammps_data
from pydantic import Field

from nugget.errors import NuggetError
from nugget.interop.lammps_potential import Halt, LammpsPotential, Limits, attach, start_lammps
from nugget.numerics.threads import one_blas_thread
from nugget.potential.fitted import Fitted
from nugget.settings import Section
from nugget.storage.files import locked, read_sealed, replacing, write_atomically, write_sealed
from nugget.structures.io import write_images

SETTINGS, SCRIPT, STRUCTURE = "lammps.json", "in.lammps", "structure.data"
HALTED, FRAMES, LOG, RESTART = "halted.extxyz", "frames.lammpstrj", "log.lammps", "restart"

#: The line of a script at which the model is attached.
ATTACH = "# nugget attach"

# Vacuum around a cluster without a cell, Å; its boundaries follow the atoms.
_VACUUM = 5.0


class LammpsConfig(Section):
    """Dynamics in LAMMPS with a fitted model."""

    steps: int = Field(1000, ge=0, description="total number of time steps")
    dt: float = Field(2.0, gt=0, description="time step, fs")
    ensemble: Literal["nve", "nvt", "npt"] = Field(
        "nvt", description="nve, or Nosé-Hoover chains: nvt, npt (isotropic)"
    )
    temperature: float = Field(300.0, gt=0, description="K; for nve that of the initial velocities")
    pressure: float = Field(0.0, description="GPa, for npt")
    every: int = Field(20, ge=1, description="steps between frames with values of single atoms")
    skin: float = Field(0.5, gt=0, description="range of the neighbour list beyond the cutoff, Å")
    halt_above: float | None = Field(None, gt=0, description="σ of the energy, eV/atom")
    halt_atom: float | None = Field(
        None, gt=0, description="σ of an atom's energy, eV, at steps with a frame"
    )
    halt_outside: float | None = Field(
        None, gt=0, lt=1, description="distance of an atom from the training domain, 0 to 1"
    )
    seed: int = Field(0, ge=0, description="of the initial velocities")

    @property
    def limits(self) -> Limits:
        """The limits at which the run halts."""
        return Limits(self.halt_above, self.halt_atom, self.halt_outside)


@dataclass(frozen=True)
class LammpsSummary:
    """The end of a run, or of a part of it."""

    step: int
    evaluations: int
    list_reads: int  # of LAMMPS' neighbour list
    largest_sigma: float  # eV/atom
    largest_outside: float
    ns_per_day: float
    halt: Halt | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        data = asdict(self)
        if self.halt is not None:
            data["halt"] = {**asdict(self.halt), "limit": self.halt.limit.name.lower()}
        return data

    def rows(self) -> list[tuple[str, object]]:
        """Rows of a table."""
        return [
            ("step", self.step),
            ("largest σ", f"{self.largest_sigma:.3g} eV/atom"),
            ("farthest outside the training domain", f"{self.largest_outside:.2f}"),
            ("evaluations", f"{self.evaluations} ({self.list_reads} neighbour lists)"),
            ("speed", f"{self.ns_per_day:.3g} ns/day"),
        ]


def script(
    config: LammpsConfig, species: Sequence[str], pbc: Sequence[bool], restart: str | None = None
) -> str:
    """The input of LAMMPS, which begins with the structure, or continues from a restart file."""
    boundary = " ".join("p" if periodic else "s" for periodic in pbc)
    new = restart is None
    start = f"read_data {STRUCTURE}" if new else f"read_restart {restart}"
    # LAMMPS takes positive seeds, picoseconds and bars.
    velocities = (
        f"velocity all create {config.temperature!r} {config.seed + 1} mom yes dist gaussian"
    )
    return "\n".join(
        [
            "# Run by `nugget lammps MODEL --input in.lammps`, which attaches the model below.",
            "units metal",
            "atom_style atomic",
            f"boundary {boundary}",
            f"neighbor {config.skin!r} bin",
            "neigh_modify every 1 delay 0 check yes",
            start,
            ATTACH,
            *([velocities] if new else []),
            f"timestep {config.dt / 1000!r}",
            f"fix dynamics all {_dynamics(config)}",
            f"thermo {config.every}",
            "thermo_style custom step temp pe ke etotal press vol "
            "f_nugget[1] f_nugget[2] f_nugget[3]",
            "compute energies all pe/atom fix",
            f"dump frames all custom {config.every} {FRAMES} id element x y z vx vy vz fx fy fz "
            "c_energies d_sigma d_outside",
            f"dump_modify frames sort id format float %.10g element {' '.join(species)}"
            + ("" if new else " append yes"),
            f"restart {50 * config.every} {RESTART}.a {RESTART}.b",
            f"run {config.steps} upto",
            f"write_restart {RESTART}",
            "",
        ]
    )


def _dynamics(config: LammpsConfig) -> str:
    relax = 100 * config.dt / 1000  # LAMMPS advises 100 steps, and 1000 for the pressure
    thermostat = f"temp {config.temperature!r} {config.temperature!r} {relax!r}"
    if config.ensemble == "nve":
        return "nve"
    if config.ensemble == "nvt":
        return f"nvt {thermostat}"
    pressure = 1e4 * config.pressure
    return f"npt {thermostat} iso {pressure!r} {pressure!r} {10 * relax!r}"


class LammpsRun:
    """A run in its own directory; `create` or `resume` it, then `run`."""

    def __init__(
        self, directory: Path, config: LammpsConfig, species: Sequence[str], new: bool, screen: bool
    ) -> None:
        self.directory, self.config, self.species = directory, config, tuple(species)
        self.new, self.screen = new, screen
        self._script_run: ScriptRun | None = None

    @classmethod
    def create(
        cls, atoms: Atoms, config: LammpsConfig, directory: Path, screen: bool = False
    ) -> LammpsRun:
        """A new run; NuggetError if the directory contains one already."""
        if config.ensemble == "npt" and not atoms.pbc.all():
            raise NuggetError("npt needs a cell that is periodic in all directions.")
        species = tuple(
            sorted(set(atoms.get_chemical_symbols()), key=lambda symbol: atomic_numbers[symbol])
        )
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory):
            if (directory / SETTINGS).exists():
                raise NuggetError(
                    f"{directory} contains a run already: --resume {directory}, or choose another."
                )
            with replacing(directory / STRUCTURE) as partial:
                _write_data(partial, atoms, species)
            text = script(config, species, atoms.pbc.tolist())
            write_atomically(directory / SCRIPT, text)
            write_sealed(
                directory / SETTINGS,
                {"settings": config.model_dump(), "species": species, "pbc": atoms.pbc.tolist()},
            )
        return cls(directory, config, species, True, screen)

    @classmethod
    def resume(cls, directory: Path, screen: bool = False, **changes: Any) -> LammpsRun:
        """Continue from the last restart file; `changes` replace settings unless None."""
        try:
            data = read_sealed(directory / SETTINGS, "start the run again")
        except FileNotFoundError:
            raise NuggetError(f"{directory} contains no run of `nugget lammps`.") from None
        files = sorted(directory.glob(f"{RESTART}*"), key=lambda path: path.stat().st_mtime)
        if not files:
            raise NuggetError(f"{directory} has no restart file: start the run again.")
        given = {name: value for name, value in changes.items() if value is not None}
        config = LammpsConfig.model_validate({**data["settings"], **given})
        species = tuple(data["species"])
        text = script(config, species, data["pbc"], files[-1].name)
        write_atomically(directory / SCRIPT, text)
        return cls(directory, config, species, False, screen)

    def stop(self) -> None:
        """End the run after the present step."""
        if self._script_run is not None:
            self._script_run.stop()

    def run(self, potential: Fitted) -> LammpsSummary:
        """Run the script to its end or to a halt."""
        text = (self.directory / SCRIPT).read_text(encoding="utf-8")
        self._script_run = ScriptRun(
            text, self.species, self.config.every, self.config.limits, self.screen, not self.new
        )
        with locked(self.directory), chdir(self.directory):
            return self._script_run.run(potential)


class ScriptRun:
    """One run of an input script in the current directory, where its files are.

    The model is attached at the line `# nugget attach`. The script must not set a pair style.
    `species` are the elements of the atom types; None takes them from the masses.
    """

    def __init__(
        self,
        text: str,
        species: Sequence[str] | None = None,
        every: int = LammpsConfig.model_fields["every"].default,
        limits: Limits | None = None,
        screen: bool = False,
        append: bool = False,
    ) -> None:
        lines = text.splitlines()
        places = [k for k, line in enumerate(lines) if line.strip() == ATTACH]
        if len(places) != 1:
            raise NuggetError(
                f"The script has {len(places)} lines `{ATTACH}`; write one after the box and the "
                "masses of the atom types are defined, and before the first `run`."
            )
        self._parts = "\n".join(lines[: places[0]]), "\n".join(lines[places[0] + 1 :])
        self._species, self._every, self._limits = species, every, limits
        self._log = f"log {LOG}{' append' if append else ''}"
        self._screen = [] if screen else ["-screen", "none"]
        self._attached: LammpsPotential | None = None

    def stop(self) -> None:
        """End the run after the present step."""
        if self._attached is not None:
            self._attached.stop()

    def run(self, potential: Fitted) -> LammpsSummary:
        """Run the script to its end, or to a halt, which writes the structure."""
        lmp = start_lammps(["-log", "none", *self._screen])
        try:
            with one_blas_thread():
                return self._run(lmp, potential)
        finally:
            lmp.close()

    def _run(self, lmp: Any, potential: Fitted) -> LammpsSummary:
        before, after = self._parts
        _execute(lmp, f"{self._log}\n{before}")
        attached = attach(lmp, potential, self._species, every=self._every, limits=self._limits)
        self._attached = attached
        first, start = int(lmp.extract_global("ntimestep")), time.perf_counter()
        try:
            _execute(lmp, after)
        finally:
            attached.raise_error()
        last, seconds = int(lmp.extract_global("ntimestep")), time.perf_counter() - start
        if attached.halt is not None:
            halted = attached.structure()
            halted.info["step"] = attached.halt.step
            write_images(HALTED, halted, append=True)
        nanoseconds = (last - first) * float(lmp.extract_global("dt")) / 1000
        return LammpsSummary(
            last, attached.evaluations, attached.list_reads, attached.largest_sigma,
            attached.largest_outside, 86400 * nanoseconds / seconds, attached.halt,
        )  # fmt: skip


def _execute(lmp: Any, text: str) -> None:
    try:
        lmp.commands_string(text)
    except Exception as error:  # the package raises its own kinds, and plain ones
        raise NuggetError(f"LAMMPS stopped: {str(error).strip()}") from error


def _write_data(path: Path, atoms: Atoms, species: tuple[str, ...]) -> None:
    """The structure as LAMMPS reads it; a cluster without a cell gets a box around it."""
    image = atoms.copy()
    image.calc = None
    spans = np.abs(np.linalg.det(image.cell.complete().array)) if image.cell.rank == 3 else 0.0
    if spans < 1e-9:
        if image.pbc.any():
            raise NuggetError("The structure is periodic, but its cell spans no volume.")
        image.center(vacuum=_VACUUM)
    write_lammps_data(
        path, image, specorder=list(species), masses=True, atom_style="atomic", units="metal"
    )
