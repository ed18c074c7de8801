"""Learning curves: errors and coverage against the number of training structures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from ase import Atoms

from nugget.calibration.leave_one_out import FEWEST
from nugget.display import Progress
from nugget.errors import NuggetError
from nugget.potential.potential import Potential
from nugget.potential.validation import components, residuals


@dataclass(frozen=True)
class CurvePoint:
    """Errors and coverage for one number of training structures; one entry per repeat."""

    structures: int
    energy_mae: tuple[float, ...]  # eV/atom
    force_mae: tuple[float, ...]  # eV/Å; empty without forces
    within: tuple[tuple[float, float], ...]  # shares of energies within 1σ and 2σ

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def cells(self) -> tuple[object, ...]:
        """The cells of a table row."""
        shares = np.mean(self.within, axis=0)
        return (
            self.structures,
            _spread(self.energy_mae, 1e3),
            _spread(self.force_mae, 1.0),
            f"{shares[0]:.0%}",
            f"{shares[1]:.0%}",
        )


def _spread(values: Sequence[float], factor: float) -> str:
    if not values:
        return "–"
    scaled = factor * np.array(values)
    return f"{scaled.mean():.3g} ({scaled.min():.3g} … {scaled.max():.3g})"


def training_sizes(total: int, test: float, wanted: Sequence[int] | None = None) -> list[int]:
    """Numbers of training structures: those given, or repeated halves of all but the test set."""
    if not 0.0 < test < 1.0:
        raise NuggetError(f"The share for testing is {test}; give one between 0 and 1.")
    most = total - max(round(test * total), 1)
    if most < FEWEST:
        raise NuggetError(f"{total} structures are too few for a learning curve.")
    if wanted is None:
        halves = [most // 2**k for k in range(5)]
        return sorted(n for n in halves if n >= FEWEST)
    for n in wanted:
        if not FEWEST <= n <= most:
            raise NuggetError(f"{n} training structures: give {FEWEST} to {most}.")
    return sorted(set(wanted))


def learning_curve(
    build: Callable[[Sequence[str], Sequence[Atoms]], Potential],
    images: Sequence[Atoms],
    sizes: Sequence[int],
    *,
    test: float = 0.25,
    repeats: int = 3,
    use_forces: bool | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[CurvePoint]:
    """Fit to random training sets of each size and compute the errors on a test set.

    `build(species, images)` returns a potential that is not fitted yet.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(images))
    held_out = max(round(test * len(images)), 1)
    test_set, pool = [images[i] for i in order[:held_out]], order[held_out:]
    species = sorted({symbol for atoms in images for symbol in set(atoms.symbols)})
    points: list[CurvePoint] = []
    for n in sizes:
        energy, force, within = [], [], []
        for repeat in range(repeats):
            train = [images[i] for i in rng.permutation(pool)[:n]]
            potential = build(species, train)
            potential.fit(train, use_forces, calibrate="loo", choose_noise=True)
            energies = residuals(potential, test_set)
            error = np.abs(energies.y_true - energies.y_pred)
            energy.append(float(error.mean()))
            shares = [float(np.mean(error <= k * energies.y_std)) for k in (1, 2)]
            within.append((shares[0], shares[1]))
            forces = None if use_forces is False else components(potential, test_set, "force")
            if forces is not None:
                force.append(float(np.mean(np.abs(forces.y_true - forces.y_pred))))
            if progress is not None:
                progress(len(points) * repeats + repeat + 1, len(sizes) * repeats)
        points.append(CurvePoint(n, tuple(energy), tuple(force), tuple(within)))
    return points
