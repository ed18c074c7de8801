"""Calibration factors on σ that a search learns from its own prediction errors.

There are two factors.

- `acquisition_scale` is used when candidates relax on E − κσ and are ranked. It follows the errors
  of the last 50 predictions and changes slowly. With a factor that changes quickly, or that is as
  large as the first errors, searches leave the structures that deserve an evaluation (Au10 took
  two to three times as many).
- `scale` belongs to the error bar that is displayed and recorded,
  √((scale·σ)² + predicted_gain²). It starts from the forces on the first structures and follows
  the errors of the last 20 predictions. Here σ contains the projected process as well
  (`surrogate.with_projected`), which knows structures far from all inducing points.

The acquisition does not use the calibrated error bar. With it, a search for Ti4O8 (seed 92101, 40
evaluations) proposed structures for which the engine failed 13 times, and ended at −1160.6 instead
of −1167.5 eV: bars of 50 eV are right at first, but structures are better chosen by smaller ones.

`predicted_gain` is how far below the lowest energy a prediction lies. Models of few structures
extrapolate the forces of poor structures too far: with five structures, Si10 is predicted 28 eV
below the lowest energy (true: 12 eV), H6O3 440 eV. A predicted improvement is therefore assigned an
uncertainty as large as itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nugget.calibration import OnlineScale
from nugget.gp.labels import FORCE
from nugget.potential.potential import Potential

#: Reference rms force, eV/Å. The default noise levels suit systems whose unrelaxed structures have
#: forces of this size (gold). The initial σ scales with rms(F)/this; Si10 has 12 eV/Å, and its
#: first predictions are six times as wrong.
REFERENCE_RMS_FORCE = 2.0

_ACQUISITION_SCALE = OnlineScale()

# Not robust, because an error bar must account for large errors. With Huber's scale the rms of
# error over error bar stayed at 2.4 for Cu2Au4 in a cell.
_DISPLAYED_SCALE = OnlineScale(window=20, prior_weight=5.0, bounds=(0.05, 50.0), robust=False)


@dataclass(frozen=True)
class ErrorBars:
    """Immutable; `initialised` and `updated` return the next state."""

    calibrate: bool
    crystal: bool = False  # of an earlier version: `scale` is the acquisition's factor
    follow: OnlineScale = _ACQUISITION_SCALE
    online: OnlineScale = _DISPLAYED_SCALE

    def initialised(self, potential: Potential) -> ErrorBars:
        """Start `scale` from the rms force on the first structures, less the mean function's."""
        regression = potential.fitted.regression
        forces = regression.y[regression.kind == FORCE]
        if self.crystal or not forces.size:
            return self
        low, high = self.online.bounds
        rms = float(np.sqrt(3.0 * np.mean(forces**2)))
        start = min(max(rms / REFERENCE_RMS_FORCE, low), high)
        return replace(self, online=replace(self.online, start=start))

    def updated(
        self, predicted: float, std: float, energy: float, best: float, bar: float | None = None
    ) -> ErrorBars:
        """After one more prediction was compared with its result; `best` is from before it.

        `bar` is the error bar that was displayed; None: that of `std` alone.
        """
        bar = std * self.displayed(predicted, std, best) if bar is None else bar
        widened = bar / self.scale
        return replace(
            self,
            follow=self.follow.update(predicted, std, energy),
            online=self.online.update(predicted, widened, energy),
        )

    @property
    def acquisition_scale(self) -> float:
        """The factor on σ with which candidates are relaxed and ranked."""
        return self.follow.scale if self.calibrate else 1.0

    @property
    def exploration_scale(self) -> float:
        """The factor on σ for exploring, at least 1.

        Small errors within a well-sampled funnel must not reduce σ elsewhere.
        """
        return max(1.0, self.acquisition_scale)

    @property
    def scale(self) -> float:
        """The factor on σ of a prediction that is not below the best energy."""
        if self.crystal or not self.calibrate:
            return self.acquisition_scale
        return self.online.scale

    def displayed(self, predicted: float, std: float, best: float) -> float:
        """The factor that turns the model's σ into the displayed error bar."""
        if self.crystal or not (self.calibrate and std > 0 and np.isfinite(best)):
            return self.scale
        predicted_gain = max(best - predicted, 0.0)
        return float(np.hypot(self.scale, predicted_gain / std))
