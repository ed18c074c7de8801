"""Conformance checks for parts of other packages, in the manner of scikit-learn's check_estimator.

    from nugget.testing import check_kernel
    check_kernel(MyKernel())

Each check takes one instance, raises ConformanceError with a sentence that says what is wrong, and
returns nothing when all is well.
"""

from nugget import lazy_names

_HOME = {
    "ConformanceError": "nugget.testing._compare",
    "check_acquisition": "nugget.testing.acquisition",
    "check_descriptor": "nugget.testing.descriptor",
    "check_engine": "nugget.testing.engine",
    "check_generator": "nugget.testing.generator",
    "check_inducing": "nugget.testing.inducing",
    "check_kernel": "nugget.testing.kernel",
    "check_prior": "nugget.testing.prior",
    "check_uncertainty": "nugget.testing.uncertainty",
}

__all__ = sorted(_HOME)
__getattr__ = lazy_names(__name__, _HOME)
