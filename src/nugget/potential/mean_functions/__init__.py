"""Mean functions: the part of the energy that the Gaussian process does not have to learn."""

from __future__ import annotations

from nugget import lazy_names

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "nugget.potential.mean_functions.base": "FixedMeanFunction MeanFunction MeanValues "
        "SpeciesEnergies SumMeanFunction as_mean_function FixedPrior Prior PriorValues SumPrior",
        "nugget.potential.mean_functions.bond_order": "BondOrder",
        "nugget.potential.mean_functions.foundation": "FoundationMean engine_mean",
        "nugget.potential.mean_functions.from_models": "CalculatorMean CalculatorPrior ModelMean "
        "ModelPrior",
        "nugget.potential.mean_functions.pair_terms": "PairWell Repulsion",
        "nugget.potential.mean_functions.second_moment": "SecondMoment",
        "nugget.potential.mean_functions.zbl": "ZBL",
    },
)
