"""Length scale, amplitude and noise by the marginal likelihood of the energies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.gp.kernels.stationary import StationaryKernel
from nugget.gp.marginal import MarginalLikelihood
from nugget.potential.evaluate import environment_points
from nugget.potential.potential import Potential
from nugget.potential.training import Training

# Inducing points that take part: a likelihood is evaluated many times.
_POINTS = 300


def optimise(
    potential: Potential, images: Sequence[Atoms], *, use_forces: bool | None = None
) -> None:
    """Set the kernel's hyper-parameters and the noise to those of the largest marginal likelihood.

    Only energies take part. The noise of forces is scaled along with that of energies. Length
    scales are looked for within a factor of ten of the present one.
    """
    kernel = potential.kernel
    if not isinstance(kernel, StationaryKernel):
        raise NuggetError(
            "The marginal likelihood is there for kernels with one length scale; choose a preset "
            "with one range (quick, balanced) or give a cutoff."
        )
    training = Training.read(images, use_forces, False)
    prior = potential.prior.fit(training.batch, training.energy)
    y = training.energy - prior.evaluate(training.batch).totals(training.batch)
    points = environment_points(potential.descriptor.compute(training.batch))
    rng = np.random.default_rng(potential.seed)
    chosen = potential.inducing.select(points, kernel, rng)[:_POINTS]
    length = (0.1 * kernel.length_scale, 10.0 * kernel.length_scale)
    search = MarginalLikelihood(length_scale=length, noise=(1e-4, 1.0), restarts=1)
    found = search.optimise(
        kernel, potential.noise, points, y, points.x[chosen], points.group[chosen], rng
    )
    potential.force_noise *= found.noise / potential.noise
    potential.kernel, potential.noise = found.kernel, found.noise
    potential.choices = {
        **(potential.choices or {}),
        "log_marginal_likelihood": found.log_marginal_likelihood,
        "length_scale": getattr(found.kernel, "length_scale", None),
        "amplitude": found.kernel.amplitude,
        "noise": potential.noise,
        "force_noise": potential.force_noise,
    }
