"""An ASE calculator that calls the engine where the model is uncertain, and learns from it.

Exact standard deviations σ of all force components need one backward pass per inducing point. K
samples of the posterior need K passes and estimate its contribution to σ with a relative error of
1/√(2K) (18 % for 16). If that estimate, with a margin, is below the limit, the exact σ is not
needed. `RecheckSchedule` avoids the estimate in most steps.

The posterior of a sparse model is limited to what its inducing points can express, and its variance
vanishes far from all of them. The part of an atom's prior variance that they do not explain,
r = θ₀ − k_m K_mm⁻¹ k_mᵀ, is therefore added as an energy that may change within 1 Å: σ² grows by
r/Å².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from ase import Atoms
from ase.calculators.calculator import BaseCalculator, Calculator, all_changes
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.errors import NuggetError
from nugget.gp.linalg import solve
from nugget.gp.uncertainty.base import HasForceProbes
from nugget.numerics.arrays import Bools, Floats
from nugget.onthefly.online_model import OnlineModel
from nugget.potential.calculator import domain_results
from nugget.potential.evaluate import MEAN, Evaluation, value_and_grad
from nugget.potential.potential import Potential
from nugget.potential.prediction import voigt_stress
from nugget.structures.batch import Batch, as_batch
from nugget.structures.geometry import free_mask
from nugget.structures.neighbours import Verlet

PROBES = 16  # samples of the posterior

# Distance within which an unexplained energy may change, Å.
_WITHIN = 1.0

# σ of a force grows by less than this when an atom moves by 1 Å, eV/Å² (measured: 0.4), and it is
# always checked again after a displacement of _FURTHEST, Å.
_GROWTH, _FURTHEST = 1.0, 0.1

# Safety factor of the sampled σ: two standard deviations of the estimate.
_MARGIN = 1.35


class RecheckSchedule:
    """Decides when σ of the forces must be computed again.

    A step of dynamics moves atoms by some hundredths of an Å, which cannot raise a small σ above
    the limit. σ is checked again when an atom has moved far enough.
    """

    def __init__(self) -> None:
        self._checked: Batch | None = None
        self._trained, self._reach = 0, 0.0

    def reset(self) -> None:
        """Check the next structure in any case."""
        self._checked = None

    def checked(self, batch: Batch, trained: int, std: float, limit: float) -> None:
        """Record the largest σ of a model trained on `trained` structures."""
        self._trained = trained
        self._checked = replace(batch, positions=batch.positions.copy())
        self._reach = min((limit - std) / _GROWTH, _FURTHEST)

    def may_skip(self, batch: Batch, trained: int) -> bool:
        """Whether atoms, cell and model have changed too little since the last check."""
        old = self._checked
        if old is None or trained != self._trained:
            return False
        if not (np.array_equal(old.numbers, batch.numbers) and np.array_equal(old.pbc, batch.pbc)):
            return False
        moved = batch.positions - old.positions
        furthest = np.sqrt(np.einsum("ij,ij->i", moved, moved).max())
        return float(max(furthest, np.abs(batch.cells - old.cells).max())) < self._reach


def force_std(result: Evaluation, limit: float, free: Bools | None = None) -> Floats:
    """σ of each force component (N, 3); exact if a free component may exceed the limit."""
    fitted, unexplained = result.state.widened, _unexplained(result)
    if isinstance(fitted, HasForceProbes):
        drawn, rest = _sampled(result, fitted)
        rest = rest + unexplained
        if (added := result.added_force_variance()) is not None:
            rest = rest + added
        if largest(np.sqrt(_MARGIN**2 * drawn + rest), free) <= limit:
            return np.asarray(np.sqrt(drawn + rest))
    return exact_force_std(result)


def exact_force_std(result: Evaluation) -> Floats:
    """σ of each force component (N, 3)."""
    return np.asarray(np.sqrt(result.forces_std() ** 2 + _unexplained(result)))


def _unexplained(result: Evaluation) -> Floats:
    """Squared force that the inducing points do not explain, (N, 1)."""
    prior_variance = result.state.kernel.diagonal(result.env.values)
    return np.asarray((prior_variance / _WITHIN**2 * novelty(result))[:, None])


def novelty(result: Evaluation) -> Floats:
    """Share of each atom's prior variance that the inducing points do not explain, (N,)."""
    state, rows = result.state, result.rows
    assert rows is not None
    explained = solve(state.regression.upper, np.asarray(rows.k).T, transposed=True)
    prior = state.kernel.diagonal(result.env.values)
    share = 1.0 - np.einsum("mi,mi->i", explained, explained) / prior
    return np.asarray(np.clip(share, 0.0, 1.0))


def largest(std: Floats, free: Bools | None = None) -> float:
    """The largest σ of a free component."""
    return float(np.max(std if free is None else std[free], initial=0.0))


def _sampled(result: Evaluation, fitted: HasForceProbes) -> tuple[Floats, Floats]:
    """σ² of the force components (N, 3): the part from posterior samples, and the rest."""
    rows = result.rows
    assert rows is not None
    weights = fitted.force_probes(np.random.default_rng(PROBES), PROBES)
    cotangents = rows.vjp(np.repeat(weights[:, None], len(result.batch), axis=1))
    return fitted.force_variance(result.env.pullback(cotangents) ** 2)


# Number of last calls that determine the calibration factor.
_SCORES = 5

#: Returns a structure with results; None if the engine failed.
Label = Callable[[Atoms], Atoms | None]

#: Before there is a model, because σ is too large, or to test σ.
CallReason = Literal["first", "uncertain", "audit"]


@dataclass(frozen=True)
class Call:
    """One call of the engine: its reason, and the error of the model before the update.

    Over the free force components, in eV/Å: `error` and `rms` are the largest and the root mean
    square error, `within` is the share of components within 2σ.
    """

    reason: CallReason
    std: float | None = None  # largest σ of a force component
    error: float | None = None
    rms: float | None = None
    within: float | None = None
    failed: bool = False


class LearningCalculator(Calculator):
    """Predicts with a model, and calls the engine where a force is too uncertain.

    When σ of a force component exceeds `max_force_error`, the engine is called and the model is
    updated. The results are then those of the updated model, or of the engine if the model does not
    reproduce them. Without a potential the engine evaluates the first structures, until a model can
    be fitted. σ is computed again when an atom has moved far enough for it to exceed the limit;
    `get_property("forces_uncertainty", atoms)` computes it for any structure.

    Parameters
    ----------
    potential : a fitted potential to start from (it is copied), or None.
    engine : an ASE calculator; or a function that returns a structure with its results, or None
        after a failure, in which case the uncertain prediction is used.
    max_force_error : σ of a force component above which the engine is called, eV/Å.
    preset : "quick", "balanced" or "accurate", for the model that is fitted without a potential.
    use_stress : train on stresses as well, if the engine gives them (fully periodic structures).
    pause : number of structures after a call for which the limit of σ is doubled, since successive
        frames of a trajectory contain similar information.
    domain : whether σ of a model that is fitted without a potential grows with the distance from
        the training domain.
    mean : engine as mean function of such a model, used if it reduces leave-one-out errors.
    """

    implemented_properties = [  # noqa: RUF012 (as in ASE)
        "energy", "free_energy", "forces", "stress", "energy_uncertainty", "forces_uncertainty",
        "outside", "outside_atoms",
    ]  # fmt: skip
    nolabel = True
    uncertainties = ("energy_uncertainty", "forces_uncertainty")  # written to files

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
        domain: bool = True,
        mean: str | None = None,
    ) -> None:
        super().__init__()
        self.model = OnlineModel(
            potential, max_force_error, preset, use_stress, domain=domain, mean=mean
        )
        self.max_force_error, self.pause, self.skin = max_force_error, pause, skin
        self.since = 0  # structures since the last call
        self.scores: list[float] = []  # rms of error/σ at calls, before calibration
        self.engine: Label = labeller(engine) if isinstance(engine, BaseCalculator) else engine
        self.calls: list[Call] = []
        self.frozen = False  # True: the engine is never called
        self.audit_next = False  # call the engine at the next structure, to test σ
        self.std = 0.0  # largest σ of a force component at the last check
        self._verlet: Verlet | None = None
        self._schedule = RecheckSchedule()

    @property
    def potential(self) -> Potential:
        """The current model."""
        if self.model.potential is None:
            raise NuggetError("There are too few structures for a model yet: run more steps.")
        return self.model.potential

    @property
    def factor(self) -> float:
        """Calibration factor of σ from the errors at the last calls, at least 1.

        Leave-one-out underestimates σ for correlated frames of a trajectory.
        """
        last = [1.0, *self.scores[-_SCORES:]]  # 1 stands for the leave-one-out calibration
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
        """Drop results and neighbour lists, so that further results depend on the model only."""
        self.reset()
        self._verlet = None
        self._schedule.reset()

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: list[str] | None = None,
        system_changes: list[str] = all_changes,
    ) -> None:
        super().calculate(atoms, properties, system_changes)
        assert self.atoms is not None
        if not system_changes and self.results:  # a further property of the same structure
            self.force_std()
            return
        labelled = self._last_labelled(self.atoms)
        if labelled is None and self.model.potential is None:
            labelled = self._call(self.atoms, Call("first"))
            if labelled is None:
                raise NuggetError("The engine failed on a structure that the first model needs.")
        if labelled is None:
            with_std = "forces_uncertainty" in (properties or ())
            reason = self._predict(self.atoms, with_std)
            if reason is not None:
                labelled = self._call(self.atoms, Call(reason, self.std))
        self.audit_next = False
        if labelled is not None:
            self.results = self._labelled_results(labelled)

    def _predict(self, atoms: Atoms, with_std: bool) -> CallReason | None:
        """Set the results of the model; return why the engine must be called, None if not."""
        self.since += 1
        skip = self.frozen or self._schedule.may_skip(as_batch(atoms), len(self.model.images))
        if skip and not with_std and not self.audit_next:
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
        """Exact σ of each force component of the current structure (N, 3)."""
        assert self.atoms is not None
        if self._last_labelled(self.atoms) is None:
            exact = exact_force_std(self._evaluated(self.atoms))
            self.results["forces_uncertainty"] = self.factor * exact
        return np.asarray(self.results["forces_uncertainty"])

    def _evaluated(self, atoms: Atoms, keep_rows: bool = True) -> Evaluation:
        potential, batch = self.potential, as_batch(atoms)
        if self._verlet is None or self._verlet.cutoff != potential.descriptor.cutoff:
            self._verlet = Verlet(potential.descriptor.cutoff, self.skin)
        pairs = self._verlet.pairs(batch)
        return value_and_grad(potential.fitted, batch, MEAN, pairs=pairs, keep_rows=keep_rows)

    def _mean(self, result: Evaluation) -> dict[str, Any]:
        batch = result.batch
        assert result.std is not None
        results: dict[str, Any] = {
            "energy": float(result.energy[0]),
            "free_energy": float(result.energy[0]),
            "forces": -result.gradients[0],
            "energy_uncertainty": self.factor * float(result.std[0]),
            **domain_results(result.domain),
        }
        if abs(np.linalg.det(batch.cells[0])) > 1e-9:
            results["stress"] = voigt_stress(result.strains[0], batch)[0]
        return results

    def _predicted(self, atoms: Atoms) -> dict[str, Any]:
        """The mean, and σ of the forces."""
        result, factor, free = self._evaluated(atoms), self.factor, free_mask(atoms)
        std = factor * force_std(result, self.max_force_error / factor, free)
        self.std = largest(std, free)
        trained = len(self.model.images)
        self._schedule.checked(result.batch, trained, self.std, self.max_force_error)
        return {**self._mean(result), "forces_uncertainty": std}

    def _labelled_results(self, labelled: Atoms) -> dict[str, Any]:
        """Results for a structure that the engine has labelled.

        Those of the model keep the surface continuous, which finite differences need. If the model
        does not reproduce the engine, the engine's results are used.
        """
        if self.model.potential is not None:
            free = free_mask(labelled)
            results = self._predicted(labelled)
            error = np.abs(results["forces"] - labelled.calc.results["forces"])[free]
            if np.max(error, initial=0.0) <= self.max_force_error:
                return results
        self.std = 0.0
        return engine_results(labelled)

    def _last_labelled(self, atoms: Atoms) -> Atoms | None:
        """The structure that the engine labelled last, if it is bit-identical to this one."""
        last = self.model.images[-1] if self.model.images else None
        if last is None or not np.array_equal(last.numbers, atoms.numbers):
            return None
        same = np.array_equal(last.positions, atoms.positions)
        return last if same and np.array_equal(last.cell.array, atoms.cell.array) else None

    def _call(self, atoms: Atoms, call: Call) -> Atoms | None:
        """Call the engine and update the model; None if the engine failed."""
        self.since = 0
        labelled = self.engine(atoms.copy())
        self._schedule.reset()
        if labelled is None:
            self.calls.append(Call(call.reason, call.std, failed=True))
            return None
        if call.std is not None:
            call = self._compared(atoms, labelled, call)
        self.calls.append(call)
        self.model.learn(labelled)
        return labelled

    def _compared(self, atoms: Atoms, labelled: Atoms, call: Call) -> Call:
        """The error of the model and its σ, before the update."""
        free = free_mask(atoms)
        error = np.abs(self.results["forces"] - labelled.calc.results["forces"])[free]
        plain = exact_force_std(self._evaluated(atoms))[free]
        within, rms = np.mean(error <= 2 * self.factor * plain), np.sqrt(np.mean(error**2))
        self.scores.append(float(np.sqrt(np.mean((error / plain) ** 2))))
        return Call(call.reason, call.std, float(error.max()), float(rms), float(within))


def labeller(calculator: BaseCalculator) -> Label:
    """An ASE calculator as a function; its errors are passed on."""

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
    """The results of the engine, with zero uncertainty."""
    results = dict(atoms.calc.results, energy_uncertainty=0.0)
    results["forces_uncertainty"] = np.zeros((len(atoms), 3))
    return {**results, "free_energy": results["energy"]}
