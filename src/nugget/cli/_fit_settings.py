"""A potential from the options of `nugget fit`: a preset, with what was given in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nugget.errors import NuggetError

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.potential import Potential
    from nugget.potential.priors import Prior

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """Options as given; None leaves the choice to the preset, or to the data."""

    preset: str
    species: Sequence[str]
    cutoff: float | None = None
    n_max: int | None = None
    l_max: int | None = None
    sigma: float | None = None
    length_scale: float | None = None
    amplitude: float | None = None
    noise: float | None = None
    force_noise: float | None = None
    inducing: str = "pivoted"
    points: int | None = None
    tol: float | None = None
    priors: Sequence[str] = ("species",)
    seed: int = 0
    optimise: bool = False

    @property
    def noise_is_free(self) -> bool:
        """Whether the noise levels are left to the data."""
        return self.noise is None and self.force_noise is None and not self.optimise

    @property
    def own_descriptor(self) -> bool:
        """Whether the descriptor is spelt out, so that there is nothing to choose."""
        given = (self.cutoff, self.n_max, self.l_max, self.sigma, self.length_scale)
        return any(value is not None for value in given)


def make_potential(
    settings: Settings, images: list[Atoms], forces: bool | None, uncertainty: Any, tell: Tell
) -> Potential:
    """The potential, ready to be fitted."""
    from nugget.potential import presets

    s = settings
    if s.own_descriptor:
        potential = _spelt_out(s, images)
    elif s.preset == "auto":
        potential = presets.auto(
            s.species, images, use_forces=forces, seed=s.seed, single=s.optimise, tell=tell
        )
    else:
        potential = presets.PRESETS[s.preset](s.species, images)
    chosen = potential.choices
    potential = _finished(s, potential, uncertainty)
    potential.choices = {"preset": "own" if s.own_descriptor else s.preset, **(chosen or {})}
    if s.optimise:
        from nugget.potential.optimise import optimise

        tell("likelihood")
        optimise(potential, images, use_forces=forces)
    potential.noise = potential.noise if s.noise is None else s.noise
    potential.force_noise = potential.force_noise if s.force_noise is None else s.force_noise
    return potential


def _spelt_out(s: Settings, images: list[Atoms]) -> Potential:
    from nugget import RBF, SOAP, Potential
    from nugget.potential.presets import basis, length_scale

    n_max, l_max = basis(len(set(s.species)))
    soap = SOAP(
        tuple(s.species),
        5.0 if s.cutoff is None else s.cutoff,
        n_max if s.n_max is None else s.n_max,
        l_max if s.l_max is None else s.l_max,
        1.0 if s.sigma is None else s.sigma,
    )
    length = length_scale(soap, images) if s.length_scale is None else s.length_scale
    return Potential(soap, RBF(length, 100.0))


def _finished(s: Settings, potential: Potential, uncertainty: Any) -> Potential:
    """The same descriptor and kernel with the rest of the options."""
    from nugget import CUR, PivotedCholesky, Potential, Random

    rule: Any = potential.inducing
    if s.inducing != "pivoted":
        made = {"cur": CUR, "random": Random}[s.inducing]
        rule = made(1000 if s.points is None else s.points)
    elif s.own_descriptor or s.points is not None or s.tol is not None:
        old = rule if not s.own_descriptor else PivotedCholesky(1e-10, 800)
        points = old.max_points if s.points is None else s.points
        rule = PivotedCholesky(old.tol if s.tol is None else s.tol, points)
    kernel: Any = potential.kernel
    if s.amplitude is not None:
        if not hasattr(kernel, "length_scale"):
            raise NuggetError(
                "--amplitude is for one range: give --cutoff, or --preset quick or balanced."
            )
        kernel = replace(kernel, amplitude=s.amplitude)
    return Potential(
        potential.descriptor, kernel, rule, potential.noise, potential.force_noise,
        uncertainty, priors(s.priors), s.seed,
    )  # fmt: skip


def priors(names: Sequence[str]) -> list[Prior]:
    """Mean functions by their names on the command line."""
    from nugget.evaluation.engines import get_engine
    from nugget.potential.priors import CalculatorPrior, Repulsion, SpeciesEnergies

    made: list[Prior] = []
    for name in names:
        if name == "species":
            made.append(SpeciesEnergies())
        elif name == "repulsion":
            made.append(Repulsion())
        else:
            get_engine(name)  # a name that does not exist is refused here
            made.append(CalculatorPrior(name))
    return made
