"""The potential: a descriptor, a prior and a sparse Gaussian process, for lists of Atoms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget._compiled.threads import one_blas_thread
from nugget.descriptors.base import Descriptor
from nugget.errors import NuggetError
from nugget.gp.inducing import InducingRule, PivotedCholesky
from nugget.gp.kernels import RBF, Inducing, Kernel
from nugget.gp.noise_search import with_best_noise
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty import FittedUncertainty, LabelNoise, Posterior, Uncertainty
from nugget.potential.design import grown, label_rows
from nugget.potential.evaluate import environment_points
from nugget.potential.prediction import Outputs, Prediction, need_volume, predict_parts
from nugget.potential.priors import Prior, as_prior
from nugget.potential.shown import potential_contents
from nugget.potential.streaming import fit_in_pieces
from nugget.potential.training import Training
from nugget.structures.batch import Batch, as_batch
from nugget.structures.shown import Contents, Shown

if TYPE_CHECKING:
    from nugget.calculators import NuggetCalculator
    from nugget.potential.surface import Surface

Progress = Callable[[int, int], None]

# Kernel elements of one part: enough to hide Python's share, few enough for the cache.
_CHUNK = 2**19


@dataclass(frozen=True, eq=False)
class Fit:
    """Everything that fitting finds out; enough to predict and to go on learning."""

    prior: Prior
    inducing: Inducing
    regression: SparseRegression
    uncertainty: FittedUncertainty
    training: Training
    lean: bool = False  # read from a file that keeps what predictions need, and nothing else


class Potential(Shown):
    """Sparse Gaussian-process potential with calibrated uncertainty.

    Parameters
    ----------
    descriptor : what is known of an atom's surroundings, `SOAP` for instance.
    kernel : covariance of two environments with the same central element.
    inducing : rule that picks the environments which carry the model.
    noise : σ_n, misfit of energies in eV/atom (variance σ_n² N for N atoms).
    force_noise : σ_F, misfit of force components in eV/Å.
    uncertainty : `LabelNoise` (committee) or `ProjectedProcess` (closed form).
    prior : mean function, subtracted before learning; one, several, or None for species energies.
    seed : of all random choices (CUR, sampled members).
    """

    def __init__(
        self,
        descriptor: Descriptor,
        kernel: Kernel | None = None,
        inducing: InducingRule | None = None,
        noise: float = 0.01,
        force_noise: float = 0.1,
        uncertainty: Uncertainty | None = None,
        prior: Prior | Sequence[Prior] | None = None,
        seed: int = 0,
    ) -> None:
        for name, value in (("noise", noise), ("force_noise", force_noise)):
            if not (np.isfinite(value) and value > 0):
                raise NuggetError(f"Potential {name} is {value}; it must be a positive number.")
        self.descriptor = descriptor
        self.kernel: Kernel = RBF() if kernel is None else kernel
        self.inducing: InducingRule = PivotedCholesky() if inducing is None else inducing
        self.noise = float(noise)
        self.force_noise = float(force_noise)
        self.uncertainty: Uncertainty = LabelNoise() if uncertainty is None else uncertainty
        self.prior = as_prior(prior)
        self.seed = int(seed)
        self.rng = np.random.default_rng(self.seed)
        self.calibration: dict[str, Any] | None = None
        self.choices: dict[str, Any] | None = None  # what a preset chose by data, for the file
        self.origin: dict[str, Any] = {}  # of a lean file: what is known of its training set
        self._fit: Fit | None = None

    def contents(self) -> Contents:
        return potential_contents(self)

    @one_blas_thread()
    def fit(
        self,
        images: Sequence[Atoms],
        use_forces: bool | None = None,
        use_stress: bool = False,
        progress: Progress | None = None,
        calibrate: Literal["loo"] | None = None,
        choose_noise: bool = False,
        threads: int | None = None,
        stream: bool = False,
    ) -> Potential:
        """Learn from energies, and from forces where present (`use_forces=False`: energies only).

        `use_forces=True` insists on them. `progress(done, total)` is called while rows are made; if
        it has a method `phase`, that is called with the name of each phase. With `calibrate="loo"`
        the error bars are those of a `Posterior`, made honest by what the model says about
        structures that are left out; no validation set is needed. With `choose_noise` the noise
        levels become those with the smallest errors on such structures. `threads` is the number of
        cores to use (0: all; None: as `nugget.set_threads` says); it does not change the result.
        `stream` makes and drops label rows piece by piece, for fits larger than the memory; what
        needs the rows of all labels (`calibrate`, `choose_noise`, sampled members) is refused.
        """
        if calibrate not in (None, "loo"):
            raise NuggetError(f"calibrate is {calibrate!r}; choose 'loo' or None.")
        if calibrate is not None and not isinstance(self.uncertainty, Posterior):
            self.uncertainty = Posterior()
        phase = getattr(progress, "phase", lambda name: None)
        self.rng = np.random.default_rng(self.seed)
        training = Training.read(images, use_forces, use_stress)
        if stream:
            if calibrate is not None or choose_noise:
                raise NuggetError("A streamed fit cannot leave structures out: calibrate later.")
            self._fit, self.calibration = fit_in_pieces(self, training, progress, threads), None
            return self
        prior = self.prior.fit(training.batch, training.energy)
        phase("descriptors")
        env = self.descriptor.compute(training.batch)
        points = environment_points(env)
        phase("inducing points")
        chosen = self.inducing.select(points, self.kernel, self.rng)
        inducing = self.kernel.inducing(points.x[chosen], points.group[chosen])
        phase("kernel rows")
        labels = label_rows(
            training, env, inducing, prior, self.noise, self.force_noise, progress, threads
        )
        phase("linear algebra")
        regression = SparseRegression.fit(inducing.gram, labels, threads)
        if choose_noise and len(training.batch) > 1:
            phase("noise levels")
            own = np.random.default_rng(self.seed)
            best, regression = with_best_noise(regression, inducing.gram, labels, own)
            self.noise, self.force_noise = self.noise * best.energy, self.force_noise * best.force
            found = {"noise": self.noise, "force_noise": self.force_noise}
            self.choices = {**(self.choices or {}), **found}
        self.calibration = None
        phase("uncertainty")
        fitted = self.uncertainty.fit(
            regression, self.rng, lambda: inducing.matrix(env.values, env.species), self.noise
        )
        self._fit = Fit(prior, inducing, regression, fitted, training)
        if calibrate is not None:
            phase("calibration")
            from nugget.calibration.left_out import calibrate_left_out

            calibrate_left_out(self)
        return self

    @one_blas_thread()
    def update(
        self, images: Sequence[Atoms], use_forces: bool | None = None,
        use_stress: bool | None = None,
    ) -> Potential:  # fmt: skip
        """Learn from further structures at the cost of those alone; the prior stays as it is.

        Forces and stress are used as they were for `fit`, unless said otherwise.
        """
        old = self._able_to_learn()
        forces = old.training.use_forces if use_forces is None else use_forces
        stress = old.training.use_stress if use_stress is None else use_stress
        more = Training.read(images, forces, stress)
        env = self.descriptor.compute(more.batch)
        points = environment_points(env)
        existing = (old.inducing.z, old.inducing.group)
        chosen = self.inducing.select(points, self.kernel, self.rng, existing)
        inducing, regression = old.inducing, old.regression
        if len(chosen):
            inducing, regression = grown(self, old, points.x[chosen], points.group[chosen])
        labels = label_rows(more, env, inducing, old.prior, self.noise, self.force_noise)
        regression = regression.add_rows(labels)
        training = old.training.append(more)

        def environments() -> Floats:
            every = self.descriptor.compute(training.batch)
            return inducing.matrix(every.values, every.species)

        fitted = self.uncertainty.fit(regression, self.rng, environments, self.noise)
        fitted = fitted.calibrated_as(old.uncertainty)
        self._fit = Fit(old.prior, inducing, regression, fitted, training)
        return self

    def _able_to_learn(self) -> Fit:
        """The fit with its label rows: a model file keeps structures, but not their rows."""
        old = self.fitted
        if old.lean:
            raise NuggetError("A lean model predicts, but cannot learn on; update the full model.")
        if not old.regression.has_rows:
            env, noise = self.descriptor.compute(old.training.batch), (self.noise, self.force_noise)
            labels = label_rows(old.training, env, old.inducing, old.prior, *noise)
            old = self._fit = replace(old, regression=old.regression.with_rows(labels))
        return old

    def copy(self) -> Potential:
        """A potential that learns on its own; what both know already is shared, not copied."""
        other = copy(self)  # a fit is never changed, only replaced
        other.rng = deepcopy(self.rng)
        return other

    @property
    def fitted(self) -> Fit:
        """What fitting found; an error if there was none."""
        if self._fit is None:
            raise NuggetError("This potential has not been fitted: call fit(images) first.")
        return self._fit

    @property
    def is_fitted(self) -> bool:
        return self._fit is not None

    def set_uncertainty(self, uncertainty: FittedUncertainty) -> None:
        """Use other noise levels or another scale (a calibration found them); no refit."""
        self._fit = replace(self.fitted, uncertainty=uncertainty)
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
        """Predict exactly what is asked for; structures of any kind together.

        `threads` is the number of cores to use (0: all; None: as `nugget.set_threads` says).
        """
        batch = as_batch(images)
        if stress or stress_uncertainty:
            need_volume(batch)
        want = Outputs(
            forces, uncertainty, uncertainty_gradient, energies, stress,
            energies_uncertainty, forces_uncertainty, stress_uncertainty,
        )  # fmt: skip
        return predict_parts(self, list(self.parts(batch)), want, progress, threads)

    def parts(self, batch: Batch) -> Iterator[Batch]:
        """The batch in pieces whose kernel rows fit into the cache."""
        if len(batch) == 1:
            return iter((batch,))
        return (batch.part(*ends) for ends in batch.slices(self.rows_at_a_time))

    @property
    def rows_at_a_time(self) -> int:
        """Atoms whose kernel rows fit into the cache together."""
        return max(_CHUNK // max(len(self.fitted.inducing), 1), 1)

    def lcb(self, kappa: float) -> Surface:
        """The lower confidence bound E − κσ: call it with images for values and gradients."""
        from nugget.potential.surface import Surface

        return Surface(self, kappa)

    def calculator(self, **options: Any) -> NuggetCalculator:
        """An ASE calculator of the mean surface."""
        from nugget.calculators import NuggetCalculator

        return NuggetCalculator(self, **options)

    def save(self, path: str | Path, lean: bool = False) -> None:
        """Write to one file, atomically; a `lean` file predicts, but cannot learn on."""
        from nugget.modelfile.file import save

        save(self, path, lean)

    @staticmethod
    def load(path: str | Path) -> Potential:
        """Read a potential that `save` wrote."""
        from nugget.modelfile.file import load

        return load(path)
