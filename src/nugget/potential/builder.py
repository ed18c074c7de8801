"""The builder of potentials: one settings object for presets, commands, searches and dynamics.

A part is given by its registered name with options, or as an object. Defaults of options are those
of the part's class, so that each default is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nugget import registry
from nugget.descriptors.base import Descriptor
from nugget.gp.inducing import InducingRule
from nugget.gp.kernels import Kernel
from nugget.gp.uncertainty import Uncertainty
from nugget.potential.mean_functions.base import MeanFunction
from nugget.potential.potential import Potential
from nugget.potential.training import Noise

# Short names of parts on the command line and in settings files.
_SHORT = {
    ("inducing", "pivoted"): "PivotedCholesky",
    ("uncertainty", "projected"): "ProjectedProcess",
}


@dataclass(frozen=True)
class PartSettings:
    """A part by its registered name, with options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self, kind: str, **more: Any) -> Any:
        """The part; an unknown name or option is an error."""
        name = registered_name(kind, self.name)
        return registry.make(kind, name, **{**more, **self.options})


_SOAP, _RBF, _PIVOTED = map(PartSettings, ("SOAP", "RBF", "PivotedCholesky"))

_POSTERIOR = PartSettings("Posterior")


@dataclass(frozen=True)
class ModelSettings:
    """Everything that defines a potential before it is fitted."""

    descriptor: PartSettings | Descriptor = _SOAP
    kernel: PartSettings | Kernel = _RBF
    inducing: PartSettings | InducingRule = _PIVOTED
    uncertainty: PartSettings | Uncertainty = _POSTERIOR
    mean_functions: Sequence[PartSettings | MeanFunction] = ()  # none: those of `Potential`
    noise: Noise = field(default_factory=Noise)
    seed: int = 0
    domain: bool = True

    def build(self, species: Sequence[str] = ()) -> Potential:
        """The potential, not yet fitted; `species` go to a descriptor that is given by name."""
        descriptor: Any = self.descriptor
        if isinstance(descriptor, PartSettings):
            descriptor = descriptor.build("descriptor", species=tuple(species))
        mean_functions = [_part("prior", one) for one in self.mean_functions]
        return Potential(
            descriptor,
            _part("kernel", self.kernel),
            _part("inducing", self.inducing),
            self.noise,
            uncertainty=_part("uncertainty", self.uncertainty),
            prior=mean_functions[0] if len(mean_functions) == 1 else mean_functions or None,
            seed=self.seed,
            domain=self.domain,
        )


def _part(kind: str, part: Any) -> Any:
    return part.build(kind) if isinstance(part, PartSettings) else part


def registered_name(kind: str, name: str) -> str:
    """The registered name; upper case and hyphens do not matter, as in label-noise."""
    name = _SHORT.get((kind, name), name)
    names = registry.names(kind)
    if name in names:
        return name
    plain = {_plain(one): one for one in names}
    return plain.get(_plain(name), name)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
