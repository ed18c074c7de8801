"""How far a search trusts its predictions: factors on σ that fit the system by themselves.

There are two. `bold` is what candidates follow, when they relax on E − κσ and are ranked: it comes
from the errors of the last 50 predictions and changes slowly. Where it changes fast, or is as large
as early errors are, searches leave the structures that are worth an evaluation (Au10 took two to
three times as many).

The other makes the error bar that is shown and recorded, √((honest·σ)² + promise²).

- `honest` begins with how strongly the atoms of the first structures pull each other, and follows
  the errors of the last 20 predictions.
- `promise` is how far below the lowest known energy a prediction lies. Early models fall into
  holes: they follow the forces of bad structures much farther than these reach (with five
  structures, Si10 is promised 28 eV below the lowest, in truth it is 12; H6O3 440 eV). So what is
  promised beyond anything seen is doubted by as much as it promises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nugget.calibration import OnlineScale
from nugget.gp.labels import FORCE
from nugget.potential.potential import Potential

_FOLLOW = OnlineScale()
# Not robust: surprises are what an error bar is for. Huber's scale left Cu2Au4 in a cell at 2.4.
_HONEST = OnlineScale(window=20, prior_weight=5.0, bounds=(0.05, 50.0), robust=False)


@dataclass(frozen=True)
class ErrorBars:
    """Immutable: `begun` and `met` return the next state."""

    calibrate: bool
    crystal: bool = False  # crystals differ in size: there the bold factor is shown
    follow: OnlineScale = _FOLLOW
    online: OnlineScale = _HONEST

    def begun(self, potential: Potential, usual_force: float) -> ErrorBars:
        """With the honest factor that the first model suggests.

        Noise levels in eV suit atoms that pull each other with 2 eV/Å in structures that nobody has
        relaxed (gold). The rms force that the mean function leaves on the first structures says how
        a system compares: 12 eV/Å in Si10, whose first predictions are six times as wrong.
        """
        regression = potential.fitted.regression
        forces = regression.y[regression.kind == FORCE]
        if not usual_force or not forces.size:
            return self
        low, high = self.online.bounds
        rms = float(np.sqrt(3.0 * np.mean(forces**2)))
        start = min(max(rms / usual_force, low), high)
        return replace(self, online=replace(self.online, start=start))

    def met(self, predicted: float, std: float, energy: float, best: float) -> ErrorBars:
        """After one more prediction met its outcome; `best` was the lowest energy before it."""
        doubted = std * self.shown(predicted, std, best) / self.scale
        return replace(
            self,
            follow=self.follow.update(predicted, std, energy),
            online=self.online.update(predicted, doubted, energy),
        )

    @property
    def bold(self) -> float:
        """The factor on σ that candidates follow."""
        return self.follow.scale if self.calibrate else 1.0

    @property
    def wary(self) -> float:
        """The factor on σ of what is unlike the known structures.

        Errors within a funnel that was looked at many times do not make the unknown better known.
        """
        return max(1.0, self.bold)

    @property
    def scale(self) -> float:
        """The factor on σ of what promises nothing."""
        return self.bold if self.crystal or not self.calibrate else self.online.scale

    def shown(self, predicted: float, std: float, best: float) -> float:
        """The factor that turns the model's σ into the error bar that is shown."""
        if self.crystal or not (self.calibrate and std > 0 and np.isfinite(best)):
            return self.scale
        return float(np.hypot(self.scale, max(best - predicted, 0.0) / std))
