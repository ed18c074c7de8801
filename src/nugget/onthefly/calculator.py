"""An ASE calculator that calls the engine where the model is not certain, and learns from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import BaseCalculator, Calculator, all_changes
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms, FixCartesian

from nugget._compiled.arrays import Bools, Floats
from nugget.errors import NuggetError
from nugget.onthefly.certainty import Vigil, exact_force_std, force_std, largest
from nugget.onthefly.model import OnlineModel
from nugget.potential.evaluate import MEAN, Evaluation, value_and_grad
from nugget.potential.potential import Potential
from nugget.potential.prediction import voigt_stress
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import Verlet

# Calls that tell whether σ is right.
_SCORES = 5
#: A structure with results; None if the engine failed.
Label = Callable[[Atoms], Atoms | None]


@dataclass(frozen=True)
class Call:
    """One call of the engine: why, and what the model had said before it learned.

    Forces are those of atoms that may move, eV/Å; `error` and `rms` are the largest and the
    root mean square of the differences, `within` is the share of components within 2σ.
    """

    reason: str  # "first", "uncertain" or "audit"
    std: float | None = None  # largest σ of a force component
    error: float | None = None
    rms: float | None = None
    within: float | None = None
    failed: bool = False


class LearningCalculator(Calculator):
    """The mean surface of a model, and the engine where a force is too uncertain.

    Whenever σ of a force component exceeds `max_force_error`, the engine is called and the model
    learns; the results are those of the model after that, or the engine's own if the model cannot
    follow them. Without a potential the first structures all go to the engine, until there are
    enough to fit a model. σ is looked at again when an atom has moved far enough for it to exceed
    that; `get_property("forces_uncertainty", atoms)` finds it for any structure.

    Parameters
    ----------
    potential : a fitted potential to start from (it stays as it is), or None.
    engine : an ASE calculator; or a function that returns a structure with its results, and None
        if it failed: then the uncertain prediction is used.
    max_force_error : σ of a force component above which the engine is called, eV/Å.
    preset : "quick", "balanced" or "accurate": the model that is made without a potential.
    use_stress : learn from the stress too, where the engine gives it (periodic in all directions).
    pause : structures after a call at which only twice the allowed σ leads to another call, since
        neighbours on a trajectory tell the same.
    """

    implemented_properties = [  # noqa: RUF012 (as in ASE)
        "energy", "free_energy", "forces", "stress", "energy_uncertainty", "forces_uncertainty",
    ]  # fmt: skip
    nolabel = True
    uncertainties = ("energy_uncertainty", "forces_uncertainty")  # put into files

    def __init__(
        self,
        potential: Potential | None,
        engine: BaseCalculator | Label,
        max_force_error: float = 0.1,
        *,
        preset: str = "balanced",
        use_stress: bool = True,
        pause: int = 0,
        skin: float = 0.5,
    ) -> None:
        super().__init__()
        self.model = OnlineModel(potential, max_force_error, preset, use_stress)
        self.max_force_error, self.pause, self.skin = max_force_error, pause, skin
        self.since = 0  # structures since the last call
        self.scores: list[float] = []  # RMS of error/σ at calls, before the factor below
        self.engine: Label = labeller(engine) if isinstance(engine, BaseCalculator) else engine
        self.calls: list[Call] = []
        self.frozen = False  # with True the engine is never called
        self.audit_next = False  # call the engine at the next structure, to see whether σ is right
        self.std = 0.0  # largest σ of a force component where it was looked at last
        self._verlet: Verlet | None = None
        self._vigil = Vigil()

    @property
    def potential(self) -> Potential:
        """The model as it is now."""
        if self.model.potential is None:
            raise NuggetError("There are too few structures for a model yet: run more steps.")
        return self.model.potential

    @property
    def factor(self) -> float:
        """What σ is multiplied by: frames of a trajectory resemble each other, so that leaving
        some out tells too little. The last calls tell the rest; σ only grows by it."""
        last = [1.0, *self.scores[-_SCORES:]]  # to begin with, leaving out is believed once
        return max(1.0, float(np.sqrt(np.mean(np.square(last)))))

    def sharing(self) -> LearningCalculator:
        """Another calculator, for another trajectory, with the same model and engine."""
        other = LearningCalculator(
            None, self.engine, self.max_force_error,
            preset=self.model.preset, pause=self.pause, skin=self.skin,
        )  # fmt: skip
        other.model, other.scores = self.model, self.scores
        return other

    def forget(self) -> None:
        """Drop results and the list of pairs: what follows depends on the model alone."""
        self.reset()
        self._verlet = None
        self._vigil.forget()

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: list[str] | None = None,
        system_changes: list[str] = all_changes,
    ) -> None:
        super().calculate(atoms, properties, system_changes)
        assert self.atoms is not None
        if not system_changes and self.results:  # a later question about the same structure
            self.force_std()
            return
        known = self._known(self.atoms)
        if known is None and self.model.potential is None:
            known = self._called(self.atoms, Call("first"))
            if known is None:
                raise NuggetError("The engine failed on a structure that the model needs to begin.")
        if known is None:
            wanted = "forces_uncertainty" in (properties or ())
            reason = self._predict(self.atoms, wanted)
            if reason is not None:
                known = self._called(self.atoms, Call(reason, self.std))
        self.audit_next = False
        if known is not None:
            self.results = self._settled(known)

    def _predict(self, atoms: Atoms, wanted: bool) -> str | None:
        """Results of the model; why the engine should be called, None if it need not."""
        self.since += 1
        resting = self.frozen or self._vigil.rests(as_batch(atoms), len(self.model.images))
        if resting and not wanted and not self.audit_next:
            self.results = self._mean(self._evaluated(atoms, keep_rows=False))
            return None
        self.results = self._predicted(atoms)
        if self.frozen:
            return None
        limit = self.max_force_error * (2.0 if self.since <= self.pause else 1.0)
        if self.std > limit:
            return "uncertain"
        return "audit" if self.audit_next else None

    def force_std(self) -> Floats:
        """σ of each force component of the present structure (N, 3), exact however small."""
        assert self.atoms is not None
        if self._known(self.atoms) is None:
            exact = exact_force_std(self._evaluated(self.atoms))
            self.results["forces_uncertainty"] = self.factor * exact
        return np.asarray(self.results["forces_uncertainty"])

    def _evaluated(self, atoms: Atoms, keep_rows: bool = True) -> Evaluation:
        potential, batch = self.potential, as_batch(atoms)
        if self._verlet is None or self._verlet.cutoff != potential.descriptor.cutoff:
            self._verlet = Verlet(potential.descriptor.cutoff, self.skin)
        pairs = self._verlet.pairs(batch)
        return value_and_grad(potential, batch, MEAN, pairs=pairs, keep_rows=keep_rows)

    def _mean(self, found: Evaluation) -> dict[str, Any]:
        batch = found.batch
        assert found.std is not None
        results: dict[str, Any] = {
            "energy": float(found.energy[0]),
            "free_energy": float(found.energy[0]),
            "forces": -found.gradients[0],
            "energy_uncertainty": self.factor * float(found.std[0]),
        }
        if abs(np.linalg.det(batch.cells[0])) > 1e-9:
            results["stress"] = voigt_stress(found.strains[0], batch)[0]
        return results

    def _predicted(self, atoms: Atoms) -> dict[str, Any]:
        """The mean, and σ of the forces."""
        found, factor, free = self._evaluated(atoms), self.factor, free_components(atoms)
        std = factor * force_std(found, self.max_force_error / factor, free)
        self.std = largest(std, free)
        learned = len(self.model.images)
        self._vigil.looked(found.batch, learned, self.std, self.max_force_error)
        return {**self._mean(found), "forces_uncertainty": std}

    def _settled(self, known: Atoms) -> dict[str, Any]:
        """Results for a structure that the engine has seen.

        The model has learned it. Its word keeps the surface whole, which finite differences need;
        where it cannot follow the engine, the engine's word is better.
        """
        if self.model.potential is not None:
            free = free_components(known)
            results = self._predicted(known)
            error = np.abs(results["forces"] - known.calc.results["forces"])[free]
            if np.max(error, initial=0.0) <= self.max_force_error:
                return results
        self.std = 0.0
        return engine_results(known)

    def _known(self, atoms: Atoms) -> Atoms | None:
        """The structure that the engine has seen last, if this is it, to the last bit."""
        last = self.model.images[-1] if self.model.images else None
        if last is None or len(last) != len(atoms):
            return None
        same = all(
            np.array_equal(a, b)
            for a, b in (
                (last.positions, atoms.positions),
                (last.numbers, atoms.numbers),
                (last.cell.array, atoms.cell.array),
            )
        )
        return last if same else None

    def _called(self, atoms: Atoms, call: Call) -> Atoms | None:
        """Call the engine and learn; None if it failed."""
        self.since = 0
        found = self.engine(atoms.copy())
        self._vigil.forget()
        if found is None:
            self.calls.append(Call(call.reason, call.std, failed=True))
            return None
        if call.std is not None:
            call = self._compared(atoms, found, call)
        self.calls.append(call)
        self.model.learn(found)
        return found

    def _compared(self, atoms: Atoms, found: Atoms, call: Call) -> Call:
        """The error of the model beside its σ, before it learns what the engine has found."""
        free = free_components(atoms)
        error = np.abs(self.results["forces"] - found.calc.results["forces"])[free]
        plain = exact_force_std(self._evaluated(atoms))[free]
        within, rms = np.mean(error <= 2 * self.factor * plain), np.sqrt(np.mean(error**2))
        self.scores.append(float(np.sqrt(np.mean((error / plain) ** 2))))
        return Call(call.reason, call.std, float(error.max()), float(rms), float(within))


def labeller(calculator: BaseCalculator) -> Label:
    """An ASE calculator as a function; what it raises is raised."""

    def label(atoms: Atoms) -> Atoms:
        forces = np.array(calculator.get_property("forces", atoms))
        results = {"energy": float(calculator.get_property("energy", atoms)), "forces": forces}
        stress = calculator.results.get("stress")
        if stress is not None and atoms.pbc.all():
            results["stress"] = np.array(stress)
        atoms.calc = SinglePointCalculator(atoms, **results)
        return atoms

    return label


def engine_results(atoms: Atoms) -> dict[str, Any]:
    """What the engine said; its error bars are zero."""
    results = dict(atoms.calc.results)
    zero: dict[str, float | Floats] = {
        "energy_uncertainty": 0.0,
        "forces_uncertainty": np.zeros((len(atoms), 3)),
    }
    return {**results, "free_energy": results["energy"], **zero}


def free_components(atoms: Atoms) -> Bools:
    """(N, 3) False where FixAtoms or FixCartesian holds a coordinate: its force does not matter."""
    free = np.ones((len(atoms), 3))
    for constraint in atoms.constraints:
        if isinstance(constraint, FixAtoms | FixCartesian):
            constraint.adjust_forces(atoms, free)
    return free != 0.0
