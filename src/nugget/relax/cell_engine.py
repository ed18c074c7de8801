"""Relaxation of one crystal with an engine, atoms and cell together, on E + pV.

The interface is that of `LearningRelaxation`: propose, have it evaluated, observe, until done. The
steps are those of the lockstep minimiser (L-BFGS in the coordinates of `cell_coordinates`), so that
the same results in the same order always give the same steps.
"""

from __future__ import annotations

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError
from nugget.relax._lbfgs import CONVERGED, NOT_FINITE, RUNNING, STALLED, STEPS
from nugget.relax._lockstep import advance
from nugget.relax._state import initial_state
from nugget.relax.cell_coordinates import CellCoordinates
from nugget.relax.cells import enthalpy_terms, strain_of
from nugget.relax.learning import EngineRelaxed
from nugget.relax.local_surrogate import Point

MEMORY = 40
MAX_STEP = 0.2  # Å
_REASONS = {
    CONVERGED: "converged",
    STEPS: "all evaluations used",
    STALLED: "no lower point was found downhill: energies and forces disagree",
    NOT_FINITE: "the engine failed too often",
}


class CellRelaxation:
    """One relaxation of atoms and cell; see `LearningRelaxation` for how it is used.

    `pressure` is in eV/Å³. Converged means that the forces, and the stress (less the pressure)
    times the volume over √N Å, are below `fmax` in eV/Å.
    """

    def __init__(
        self, atoms: Atoms, fmax: float = 0.05, max_evaluations: int = 200, pressure: float = 0.0
    ) -> None:
        if not fmax > 0 or max_evaluations < 1:
            raise NuggetError("A relaxation needs fmax above 0 and at least one evaluation.")
        if atoms.constraints:
            raise NuggetError("A crystal with constraints cannot be relaxed with its cell.")
        self.fmax, self.max_evaluations, self.pressure = fmax, max_evaluations, pressure
        self.coordinates = CellCoordinates.of([atoms])
        self.best = atoms.copy()  # the lowest structure so far
        self.points: list[Point] = []
        self.evaluations = 0
        self.reason = ""
        self._state = initial_state(self.coordinates.start(), None, MEMORY, precondition_up_to=0)
        self._one = np.zeros(1, dtype=np.int64)

    @property
    def done(self) -> bool:
        return bool(self.reason)

    def propose(self) -> Atoms:
        """The structure to evaluate next, without results."""
        here = self.coordinates.decode(self._state.x, self._one).batch
        atoms = self.best.copy()
        atoms.set_cell(here.cells[0])
        atoms.positions = here.positions
        return atoms

    def observe(self, atoms: Atoms | None) -> None:
        """Take in the engine's word on the last proposal; None if it failed."""
        self.evaluations += 1
        st = self._state
        if atoms is not None and "stress" not in atoms.calc.results:
            self.best, self.reason = atoms, "the engine gives no stress: the cell cannot be relaxed"
            return
        value, gradient = np.array([np.nan]), np.zeros_like(st.x)
        if atoms is not None:
            value, gradient = self._read(atoms)
        advance(
            st, self._one, value, gradient, MEMORY, self.fmax, self.max_evaluations - 1, MAX_STEP,
            1e6,
        )  # fmt: skip
        if atoms is not None and st.e[0] == value[0]:  # the point was kept
            self.best = atoms
        if st.status[0] != RUNNING:
            self.reason = _REASONS[int(st.status[0])]

    def result(self) -> EngineRelaxed:
        """Where the relaxation has come to; its energy is E, without pV."""
        calc = self.best.calc
        energy = float("nan") if calc is None else float(calc.results["energy"])
        return EngineRelaxed(
            self.best, energy, float(self._state.force[0]), self.evaluations,
            self.reason == "converged", self.reason or "not finished",
        )  # fmt: skip

    def _read(self, atoms: Atoms) -> tuple[Floats, Floats]:
        """E + pV and its gradient by the coordinates."""
        results = atoms.calc.results
        here = self.coordinates.decode(self._state.x, self._one)
        work, by_strain = enthalpy_terms(here.batch, self.pressure)
        strain = strain_of(results["stress"], atoms.get_volume()) + by_strain
        value = float(results["energy"]) + work
        gradient = here.gradient(-np.asarray(results["forces"], dtype=float), strain)
        self.points.append(Point(self._state.x.ravel().copy(), float(value[0]), gradient.ravel()))
        return value, gradient
