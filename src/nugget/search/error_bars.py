"""The calibration factor on σ that a search learns from its own prediction errors.

One factor multiplies σ wherever a search uses it: where candidates relax on E − κσ, where they are
ranked, and in the error bar that is displayed and recorded, √((scale·σ)² + predicted_gain²). The
factor starts from the forces on the first structures and follows the errors of the last 20
predictions. It is robust (Huber's scale), because a factor as large as the largest errors would
lead candidates away from the structures that deserve an evaluation.

`predicted_gain` is how far below the lowest energy a prediction lies. Models of few structures
extrapolate the forces of poor structures too far: with five structures, Si10 is predicted 28 eV
below the lowest energy (true: 12 eV), H6O3 440 eV. A predicted improvement is therefore assigned an
uncertainty as large as itself.

Searches of earlier versions (`separate`) had a second, slower factor for the acquisition, and
crystals displayed that one.
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

_SCALE = OnlineScale(window=20, prior_weight=3.0, bounds=(0.05, 200.0))

# The two factors of earlier versions.
_ACQUISITION_SCALE = OnlineScale()
_DISPLAYED_SCALE = OnlineScale(window=20, prior_weight=5.0, bounds=(0.05, 50.0), robust=False)


@dataclass(frozen=True)
class ErrorBars:
    """Immutable; `initialised` and `updated` return the next state."""

    calibrate: bool
    online: OnlineScale = _SCALE
    separate: OnlineScale | None = None  # the acquisition's factor, in earlier versions
    crystal: bool = False  # of an earlier version: only the acquisition's factor is used

    @classmethod
    def of_earlier_versions(cls, calibrate: bool, crystal: bool) -> ErrorBars:
        """The two factors of searches that name no rules."""
        return cls(calibrate, _DISPLAYED_SCALE, _ACQUISITION_SCALE, crystal)

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

    def updated(self, predicted: float, std: float, energy: float, best: float) -> ErrorBars:
        """After one more prediction was compared with its result; `best` is from before it."""
        widened = std * self.displayed(predicted, std, best) / self.scale
        separate = self.separate and self.separate.update(predicted, std, energy)
        online = self.online.update(predicted, widened, energy)
        return replace(self, online=online, separate=separate)

    @property
    def acquisition_scale(self) -> float:
        """The factor on σ with which candidates are relaxed and ranked."""
        factor = self.online if self.separate is None else self.separate
        return factor.scale if self.calibrate else 1.0

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
