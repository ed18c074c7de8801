"""ASE calculators."""

from nugget.calculators.surfaces import (
    LCBCalculator,
    NuggetCalculator,
    UncertaintyWarning,
    attach_uncertainties,
)

__all__ = ["LCBCalculator", "NuggetCalculator", "UncertaintyWarning", "attach_uncertainties"]
