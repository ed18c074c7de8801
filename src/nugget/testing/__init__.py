"""Conformance checks for parts of other packages, in the manner of scikit-learn's check_estimator.

    from nugget.testing import check_kernel
    check_kernel(MyKernel())

Each check takes one instance, raises ConformanceError with a sentence that says what is wrong, and
returns nothing when all is well.
"""

from nugget import lazy_names

_KINDS = "acquisition descriptor engine generator inducing kernel prior uncertainty"
_HOMES = {f"nugget.testing.{kind}": f"check_{kind}" for kind in _KINDS.split()}
__all__, __getattr__ = lazy_names(
    __name__, {"nugget.testing._compare": "ConformanceError", **_HOMES}
)
