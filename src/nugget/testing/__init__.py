"""Conformance checks for parts of other packages, in the manner of scikit-learn's check_estimator.

    from nugget.testing import check_kernel
    check_kernel(MyKernel())

Each check takes one instance, raises ConformanceError with a sentence that says what is wrong, and
returns nothing when all is well.
"""

from __future__ import annotations

from nugget import lazy_names

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "nugget.testing.compare": "ConformanceError",
        "nugget.testing.gp_checks": "check_inducing check_kernel check_uncertainty",
        "nugget.testing.atoms_checks": "check_acquisition check_descriptor check_engine "
        "check_generator check_prior",
    },
)
