"""The potential: descriptor, mean function and sparse Gaussian process for lists of Atoms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from ase import Atoms

from nugget.calibration.leave_one_out import (
    FEWEST,
    calibrate_leave_one_out,
    check_leave_one_out,
    check_number,
    posterior_level,
    similar_structures,
)
from nugget.calibration.metrics import Method
from nugget.descriptors.base import Descriptor, Environments
from nugget.display import Contents, Shown, counted
from nugget.errors import NuggetError
from nugget.gp.inducing import InducingRule, PivotedCholesky
from nugget.gp.kernels import RBF, Kernel
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty import FittedUncertainty, Posterior, Uncertainty
from nugget.gp.uncertainty.base import HasFloors, NeedsCalibration
from nugget.numerics.threads import one_blas_thread
from nugget.potential.calculator import NuggetCalculator
from nugget.potential.design import open_variance
from nugget.potential.fitted import FittedState, ModelParts, StoredModel
from nugget.potential.fitting import (
    Progress,
    extended_state,
    fit_state,
    fit_state_streamed,
    is_new_kind,
    optimise_likelihood,
    phases,
    with_label_rows,
    with_more_points,
)
from nugget.potential.leave_shells_out import FEWEST as SHELLS_FEWEST
from nugget.potential.leave_shells_out import amplitudes
from nugget.potential.mean_functions.base import MeanFunction, SpeciesEnergies, as_mean_function
from nugget.potential.mean_functions.zbl import ZBL
from nugget.potential.model_file import load_model, save_model
from nugget.potential.prediction import Outputs, Prediction, need_volume, predict_parts
from nugget.potential.residuals import StructureResidual, structure_residuals
from nugget.potential.surface import Surface
from nugget.potential.training import Noise, Training, TrainingData
from nugget.structures.batch import as_batch
from nugget.structures.picture import CHART, Line, chart, structure_picture

_EXPANSION = (0.92, 1.12)  # distances in the picture of a potential

# Mean functions of a potential with a training domain.
DEFAULT_MEAN = (SpeciesEnergies(), ZBL())


class Potential(Shown):
    """Sparse Gaussian-process potential with calibrated uncertainty.

    Parameters
    ----------
    descriptor : local environment descriptor, for example `SOAP`.
    kernel : covariance of two environments with the same central element.
    inducing : rule that selects the inducing points among the training environments.
    noise : σ_n, misfit of energies in eV/atom (variance σ_n² N for N atoms); or a `Noise` with the
        levels of energies, forces and stress.
    force_noise : σ_F, misfit of force components in eV/Å.
    uncertainty : `Posterior`, `LabelNoise` (ensemble) or `ProjectedProcess`.
    prior : mean function, subtracted from the labels; one, a list of several to add up, or None for
        species energies, with a short-range repulsion (`ZBL`) if there is a `domain`.
    seed : seed of all random choices (CUR, sampled members).
    domain : whether σ grows with the distance from the training domain (see `potential.domain`).
    """

    def __init__(
        self,
        descriptor: Descriptor,
        kernel: Kernel | None = None,
        inducing: InducingRule | None = None,
        noise: float | Noise = Noise.energy,
        force_noise: float = Noise.force,
        uncertainty: Uncertainty | None = None,
        prior: MeanFunction | Sequence[MeanFunction] | None = None,
        seed: int = 0,
        domain: bool = True,
    ) -> None:
        self.noise_levels = noise if isinstance(noise, Noise) else Noise(noise, force_noise)
        self.descriptor = descriptor
        self.kernel: Kernel = RBF() if kernel is None else kernel
        self.inducing: InducingRule = PivotedCholesky() if inducing is None else inducing
        self.uncertainty: Uncertainty = Posterior() if uncertainty is None else uncertainty
        self.domain = bool(domain)
        self.prior = as_mean_function(DEFAULT_MEAN if prior is None and domain else prior)
        self.seed = int(seed)
        self.rng = np.random.default_rng(self.seed)
        self.calibration: dict[str, Any] | None = None
        self.choices: dict[str, Any] | None = None  # settings that were chosen by data
        self.origin: dict[str, Any] = {}  # facts about the training set of a lean model
        self._state: FittedState | None = None

    @classmethod
    def from_parts(cls, parts: ModelParts) -> Potential:
        """A potential that is not fitted yet."""
        p = parts
        return cls(
            p.descriptor, p.kernel, p.inducing, p.noise, uncertainty=p.uncertainty,
            prior=p.mean_function, seed=p.seed, domain=p.domain,
        )  # fmt: skip

    @property
    def model_parts(self) -> ModelParts:
        """The present parts and settings."""
        return ModelParts(
            self.descriptor, self.kernel, self.inducing, self.uncertainty, self.prior,
            self.noise_levels, self.seed, self.domain,
        )  # fmt: skip

    @property
    def noise(self) -> float:
        """σ_n, misfit of energies in eV/atom."""
        return self.noise_levels.energy

    @noise.setter
    def noise(self, level: float) -> None:
        self.noise_levels = replace(self.noise_levels, energy=level)

    @property
    def force_noise(self) -> float:
        """σ_F, misfit of force components in eV/Å."""
        return self.noise_levels.force

    @force_noise.setter
    def force_noise(self, level: float) -> None:
        self.noise_levels = replace(self.noise_levels, force=level)

    def contents(self) -> Contents:
        return potential_contents(self)

    def fit(
        self,
        images: Sequence[Atoms],
        use_forces: bool | None = None,
        use_stress: bool = False,
        progress: Progress | None = None,
        calibrate: Literal["auto", "loo"] | None = "auto",
        choose_noise: bool = False,
        threads: int | None = None,
        stream: bool = False,
    ) -> Potential:
        """Fit to energies, and to forces where present.

        Parameters
        ----------
        images : structures with stored results.
        use_forces : None uses forces where present, True requires them, False ignores them.
        use_stress : whether to fit to stresses as well.
        progress : `progress(done, total)` is called for each structure; its method `phase`, if
            there is one, is called with the name of each phase.
        calibrate : "loo" calibrates the uncertainty on leave-one-out residuals; no validation set
            is needed. "auto" does so for a `Posterior` and five or more structures, and keeps the
            levels of other uncertainties as they are given.
        choose_noise : set the noise levels to those with the smallest leave-one-out errors.
        threads : cores to use (0: all; None: see `nugget.set_threads`). The result does not depend
            on it.
        stream : compute label rows in parts, for fits that exceed the memory. Not available with
            `calibrate`, `choose_noise` or sampled members, which need all rows.
        """
        data = TrainingData.read(images, use_forces, use_stress)
        return self.fit_data(
            data, progress=progress, calibrate=calibrate, choose_noise=choose_noise,
            threads=threads, stream=stream,
        )  # fmt: skip

    @one_blas_thread()
    def fit_data(
        self,
        data: TrainingData,
        *,
        progress: Progress | None = None,
        calibrate: Literal["auto", "loo"] | None = "auto",
        choose_noise: bool = False,
        choose_points: bool = False,
        threads: int | None = None,
        stream: bool = False,
    ) -> Potential:
        """`fit` to a training set whose labels, and perhaps features, are already available.

        `choose_points` adds inducing points while leave-one-out errors fall (see
        `potential.fitting`).
        """
        if calibrate not in (None, "auto", "loo"):
            raise NuggetError(f"calibrate is {calibrate!r}; choose 'auto', 'loo' or None.")
        if calibrate == "auto":
            needed = isinstance(self.uncertainty, NeedsCalibration)
            calibrate = "loo" if needed and len(data.batch) >= FEWEST and not stream else None
        if calibrate is not None:
            check_leave_one_out(self.uncertainty)
        self.rng = np.random.default_rng(self.seed)
        self.calibration = None
        if stream:
            if calibrate is not None or choose_noise:
                raise NuggetError("A streamed fit has no leave-one-out residuals: calibrate later.")
            self._state = fit_state_streamed(
                self.model_parts, data.training, self.rng, progress, threads
            )
            return self
        self._state, self.noise_levels = fit_state(
            self.model_parts, data, self.rng,
            choose_noise=choose_noise, choose_points=choose_points, progress=progress,
            threads=threads,
        )  # fmt: skip
        if choose_points:
            self.choices = {**(self.choices or {}), "points": len(self.fitted.inducing)}
        if choose_noise and len(data.batch) > 1:
            levels = {"noise": self.noise, "force_noise": self.force_noise}
            self.choices = {**(self.choices or {}), **levels}
        if calibrate is not None:
            phases(progress)("calibration")
            self.calibrate_leave_one_out(data.environments(self.descriptor))
        return self

    def calibrate_leave_one_out(self, environments: Environments | None = None) -> dict[str, Any]:
        """Calibrate the uncertainty on leave-one-out residuals; no refit.

        `environments` are the features of the training set, if they are available. Returns the
        record that becomes `calibration`.
        """
        state, env = self.fitted, environments
        check_number(len(state.training.batch))
        if env is None:
            env = self.descriptor.compute(state.training.batch)
        n_species = len(self.descriptor.species)
        groups = similar_structures(env.values, env.species, env.owner, n_species, self.seed)
        variance = None
        if state.uncertainty.uses_prior_variance:
            variance = open_variance(
                state.training.batch, env, state.kernel, state.regression, self.seed
            )
        uncertainty, record = calibrate_leave_one_out(
            state.regression, state.uncertainty, groups, self.seed, variance
        )
        self.set_uncertainty(uncertainty)
        self.calibration = record
        if state.domain is not None and len(state.training.batch) >= SHELLS_FEWEST:
            level = posterior_level(state.regression, uncertainty, groups)
            domain = state.domain.with_amplitudes(*amplitudes(state, level, env))
            self._state = replace(self.fitted, domain=domain)
        return record

    def leave_one_out(self, groups: Sequence[str] | None = None) -> list[StructureResidual]:
        """Errors of each training structure, predicted without its labels; no refit.

        `groups` are names of the structures' groups, for display. See `potential.residuals`.
        """
        return structure_residuals(with_label_rows(self.model_parts, self.fitted), groups)

    def without_domain(self) -> Potential:
        """The same potential, whose σ does not account for the training domain."""
        other = self.copy()
        other._state = self.fitted.inside
        return other

    def optimise(self, data: TrainingData) -> None:
        """Set kernel and noise to those of the largest marginal likelihood of the energies."""
        parts, choices = optimise_likelihood(self.model_parts, data)
        self.kernel, self.noise_levels = parts.kernel, parts.noise
        self.choices = {**(self.choices or {}), **choices}

    @one_blas_thread()
    def update(
        self, images: Sequence[Atoms], use_forces: bool | None = None,
        use_stress: bool | None = None,
    ) -> Potential:  # fmt: skip
        """Learn further structures at the cost of those alone; the mean function stays fixed.

        Forces and stress are used as in `fit`, unless given. Structures of a new kind get inducing
        points beyond the limit of the rule, and an uncertainty that was calibrated on leave-one-out
        residuals is calibrated again.
        """
        self._state = old = with_label_rows(self.model_parts, self.fitted)
        forces = old.training.use_forces if use_forces is None else use_forces
        stress = old.training.use_stress if use_stress is None else use_stress
        more, parts = Training.read(images, forces, stress), self.model_parts
        unlike = is_new_kind(old, more)
        if unlike:
            parts = with_more_points(parts, len(old.inducing))
        self._state = extended_state(parts, old, more, self.rng)
        method = (self.calibration or {}).get("method")
        if unlike and method == Method.LEAVE_ONE_OUT.value:
            self.calibrate_leave_one_out()
        return self

    def copy(self) -> Potential:
        """A potential that learns independently; the fitted state is shared, not copied."""
        other = copy(self)  # a state is never changed, only replaced
        other.rng = deepcopy(self.rng)
        return other

    @property
    def fitted(self) -> FittedState:
        """The fitted state; an error before `fit`."""
        if self._state is None:
            raise NuggetError("This potential has not been fitted: call fit(images) first.")
        return self._state

    @property
    def is_fitted(self) -> bool:
        return self._state is not None

    def set_regression(self, regression: SparseRegression) -> None:
        """Replace the regression by the same one with what its updates use."""
        self._state = replace(self.fitted, regression=regression)

    def set_uncertainty(self, uncertainty: FittedUncertainty) -> None:
        """Replace the fitted uncertainty, for example by a calibrated one; no refit."""
        self._state = replace(self.fitted, uncertainty=uncertainty)
        self.uncertainty = uncertainty.settings

    def predict(
        self,
        images: Sequence[Atoms] | Atoms,
        forces: bool = True,
        uncertainty: bool = True,
        uncertainty_gradient: bool = False,
        *,
        energies: bool = False,
        stress: bool = False,
        energies_uncertainty: bool = False,
        forces_uncertainty: bool = False,
        stress_uncertainty: bool = False,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Prediction:
        """Predict the requested quantities; structures of any kind may be mixed.

        `threads` is the number of cores to use (0: all; None: see `nugget.set_threads`).
        """
        batch = as_batch(images)
        if stress or stress_uncertainty:
            need_volume(batch)
        want = Outputs(
            forces, uncertainty, uncertainty_gradient, energies, stress,
            energies_uncertainty, forces_uncertainty, stress_uncertainty,
        )  # fmt: skip
        if stress_uncertainty:
            self._check_stress_levels()
        state = self.fitted
        return predict_parts(state, list(state.parts(batch)), want, progress, threads)

    @property
    def has_stress_levels(self) -> bool:
        """Whether σ of the stress was measured, or is not calibrated at all."""
        settings: Any = self.uncertainty
        if self.calibration is None or not isinstance(settings, HasFloors):
            return True
        levels = ("stress", "stress_floor") if "stress" in settings.floor_kinds else ()
        default: Any = type(settings)()
        return not levels or any(getattr(settings, n) != getattr(default, n) for n in levels)

    def _check_stress_levels(self) -> None:
        if not self.has_stress_levels:
            raise NuggetError(
                "σ of the stress was never measured, because this model was calibrated without "
                "stress labels: fit with stress, or calibrate on structures that have one."
            )

    def lcb(self, kappa: float, domain_penalty: float = 0.0) -> Surface:
        """The lower confidence bound E − κσ; call it with images for values and gradients.

        σ does not contain σ_out of the training domain. `domain_penalty` times σ_out is added to
        the energy instead, so that minima outside the domain are avoided (see `potential.surface`).
        """
        return Surface(self.fitted, kappa, domain_penalty=domain_penalty)

    def calculator(self, **options: Any) -> NuggetCalculator:
        """An ASE calculator of the mean energy."""
        return NuggetCalculator(self, **options)

    def save(self, path: str | Path, lean: bool = False) -> None:
        """Write to one file, atomically; a `lean` file predicts but cannot be updated."""
        model = StoredModel(
            self.model_parts, self.fitted, self.rng, self.calibration, self.choices, self.origin
        )
        save_model(model, path, lean)

    @classmethod
    def load(cls, path: str | Path, trust_code: bool = False) -> Potential:
        """Read a potential that `save` wrote; see `model_file.load_model` about `trust_code`."""
        model = load_model(path, trust_code)
        potential = cls.from_parts(model.parts)
        potential.rng, potential.calibration = model.rng, model.calibration
        potential.choices, potential.origin = model.choices, model.origin
        potential._state = model.state
        return potential


def potential_contents(potential: Potential) -> Contents:
    """Elements, training set, parts, and whether the uncertainty is calibrated."""
    parts = {
        name: _few_digits(repr(getattr(potential, name)))
        for name in ("descriptor", "kernel", "inducing", "uncertainty")
    }
    facts = {
        **parts,
        "mean function": _few_digits(repr(potential.prior)),
        "noise": f"{potential.noise:.3g} eV/atom, forces {potential.force_noise:.3g} eV/Å",
        "seed": str(potential.seed),
    }
    words = [" ".join(potential.descriptor.species), type(potential.descriptor).__name__]
    words.append(type(potential.uncertainty).__name__)
    if not potential.is_fitted:
        return Contents("Potential", [*words, "not fitted"], facts)
    state = potential.fitted
    training = state.training
    number = potential.origin["summary"]["structures"] if state.lean else len(training.batch)
    labels = "energies"
    if training.use_forces or training.has_forces.any():
        labels += ", forces"
    if training.use_stress:
        labels += ", stress"
    structures = counted(number, "structure")
    points = counted(len(state.inducing), "inducing point")
    calibration = potential.calibration or {}
    facts = {"fitted to": f"{structures} ({labels})", "inducing points": points, **facts}
    facts["calibration"] = str(calibration.get("method", "yes")) if calibration else "none"
    words = [*words, f"fitted to {structures} ({labels})", points]
    words.append("calibrated" if calibration else "not calibrated")
    words += ["lean"] if state.lean else []
    return Contents("Potential", words, facts, pictures=partial(_pictures, potential))


def _few_digits(text: str) -> str:
    """Long numbers in a text with four significant digits."""
    return re.sub(r"-?\d+\.\d{5,}(e-?\d+)?", lambda found: f"{float(found[0]):.4g}", text)


def _pictures(potential: Potential) -> list[str]:
    """The lowest training structure per atom, and its energy when it expands, with σ.

    Empty for lean models, and for mean functions that run an engine, which would take too long.
    """
    state = potential.fitted
    if state.lean or getattr(potential.prior, "runs_engine", False):
        return []
    training, batch = state.training, state.training.batch
    s = int(np.argmin(training.energy / batch.sizes))
    rows = slice(batch.offsets[s], batch.offsets[s + 1])
    numbers, positions = batch.numbers[rows], batch.positions[rows]
    lowest = Atoms(numbers, positions, cell=batch.cells[s], pbc=batch.pbc[s])
    scales = np.linspace(*_EXPANSION, 41)
    images = []
    for scale in scales:
        images.append(lowest.copy())
        images[-1].set_cell(scale * lowest.cell)
        images[-1].positions *= scale
    found = potential.predict(images, forces=False)
    std = found.energy_uncertainty
    lines = [
        Line(
            list(scales), list(found.energy / len(lowest)),
            None if std is None else list(std / len(lowest)),
        )
    ]  # fmt: skip
    label = "all distances over those of the structure"
    return [structure_picture(lowest), chart(lines, label, "energy ± σ, eV/atom", CHART)]
