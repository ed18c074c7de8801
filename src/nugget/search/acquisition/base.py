"""What an acquisition is."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from nugget._compiled.arrays import Floats
from nugget.potential.potential import Potential
from nugget.potential.surface import Surface


class Acquisition(Protocol):
    """A frozen dataclass of settings. A field `kappa` is set to `search.kappa`.

    Both methods are functions of their arguments alone, so that a search can be repeated.
    """

    name: ClassVar[str]
    requires_members: ClassVar[bool]  # needs an uncertainty with `has_members`

    def surface(
        self, potential: Potential, std_scale: float, rng: np.random.Generator, best: float
    ) -> Surface:
        """The surface that candidates relax on.

        `std_scale` is the factor of the online calibration on every standard deviation, `best` the
        lowest energy so far in eV.
        """

    def score(self, energy: Floats, std: Floats, best: float) -> Floats:
        """Scores (n,) of relaxed candidates; the lowest is evaluated. `std` is already scaled."""
