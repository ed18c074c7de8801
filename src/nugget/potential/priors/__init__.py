"""Mean functions: what is believed before any data."""

from nugget.potential.priors.base import (
    FixedPrior,
    Prior,
    PriorValues,
    SumPrior,
    as_prior,
    prior_from_settings,
    prior_settings,
)
from nugget.potential.priors.calculator import CalculatorPrior
from nugget.potential.priors.model import ModelPrior
from nugget.potential.priors.pair_well import PairWell
from nugget.potential.priors.repulsion import Repulsion
from nugget.potential.priors.species import SpeciesEnergies

__all__ = [
    "CalculatorPrior",
    "FixedPrior",
    "ModelPrior",
    "PairWell",
    "Prior",
    "PriorValues",
    "Repulsion",
    "SpeciesEnergies",
    "SumPrior",
    "as_prior",
    "prior_from_settings",
    "prior_settings",
]
